"""Retention: selection of the segments of a log that expired by time or size, or lie below the log start offset.

Whole segments are deleted, oldest first, and only below the high watermark. A segment's age counts from its largest
timestamp if that is in the past, else from the file's last modification. A record with a timestamp in the far future
would otherwise keep its segment for ever, as it does in Kafka, and here with ``ottla.retention.claimed.time``. A past
timestamp has precedence over the file's: a machine that writes before its clock was set leaves files dated 1970.

By size the oldest segments are deleted while the rest is at least ``retention.bytes``. If the active segment has
expired too, the log is rolled first.

If segments are copied to a remote store (KIP-405), the limits are ``local.retention.ms`` and ``local.retention.bytes``.
Only segments that are in the remote store, with committed metadata, or that lie below the log start offset are deleted
then.

Source: ``UnifiedLog.deleteOldSegments`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging

from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segment import LogSegment

UNLIMITED = -1
DAY_MS = 24 * 3600 * 1000
MAX_CLOCK_SKEW_MS = 3600 * 1000
"""Milliseconds by which a timestamp must exceed the file's modification time to be logged, once for each log."""
logger = logging.getLogger("ottla.retention")


def newest_record_ms(log: PartitionLog, segment: LogSegment, now_ms: int) -> int:
    """Return the wall clock time in ms of a segment's newest record: its largest timestamp if that is in the past.

    Else, or without a timestamp (-1), it is the modification time of the file; a timestamp in the future is logged once
    for each log. With ``ottla.retention.claimed.time`` the timestamp is returned in any case.
    """
    segment.load_max_timestamp()
    claimed = segment.max_timestamp
    if 0 <= claimed <= now_ms or (claimed >= 0 and log.config.retention_by_claimed_time):
        return claimed
    written = log.disk.stat(segment.path + ".log").mtime_ms
    if claimed > written + MAX_CLOCK_SKEW_MS and log.warns_of_future_timestamp():
        logger.warning(
            "Timestamp in the future in %s-%d: %.1f days after the append; retention uses the time of the append. Set "
            "ottla.retention.claimed.time=true on the topic to use the timestamp, as Kafka does",
            *(log.topic, log.partition, (claimed - written) / DAY_MS),
        )
    return written


def count_expired_segments(log: PartitionLog, now_ms: int) -> int:
    """Return the number of segments, from the oldest on, that retention may delete; an expired active one is included.

    An empty active segment never is, nor are segments that end above the high watermark. ``now_ms``: wall clock.
    """
    settings = log.config
    retention_ms, retention_bytes = settings.local_retention
    expires = settings.delete or (settings.tiering.has_copies and not settings.compact)
    count = 0
    left = log.size_bytes
    for number, segment in enumerate(log.segments):
        last = number + 1 == len(log.segments)
        end = log.log_end_offset if last else log.segments.base_offsets[number + 1]
        if end > log.high_watermark or (last and segment.size_bytes == 0):
            break
        below_start = not last and end <= log.local_log_start_offset
        too_old = (
            expires and retention_ms != UNLIMITED and now_ms - newest_record_ms(log, segment, now_ms) > retention_ms
        )
        too_much = expires and retention_bytes != UNLIMITED and left - segment.size_bytes >= retention_bytes
        if not (below_start or too_old or too_much):
            break
        left -= segment.size_bytes
        count += 1
    return count


def _count_copied_segments(log: PartitionLog, count: int) -> int:
    """Return how many of the ``count`` oldest segments are in the remote store or below the log start offset."""
    ends = [*log.segments.base_offsets[1:], log.log_end_offset]
    kept = (at for at in range(count) if ends[at] > log.log_start_offset and ends[at] > log.highest_remote_offset + 1)
    return next(kept, count)


def log_start_after_retention(log: PartitionLog, now_ms: int) -> int | None:
    """Return the local log start offset after the deletion of expired segments; None if no segment can be deleted.

    Rolls the log if its active segment has expired; with tiered storage the segment is copied then, and deleted later.
    The caller sets the offset with `increment_log_start_by_retention` and deletes the segments. ``now_ms``: wall clock.
    """
    count = count_expired_segments(log, now_ms)
    if count == 0:
        return None
    if count == len(log.segments):
        log.roll(now_ms)
    if log.config.tiering.has_copies:
        count = _count_copied_segments(log, count)
    return log.segments.base_offsets[count] if count else None


def increment_log_start_by_retention(log: PartitionLog, offset: int) -> bool:
    """Advance the log start offset, or with copies in the remote store the local one only; return True if it advanced.

    Raises:
        OSError: the epoch file could not be written; the log start offset is unchanged.
    """
    if log.config.tiering.has_copies:
        return log.maybe_increment_local_log_start_offset(offset)
    return log.maybe_increment_log_start_offset(offset)
