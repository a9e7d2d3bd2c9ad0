"""Split a segment whose offsets reach further than its indexes can say: once, compaction could write such.

The parts are written under names of their own and exchanged as after a compaction, so a crash at any point leaves
either the segment or all its parts (`recovery` goes on from there).

Source: ``LocalLog.splitOverflowedSegment`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.log.exchange import rename_files
from ottla.log.names import CLEANED, SWAP
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.wire.errors import WireError
from ottla.world.disk import Disk

_COPY_BYTES = 1 << 20


def _append_rest(source: Segment, position: int, target: Segment) -> None:
    at = target.size_bytes
    while more := source.file.pread(_COPY_BYTES, position):
        target.file.pwrite(more, at)
        position, at = position + len(more), at + len(more)


def split(disk: Disk, directory: str, source: Segment) -> list[Segment]:
    """The parts, in order, in the place of ``source``. Damage goes along: it ends the log when its part is recovered.

    Raises:
        OSError: the disk failed.
    """
    parts: list[Segment] = []
    end, log_end = 0, source.base_offset
    try:
        for position, header, raw in source.scan():
            if not parts or header.last_offset - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
                # A part begins where the one before ends, if it can: recovery takes a hole in between for a loss.
                base = log_end if header.last_offset - log_end <= MAX_RELATIVE_OFFSET else header.base_offset
                new = Segment.begin(disk, directory, base, source.settings, source.created_ms, CLEANED)
                parts.append(new)
            parts[-1].append(raw, header.last_offset, header.max_timestamp)
            end, log_end = position + header.size_bytes, header.next_offset
    except WireError:
        _append_rest(source, end, parts[-1])
    for part in parts:
        part.fsync()
        part.seal(sync=True, suffix=CLEANED)
        part.close()
    # Backwards: as long as a part has its first name, those with their second do not count.
    for part in reversed(parts):
        rename_files(disk, part.path, CLEANED, SWAP)
    source.let_go()
    for suffix in (".timeindex", ".index", ".log", ".txnindex"):
        if disk.exists(source.path + suffix):
            disk.unlink(source.path + suffix)
    for part in parts:
        rename_files(disk, part.path, SWAP, "")
    disk.fsync_dir(directory)
    return [Segment.load(disk, directory, part.base_offset, source.settings) for part in parts]
