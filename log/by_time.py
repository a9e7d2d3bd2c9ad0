"""Records found by their time: what ListOffsets asks for.

Source: ``UnifiedLog.fetchOffsetByTimestamp`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.partition_log import PartitionLog
from ottla.log.scan import WINDOW_BYTES, Located
from ottla.log.segment import Segment
from ottla.wire import records as r
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.errors import WireError
from ottla.wire.legacy import any_header


class TimeOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_by_time(log: PartitionLog, timestamp: int, upper_offset: int) -> TimeOffset | None:
    """The first record, in offset order, as late as ``timestamp`` and below ``upper_offset``."""
    for segment in log.segments:
        segment.measure()
        if segment.max_timestamp < timestamp:
            continue
        found = _batch_by_time(segment, timestamp, log.log_start_offset)
        while found is not None:
            raw = segment.file.pread(found.size_bytes, found.position)
            record = r.first_by_time(raw, any_header(raw), timestamp, log.log_start_offset)
            if record is not None:
                offset, time = record
                return None if offset >= upper_offset else TimeOffset(time, offset, log.epochs.epoch_at(offset))
            found = _batch_by_time(segment, timestamp, found.last_offset + 1)
    return None


def _batch_by_time(segment: Segment, timestamp: int, from_offset: int) -> Located | None:
    """A segment's first batch, from ``from_offset`` on, that holds a record as late as ``timestamp``.

    Raises:
        WireError: a header on the way is damaged.
    """
    start = segment.locate(max(segment.time_index.lookup(timestamp), from_offset, segment.base_offset))
    if start is None:
        return None
    position = begin = start.position
    window = b""
    while position < segment.size_bytes:
        at = position - begin
        if len(window) - at < HEADER_BYTES:
            window, begin, at = segment.file.pread(WINDOW_BYTES, position), position, 0
        header = any_header(window, at)
        if header.max_timestamp >= timestamp:
            return Located(position, header.size_bytes, header.base_offset, header.last_offset)
        position += header.size_bytes
    return None


def find_max_time(log: PartitionLog) -> TimeOffset | None:
    """The record with the largest timestamp; the first of them where several have it."""
    for segment in log.segments:
        segment.measure()
    best = max(log.segments, key=lambda s: (s.max_timestamp, -s.base_offset))
    if best.max_timestamp < 0:
        return None
    found = best.locate(best.max_timestamp_offset)
    if found is None:
        return None
    raw = best.file.pread(found.size_bytes, found.position)
    header = any_header(raw)
    try:
        record = max(r.iterate(raw, header), key=lambda x: (x.timestamp_ms, -x.offset), default=None)
    except WireError:
        record = None
    if record is None:
        return None
    return TimeOffset(record.timestamp_ms, record.offset, log.epochs.epoch_at(record.offset))
