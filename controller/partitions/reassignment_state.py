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
    """Replicas and in-sync replicas after a reassignment."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ReassignmentRevert(NamedTuple):
    """Replicas and in-sync replicas after a cancelled reassignment."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    unclean: bool
    """True if no replica is in sync any more and an unclean leader was chosen."""


def is_reassignment_in_progress(p: PartitionRegistration) -> bool:
    """Return True while replicas are added or removed."""
    return bool(p.adding or p.removing)


def reassignment_to(p: PartitionRegistration, target: Sequence[int]) -> Reassignment:
    """Return the reassignment from a partition's current replicas to others (R-295).

    Current replicas include those an earlier reassignment is adding; without added or removed replicas, the earlier
    reassignment's own list stays.
    """
    gone = tuple(sorted(set(p.replicas) - set(target)))
    new = tuple(sorted(set(target) - set(p.replicas)))
    return Reassignment((*target, *gone), new or p.adding, gone or p.removing)


def complete_reassignment(move: Reassignment, isr: Collection[int]) -> CompletedReassignment | None:
    """Return the replicas after a completed reassignment; None if it is incomplete or there is none (R-296).

    It is complete when all added replicas and at least one remaining one are in sync. If more are removed than added,
    all remaining ones must be in sync: otherwise fewer would be in sync than now.
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
    """Return the replicas without the added ones (R-297); None if all are added."""
    replicas = tuple(i for i in p.replicas if i not in p.adding)
    isr = tuple(i for i in p.isr if i not in p.adding)
    if isr:
        return ReassignmentRevert(replicas, isr, False)
    return ReassignmentRevert(replicas, replicas[:1], True) if replicas else None
