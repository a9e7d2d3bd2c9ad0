"""What has to be synced so that a log survives a power cut up to some offset.

Source: ``UnifiedLog.flush``, ``LogSegment.flush`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.world.disk import sync_file

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


def sync_job(log: PartitionLog, end: int) -> Callable[[], None]:
    """What makes everything below ``end`` durable: batches, and the indexes that will be believed.

    It may run in a thread: the open files are taken here, since meanwhile a segment may be exchanged or removed.
    It raises OSError, which is final for the directory.
    """
    segments = [s for s in log.unflushed() if s.base_offset < end]
    files = [s.file for s in segments]
    paths = [path for s in segments for path in s.index_paths(sealed=s is not log.active)]

    def sync() -> None:
        for file in files:
            file.fsync()
        for path in paths:
            with suppress(FileNotFoundError):
                sync_file(log.disk, path)
        try:
            log.sync_names()
        except FileNotFoundError:
            if not log.closed:  # else its directory was just renamed for deletion
                raise

    return sync
