"""Split of a segment whose offsets exceed its indexes' range, which old versions of compaction could write.

The parts are written under names of their own and exchanged as after a compaction, so a crash at any point leaves
either the segment or all its parts (`recovery` goes on from there).

Source: ``LocalLog.splitOverflowedSegment`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.env.disk import Disk
from ottla.log.cleaner.segment_swap import rename_files
from ottla.log.file_names import CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.wire.errors import WireError

_COPY_BYTES = 1 << 20


def _copy_unparsed(source: LogSegment, position: int, target: LogSegment) -> None:
    at = target.size_bytes
    while more := source.file.pread(_COPY_BYTES, position):
        target.file.pwrite(more, at)
        position, at = position + len(more), at + len(more)


def split_overflowed_segment(disk: Disk, directory: str, source: LogSegment) -> list[LogSegment]:
    """Split a segment with offset overflow; return the parts that replace ``source``, in order.

    Damage goes along: it ends the log when its part is recovered.

    Raises:
        OSError: the disk failed.
    """
    parts: list[LogSegment] = []
    end, log_end = 0, source.base_offset
    try:
        for position, header, raw in source.scan():
            if not parts or header.last_offset - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
                # A part begins where the one before ends, if it can: recovery takes a hole in between for a loss.
                base = log_end if header.last_offset - log_end <= MAX_RELATIVE_OFFSET else header.base_offset
                new = LogSegment.create_without_indexes(
                    disk, directory, base, source.config, source.created_ms, CLEANED_FILE_SUFFIX
                )
                parts.append(new)
            parts[-1].append(raw, header.last_offset, header.max_timestamp)
            end, log_end = position + header.size_bytes, header.next_offset
    except WireError:
        _copy_unparsed(source, end, parts[-1])
    for part in parts:
        part.fsync()
        part.write_index_files(sync=True, suffix=CLEANED_FILE_SUFFIX)
        part.close()
    # Backwards: as long as a part has its first name, those with their second do not count.
    for part in reversed(parts):
        rename_files(disk, part.path, CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX)
    source.detach_file()
    for suffix in (".timeindex", ".index", ".log", ".txnindex"):
        if disk.exists(source.path + suffix):
            disk.unlink(source.path + suffix)
    for part in parts:
        rename_files(disk, part.path, SWAP_FILE_SUFFIX, "")
    disk.fsync_dir(directory)
    return [LogSegment.load(disk, directory, part.base_offset, source.config) for part in parts]
