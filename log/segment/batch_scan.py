"""Sequential reads of a segment's batches: headers up to a searched offset, or whole batches in large reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from ottla.env.disk import File
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_OFFSET,
    BatchHeader,
    read_offset_and_size,
)
from ottla.wire.record_batch.legacy_records import (
    MAGIC_PREFIX_BYTES,
    any_crc_matches,
    min_batch_bytes,
    parse_any_header,
)

_PIECE_BYTES = 1 << 20
WINDOW_BYTES = 16 * 1024
"""Bytes of one read while batches are skipped header by header."""

_unpack_prefix = struct.Struct(">qi4xb6xi").unpack_from
"""Base offset, batch length, magic and last offset delta of a batch of format 2."""
ByteRange = tuple[int, int]
"""Position of the first byte, and position after the last byte."""


class IncompleteBatch(WireError):
    """Raised if a segment file ends inside a batch, or with fewer bytes than a batch needs."""


class LogOffsetPosition(NamedTuple):
    """Position and size in bytes of a batch in a segment file, and its first and last offset."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class ScannableSegment(Protocol):
    """Interface to a segment that is scanned (`LogSegment`): it may grow, and its file may be reopened meanwhile."""

    path: str
    size_bytes: int
    damaged_ranges: list[ByteRange]

    @property
    def file(self) -> File:
        """Segment file, opened if necessary."""


def locate_batch(segment: ScannableSegment, offset: int, position: int) -> LogOffsetPosition | None:
    """Return the first batch from file position ``position`` on whose last offset is at least ``offset``, or None.

    Only headers are read. A range that scrubbing found damaged and that may contain the offset is returned as a batch.

    Raises:
        IncompleteBatch: the file ends within the first bytes of a batch. WireError: as `LogSegment.locate`.
    """
    window, start, window_bytes = b"", position, WINDOW_BYTES
    while position < segment.size_bytes:
        at = position - start
        if len(window) - at < HEADER_BYTES:
            window, start, at = segment.file.pread(window_bytes, position), position, 0
            if len(window) < LOG_OVERHEAD_BYTES:
                return None
        if segment.damaged_ranges:
            size = damaged_bytes_from(segment.damaged_ranges, position)
            behind = segment.file.pread(LOG_OVERHEAD_BYTES, position + size)
            if size and (len(behind) < LOG_OVERHEAD_BYTES or read_offset_and_size(behind)[0] > offset):
                return LogOffsetPosition(position, size, offset, offset)  # the offset may be in the damaged range
            if size:
                position += size
                continue
        if len(window) - at >= HEADER_BYTES:
            base, size, magic, last_delta = _unpack_prefix(window, at)
            size += LOG_OVERHEAD_BYTES
        else:  # only a message of an old format is this short
            (base, size), magic, last_delta = read_offset_and_size(window, at), -1, 0
        if magic == 2 and size >= HEADER_BYTES:
            last = base + last_delta
        elif len(window) - at < MAGIC_PREFIX_BYTES:
            raise IncompleteBatch(f"{segment.path}.log: {len(window) - at} bytes at {position} are no batch")
        elif size < min_batch_bytes(window, at):
            raise WireError(f"{segment.path}.log: batch of {size} bytes at {position}")
        else:
            last = base + _last_offset_delta(window, at)
        if last >= offset:
            return LogOffsetPosition(position, size, base, last)
        position += size
        window_bytes = WINDOW_BYTES if size < WINDOW_BYTES else HEADER_BYTES  # large batches: read headers only
    return None


def _last_offset_delta(window: bytes, at: int) -> int:
    if window[at + MAGIC_OFFSET] == 2:
        return int.from_bytes(window[at + 23 : at + 27], "big", signed=True)
    return 0  # the offset field of formats 0 and 1 is that of the last message


def iterate_batches(
    segment: ScannableSegment, position: int, *, check: bool, name: str | None = None
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield every batch from a file position on as (position, header, bytes); ``check`` verifies the checksum.

    ``name``: name of the file in messages; None: the segment's path with ``.log``.

    Raises:
        IncompleteBatch: the bytes at the end of the file are no whole batch; all batches before them were yielded.
        WireError: a batch is malformed or has a bad checksum; all earlier batches were yielded.
    """
    name = name or f"{segment.path}.log"
    while position < segment.size_bytes:
        window = memoryview(segment.file.pread(_PIECE_BYTES, position))
        at = 0
        while len(window) - at >= MAGIC_PREFIX_BYTES:
            size = read_offset_and_size(window, at)[1]
            if size < min_batch_bytes(window, at):
                raise WireError(f"{name}: batch of {size} bytes at {position + at}")
            if position + at + size > segment.size_bytes:
                raise IncompleteBatch(f"{name}: batch of {size} bytes at {position + at}")
            if size > len(window) - at:
                if at == 0:
                    window = memoryview(segment.file.pread(size, position))
                    if len(window) < size:
                        raise IncompleteBatch(f"{name} ends inside the batch at {position}")
                    continue
                break
            header = parse_any_header(window, at)
            if check and not any_crc_matches(window, header, at):
                raise WireError(f"{name}: bad CRC at {position + at}")
            yield position + at, header, window[at : at + size]
            at += size
        if at == 0:
            raise IncompleteBatch(f"{name}: {segment.size_bytes - position} bytes at {position} are no batch")
        position += at


def damaged_bytes_from(damage: Iterable[ByteRange], position: int) -> int:
    """Return the size in bytes of the damaged range that begins at ``position``; 0 if none begins there."""
    return next((end - start for start, end in damage if start == position), 0)


def undamaged_end(damage: Iterable[ByteRange], position: int, end: int) -> int:
    """Return the end of the undamaged bytes from ``position`` on, at most ``end``; ``position`` if it is damaged."""
    for start, stop in damage:
        if start <= position < stop:
            return position
        if position < start < end:
            end = start
    return end
