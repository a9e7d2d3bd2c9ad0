"""What groups of the new kinds have in common: epochs, members, a target for each, and work on them in slices.

Source: ``ModernGroup.java``, ``TargetAssignmentBuilder.java`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import repeat
from typing import Any, Generic, TypeVar

from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.topics import COLD_ROWS, Topics
from ottla.wire.errors import ErrorCode, ProtocolError

M = TypeVar("M")
T = TypeVar("T")
R = TypeVar("R")
RESTORED_AT_ONCE = 200
ONE_BY_ONE = repeat(1)


class ModernGroup(Generic[M, T]):
    """A group of members M, each with a target T."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.target_epoch = 1
        self.target_at_ms = 0
        """When the target was computed; 0 where that is not known."""
        self.members: dict[str, M] = {}
        self.target: dict[str, T] = {}
        self.fresh_epoch: int | None = None
        """Soft: up to which epoch the metadata hash is known to be right; None where it must be looked at anew."""

    def member(self, member_id: str) -> M:
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
    def is_stale(self) -> bool:
        """Whether the metadata hash must be looked at."""
        return self.fresh_epoch is None or self.epoch < self.fresh_epoch

    def is_time(self, interval_ms: int, now_ms: int) -> bool:
        """Whether a new target may be computed: the last one must have had its time."""
        return self.target_at_ms == 0 or interval_ms == 0 or now_ms >= self.target_at_ms + interval_ms


def restored(groups: Iterable[ModernGroup[M, Any]], arm: Callable[[str, M, Fx], None]) -> Iterator[Fx]:
    """The shard has been read: set every member's timers, a slice at a time."""
    fx = Fx()
    for group in groups:
        for member in group.members.values():
            arm(group.id, member, fx)
            if len(fx.timers) > RESTORED_AT_ONCE:
                yield fx
                fx = Fx()
    yield fx


def once_known(topics: Topics, cold: list[str], fx: Fx, go_on: Callable[[Fx], None]) -> None:
    """Look at very many topics in slices, and only then go on, with what ``fx`` would write as the first of it."""
    records, fx.records = fx.records, []

    def slices() -> Iterator[Fx]:
        yield from in_turns(topics.warm(cold))
        rest = Fx(records=records)
        go_on(rest)
        yield from rest.flatten()

    fx.continue_with(slices(), COLD_ROWS)


def in_turns(work: Generator[None, None, R], sizes: Iterator[int] = ONE_BY_ONE) -> Generator[Fx, None, R]:
    """Go through work, so many steps a slice; gives its result."""
    while True:
        try:
            for _ in range(next(sizes)):
                next(work)
        except StopIteration as end:
            result: R = end.value
            return result
        yield Fx()
