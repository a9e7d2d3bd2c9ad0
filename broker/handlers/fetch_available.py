"""Number of bytes that a waiting Fetch would return: only the partition that changed is looked at again.

Source: ``DelayedFetch.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol

from ottla.broker.replica.replica import Replica
from ottla.broker.replica.replicas import asks_anew
from ottla.broker.server.dispatch import Context
from ottla.broker.server.purgatory import Parked, Purgatory
from ottla.broker.server.session import Wanted
from ottla.broker.turn import Steps

STEP = 16
"""Partitions looked at between two yields."""


class Reader(Protocol):
    """The sender of a Fetch: a consumer, or a follower."""

    @property
    def committed(self) -> bool:
        """Whether it reads up to the last stable offset."""

    @property
    def leader_only(self) -> bool:
        """Whether only the leader of a partition may serve it."""

    @property
    def follower(self) -> int:
        """Its broker id; -1 for a consumer."""

    @property
    def throttle(self) -> Any:
        """A `Throttle`; None where followers are not throttled."""

    def is_held_back(self, context: Context, replica: Replica) -> bool:
        """Whether a follower gets no records of a partition for now."""


def _upper(replica: Replica, reader: Reader) -> int:
    """Up to where somebody may read now."""
    log = replica.log
    if reader.follower >= 0:
        return log.log_end_offset
    return log.last_stable_offset if reader.committed else log.high_watermark


class Available:
    """How many bytes a reading would bring: only what a change touched is looked at again."""

    def __init__(self, context: Context, reader: Reader, enough: int, besides: Hashable) -> None:
        self._context = context
        self._reader = reader
        self._enough = enough
        self._wanted: dict[Hashable, Wanted] = {}
        self._besides = besides
        """Woken, there is something in a partition that is not among these."""
        self._anew = None if reader.follower < 0 else asks_anew(reader.follower)
        self._bytes: dict[Hashable, int] = {}
        self._total = 0

    def look(self, purgatory: Purgatory, parked: Parked, wanted: Iterable[Wanted]) -> Steps[bool]:
        """Look at all of them, a step a few partitions; says whether it is enough.

        Each is watched before it is looked at: it may change while the others are.
        """
        enough, what = False, "fetch" if self._reader.follower < 0 else "end"
        for key in (self._besides, self._anew):
            if key is not None:
                purgatory.watch(parked, key)
        for number, want in enumerate(wanted, 1):
            key = (what, want.topic, want.partition)
            if key not in self._wanted:
                purgatory.watch(parked, key)
            self._wanted[key] = want
            enough = self.is_enough_after(key) or enough
            if number % STEP == 0:
                yield
        return enough or parked.event.is_set()

    def is_enough_after(self, key: Hashable) -> bool:
        """Look at one partition again."""
        if key in (self._besides, self._anew):
            return True
        found = self._of(self._wanted[key])
        self._total += found - self._bytes.get(key, 0)
        self._bytes[key] = found
        return self._total >= self._enough

    def _of(self, want: Wanted) -> int:
        """What one partition would bring; any change that must be told counts as enough."""
        assert want.topic is not None
        replica = self._context.services.replicas.get(want.topic, want.partition)
        if replica is None or (self._reader.leader_only and not replica.is_leader):
            return self._enough
        log, upper = replica.log, _upper(replica, self._reader)
        if want.fetch_offset > log.log_end_offset or want.fetch_offset < log.log_start_offset:
            return self._enough
        if self._reader.throttle is not None and self._reader.is_held_back(self._context, replica):
            return 0
        return log.bytes_between(want.fetch_offset, upper, want.max_bytes) if upper > want.fetch_offset else 0
