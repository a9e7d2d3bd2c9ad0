"""Completion or rollback of file deletions and segment swaps that a crash interrupted, before a log is loaded.

Source: ``LogLoader.removeTempFilesAndCollectSwapFiles`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.env.disk import Disk
from ottla.log.file_names import (
    CLEANED_FILE_SUFFIX,
    DELETED_FILE_SUFFIX,
    INDEX_SUFFIXES,
    SWAP_FILE_SUFFIX,
    base_offsets_of,
    is_temporary_file,
    parse_segment_file,
)
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES
from ottla.wire.record_batch.legacy_records import MIN_MESSAGE_BYTES, parse_any_header


def finish_interrupted_changes(disk: Disk, directory: str, on_swaps: Callable[[int], None]) -> tuple[list[str], int]:
    """Complete or roll back the file changes in a partition's directory that a crash interrupted.

    ``.deleted``, ``.cleaned`` and temporary files are removed, and indexes without a segment. A ``.swap`` segment is
    complete and replaces every segment within its offset range, some of which may be removed already. If a ``.cleaned``
    file with the same or a lower base offset exists, the swap had not begun, and the ``.swap`` file is removed too. The
    directory is synced only if there are ``.swap`` segments to complete.

    Returns:
        The remaining file names, and the offset below which a completed swap may have left gaps (0: no swap), which
        is passed to ``on_swaps`` before the ``.swap`` files are renamed.
    """
    names = disk.list_files(directory)
    files = {name: file for name in names if (file := parse_segment_file(name)) is not None}
    unfinished = min((file.base_offset for file in files.values() if file.state == CLEANED_FILE_SUFFIX), default=None)
    swaps, ends = {}, [0]
    gone = False
    for name in names:
        file = files.get(name)
        is_swap = file is not None and file.state == SWAP_FILE_SUFFIX
        invalid = file is not None and is_swap and unfinished is not None and file.base_offset >= unfinished
        if (
            is_temporary_file(name)
            or invalid
            or (file is not None and file.state in (DELETED_FILE_SUFFIX, CLEANED_FILE_SUFFIX))
        ):
            disk.unlink(f"{directory}/{name}")
        elif file is not None and is_swap:
            swaps[name] = file
    for name, file in swaps.items():
        if file.kind == ".log":
            end = _segment_end_offset(disk, f"{directory}/{name}", file.base_offset)
            ends.append(end)
            for other in disk.list_files(directory):
                own = parse_segment_file(other)
                if own is not None and own.state != SWAP_FILE_SUFFIX and file.base_offset <= own.base_offset < end:
                    disk.unlink(f"{directory}/{other}")
                    gone = True
    if gone:
        disk.fsync_dir(directory)  # else one of them could reappear after the segment that replaces it
    below = _first_base_offset_from(disk.list_files(directory), max(ends)) if swaps else 0
    if below:
        on_swaps(below)
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix('.swap')}")
    if swaps:
        disk.fsync_dir(directory)  # else the `.swap` name could reappear during the next compaction
    names = disk.list_files(directory)
    logs = set(base_offsets_of(names, ".log"))
    for name in names:
        file = parse_segment_file(name)
        if file is not None and file.kind in INDEX_SUFFIXES and file.state == "" and file.base_offset not in logs:
            disk.unlink(f"{directory}/{name}")
    return disk.list_files(directory), below


def _first_base_offset_from(names: list[str], end: int) -> int:
    """Return the lowest base offset at or above ``end`` among ``.log`` and ``.log.swap`` files; 0 if there is none."""
    bases = [*base_offsets_of(names, ".log"), *base_offsets_of(names, ".log", SWAP_FILE_SUFFIX)]
    return min((base for base in bases if base >= end), default=0)


def _segment_end_offset(disk: Disk, path: str, base_offset: int) -> int:
    """Return the offset after the last batch of a segment file, up to damage; at least ``base_offset`` + 1."""
    file = disk.open(path, readonly=True)
    try:
        end, position, size = base_offset + 1, 0, file.size()
        while position + MIN_MESSAGE_BYTES <= size:
            header = parse_any_header(file.pread(HEADER_BYTES, position))
            end, position = max(end, header.next_offset), position + header.size_bytes
    except WireError:
        pass
    finally:
        file.close()
    return end
