"""Retention by time and size, and the effect of timestamps far in the future."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import count_expired_segments, log_start_after_retention, newest_record_ms
from ottla.log.segment.log_segments import remove_files
from ottla.log.tests.log_fixtures import (
    NOW,
    append_batches,
    make_batch,
    memory_disk,
    new_log,
    record_values,
    reopen_log,
)
from ottla.wire.record_batch.records import NewRecord, build_batch

HOUR_MS = 3_600_000


def old_log(**settings: int | bool) -> PartitionLog:
    values = {"segment_bytes": 2000, "index_interval_bytes": 200, **settings}
    memory = memory_disk()
    memory.now_ms = lambda: NOW + HOUR_MS  # appended long after the timestamps of the records
    log = new_log(memory.session(), LogConfig(**values))  # type: ignore[arg-type]
    append_batches(log, 60)
    return log


def retain(log: PartitionLog, now_ms: int) -> None:
    start = log_start_after_retention(log, now_ms)
    if start is not None:
        log.maybe_increment_log_start_offset(start)
        log.delete_segments_below_start(NOW)


def test_retention_deletes_segments_older_than_retention_ms() -> None:
    log = old_log(retention_ms=HOUR_MS)
    retain(log, NOW + HOUR_MS)
    assert log.log_start_offset == 0
    middle = log.segments[2].max_timestamp
    retain(log, middle + HOUR_MS + 1)
    assert log.log_start_offset == log.segments.base_offsets[0] > 0
    assert record_values(log)[0][0] == log.log_start_offset


def test_retention_of_expired_log_rolls_and_deletes_all_records() -> None:
    log = old_log(retention_ms=HOUR_MS)
    retain(log, NOW + 10 * HOUR_MS)
    assert log.log_start_offset == log.log_end_offset == 180
    assert log.segments.base_offsets == [180]
    retain(log, NOW + 20 * HOUR_MS)
    assert log.segments.base_offsets == [180], "an empty active segment remains"
    append_batches(log, 1)
    assert [offset for offset, _ in record_values(log)] == [180, 181, 182]


@pytest.mark.behaviour("P-67")
def test_retention_by_size_deletes_oldest_segments_above_the_limit() -> None:
    log = old_log(retention_bytes=5000, retention_ms=-1)
    retain(log, NOW)
    assert 5000 <= log.size_bytes < 5000 + 2000
    assert record_values(log)[-1][0] == 179


def test_retention_keeps_segments_above_high_watermark() -> None:
    log = old_log(retention_ms=HOUR_MS)
    log.high_watermark = log.segments.base_offsets[2]
    retain(log, NOW + 10 * HOUR_MS)
    assert log.log_start_offset == log.segments.base_offsets[0]
    assert log.segments.base_offsets[0] <= log.high_watermark
    assert log.log_end_offset == 180


def test_retention_of_compacted_topic_deletes_only_below_log_start() -> None:
    log = old_log(retention_ms=HOUR_MS, delete=False, compact=True)
    retain(log, NOW + 10 * HOUR_MS)
    assert log.log_start_offset == 0
    log.maybe_increment_log_start_offset(100)
    retain(log, NOW)
    assert log.segments.base_offsets[0] <= 100 < log.segments.base_offsets[1]


@pytest.mark.behaviour("P-66")
def test_retention_future_timestamp_uses_last_modified_time() -> None:
    settings = LogConfig(retention_ms=HOUR_MS, timestamp_after_max_ms=2**62)
    log = new_log(memory_disk().session(), settings)
    log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", NOW + 10**12)])), 0, NOW)
    log.set_high_watermark(1)
    retain(log, NOW + HOUR_MS)
    assert log.log_start_offset == 0
    retain(log, NOW + HOUR_MS + 1)
    assert log.log_start_offset == 1


def test_retention_records_without_timestamp_use_last_modified_time() -> None:
    log = new_log(memory_disk().session(), LogConfig(retention_ms=HOUR_MS))
    log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", -1)])), 0, NOW)
    log.set_high_watermark(1)
    retain(log, NOW + HOUR_MS)
    assert log.log_start_offset == 0
    retain(log, NOW + HOUR_MS + 1)
    assert log.log_start_offset == 1


def test_recovery_after_retention_and_kill_returns_same_log() -> None:
    memory = memory_disk()
    memory.now_ms = lambda: NOW + HOUR_MS
    log = new_log(memory.session(), LogConfig(segment_bytes=2000, retention_ms=HOUR_MS))
    for start in range(0, 90, 3):
        log.append_as_leader(make_batch(start, producer_id=1, producer_epoch=0, base_sequence=start), 0, NOW)
    log.set_high_watermark(90)
    retain(log, log.segments[1].max_timestamp + HOUR_MS + 1)
    again = reopen_log(memory.session(), log.config)
    assert again.log_start_offset == log.log_start_offset > 0
    assert again.producers.producers[1].last_sequence == 89
    assert record_values(again) == record_values(log)


def test_retention_by_claimed_time_keeps_future_records_and_default_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    far = NOW + 10_000 * HOUR_MS
    for claimed, kept in ((True, True), (False, False)):
        log = old_log(retention_ms=HOUR_MS, retention_by_claimed_time=claimed)
        raw = build_batch([NewRecord(b"k", b"v", far)])
        log.config = replace(log.config, timestamp_after_max_ms=2**63 - 1)
        log.append_as_leader(bytearray(raw), 0, NOW)
        log.set_high_watermark(log.log_end_offset)
        log.roll(NOW)
        caplog.clear()
        for _ in range(3):
            retain(log, NOW + 10 * HOUR_MS)
        assert (log.log_start_offset < log.log_end_offset) is kept
        assert len(caplog.records) == (0 if claimed else 1)


def test_deleted_segment_files_are_kept_for_file_delete_delay() -> None:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig(segment_bytes=2000, file_delete_delay_ms=60_000))
    append_batches(log, 60)
    gone = log.segments.base_offsets[:2]
    log.maybe_increment_log_start_offset(log.segments.base_offsets[2])
    log.delete_segments_below_start(NOW)

    def deleted() -> set[int]:
        return {int(p.rpartition("/")[2][:20]) for p in memory.files if p.endswith(".log.deleted")}

    assert deleted() == set(gone)
    remove_files(log.disk, log.segments.pop_deletable_files(NOW + 59_999))
    assert deleted() == set(gone)
    remove_files(log.disk, log.segments.pop_deletable_files(NOW + 60_000))
    assert deleted() == set()
    assert log.segments.retired_files == []
    log.maybe_increment_log_start_offset(log.segments.base_offsets[1])
    log.delete_segments_below_start(NOW)
    assert deleted()
    reopen_log(memory.session(), log.config)
    assert deleted() == set()


DAY_MS = 24 * HOUR_MS
# (name, largest timestamp, last write of the file, Kafka's rule enabled, age at NOW)
AGES = [
    ("its time is over", NOW - 5, NOW, False, 5),
    ("its time is now", NOW, NOW - 9, False, 0),
    ("its time has not come", NOW + 1, NOW - 9, False, 9),
    ("its time has not come, and is believed", NOW + 1, NOW - 9, True, -1),
    ("it has no time", -1, NOW - 9, False, 9),
    ("it has no time, and claims are believed", -1, NOW - 9, True, 9),
    ("it is of 1970", 0, NOW - 9, False, NOW),
    ("it was written before the clock was set", NOW - 5, 0, False, 5),
    ("it was written before the clock was set back", NOW - 5, NOW + DAY_MS, False, 5),
]


@pytest.mark.parametrize(("case", "claimed", "written", "believed", "age"), AGES, ids=[row[0] for row in AGES])
def test_newest_record_ms_uses_timestamp_or_last_modified_time(
    case: str, claimed: int, written: int, believed: bool, age: int
) -> None:
    memory = memory_disk()
    memory.now_ms = lambda: written
    settings = LogConfig(timestamp_after_max_ms=2**62, retention_by_claimed_time=believed)
    log = new_log(memory.session(), settings)
    log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", claimed)])), 0, NOW)
    assert NOW - newest_record_ms(log, log.segments.active, NOW) == age


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, HOUR_MS + 1])
def test_newest_record_ms_future_timestamp_logs_once_above_one_hour(
    ahead_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(memory_disk().session(), LogConfig(timestamp_after_max_ms=2**62))
    log.append_as_leader(bytearray(build_batch([NewRecord(b"k", b"v", NOW + ahead_ms)])), 0, NOW)
    for _ in range(2):
        newest_record_ms(log, log.segments.active, NOW)
    assert len(caplog.records) == (ahead_ms > HOUR_MS)
    if caplog.records:
        assert "Timestamp in the future in t-0: 0.0 days after" in caplog.messages[0]


# (name, settings, high watermark, log start, number of its four segments deleted at NOW + 1 hour + 3)
DUE = [
    ("by time, the boundary is kept", {"retention_ms": HOUR_MS}, 8, 0, 1),
    ("by time, all", {"retention_ms": HOUR_MS - 5}, 8, 0, 4),
    ("no limit of time", {"retention_ms": -1}, 8, 0, 0),
    ("not above the high watermark", {"retention_ms": 0}, 5, 0, 2),
    ("not the segment at the high watermark", {"retention_ms": 0}, 6, 0, 3),
    ("by size: kept bytes reach the limit", {"retention_ms": -1, "retention_bytes": 2}, 8, 0, 2),
    ("by size: none below the limit", {"retention_ms": -1, "retention_bytes": 4}, 8, 0, 0),
    ("by size: no limit at all", {"retention_ms": -1, "retention_bytes": 0}, 8, 0, 4),
    ("below the start", {"retention_ms": -1}, 8, 4, 2),
    ("below the start, not the active one", {"retention_ms": -1}, 8, 8, 3),
    ("compacted: below the start only", {"retention_ms": 0, "delete": False, "compact": True}, 8, 2, 1),
    ("compacted: size does not count", {"retention_bytes": 0, "delete": False, "compact": True}, 8, 0, 0),
    ("compacted and deleted", {"retention_ms": HOUR_MS, "compact": True}, 8, 0, 1),
]


@pytest.mark.parametrize(("case", "settings", "high", "start", "due"), DUE, ids=[row[0] for row in DUE])
def test_count_expired_segments_by_time_size_and_high_watermark(
    case: str, settings: dict[str, int], high: int, start: int, due: int
) -> None:
    log = new_log(memory_disk().session(), LogConfig())
    for first in range(0, 8, 2):  # segments of two records at NOW + their offset, all of one size
        log.append_as_leader(make_batch(first, 2), 0, NOW)
        if first < 6:
            log.roll(NOW)
    log.set_high_watermark(high)
    log.maybe_increment_log_start_offset(start)
    size = log.segments.active.size_bytes
    if "retention_bytes" in settings:
        settings = {**settings, "retention_bytes": settings["retention_bytes"] * size}
    log.update_config(replace(log.config, **settings))  # type: ignore[arg-type]
    assert {s.size_bytes for s in log.segments} == {size}
    assert count_expired_segments(log, NOW + HOUR_MS + 3) == due


def test_delete_segments_failed_rename_keeps_segments_and_base_offsets_equal() -> None:
    session = memory_disk().session()
    log = new_log(session)
    append_batches(log, 30)
    log.maybe_increment_log_start_offset(log.segments.base_offsets[2])
    session.fault = lambda operation, path: OSError(errno.ENOMEM, "short") if operation == "rename" else None
    with pytest.raises(OSError, match="short"):
        log.delete_segments_below_start(NOW)
    assert [s.base_offset for s in log.segments] == log.segments.base_offsets
