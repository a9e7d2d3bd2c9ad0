"""Manager of tiered storage on a broker (KIP-405): remote segments of its partitions, and the tasks that move them.

Source: ``RemoteLogManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.broker.storage.tiered.remote_log_manager_config import RemoteLogManagerConfig
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_quota import RemoteLogQuota
from ottla.broker.storage.tiered.remote_storage import RemoteStorage
from ottla.broker.storage.tiered.remote_thread_pool import RemoteThreadPool
from ottla.env.env import Env

T = TypeVar("T")


class RemoteLogManager:
    """Tiered storage of the partitions that this broker hosts."""

    def __init__(self, env: Env, settings: RemoteLogManagerConfig, open_storage: Callable[[], RemoteStorage]) -> None:
        """Create the manager, without partitions; `open` must precede all use of the store."""
        self._env = env
        self._open_storage = open_storage
        self._storage: RemoteStorage | None = None
        self.settings = settings
        """Current settings; replaced by `update_settings`."""
        self.read_quota = RemoteLogQuota(
            env, settings.fetch_bytes_per_second, settings.fetch_quota_samples, settings.fetch_quota_window_s
        )
        """Quota of bytes read from the remote store."""
        self._readers = RemoteThreadPool(env, settings.reader_threads, settings.reader_max_pending_tasks)

    @property
    def storage(self) -> RemoteStorage:
        """Remote store. Its calls block: they are made in threads."""
        assert self._storage is not None, "the manager is opened before partitions are"
        return self._storage

    def cache(self, topic_id: bytes, partition: int) -> RemoteLogMetadataCache | None:
        """Return the remote segments of a partition; None while their metadata is not loaded.

        A request for the partition then fails with a retriable error.
        """
        raise NotImplementedError

    async def in_reader_thread(self, work: Callable[[], T]) -> T:
        """Run a call of the store for a read in a thread, at most ``remote.log.reader.threads`` at a time.

        Raises:
            RemoteReadQueueFullError: ``remote.log.reader.max.pending.tasks`` calls wait already.
        """
        return await self._readers.run(work)
