"""A follower's fetch session: it may hold thousands of partitions, so a request costs only those with something new.

A partition that has told everything is quiet: nobody looks at it until the leader says that it changed. Each request of
the session counts as a fetch of its quiet partitions too: the follower has asked for their end again.

Source: ``FetchSession.java`` (apache/kafka 4.3.1), which looks at each of them each time.
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
"""Each so-many-th request looks at everything: what nobody tells of, a log start that retention moved, is seen then."""
RegisterListener = Callable[[CachedPartition, PartitionData, "PartitionChangeListener"], bool]
"""Asked with what was wanted and told: whether that is all there is; then the line hears of the next change."""


class PartitionChangeListener:
    """What a quiet partition's leader tells of its changes, up to the first that has more records."""

    __slots__ = ("_closed_ms", "_key", "_session")

    def __init__(self, session: FollowerFetchSession, key: PartitionKey) -> None:
        self._session = session
        self._key = key
        self._closed_ms: int | None = None

    def on_change(self, *, more: bool) -> int:
        """Something changed; ``more``: there are records to send. Gives when the follower asked last."""
        if self._closed_ms is not None:
            return self._closed_ms
        self._session.mark_dirty(self._key, more=more)
        return self._session.last_request_ms

    def close(self) -> None:
        """The follower asks for it no more in this session."""
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
        """Another request of it."""
        self.last_request_ms = now_ms
        self._requests += 1
        if self._requests % FULL_SCAN_INTERVAL == 0:
            self._dirty = dict(self.partitions)
            self._clean.clear()

    def add_or_update(self, key: PartitionKey, part: FetchPartition) -> None:
        """It asks for another offset of a partition, or for one more."""
        super().add_or_update(key, part)
        self._dirty[key] = self.partitions[key]

    def remove(self, key: PartitionKey) -> None:
        """It does not want a partition any more."""
        super().remove(key)
        self._dirty.pop(key, None)
        line = self._clean.pop(key, None)
        if line is not None:
            line.close()

    def partitions_to_read(self) -> list[CachedPartition]:
        """What has to be looked at."""
        return list(self._dirty.values())

    def mark_dirty(self, key: PartitionKey, *, more: bool) -> None:
        """A quiet partition changed. A parked request may not know that it is to be looked at."""
        if self._clean.pop(key, None) is not None:
            self._dirty[key] = self.partitions[key]
        if more:
            self._wake(self.wait_key)

    def on_response(self, rows: Any, watch: RegisterListener, wake: Callable[[Hashable], None]) -> Job[None]:
        """What was told last is all there is of most partitions: they are quiet. Who brought records comes last."""
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
