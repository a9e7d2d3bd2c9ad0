"""Fixture of tests of the metadata topic: its partitions in memory, with leaders that a test moves."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ottla.broker.remote_log.metadata_topic_client import LATEST, MetadataBatches
from ottla.wire.errors import ErrorCode, ProtocolError

RECORDS_PER_FETCH = 3


class MemoryMetadataTopic:
    """Client of a metadata topic in memory."""

    def __init__(self, partitions: int | None = 1) -> None:
        self.count = partitions
        self.leaders: dict[int, int] = {}
        """Leader of each partition, 1 by default."""
        self.records: dict[int, dict[int, bytes | None]] = {}
        self.start: dict[int, int] = {}
        self.failures: list[Exception] = []
        """Errors of the next appends."""
        self.read_failures: list[Exception] = []
        self.fetches: list[tuple[int, dict[int, int]]] = []
        self.on_fetch: Callable[[], None] = lambda: None
        self.is_closed = False
        self._changed = trio.Event()

    def add(self, value: bytes | None, partition: int = 0) -> int:
        """Append a record, as another broker does."""
        offset = self.end(partition)
        self.records.setdefault(partition, {})[offset] = value
        self.wake()
        return offset

    def end(self, partition: int) -> int:
        return max(self.records.get(partition, {}), default=self.start.get(partition, 0) - 1) + 1

    def partition_count(self) -> int | None:
        return self.count

    def leader_of(self, partition: int) -> int:
        return self.leaders.get(partition, 1)

    async def append(self, partition: int, value: bytes) -> int:
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        return self.add(value, partition)

    async def find_offset(self, leader: int, partition: int, timestamp: int) -> int:
        await trio.lowlevel.checkpoint()
        if self.leader_of(partition) != leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.end(partition) if timestamp == LATEST else self.start.get(partition, 0)

    async def fetch(self, leader: int, positions: dict[int, int]) -> dict[int, MetadataBatches]:
        self.fetches.append((leader, dict(positions)))
        await trio.lowlevel.checkpoint()
        if self.read_failures:
            raise self.read_failures.pop(0)
        out = self._read(leader, positions)
        if not out:
            self._changed = trio.Event()
            with trio.move_on_after(0.5):
                await self._changed.wait()
            out = self._read(leader, positions)
        self.on_fetch()
        return out

    def _read(self, leader: int, positions: dict[int, int]) -> dict[int, MetadataBatches]:
        out = {}
        for partition, at in positions.items():
            if self.leader_of(partition) != leader:
                out[partition] = MetadataBatches([], at, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif not self.start.get(partition, 0) <= at <= self.end(partition):
                out[partition] = MetadataBatches([], at, ErrorCode.OFFSET_OUT_OF_RANGE)
            elif at < self.end(partition):
                found = [(o, v) for o, v in self.records[partition].items() if o >= at][:RECORDS_PER_FETCH]
                out[partition] = MetadataBatches(found, found[-1][0] + 1)
        return out

    def wake(self) -> None:
        self._changed.set()

    def close(self) -> None:
        self.is_closed = True
