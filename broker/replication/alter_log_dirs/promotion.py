"""Decisions about future logs: the next step of a move, and what a start does with logs of an earlier process.

The controller is informed first, so that it never takes a live replica for lost or a lost one for live; it has accepted
once this node's image shows it. Only then is the current log replaced, in one step.

Source: ``ReplicaAlterLogDirsThread.scala``, ``LogManager.recoverAbandonedFutureLogs`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

from enum import Enum

ASSIGNMENT_RETRY_MS = 5000
"""Interval after which an assignment request is repeated: the controller may have changed, or lost the request."""


class PromotionStep(Enum):
    """Next step of a move of a replica to another log directory."""

    COPY = "copy"
    """Copy a chunk: the future log lacks more than can be copied in the step that replaces the current log."""
    REQUEST_ASSIGNMENT = "ask"
    """Send the assignment of the directory to the controller: the future log is nearly complete."""
    WAIT = "wait"
    """Wait until the metadata image has the requested assignment."""
    SWAP = "swap"
    """Replace the current log by the future log."""


def next_promotion_step(*, near: bool, is_assigned: bool, since_assignment_ms: float) -> PromotionStep:
    """Return the next step of a move by its progress and the metadata image.

    Args:
        near: True if the future log lacks at most one chunk.
        is_assigned: True if the image assigns the replica to the future log's directory.
        since_assignment_ms: time since the assignment was requested from the controller; infinite for never.
    """
    if not near:
        return PromotionStep.COPY
    if is_assigned:
        return PromotionStep.SWAP
    return PromotionStep.WAIT if since_assignment_ms < ASSIGNMENT_RETRY_MS else PromotionStep.REQUEST_ASSIGNMENT


class FutureLogDecision(Enum):
    """Decision at startup about a future log of an earlier process."""

    PROMOTE = "counts"
    """The future log becomes the partition's current log."""
    RESUME = "goes on"
    """The future log is kept, and its copy continues."""
    KEEP = "stays"
    """The future log is kept unused: the current log is not available, and a later start may decide."""


def decide_future_log(
    *, is_assigned: bool, newness: tuple[int, int], current: tuple[int, int] | None, only_here: bool = False
) -> FutureLogDecision:
    """Decide whether a future log of an earlier process is promoted, its copy is resumed, or it is kept unused.

    The controller is informed before the replacement, and later records are in the future log only: if it is informed,
    and the future log has all records of the current one, the future log is promoted. Kafka then promotes it in any
    case, also if the current log returns with its directory: records written between would be lost.

    Args:
        is_assigned: True if the image assigns the replica to the directory of the future log.
        newness: last leader epoch and log end offset of the future log.
        current: last leader epoch and log end offset of the current log; None without one.
        only_here: True if a log directory has failed, and no other replica is in the ISR; no effect with a current log.
    """
    if is_assigned and not (only_here if current is None else newness < current):
        return FutureLogDecision.PROMOTE
    return FutureLogDecision.KEEP if current is None else FutureLogDecision.RESUME
