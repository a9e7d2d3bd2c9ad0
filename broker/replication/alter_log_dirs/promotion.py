"""What is to be done next about a copy that shall take its partition's place: one table, and nothing is done here.

The controller is told first, so that it never takes a replica for lost, or for there, that is the other way round; it
has accepted once this node's image says so. Only then do the copy and the log change places, in one step.

Source: ``ReplicaAlterLogDirsThread.scala``, ``LogManager.recoverAbandonedFutureLogs`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

from enum import Enum

ASSIGNMENT_RETRY_MS = 5000
"""The controller may have forgotten, or another one have come."""


class PromotionStep(Enum):
    """What is next."""

    COPY = "copy"
    """The copy lacks more than can be added in the step in which they change places."""
    REQUEST_ASSIGNMENT = "ask"
    """It is as good as whole: the controller is to hear of its directory."""
    WAIT = "wait"
    """Until the image says so."""
    SWAP = "swap"
    """They change places."""


def next_promotion_step(*, near: bool, told: bool, asked_ago_ms: float) -> PromotionStep:
    """``near``: the copy lacks a piece at most. ``told``: the image has the replica in the copy's directory.

    ``asked_ago_ms``: how long ago the controller was asked; infinite for never.
    """
    if not near:
        return PromotionStep.COPY
    if told:
        return PromotionStep.SWAP
    return PromotionStep.WAIT if asked_ago_ms < ASSIGNMENT_RETRY_MS else PromotionStep.REQUEST_ASSIGNMENT


class FutureLogDecision(Enum):
    """What becomes of a copy that an earlier process left."""

    PROMOTE = "counts"
    """It is the partition's log."""
    RESUME = "goes on"
    """It is filled up from the log it is a copy of."""
    KEEP = "stays"
    """Nothing is known of the log it is a copy of now: a later start may know more."""


def decide_future_log(
    *, told: bool, newness: tuple[int, int], current: tuple[int, int] | None, only_here: bool = False
) -> FutureLogDecision:
    """``told`` as above. ``newness``: leader epoch and end of the copy, ``current``: of the log, None for no log.

    ``only_here``: no log is there because a directory failed just now, and nobody else has what it has.

    The controller is told before they change places, and what is written afterwards is in the copy only: where it is
    told, and the copy has all that the log has, the copy counts. Kafka takes the copy then whatever it has, also where
    the log is to be seen again once its directory is well: what was written between the two would be gone.
    """
    if told and not (only_here if current is None else newness < current):
        return FutureLogDecision.PROMOTE
    return FutureLogDecision.KEEP if current is None else FutureLogDecision.RESUME
