"""A partition's replicas on the move: which come, which go, when it is through, and what is left where it is undone.

While a move is under way the partition has all of them, those to come and those to go.
Source: ``PartitionReassignmentReplicas.java``, ``PartitionReassignmentRevert.java`` (apache/kafka 4.3.1; KIP-455).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla.controller.metadata.image import PartitionRegistration


class Reassignment(NamedTuple):
    """The replicas a partition has; of them those that were not there before, and those that are to go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class CompletedReassignment(NamedTuple):
    """What a move leaves behind."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ReassignmentRevert(NamedTuple):
    """What is left where a move is given up."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    unclean: bool
    """True if nobody in sync is left, so that one was named that was not."""


def is_reassignment_in_progress(p: PartitionRegistration) -> bool:
    """Return whether replicas come or go."""
    return bool(p.adding or p.removing)


def reassignment_to(p: PartitionRegistration, target: Sequence[int]) -> Reassignment:
    """The move from what a partition has now to other replicas (R-295).

    What it has counts with whatever an earlier move still adds; and where nothing comes, or nothing goes, the earlier
    move's own list of those stays.
    """
    gone = tuple(sorted(set(p.replicas) - set(target)))
    new = tuple(sorted(set(target) - set(p.replicas)))
    return Reassignment((*target, *gone), new or p.adding, gone or p.removing)


def complete_reassignment(move: Reassignment, isr: Collection[int]) -> CompletedReassignment | None:
    """What is left once a move is through; None while it is not, or where there is none (R-296).

    It is through when all that come are in sync, and somebody is who stays. Where more go than come, all that stay must
    be in sync: else fewer would be than now.
    """
    if not (move.adding or move.removing):
        return None
    in_sync = tuple(i for i in isr if i not in move.removing)
    replicas = tuple(i for i in move.replicas if i not in move.removing)
    if move.removing and not (in_sync and replicas):
        return None
    if not set(move.adding) <= set(in_sync):
        return None
    if len(move.adding) < len(move.removing) and not set(replicas) <= set(in_sync):
        return None
    return CompletedReassignment(replicas, in_sync)


def revert_reassignment(p: PartitionRegistration) -> ReassignmentRevert | None:
    """What is left without those that come (R-297); None where all of them do."""
    replicas = tuple(i for i in p.replicas if i not in p.adding)
    isr = tuple(i for i in p.isr if i not in p.adding)
    if isr:
        return ReassignmentRevert(replicas, isr, False)
    return ReassignmentRevert(replicas, replicas[:1], True) if replicas else None
