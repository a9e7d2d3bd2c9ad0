"""Replacement of segments by cleaned ones in one piece."""

from __future__ import annotations

from ottla.log.cleaner.compaction import CleanedSegment
from ottla.log.cleaner.segment_swap import SegmentSwap
from ottla.log.partition_log import PartitionLog


def swap_segments(log: PartitionLog, cleaned: list[CleanedSegment], now_ms: int) -> bool:
    """Run all steps at once, for callers that may wait for the disk.

    Raises:
        OSError: final for this directory.
    """
    work = SegmentSwap(log, cleaned)
    if not work.add_swap_suffix():
        return False
    work.sync_directory()
    if not work.replace_segments(now_ms):
        return False
    work.sync_directory()
    work.remove_swap_suffix()
    work.sync_directory()
    return True
