"""Steps of the promotion of a future log, as one decision table.

The controller is informed first, so that it never takes a live replica for lost or a lost one for live; it has accepted
once this node's image shows it. Only then is the current log replaced, in one step.

Source: ``ReplicaAlterLogDirsThread.scala``, ``LogManager.recoverAbandonedFutureLogs`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

from enum import Enum

ASSIGNMENT_RETRY_MS = 5000
"""The controller may have forgotten, or another one have come."""


class PromotionStep(Enum):
    """Next step."""

    COPY = "copy"
    """The copy lacks more than can be added in the step in which they change places."""
    REQUEST_ASSIGNMENT = "ask"
    """Nearly complete: send the assignment to the controller."""
    WAIT = "wait"
    """Wait until the image has the assignment."""
    SWAP = "swap"
    """Replace the current log."""


def next_promotion_step(*, near: bool, is_assigned: bool, asked_ago_ms: float) -> PromotionStep:
    """``near``: the copy lacks a piece at most. ``is_assigned``: the image has the replica in the copy's directory.

    ``asked_ago_ms``: how long ago the controller was asked; infinite for never.
    """
    if not near:
        return PromotionStep.COPY
    if is_assigned:
        return PromotionStep.SWAP
    return PromotionStep.WAIT if asked_ago_ms < ASSIGNMENT_RETRY_MS else PromotionStep.REQUEST_ASSIGNMENT


class FutureLogDecision(Enum):
    """Decision about a future log of an earlier process."""

    PROMOTE = "counts"
    """Becomes the partition's log."""
    RESUME = "goes on"
    """Copying continues."""
    KEEP = "stays"
    """State of the current log is unknown: a later start may decide."""


def decide_future_log(
    *, is_assigned: bool, newness: tuple[int, int], current: tuple[int, int] | None, only_here: bool = False
) -> FutureLogDecision:
    """Decide on a future log of an earlier process.

    The controller is informed before the replacement, and later records are in the future log only: if it is informed,
    and the future log has all records of the current one, the future log counts. Kafka then uses it in any case, also
    if the current log returns with its directory: records written between would be lost.

    Args:
        is_assigned: True if the image has the replica in the directory of the future log.
        newness: leader epoch and end of the future log.
        current: those of the current log, None without one.
        only_here: True if the current log is missing due to a failed directory, and no other replica has its records.
    """
    if is_assigned and not (only_here if current is None else newness < current):
        return FutureLogDecision.PROMOTE
    return FutureLogDecision.KEEP if current is None else FutureLogDecision.RESUME
