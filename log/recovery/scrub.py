"""Scrubbing: background verification of the checksums of old segments, a few bytes at a time.

Kafka never verifies data below the recovery point. Here a damaged batch is recorded and not served: fetches return
CORRUPT_MESSAGE for it, and the data around it stays available.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segment import LogSegment
from ottla.wire.errors import WireError
from ottla.wire.record_batch.legacy_records import (
    MAGIC_PREFIX_BYTES,
    any_crc_matches,
    min_batch_bytes,
    parse_any_header,
)


class DamagedRange(NamedTuple):
    """Damaged byte range of a segment file, from ``position`` to ``end`` (exclusive)."""

    path: str
    position: int
    end: int
    offset: int
    """First offset that cannot be read."""


class ScrubResult(NamedTuple):
    """Result of one scrubbing step over a segment: position of the next step (None: the end) and damaged ranges."""

    next_position: int | None
    """Position at which the next step begins; None at the end of the segment."""
    damaged_ranges: list[DamagedRange]


def list_sealed_segments(log: PartitionLog) -> list[LogSegment]:
    """Return the segments of a log that can be scrubbed: inactive ones that end at or below the recovery point."""
    return [s for s, end in zip(log.segments, log.segments.base_offsets[1:], strict=False) if end <= log.recovery_point]


def scrub_batches(segment: LogSegment, position: int, at_most_bytes: int) -> ScrubResult:
    """Verify about ``at_most_bytes`` bytes of batches from file position ``position`` on; nothing is changed.

    Raises:
        OSError: the file cannot be opened, or was removed.
    """
    start, offset, found = position, segment.base_offset, []
    while position < segment.size_bytes and position - start < at_most_bytes:
        good = position
        try:
            for at, header, _ in segment.scan(position):
                good, offset = at + header.size_bytes, header.next_offset
                if good - start >= at_most_bytes:
                    break
            position = good
        except (WireError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EIO:
                raise  # file removed or process out of resources: not damage
            position = _end_of_damage(segment, good)
            found.append(DamagedRange(f"{segment.path}.log", good, position, _offset_at(segment, good, offset)))
    return ScrubResult(position if position < segment.size_bytes else None, found)


def _end_of_damage(segment: LogSegment, position: int) -> int:
    """Return the position of the next valid batch after the damaged one at ``position``; the file size if none is.

    It is found by the size of the damaged batch, else by the offset index.
    """
    size = _size_at(segment, position)
    candidates = [] if size is None else [position + size]
    candidates += [p for p in segment.offset_index.positions if p > position]
    for at in candidates:
        if at == segment.size_bytes or (_size_at(segment, at) is not None and _is_valid_batch(segment, at)):
            return at
    return segment.size_bytes


def _offset_at(segment: LogSegment, position: int, at_least: int) -> int:
    """Return the base offset in the damaged batch's header; ``at_least`` if that is lower or unreadable."""
    try:
        return max(parse_any_header(segment.file.pread(64, position)).base_offset, at_least)
    except (WireError, OSError):
        return at_least


def _size_at(segment: LogSegment, position: int) -> int | None:
    try:
        raw = segment.file.pread(64, position)
        if len(raw) < MAGIC_PREFIX_BYTES:
            return None
        size = parse_any_header(raw).size_bytes
    except (WireError, OSError):
        return None
    return size if min_batch_bytes(raw) <= size <= segment.size_bytes - position else None


def _is_valid_batch(segment: LogSegment, position: int) -> bool:
    try:
        raw = segment.file.pread(_size_at(segment, position) or 0, position)
        return any_crc_matches(raw, parse_any_header(raw))
    except (WireError, OSError):
        return False
