"""Put a compacted segment in the place of those it was made from, so that a crash at any point loses nothing.

Source: ``LocalLog.replaceSegments`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.log.compaction import CLEANED, Cleaned
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.world.disk import Disk

# In this order: while `.log` has its first name, nothing has happened yet.
_SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")
SWAP = ".swap"


def rename_files(disk: Disk, path: str, old: str, new: str) -> None:
    """Give a segment's files, those that are there, another ending."""
    for suffix in _SUFFIXES:
        if disk.exists(f"{path}{suffix}{old}"):
            disk.rename(f"{path}{suffix}{old}", f"{path}{suffix}{new}")


def exchange(log: PartitionLog, done: Cleaned, now_ms: int) -> bool:
    """The new segment lies complete and synced under its ``.cleaned`` names; its sources are neighbours in the log.

    Once the ``.swap`` names are on disk a crash cannot undo it: `recovery` goes on from there. False where the log has
    changed in the meantime; then nothing is done.

    Raises:
        OSError: final for this directory.
    """
    if log.closed or done.sources[0] not in log.bases:
        return False
    at = log.bases.index(done.sources[0])
    sources = log.segments[at : at + len(done.sources)]
    if [s.base_offset for s in sources] != done.sources or sources[-1] is log.active:
        return False
    created_ms = max(s.created_ms for s in sources)
    target = Segment(log.disk, log.directory, done.base_offset, log.settings, created_ms)
    target.size_bytes = done.size_bytes
    disk, path = log.disk, target.path
    with_aborted = disk.exists(f"{path}.txnindex{CLEANED}")
    rename_files(disk, path, CLEANED, SWAP)
    for source in sources:
        if source.base_offset != target.base_offset:
            log.retire(source, now_ms)
            continue
        source.let_go()
        if not with_aborted and disk.exists(f"{path}.txnindex"):
            disk.unlink(f"{path}.txnindex")
    rename_files(disk, path, SWAP, "")
    log.put_in_place(at, len(sources), [target])
    log.names_made += 1
    return True
