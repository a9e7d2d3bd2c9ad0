"""Reads from the remote tier that requests wait for: each is a task of its own, which the request may abandon.

A read from open files of the chunk cache is no task: it is done at once.

A read that is abandoned in the queue of the reader threads is cancelled; one in a thread continues, so that the chunk
cache has its bytes when the client repeats the request.

Source: ``RemoteLogReader.java``, ``RemoteLogOffsetReader.java``, ``DelayedRemoteFetch.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Generic, TypeVar

import trio

from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.remote_log_access import RemoteLogAccess
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchData, RemoteFetchInfo, RemoteLogReader
from ottla.env.disk import File
from ottla.env.env import Env
from ottla.jobs.supervision import is_broken_invariant, run_logging_failure
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ErrorCode, ProtocolError, WireError

T = TypeVar("T")
logger = logging.getLogger("ottla.tiered")
LOG_INTERVAL_MS = 1000
"""Least time between two messages about failed reads."""


class RemoteRead(Generic[T]):
    """Read from the remote tier: in progress, or done with a result or an error code."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        """Purgatory key that is completed at the end of the read."""
        self.is_done = False
        self.result: T | None = None
        """Result of a read that is done; None after an error, and if the read was abandoned."""
        self.error = ErrorCode.NONE
        """Error of the partition in the response, once the read is done; NONE if it was abandoned."""
        self.scope = trio.CancelScope()


class RemoteReads:
    """Reads from the remote tier for requests to this broker, each as a task, with their counters."""

    def __init__(
        self,
        env: Env,
        remote: RemoteLogAccess,
        start: Callable[[Callable[[], Awaitable[None]]], None],
        wake: Callable[[Hashable], None],
    ) -> None:
        """Create the reads of a broker.

        Args:
            env: Environment.
            remote: Manager of tiered storage.
            start: Function that starts a task of the node.
            wake: Function that completes the delayed requests of a purgatory key.
        """
        self._env = env
        self.remote = remote
        self.reader = RemoteLogReader(env, remote)
        self._start = start
        self._wake = wake
        self._next_message_ms = 0.0
        """Monotonic time from which the next failure is logged."""
        self._unlogged_failures = 0
        self.expired_fetches = self.expired_list_offsets = 0
        """Numbers of requests that ended before their reads (``ExpiresPerSec`` of ``DelayedRemoteFetchMetrics`` and of
        ``DelayedRemoteListOffsetsMetrics``)."""

    def is_throttled(self) -> bool:
        """Return whether the quota of bytes read from the store is exceeded, so that no read is started."""
        return self.remote.read_quota.throttle_ms() > 0

    def discard_chunk(self, file: File) -> None:
        """Drop the chunk of the cache with a file from which a response could not be sent, in a thread."""
        storage = self.remote.storage
        if isinstance(storage, CachedRemoteStorage):
            work = partial(self._env.in_thread, partial(storage.discard, file))
            self._start(partial(run_logging_failure, "Dropping a chunk of the cache", work))

    def start_fetch(self, info: RemoteFetchInfo) -> RemoteRead[RemoteFetchData]:
        """Start the read of a partition for a Fetch; it is done at once if it needs no wait."""
        found = self._read_open(info)
        if found is None:
            return self.start_read(info.log, partial(self._fetch, info))
        self.count_open_read(info.log, len(found.records))
        read: RemoteRead[RemoteFetchData] = RemoteRead(_key(info.log))
        read.is_done, read.result = True, found
        return read

    def read_open(
        self, log: PartitionLog, offset: int, max_bytes: int, *, may_exceed: bool, read_committed: bool
    ) -> RemoteFetchData | None:
        """Return the result of a read that needs no wait; None for others, among them those that fail.

        The arguments are the fields of `RemoteFetchInfo`. The caller counts the read (`count_open_read`).
        """
        return self._read_open(RemoteFetchInfo(log, offset, max_bytes, may_exceed, read_committed))

    def _read_open(self, info: RemoteFetchInfo) -> RemoteFetchData | None:
        try:
            return self.reader.read_open(info)
        except WireError:
            return None

    def count_open_read(self, log: PartitionLog, size_bytes: int) -> None:
        """Count a read by `read_open` and the bytes that it has returned, and record these for the quota."""
        stats = self.remote.topic_stats(log.topic)
        stats.fetches += 1
        stats.fetched_bytes += size_bytes
        self.remote.read_quota.record(size_bytes)

    async def _fetch(self, info: RemoteFetchInfo) -> RemoteFetchData:
        """Read a partition for a Fetch; count it (``RemoteFetchRequestsPerSec`` …) and record its bytes for the quota.

        The errors of `RemoteLogReader.read` are raised, after they are counted; OFFSET_OUT_OF_RANGE is not counted.
        """
        stats, size = self.remote.topic_stats(info.log.topic), 0
        stats.fetches += 1
        try:
            found = await self.reader.read(info)
            size = len(found.records)
            stats.fetched_bytes += size
        except Exception as error:
            if not _is_out_of_range(error):
                stats.count_failure("fetch_errors", error, self._env.monotonic_ms())
            raise
        finally:
            self.remote.read_quota.record(size)
        return found

    def start_read(self, log: PartitionLog, work: Callable[[], Awaitable[T]]) -> RemoteRead[T]:
        """Start a read of a partition as a task, and return it at once, not done.

        At its end its purgatory key is completed. An error of ``work`` becomes the error code of the read: that of a
        ProtocolError, CORRUPT_MESSAGE for a WireError, else UNKNOWN_SERVER_ERROR. A broken invariant is also raised in
        the task.
        """
        read: RemoteRead[T] = RemoteRead(_key(log))
        self._start(lambda: self._run(read, log, work))
        return read

    async def _run(self, read: RemoteRead[T], log: PartitionLog, work: Callable[[], Awaitable[T]]) -> None:
        try:
            with read.scope:
                read.result = await work()
        except ProtocolError as error:
            if not _is_out_of_range(error):
                self._log_failure(log, error)
            read.error = error.code
        except WireError as error:
            self._log_failure(log, error)
            read.error = ErrorCode.CORRUPT_MESSAGE
        except Exception as error:
            read.error = ErrorCode.UNKNOWN_SERVER_ERROR
            if is_broken_invariant(error):
                raise
            self._log_failure(log, error)
        finally:
            read.is_done = True
            self._wake(read.key)

    def _log_failure(self, log: PartitionLog, error: Exception) -> None:
        """Log a failed read, at most one of all partitions in `LOG_INTERVAL_MS`, as clients repeat reads at once.

        The next message has the number of the others.
        """
        now_ms = self._env.monotonic_ms()
        if now_ms < self._next_message_ms:
            self._unlogged_failures += 1
            return
        text = f" ({self._unlogged_failures} further errors since the last message)" if self._unlogged_failures else ""
        logger.error("Error occurred while reading the remote data for %s: %s%s", log.label, error, text)
        self._next_message_ms, self._unlogged_failures = now_ms + LOG_INTERVAL_MS, 0

    @staticmethod
    def abandon(reads: Iterable[RemoteRead[T]]) -> None:
        """Cancel the reads that are not done; a call of the store that is in a thread continues."""
        for read in reads:
            if not read.is_done:
                read.scope.cancel()


def _key(log: PartitionLog) -> Hashable:
    """Return the purgatory key of the reads of a partition."""
    return "remote", log.topic, log.partition


def _is_out_of_range(error: Exception) -> bool:
    """Return whether an error is OFFSET_OUT_OF_RANGE, which is no failure: remote retention deleted the records."""
    return isinstance(error, ProtocolError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE
