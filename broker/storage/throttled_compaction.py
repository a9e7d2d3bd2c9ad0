"""Rate-limited compaction: a disk that sleeps after a read or write when the rate is exceeded.

Runs in the child process of a pass, where sleeping blocks no other task.

Source: ``Throttler.java``, ``log.cleaner.io.max.bytes.per.second`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.env.disk import Disk, DiskView, File
from ottla.env.env import WorkerContext
from ottla.log.cleaner import compaction
from ottla.wire.codec.primitives import Buffer

UNLIMITED_RATE = 1e18


class ThrottledCompaction(NamedTuple):
    """Compaction plan of a pass with its maximum rate in bytes per second."""

    plan: compaction.CompactionPlan
    bytes_per_second: float


class IoThrottler:
    """Throttler of a compaction pass: blocks the thread while the average rate since its start exceeds the maximum."""

    def __init__(self, bytes_a_second: float, now_s: Callable[[], float], pause: Callable[[float], None]) -> None:
        self._rate = bytes_a_second
        self._now_s = now_s
        self._pause = pause
        self._began_s = now_s()
        self._bytes = 0

    def maybe_throttle(self, size_bytes: int) -> None:
        """Count bytes read or written; block the cleaner's thread until the average rate is within the limit.

        The average is taken over all bytes since this throttler was created.
        """
        self._bytes += size_bytes
        ahead_s = self._bytes / self._rate - (self._now_s() - self._began_s)
        if ahead_s > 0:
            self._pause(ahead_s)


class ThrottledFile:
    """File of a compaction pass; after a read or write it blocks the thread until the rate is within the limit."""

    def __init__(self, under: File, meter: IoThrottler) -> None:
        self._file = under
        self._throttler = meter
        self.size = under.size
        self.truncate = under.truncate
        self.fsync = under.fsync
        self.close = under.close
        self.fileno = under.fileno
        self.pread_cached = under.pread_cached

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write ``data`` at ``offset``, then block the thread until the rate is within the limit."""
        self._file.pwrite(data, offset)
        self._throttler.maybe_throttle(len(data))

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Read up to ``size_bytes`` at ``offset``, block the thread until the rate is within the limit, return them."""
        data = self._file.pread(size_bytes, offset)
        self._throttler.maybe_throttle(len(data))
        return data


class ThrottledDisk(DiskView):
    """View of a disk for a compaction pass: all files are opened as `ThrottledFile`."""

    def __init__(self, under: Disk, meter: IoThrottler) -> None:
        super().__init__(under)
        self._throttler = meter
        self.makedirs = under.makedirs
        self.private = under.private

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file and return it with throttled reads and writes."""
        return ThrottledFile(self._under.open(path, create=create, readonly=readonly, mode=mode), self._throttler)


def run_compaction(context: WorkerContext, job: ThrottledCompaction) -> compaction.CompactionResult:
    """Run a compaction pass at no more than its rate; entry point of the child process.

    Raises:
        WireError: records on disk cannot be read; OSError: the disk failed.
    """
    if job.bytes_per_second >= UNLIMITED_RATE:
        return compaction.run_compaction(context.disk, job.plan)
    meter = IoThrottler(job.bytes_per_second, context.monotonic_s, context.pause)
    return compaction.run_compaction(ThrottledDisk(context.disk, meter), job.plan)
