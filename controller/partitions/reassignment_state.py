"""State of a partition's reassignment: adding and removing replicas, its completion and its cancellation.

During a reassignment the partition's replicas include the adding and the removing ones.
Source: ``PartitionReassignmentReplicas.java``, ``PartitionReassignmentRevert.java`` (apache/kafka 4.3.1; KIP-455).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla.controller.metadata.image import PartitionRegistration


class Reassignment(NamedTuple):
    """Replicas of a partition during a reassignment: all, those being added, and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class CompletedReassignment(NamedTuple):
    """Replicas and ISR after a completed reassignment."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class ReassignmentRevert(NamedTuple):
    """Replicas and ISR after a cancelled reassignment."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    unclean: bool
    """True if no remaining replica is in sync, and the first one is made leader uncleanly."""


def is_reassignment_in_progress(registration: PartitionRegistration) -> bool:
    """Return True if the partition has adding or removing replicas."""
    return bool(registration.adding or registration.removing)


def reassignment_to(registration: PartitionRegistration, target: Sequence[int]) -> Reassignment:
    """Return the reassignment that brings a partition to the replicas ``target`` (R-295); nothing is changed.

    Its current replicas include those an earlier reassignment is adding. If ``target`` adds none to them, or removes
    none, the adding or removing list of the earlier reassignment stays.
    """
    gone = tuple(sorted(set(registration.replicas) - set(target)))
    new = tuple(sorted(set(target) - set(registration.replicas)))
    return Reassignment((*target, *gone), new or registration.adding, gone or registration.removing)


def complete_reassignment(move: Reassignment, isr: Collection[int]) -> CompletedReassignment | None:
    """Return replicas and ISR after a complete reassignment; None if it is incomplete or there is none (R-296).

    It is complete when all adding replicas and at least one remaining one are in ``isr``. If more are removed than
    added, all remaining ones must be in sync: otherwise fewer would be in sync than now.
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


def revert_reassignment(registration: PartitionRegistration) -> ReassignmentRevert | None:
    """Return replicas and ISR of a partition without its adding replicas (R-297); None if no replica would remain."""
    replicas = tuple(i for i in registration.replicas if i not in registration.adding)
    isr = tuple(i for i in registration.isr if i not in registration.adding)
    if isr:
        return ReassignmentRevert(replicas, isr, False)
    return ReassignmentRevert(replicas, replicas[:1], True) if replicas else None
