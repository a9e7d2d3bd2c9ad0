"""Records found by their time: what ListOffsets asks for.

Source: ``UnifiedLog.fetchOffsetByTimestamp`` (apache/kafka 4.3.1).

From KIP-79, and the largest timestamp: KIP-734.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from typing import NamedTuple

from ottla.log.partition_log import PartitionLog
from ottla.log.scan import WINDOW_BYTES
from ottla.log.segment import Segment
from ottla.wire import records as r
from ottla.wire.batch import HEADER_BYTES, BatchHeader
from ottla.wire.errors import WireError
from ottla.wire.legacy import any_header


class TimeOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


Looking = Generator[bool | None, None, TimeOffset | None]
"""A look-up that pauses now and then; with True where much is kept meanwhile, as `records.finding_by_time` has it."""


def find_by_time(log: PartitionLog, timestamp: int, upper_offset: int) -> TimeOffset | None:
    """`finding_by_time`, all at once."""
    return _all_at_once(finding_by_time(log, timestamp, upper_offset))


def find_max_time(log: PartitionLog) -> TimeOffset | None:
    """`finding_max_time`, all at once."""
    return _all_at_once(finding_max_time(log))


def _all_at_once(steps: Looking) -> TimeOffset | None:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: TimeOffset | None = done.value
            return found


def finding_by_time(log: PartitionLog, timestamp: int, upper_offset: int) -> Looking:
    """The first record, in offset order, as late as ``timestamp`` and below ``upper_offset``.

    Pauses often: there may be thousands of segments, and megabytes in a batch. What changes in a pause is seen.

    Raises:
        WireError: a batch is damaged.
    """
    offset = log.log_start_offset
    while offset < log.log_end_offset and not log.closed:
        segment = log.segment_of(offset)
        segment.measure()
        found = None
        if segment.max_timestamp >= timestamp:
            found = yield from _batch_by_time(log, segment, timestamp, offset)
            if log.closed:
                break
        if found is None:
            number = bisect_right(log.bases, offset)
            if number == len(log.bases):
                break
            offset = log.bases[number]
        else:
            raw, header = found
            record = yield from r.finding_by_time(raw, header, timestamp, log.log_start_offset)
            if record is not None:
                return None if record[0] >= upper_offset else _told(header, *record)
            offset = header.next_offset
        yield None
    return None


def _told(header: BatchHeader, offset: int, timestamp_ms: int) -> TimeOffset:
    """Return a record with the leader epoch of its batch, as ``FileRecords.maybeLeaderEpoch``: the epoch cache holds
    nothing below the log start, and nothing of formats 0 and 1.
    """
    return TimeOffset(timestamp_ms, offset, header.partition_leader_epoch)


def _batch_by_time(
    log: PartitionLog, segment: Segment, timestamp: int, from_offset: int
) -> Generator[None, None, tuple[bytes, BatchHeader] | None]:
    """A segment's first batch, from ``from_offset`` on, that holds a record as late as ``timestamp``.

    Raises:
        WireError: a header on the way is damaged.
    """
    start = segment.locate(max(segment.time_index.lookup(timestamp), from_offset, segment.base_offset))
    if start is None:
        return None
    position = begin = start.position
    window, file, truncations = b"", segment.file, log.truncations
    while position < segment.size_bytes:
        at = position - begin
        if len(window) - at < HEADER_BYTES:
            if window:
                yield
                if log.closed or log.truncations != truncations:
                    return None
            window, begin, at = file.pread(WINDOW_BYTES, position), position, 0
        header = any_header(window, at)
        if header.max_timestamp >= timestamp:
            return file.pread(header.size_bytes, position), header
        position += header.size_bytes
    return None


def finding_max_time(log: PartitionLog) -> Looking:
    """The record with the largest timestamp; the first of them where several have it. Pauses as `finding_by_time`.

    Neither the log start nor the high watermark bounds the look-up: the caller compares the offset, as Kafka does.
    """
    best, base = None, -1
    while not log.closed and (number := bisect_right(log.bases, base)) < len(log.bases):
        segment, base = log.segments[number], log.bases[number]
        segment.measure()
        if best is None or segment.max_timestamp > best.max_timestamp:
            best = segment
        yield None
    if best is None or best.max_timestamp < 0 or log.closed or log.segment_of(best.base_offset) is not best:
        return None
    found = best.locate(best.max_timestamp_offset)
    if found is None:
        return None
    raw = best.file.pread(found.size_bytes, found.position)
    try:
        header = any_header(raw)
        record = yield from r.finding_by_time(raw, header, header.max_timestamp, header.base_offset)
        if record is None:
            record = yield from r.finding_latest(raw, header)
    except WireError:
        return None
    return None if record is None else _told(header, *record)
