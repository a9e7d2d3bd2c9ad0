"""Look-up of offsets by timestamp, and of the largest timestamp, for ListOffsets and new share-partitions.

Source: ``UnifiedLog.fetchOffsetByTimestamp`` (apache/kafka 4.3.1).

By timestamp: KIP-79; largest timestamp: KIP-734.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from typing import NamedTuple

from ottla.log.partition_log import PartitionLog
from ottla.log.segment.batch_scan import WINDOW_BYTES
from ottla.log.segment.log_segment import LogSegment
from ottla.wire.record_batch import records
from ottla.wire.record_batch.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.record_batch.legacy_records import parse_any_header


class TimestampAndOffset(NamedTuple):
    """Record found by its timestamp: timestamp in ms, offset and the leader epoch of its batch (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


TimestampLookupJob = Generator[bool | None, None, TimestampAndOffset | None]
"""Look-up that yields to other tasks; yields True while its memory use is high (`find_first_by_timestamp_job`)."""


def find_offset_by_timestamp(log: PartitionLog, timestamp: int, upper_offset: int) -> TimestampAndOffset | None:
    """Return the first record from the local log start on with a timestamp of at least ``timestamp`` (ms), or None.

    None also if its offset is not below ``upper_offset``. Blocks the event loop until it is found, unlike the job
    `find_offset_by_timestamp_job`.

    Raises:
        WireError: a batch is damaged.
    """
    return _run(find_offset_by_timestamp_job(log, timestamp, upper_offset))


def find_max_timestamp(log: PartitionLog) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp; None without records or timestamps.

    Blocks the event loop until it is found, unlike the job `find_max_timestamp_job`.

    Raises:
        WireError: the batch, or a header before it, is damaged.
    """
    return _run(find_max_timestamp_job(log))


def _run(steps: TimestampLookupJob) -> TimestampAndOffset | None:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: TimestampAndOffset | None = done.value
            return found


def find_offset_by_timestamp_job(log: PartitionLog, timestamp: int, upper_offset: int) -> TimestampLookupJob:
    """Return the first record by offset with a timestamp (ms) of at least ``timestamp``, as a job; None without one.

    None also if that record's offset is not below ``upper_offset``, or if the log is closed meanwhile. The search
    begins at the local log start offset. Yields often: there may be thousands of segments, and megabytes in a batch.
    Truncations and rolls between two steps are taken into account.

    Raises:
        WireError: a batch is damaged.
    """
    offset = log.local_log_start_offset
    while offset < log.log_end_offset and not log.closed:
        segment = log.segments.segment_for(offset)
        segment.load_max_timestamp()
        found = None
        if segment.max_timestamp >= timestamp:
            found = yield from _find_batch_by_timestamp(log, segment, timestamp, offset)
            if log.closed:
                break
        if found is None:
            number = bisect_right(log.segments.base_offsets, offset)
            if number == len(log.segments.base_offsets):
                break
            offset = log.segments.base_offsets[number]
        else:
            raw, header = found
            record = yield from records.find_first_by_timestamp_job(raw, header, timestamp, log.local_log_start_offset)
            if record is not None:
                return None if record[0] >= upper_offset else _with_leader_epoch(header, *record)
            offset = header.next_offset
        yield None
    return None


def _with_leader_epoch(header: BatchHeader, offset: int, timestamp_ms: int) -> TimestampAndOffset:
    """Return the look-up result of a record, with the leader epoch in its batch's header."""
    return TimestampAndOffset(timestamp_ms, offset, header.partition_leader_epoch)


def _find_batch_by_timestamp(
    log: PartitionLog, segment: LogSegment, timestamp: int, from_offset: int
) -> Generator[None, None, tuple[bytes, BatchHeader] | None]:
    """Return the first batch from ``from_offset`` on whose largest timestamp is at least ``timestamp`` (ms), or None.

    A job; it returns None also if the log is closed or truncated meanwhile.

    Raises:
        WireError: a batch header before it is damaged.
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
        header = parse_any_header(window, at)
        if header.max_timestamp >= timestamp:
            return file.pread(header.size_bytes, position), header
        position += header.size_bytes
    return None


def find_max_timestamp_job(log: PartitionLog) -> TimestampLookupJob:
    """Return the first record with the largest timestamp, as a job; None if the log is empty or closed.

    None as well if no record has a timestamp, if the record's segment was removed or replaced meanwhile, or if its file
    ends within the batch, after its header. Neither the log start nor the high watermark bounds the look-up: the caller
    compares the offset, as Kafka does.

    Raises:
        WireError: the batch, or a header before it, is damaged.
    """
    best, base = None, -1
    while not log.closed and (number := bisect_right(log.segments.base_offsets, base)) < len(log.segments.base_offsets):
        segment, base = log.segments[number], log.segments.base_offsets[number]
        segment.load_max_timestamp()
        if best is None or segment.max_timestamp > best.max_timestamp:
            best = segment
        yield None
    if best is None or best.max_timestamp < 0 or log.closed or log.segments.segment_for(best.base_offset) is not best:
        return None
    found = best.locate(best.max_timestamp_offset)
    if found is None:
        return None
    raw = best.file.pread(found.size_bytes, found.position)
    if len(raw) < found.size_bytes:
        return None
    header = parse_any_header(raw)
    record = yield from records.find_first_by_timestamp_job(raw, header, header.max_timestamp, header.base_offset)
    if record is None:
        record = yield from records.find_max_timestamp_job(raw, header)
    return None if record is None else _with_leader_epoch(header, *record)
