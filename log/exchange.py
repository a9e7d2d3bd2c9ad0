"""Put a compacted segment in the place of those it was made from, so that a crash at any point loses nothing.

Source: ``LocalLog.replaceSegments`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.log.partition_log import PartitionLog, remove_segment
from ottla.log.segment import Segment

# In this order: while `.log` has its first name, nothing has happened yet.
_SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")


def exchange(log: PartitionLog, target: Segment, sources: list[Segment]) -> bool:
    """``target`` lies complete and synced under its ``.cleaned`` names; ``sources`` are neighbours in the log.

    Once the ``.swap`` names are on disk a crash cannot undo it: `recovery` goes on from there. False where the log has
    changed in the meantime; then nothing is done.

    Raises:
        OSError: final for this directory.
    """
    if log.closed or any(source not in log.segments for source in sources):
        return False
    disk, path = log.disk, target.path
    at = log.segments.index(sources[0])
    suffixes = [suffix for suffix in _SUFFIXES if disk.exists(f"{path}{suffix}.cleaned")]
    for suffix in suffixes:
        disk.rename(f"{path}{suffix}.cleaned", f"{path}{suffix}.swap")
    for source in sources:
        if source.base_offset != target.base_offset:
            remove_segment(disk, source)
            continue
        source.let_go()
        if ".txnindex" not in suffixes and disk.exists(f"{path}.txnindex"):
            disk.unlink(f"{path}.txnindex")
    for suffix in suffixes:
        disk.rename(f"{path}{suffix}.swap", f"{path}{suffix}")
    target.forget_cache()
    log.segments[at : at + len(sources)] = [target]
    log.bases[at : at + len(sources)] = [target.base_offset]
    log.names_unsynced = True
    return True
