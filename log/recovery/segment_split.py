"""Split of a segment whose relative offsets exceed 2^31 - 1, which old versions of compaction could write.

The parts are written as ``.cleaned`` files and swapped in as after a compaction, so a crash at any point leaves either
the segment or all its parts.

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
    """Split a segment with offset overflow on disk; return the new segments that replace ``source``, in offset order.

    Its files are replaced by those of the new segments, synced. Bytes after a damaged batch are copied unparsed:
    recovery of the last part truncates them.

    Raises:
        OSError: the disk failed.
    """
    parts: list[LogSegment] = []
    end, log_end = 0, source.base_offset
    try:
        for position, header, raw in source.scan():
            if not parts or header.last_offset - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
                # A part begins where the previous one ends, if possible: recovery treats a gap in between as a loss.
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
    # Backwards: while a part is still `.cleaned`, recovery ignores the `.swap` files of later parts.
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
