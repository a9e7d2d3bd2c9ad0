"""What groups of the new kinds have in common: epochs, members, a target for each, and work on them in slices.

Source: ``ModernGroup.java``, ``TargetAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import repeat
from typing import Any, Generic, TypeVar

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.topic_metadata import HASHING_WORK, GroupTopicMetadata
from ottla.wire.errors import ErrorCode, ProtocolError

M = TypeVar("M")
T = TypeVar("T")
R = TypeVar("R")
MAX_RESTORED_PER_SLICE = 200
ONE_BY_ONE = repeat(1)


class ModernGroup(Generic[M, T]):
    """A group of members M, each with a target T."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_computed_ms = 0
        """When the target was computed; 0 where that is not known."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.hash_checked_epoch: int | None = None
        """Soft: up to which epoch the metadata hash is known to be right; None where it must be looked at anew."""

    def require_member(self, member_id: str) -> M:
        """A member.

        Raises:
            ProtocolError: UNKNOWN_MEMBER_ID.
        """
        member = self.members.get(member_id)
        if member is None:
            why = f"Member {member_id} is not a member of group {self.id}."
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return member

    @property
    def is_metadata_stale(self) -> bool:
        """Whether the metadata hash must be looked at."""
        return self.hash_checked_epoch is None or self.epoch < self.hash_checked_epoch

    def is_assignment_due(self, interval_ms: int, now_ms: int) -> bool:
        """Whether a new target may be computed: the last one must have had its time."""
        return self.target_computed_ms == 0 or interval_ms == 0 or now_ms >= self.target_computed_ms + interval_ms


def restore_member_timers(
    groups: Iterable[ModernGroup[M, Any]], arm: Callable[[str, M, GroupEffects], None]
) -> Iterator[GroupEffects]:
    """The shard has been read: set every member's timers, a slice at a time."""
    fx = GroupEffects()
    for group in groups:
        for member in group.members.values():
            arm(group.id, member, fx)
            if len(fx.timers) > MAX_RESTORED_PER_SLICE:
                yield fx
                fx = GroupEffects()
    yield fx


def continue_after_hashing(
    topics: GroupTopicMetadata, cold: list[str], fx: GroupEffects, go_on: Callable[[GroupEffects], None]
) -> None:
    """Look at very many topics in slices, and only then go on, with what ``fx`` would write as the first of it."""
    records, fx.records = fx.records, []

    def slices() -> Iterator[GroupEffects]:
        yield from run_in_slices(topics.hash_in_steps(cold))
        rest = GroupEffects(records=records)
        go_on(rest)
        yield from rest.flatten()

    fx.continue_with(slices(), HASHING_WORK)


def run_in_slices(
    work: Generator[None, None, R], sizes: Iterator[int] = ONE_BY_ONE
) -> Generator[GroupEffects, None, R]:
    """Go through work, so many steps a slice; gives its result."""
    while True:
        try:
            for _ in range(next(sizes)):
                next(work)
        except StopIteration as end:
            result: R = end.value
            return result
        yield GroupEffects()
