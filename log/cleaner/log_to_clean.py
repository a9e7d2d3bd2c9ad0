"""Selection of the log to compact next, and of its segments: below the active one and the last stable offset.

Source: ``LogCleanerManager.java``, ``LogToClean.java`` (apache/kafka 4.3.1).

``min.compaction.lag.ms``: KIP-58; ``max.compaction.lag.ms``: KIP-354.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.log_config import FOREVER_MS
from ottla.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from ottla.log.cleaner.compaction import CompactionPlan


class LogToClean(NamedTuple):
    """Log with segments to compact: dirty from ``first_dirty_offset`` up to ``first_uncleanable_offset`` (exclusive).

    As Kafka's ``LogToClean``.
    """

    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    cleanable_ratio: float
    """Dirty bytes divided by all bytes below ``first_uncleanable_offset``, 0 to 1."""
    needs_compaction_now: bool
    """True if a dirty segment's largest timestamp is older than ``max.compaction.lag.ms``."""


def find_log_to_clean(log: PartitionLog, now_ms: int) -> LogToClean | None:
    """Return the section of a log that can be compacted; None if there is none or the topic is not compacted.

    None as well for a log that is closed or being moved to another directory. ``now_ms``: wall clock.
    """
    settings = log.config
    if not settings.compact or log.closed or log.has_future_log or len(log.segments) < 2:
        return None
    first_dirty = max(log.cleaner_offset, log.log_start_offset)
    # whole segments only, up to the one that contains the last stable offset
    end = log.segments.segment_for(min(log.segments.active.base_offset, log.last_stable_offset)).base_offset
    clean_bytes = dirty_bytes = 0
    oldest_ms: int | None = None
    for number, segment in enumerate(log.segments[:-1]):
        if segment.base_offset >= end:
            break
        if log.segments.base_offsets[number + 1] <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        segment.load_max_timestamp()
        if settings.min_compaction_lag_ms and segment.max_timestamp > now_ms - settings.min_compaction_lag_ms:
            end = segment.base_offset
            break
        oldest_ms = segment.max_timestamp if oldest_ms is None else min(oldest_ms, segment.max_timestamp)
        dirty_bytes += segment.size_bytes
    if end <= first_dirty or dirty_bytes == 0:
        return None
    lag = settings.max_compaction_lag_ms
    overdue = lag != FOREVER_MS and oldest_ms is not None and now_ms - oldest_ms > lag
    return LogToClean(log, first_dirty, end, dirty_bytes / (clean_bytes + dirty_bytes), overdue)


def select_dirtiest_log(logs: Iterable[LogToClean]) -> LogToClean | None:
    """Return the log to compact first: the highest dirty ratio, those over ``max.compaction.lag.ms`` before others.

    None if no log is over that lag or over its ``min.cleanable.dirty.ratio``.
    """
    due = [c for c in logs if c.needs_compaction_now or c.cleanable_ratio > c.log.config.min_cleanable_dirty_ratio]
    return max(due, key=lambda c: (c.needs_compaction_now, c.cleanable_ratio), default=None)


def plan_compaction(log_to_clean: LogToClean, now_ms: int, map_bytes: int) -> CompactionPlan:
    """Return the input of a compaction pass over a log's current segments, for another process; nothing is started.

    ``now_ms``: wall clock. ``map_bytes`` limits the offset map. Transaction indexes that are not loaded are read.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: a transaction index is malformed.
    """
    # lazy: 4.0 ms, 111 kB: most nodes compact no log
    from ottla.log.cleaner.compaction import CompactionPlan

    log = log_to_clean.log
    return CompactionPlan(
        log.directory,
        [base for base in log.segments.base_offsets[:-1] if base < log_to_clean.first_uncleanable_offset],
        log_to_clean.first_dirty_offset,
        log_to_clean.first_uncleanable_offset,
        log.config,
        now_ms,
        bytes(log.producers.producers.snapshot_body),
        log.segments.collect_aborted_txns(log.log_start_offset, log_to_clean.first_uncleanable_offset),
        map_bytes,
    )
