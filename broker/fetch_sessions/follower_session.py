"""Fetch session of a follower, which may have thousands of partitions: a request reads only those with changes.

A partition whose state was returned completely is clean: it is not read until the leader's log reports a change. Each
request of the session counts as a fetch of its clean partitions too: the follower has fetched again from their log end.

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
"""Number of requests after which all partitions are read once.

This detects changes without notification, such as a log start offset moved by retention.
"""
RegisterListener = Callable[[CachedPartition, PartitionData, "PartitionChangeListener"], bool]
"""Function that registers a listener for a partition; returns True if all its records were returned before."""


class PartitionChangeListener:
    """Listener for changes of a clean partition in a follower's fetch session, which marks the partition as changed."""

    __slots__ = ("_closed_ms", "_key", "_session")

    def __init__(self, session: FollowerFetchSession, key: PartitionKey) -> None:
        self._session = session
        self._key = key
        self._closed_ms: int | None = None

    def on_change(self, *, more: bool) -> int:
        """Mark the partition as changed, unless the listener is closed; ``more``: not only its high watermark changed.

        Returns:
            Wall-clock time in ms of the follower's last request, or of the last one before the listener was closed.
        """
        if self._closed_ms is not None:
            return self._closed_ms
        self._session.mark_dirty(self._key, more=more)
        return self._session.last_request_ms

    def close(self) -> None:
        """Close the listener: the follower has removed the partition from the session."""
        self._closed_ms = self._session.last_request_ms


class FollowerFetchSession(FetchSession):
    """Fetch session of a follower, without a limit of partitions; a consumer's session evicts it only if it is idle.

    That is after `MIN_FETCH_SESSION_EVICTION_MS` without a request.
    """

    is_privileged = True

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, CachedPartition],
        follower: int,
        *,
        uses_ids: bool,
        used_ms: float,
        now_ms: int,
    ) -> None:
        super().__init__(session_id, partitions, uses_ids=uses_ids, now_ms=used_ms)
        self.follower_id = follower
        self.wait_key = ("session", session_id)
        self.last_request_ms = now_ms
        """Time of the last request of the session in ms (wall clock)."""
        self._requests = 0
        self._dirty = dict(partitions)
        self._listeners: dict[PartitionKey, PartitionChangeListener] = {}
        """Registered listeners; a partition with one is clean unless it is in `_dirty`."""
        self._wake: Callable[[Hashable], None] = lambda key: None

    def record_request(self, now_ms: int) -> None:
        """Record the wall-clock time of a request of the session.

        Every `FULL_SCAN_INTERVAL` requests mark all partitions as changed.
        """
        self.last_request_ms = now_ms
        self._requests += 1
        if self._requests % FULL_SCAN_INTERVAL == 0:
            self._dirty = dict(self.partitions)

    def add_or_update(self, key: PartitionKey, part: FetchPartition) -> None:
        """Add a partition or update its fetch parameters; it will be read by the next request."""
        super().add_or_update(key, part)
        self._dirty[key] = self.partitions[key]

    def remove(self, key: PartitionKey) -> None:
        """Remove a partition from the session and close its listener; no effect if the session does not have it."""
        super().remove(key)
        self._dirty.pop(key, None)
        listener = self._listeners.pop(key, None)
        if listener is not None:
            listener.close()

    def partitions_to_read(self) -> list[CachedPartition]:
        """Return the partitions that the next request reads, in this order: all but the clean ones.

        Not clean are new and changed partitions, those whose state was not returned completely, and after each
        `FULL_SCAN_INTERVAL` requests all.
        """
        return list(self._dirty.values())

    def mark_dirty(self, key: PartitionKey, *, more: bool) -> None:
        """Mark a clean partition as changed, so that the next request reads it; one that is not clean stays as it is.

        With ``more`` a delayed request of the session is completed in both cases.
        """
        if key in self._listeners and key not in self._dirty:
            self._dirty[key] = self.partitions[key]
        if more:
            self._listeners.pop(key, None)  # the change has removed the listener
            self._wake(self.wait_key)

    def on_response(self, rows: Any, watch: RegisterListener, wake: Callable[[Hashable], None]) -> Job[None]:
        """Update after a response, as a job, which partitions the next request reads, and in which order.

        A partition with records moves to the end. One without records, error or diverging epoch becomes clean if
        ``watch`` can register a listener for its changes. ``rows`` is not stored.

        Args:
            rows: requested partitions, each with its row of the response.
            watch: registers a listener for changes of a partition; returns False if it must be read again.
            wake: completes a delayed request by its purgatory key.
        """
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
                listener = PartitionChangeListener(self, key)
                if watch(want, row, listener):
                    self._listeners[key] = listener
                    del self._dirty[key]
