"""Rate-limited compaction: a disk that waits after too many bytes.

Runs in the child process of a pass, where waiting blocks no other task.

Source: ``Throttler.java``, ``log.cleaner.io.max.bytes.per.second`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.env.env import WorkerContext
from ottla.log.cleaner import compaction
from ottla.wire.codec.primitives import Buffer

UNLIMITED_RATE = 1e18


class ThrottledCompaction(NamedTuple):
    """A pass and the rate it is held to."""

    plan: compaction.CompactionPlan
    bytes_per_second: float


class IoThrottler:
    """Counts bytes, and waits where they were too many for the time that has gone by."""

    def __init__(self, bytes_a_second: float, now_s: Callable[[], float], pause: Callable[[float], None]) -> None:
        self._rate = bytes_a_second
        self._now_s = now_s
        self._pause = pause
        self._began_s = now_s()
        self._bytes = 0

    def maybe_throttle(self, size_bytes: int) -> None:
        """So many more."""
        self._bytes += size_bytes
        ahead_s = self._bytes / self._rate - (self._now_s() - self._began_s)
        if ahead_s > 0:
            self._pause(ahead_s)


class ThrottledFile:
    """File with metered reads and writes."""

    def __init__(self, under: File, meter: IoThrottler) -> None:
        self._file = under
        self._throttler = meter
        self.size = under.size
        self.truncate = under.truncate
        self.fsync = under.fsync
        self.close = under.close
        self.fileno = under.fileno

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write, then wait."""
        self._file.pwrite(data, offset)
        self._throttler.maybe_throttle(len(data))

    def pread(self, size_bytes: int, offset: int) -> bytes:
        """Read, then wait."""
        data = self._file.pread(size_bytes, offset)
        self._throttler.maybe_throttle(len(data))
        return data


class ThrottledDisk:
    """Disk with metered files."""

    def __init__(self, under: Disk, meter: IoThrottler) -> None:
        self._disk = under
        self._throttler = meter
        self.exists = under.exists
        self.is_dir = under.is_dir
        self.listdir = under.listdir
        self.list_files = under.list_files
        self.makedirs = under.makedirs
        self.rename = under.rename
        self.unlink = under.unlink
        self.rmtree = under.rmtree
        self.fsync_dir = under.fsync_dir
        self.stat = under.stat
        self.usage = under.usage
        self.lock = under.lock
        self.private = under.private

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open, metered."""
        return ThrottledFile(self._disk.open(path, create=create, readonly=readonly, mode=mode), self._throttler)


def run_compaction(context: WorkerContext, job: ThrottledCompaction) -> compaction.CompactionResult:
    """Run one pass within its rate.

    Raises:
        WireError: records on disk cannot be read; OSError: the disk failed.
    """
    if job.bytes_per_second >= UNLIMITED_RATE:
        return compaction.run_compaction(context.disk, job.plan)
    meter = IoThrottler(job.bytes_per_second, context.monotonic_s, context.pause)
    return compaction.run_compaction(ThrottledDisk(context.disk, meter), job.plan)
