"""Interface of the manager of tiered storage for reads from the remote tier."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import RemoteStorage
from ottla.broker.storage.tiered.remote_topic_stats import RemoteTopicStats

T = TypeVar("T")


class RemoteReadQuota(Protocol):
    """Interface of the quota of bytes read from the store (``remote.log.manager.fetch.max.bytes.per.second``)."""

    def throttle_ms(self) -> int:
        """Return the time in ms to wait before the next read; 0 while the rate is within the limit."""

    def record(self, size_bytes: int) -> None:
        """Record bytes that were read against the quota."""


class RemoteReadSettings(Protocol):
    """Interface of the settings of reads from the remote tier, with their current values."""

    @property
    def fetch_max_wait_ms(self) -> int:
        """Current value of ``remote.fetch.max.wait.ms``."""

    @property
    def list_offsets_timeout_ms(self) -> int:
        """Current value of ``remote.list.offsets.request.timeout.ms``."""

    @property
    def index_cache_bytes(self) -> int:
        """Current value of ``remote.log.index.file.cache.total.size.bytes``."""


class RemoteLogAccess(Protocol):
    """Interface of the part of `RemoteLogManager` that reads use: store, metadata of remote segments, threads."""

    @property
    def storage(self) -> RemoteStorage:
        """Remote store. Its calls block: they are made in threads."""

    @property
    def settings(self) -> RemoteReadSettings:
        """Settings of reads from the remote tier, with their current values."""

    @property
    def read_quota(self) -> RemoteReadQuota:
        """Quota of bytes read from the remote store."""

    def topic_stats(self, topic: str) -> RemoteTopicStats:
        """Return the counters of a topic, which the caller may increment."""

    def cache(self, topic_id: bytes, partition: int) -> RemoteLogMetadataCache | None:
        """Return the remote segments of a partition; None while their metadata is not loaded."""

    def in_reader_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run a call of the store for a read in a thread and return its result; its errors are raised.

        Raises:
            RemoteReadQueueFullError: ``remote.log.reader.max.pending.tasks`` calls wait already.
        """
