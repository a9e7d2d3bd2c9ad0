"""Fetch session of a follower, which may have thousands of partitions: a request costs only those with changes.

A partition whose state was returned completely is quiet: it is not read until the leader reports a change. Each request
of the session counts as a fetch of its quiet partitions too: the follower has requested their end again.

Source: ``FetchSession.java`` (apache/kafka 4.3.1), which reads each of them each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ottla.broker.fetch_sessions.fetch_session import (
    PARTITIONS_PER_STEP,
    CachedPartition,
    FetchSession,
    PartitionKey,
    partition_key,
)
from ottla.jobs.job import Job
from ottla.wire.messages.fetch import FetchPartition, PartitionData

FULL_SCAN_INTERVAL = 64
"""Interval in requests of a full scan, which detects changes without notification, such as a log start moved by
retention.
"""
RegisterListener = Callable[[CachedPartition, PartitionData, "PartitionChangeListener"], bool]
"""Function that registers a listener if all data was returned; returns True if so."""


class PartitionChangeListener:
    """Listener for changes of a quiet partition, up to the first with more records."""

    __slots__ = ("_closed_ms", "_key", "_session")

    def __init__(self, session: FollowerFetchSession, key: PartitionKey) -> None:
        self._session = session
        self._key = key
        self._closed_ms: int | None = None

    def on_change(self, *, more: bool) -> int:
        """Record a change; ``more``: there are records to send. Returns the time of the follower's last request."""
        if self._closed_ms is not None:
            return self._closed_ms
        self._session.mark_dirty(self._key, more=more)
        return self._session.last_request_ms

    def close(self) -> None:
        """Close the listener: the follower has removed the partition from the session."""
        self._closed_ms = self._session.last_request_ms


class FollowerFetchSession(FetchSession):
    """No reader takes its place, and it may hold as many partitions as there are."""

    is_privileged = True

    def __init__(
        self,
        session_id: int,
        wanted: dict[PartitionKey, CachedPartition],
        follower: int,
        *,
        uses_ids: bool,
        used_ms: float,
        now_ms: int,
    ) -> None:
        super().__init__(session_id, wanted, uses_ids=uses_ids, now_ms=used_ms)
        self.follower_id = follower
        self.wait_key = ("session", session_id)
        self.last_request_ms = now_ms
        """When its last request came, by the wall clock."""
        self._requests = 0
        self._dirty = dict(wanted)
        self._clean: dict[PartitionKey, PartitionChangeListener] = {}
        self._wake: Callable[[Hashable], None] = lambda key: None

    def record_request(self, now_ms: int) -> None:
        """Record a request of the session."""
        self.last_request_ms = now_ms
        self._requests += 1
        if self._requests % FULL_SCAN_INTERVAL == 0:
            self._dirty = dict(self.partitions)
            self._clean.clear()

    def add_or_update(self, key: PartitionKey, part: FetchPartition) -> None:
        """Add a partition or change its offset."""
        super().add_or_update(key, part)
        self._dirty[key] = self.partitions[key]

    def remove(self, key: PartitionKey) -> None:
        """Remove a partition."""
        super().remove(key)
        self._dirty.pop(key, None)
        line = self._clean.pop(key, None)
        if line is not None:
            line.close()

    def partitions_to_read(self) -> list[CachedPartition]:
        """Return the partitions to read."""
        return list(self._dirty.values())

    def mark_dirty(self, key: PartitionKey, *, more: bool) -> None:
        """Mark a quiet partition as changed, and wake a delayed request."""
        if self._clean.pop(key, None) is not None:
            self._dirty[key] = self.partitions[key]
        if more:
            self._wake(self.wait_key)

    def on_response(self, rows: Any, watch: RegisterListener, wake: Callable[[Hashable], None]) -> Job[None]:
        """Store the returned rows; most partitions become quiet. Those with records move to the end."""
        self._wake = wake
        for number, (want, row) in enumerate(rows, 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield None
            key = partition_key(want.topic, want.topic_id, want.partition, uses_ids=self.uses_topic_ids)
            if key not in self._dirty:
                continue
            if len(row.records):
                self._dirty[key] = self._dirty.pop(key)
            elif row.error_code == 0 and row.diverging_epoch.epoch < 0:
                line = PartitionChangeListener(self, key)
                if watch(want, row, line):
                    self._clean[key] = line
                    del self._dirty[key]
