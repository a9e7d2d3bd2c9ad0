"""Appends with failures, as a follower, and during a sync."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ottla.env.disk import is_transient
from ottla.log.log_append import FollowerAppendInfo
from ottla.log.log_config import LogConfig
from ottla.log.recovery.log_loader import open_log
from ottla.log.tests.log_fixtures import (
    COMPACTED,
    NOW,
    append_batches,
    append_committed,
    expected_values,
    make_batch,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
    record_offsets,
    record_values,
    reopen_in_new_session,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import set_offset_and_epoch


def failing(operation: str, ending: str, number: int = errno.EMFILE) -> Callable[[str, str], OSError | None]:
    return lambda w, path: OSError(number, "short", path) if (w, path.endswith(ending)) == (operation, True) else None


def leaders(*batches: tuple[int, int, int]) -> bytes:
    """Return the bytes of a Fetch response: batches of (base offset, records, epoch)."""
    out = b""
    for base, count, epoch in batches:
        data = make_batch(base, count)
        set_offset_and_epoch(data, 0, base, epoch)
        out += bytes(data)
    return out


# ---------------------------------------------------------------- failures


def test_append_failed_epoch_checkpoint_writes_no_record() -> None:
    memory = memory_disk()
    session = memory.session()
    log = new_log(session)
    append_batches(log, 2)
    session.fault = failing("open", "leader-epoch-checkpoint.tmp")
    for _ in range(2):
        with pytest.raises(OSError, match="short"):
            log.append_as_leader(make_batch(6), 4, NOW)
        assert (log.log_end_offset, log.size_bytes) == (6, 2 * len(make_batch(0)))
    session.fault = None
    log.append_as_leader(make_batch(6), 4, NOW)
    assert record_values(log) == expected_values(9)
    assert reopen_in_new_session(memory, clean=False).epochs.entries == [(0, 0), (4, 6)]


def test_append_as_new_leader_writes_epoch_before_first_record() -> None:
    session = memory_disk().session()
    log = new_log(session)
    session.fault = failing("open", "leader-epoch-checkpoint.tmp")
    log.assign_epoch_start_offset(3)
    assert log.epochs.latest_epoch() == 3, "epoch is visible in memory"
    with pytest.raises(OSError, match="short"):
        log.append_as_leader(make_batch(0), 3, NOW)
    assert log.size_bytes == 0
    session.fault = None
    log.append_as_leader(make_batch(0), 3, NOW)
    assert log.epochs.entries == [(3, 0)]
    assert not log.epochs.has_unsaved_entries


def test_append_abort_marker_without_index_entry_is_not_readable() -> None:
    memory = memory_disk()
    session = memory.session()
    log = new_log(session, LogConfig())
    append_committed(log, make_transactional_batch(1, 0))
    session.fault = failing("open", ".txnindex")
    with pytest.raises(OSError, match="short"):
        append_committed(log, make_marker(1, 0))
    assert log.log_end_offset == 1
    assert log.last_stable_offset == 0, "transaction is still open"
    assert not log.closed
    session.fault = failing("open", ".log")
    log.flush()
    for _ in range(2):
        log.close_idle_files()
    with pytest.raises(OSError, match="short"):
        append_committed(log, make_marker(1, 0))
    assert not log.closed
    assert log.segments.collect_aborted_txns(0, 2) == []
    session.fault = None
    append_committed(log, make_marker(1, 0))
    assert [tuple(a) for a in log.segments.collect_aborted_txns(0, 2)] == [(1, 0, 1, 2)]
    assert [tuple(a) for a in reopen_in_new_session(memory, LogConfig()).segments.collect_aborted_txns(0, 2)] == [
        (1, 0, 1, 2)
    ]


def test_append_failed_abort_marker_sets_log_offline_until_recovery() -> None:
    memory = memory_disk()
    session = memory.session()
    log = new_log(session, LogConfig())
    append_committed(log, make_transactional_batch(1, 0))
    session.fault = failing("pwrite", ".log", errno.ENOMEM)
    with pytest.raises(OSError, match="writing a transaction marker") as caught:
        append_committed(log, make_marker(1, 0))
    assert not is_transient(caught.value), "a transient error would keep the log online"
    assert log.closed
    session.fault = None
    session.kill()
    again = reopen_in_new_session(memory, LogConfig())
    assert again.segments.collect_aborted_txns(0, 2) == []
    append_committed(again, make_marker(1, 1))
    assert again.last_stable_offset == 2


def test_append_failed_commit_marker_can_be_retried() -> None:
    session = memory_disk().session()
    log = new_log(session, LogConfig())
    append_committed(log, make_transactional_batch(1, 0))
    for kind, pid in ((1, 1), (0, 2)):
        session.fault = failing("pwrite", ".log", errno.ENOMEM)
        with pytest.raises(OSError, match="short"):
            append_committed(log, make_marker(pid, kind))
        session.fault = None
        assert not log.closed
        append_committed(log, make_marker(pid, kind))
    assert log.segments.collect_aborted_txns(0, 9) == []


def test_roll_failure_leaves_no_file_of_the_next_segment() -> None:
    for ending in (".index", ".timeindex", ".log"):
        memory = memory_disk()
        session = memory.session()
        log = new_log(session)
        while not log.segments.active.should_roll(NOW, len(make_batch(0)), NOW, 0):
            append_batches(log, 1)
        end = log.log_end_offset
        session.fault = failing("open", f"{end:020d}{ending}")
        with pytest.raises(OSError, match="short"):
            append_batches(log, 1)
        session.fault = None
        assert [n for n in session.listdir(log.directory) if n.startswith(f"{end:020d}")] == [f"{end:020d}.snapshot"]
        assert log.segments.base_offsets == [0]
        log.update_config(LogConfig())  # the old segment continues beyond the base offset of the failed one
        append_batches(log, 3)
        session.kill()
        assert record_values(reopen_in_new_session(memory)) == expected_values(end + 9)


# ---------------------------------------------------------------- syncs


def test_roll_during_directory_sync_keeps_directory_unsynced() -> None:
    """The name of the new segment must be synced by the next flush, or power loss removes acknowledged records."""
    for seed in range(40):
        memory = memory_disk(seed)
        log = new_log(memory.session())
        append_batches(log, 4)
        job = log.start_flush(log.log_end_offset)
        job()
        while len(log.segments.base_offsets) == 1:  # on the event loop, while the thread is still running
            append_batches(log, 1)
        assert log.complete_flush(job) == 0, "indexes of the newly sealed segment were not synced"
        assert log.segments.directory_changes > log.flush_state.synced_directory_changes
        log.flush()
        end = log.log_end_offset
        memory.lose_power()
        assert record_offsets(reopen_in_new_session(memory)) == list(range(end)), seed


def test_flush_of_sealed_segment_requires_synced_indexes() -> None:
    """Segments below the recovery point are not read again: a torn time index would be trusted."""
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig(index_interval_bytes=0))
    for number in range(200):
        log.append_as_leader(make_batch(number, 1), 0, NOW)
    log.flush()
    log.roll(NOW)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 200
    for ending in (".index", ".timeindex"):
        inode = memory.files[f"{log.directory}/{0:020d}{ending}"]
        assert inode.durable == inode.data != b""
    log.append_as_leader(make_batch(200, 1), 0, NOW)
    log.flush()
    log.roll(NOW)
    assert log.recovery_point == 200, "previously flushed segments stay covered"


def test_flush_covers_only_records_appended_before_its_start() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 2)
    assert log.unflushed_records == 6
    job = log.start_flush(log.log_end_offset)
    assert log.unflushed_records == 0
    append_batches(log, 1)
    job()
    assert log.complete_flush(job) == 6
    assert log.unflushed_records == 3
    log.start_flush(6)
    assert log.unflushed_records == 3, "only records before the start are covered"


def test_flush_of_log_renamed_for_deletion_succeeds() -> None:
    session = memory_disk().session()
    log = new_log(session)
    append_batches(log, 1)
    job = log.start_flush(3)
    session.rename(log.directory, "/data/t-0.x-delete")
    session.fault = lambda operation, path: FileNotFoundError(2, "gone", path) if operation == "fsync_dir" else None
    with pytest.raises(FileNotFoundError):
        job()
    log.set_offline()
    job()


def test_flush_syncs_parent_directory_once() -> None:
    session = memory_disk().session()
    synced: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "fsync_dir":
            synced.append(path)

    log = new_log(session)
    session.fault = note  # type: ignore[assignment]
    append_batches(log, 1)
    log.flush()
    assert synced == ["/data/t-0", "/data"]
    log.flush()
    assert len(synced) == 2, "no second sync without changes"
    while len(log.segments.base_offsets) < 3:
        append_batches(log, 1)
    log.flush()
    assert synced[2:] == ["/data/t-0"]


# ---------------------------------------------------------------- append_as_follower


def test_append_as_follower_keeps_the_leaders_bytes() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    raw = leaders((0, 3, 5), (3, 2, 5), (5, 4, 7))
    assert log.append_as_follower(raw + leaders((9, 3, 7))[:70], NOW) == FollowerAppendInfo(0, 8)
    assert b"".join(bytes(data) for _, data in log.segments.batches()) == raw
    assert log.epochs.entries == [(5, 0), (7, 5)]
    assert (log.high_watermark, log.log_end_offset) == (0, 9)
    assert log.append_as_follower(b"", NOW) is None
    assert log.append_as_follower(raw[:60], NOW) is None
    assert log.append_as_follower(leaders((9, 1, 7)), NOW) == FollowerAppendInfo(9, 9)
    assert reopen_in_new_session(memory).log_end_offset == 10


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (leaders((2, 3, 0)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (leaders((3, 3, 0), (5, 1, 0)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (leaders((3, 3, 0), (3, 3, 0)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (leaders((3, 3, 0))[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (leaders((3, 3, 0)) + bytes(80), ErrorCode.CORRUPT_MESSAGE),
        (leaders((3, 3, 0)) + leaders((6, 1, 0))[:16] + b"\x01" + bytes(200), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_append_as_follower_non_contiguous_batches_raises_and_writes_no_record(raw: bytes, code: ErrorCode) -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 1)
    with pytest.raises(ProtocolError) as caught:
        log.append_as_follower(raw, NOW)
    assert caught.value.code is code
    assert log.log_end_offset == 3
    assert record_values(log) == expected_values(3)


@pytest.mark.parametrize("settings", [LogConfig(segment_bytes=2000), COMPACTED])
def test_append_as_follower_accepts_offset_gap(settings: LogConfig) -> None:
    """``UnifiedLog.appendAsFollower`` accepts any first offset from the log end on; compaction leaves gaps."""
    memory = memory_disk()
    log = new_log(memory.session(), settings)
    log.append_as_follower(leaders((0, 3, 0), (8, 2, 0)), NOW)
    assert record_offsets(log) == [0, 1, 2, 8, 9]
    assert log.cleaner_offset == (0 if settings.compact else 8)
    again = open_log(
        memory.session(), log.directory, "t", 0, settings, NOW, clean=False, compacted_below=log.cleaner_offset
    )
    assert record_offsets(again) == [0, 1, 2, 8, 9]


def test_append_as_follower_updates_producers_and_aborted_transactions() -> None:
    source = new_log(memory_disk().session(), LogConfig())
    append_committed(source, make_transactional_batch(1, 0))
    append_committed(source, make_marker(1, 0))
    append_committed(source, make_transactional_batch(1, 1))
    raw = b"".join(bytes(data) for _, data in source.segments.batches())
    log = new_log(memory_disk().session(), LogConfig())
    log.append_as_follower(raw, NOW)
    assert log.producers.ongoing_txns == {1: 2}
    assert log.segments.collect_aborted_txns(0, 3) == source.segments.collect_aborted_txns(0, 3)
    again = log.append_as_leader(make_transactional_batch(1, 1), 0, NOW)
    assert again.duplicate


# ---------------------------------------------------------------- offsets beyond the range of an index


@pytest.mark.parametrize("empty", [True, False])
def test_append_as_follower_offset_beyond_index_range_rolls_segment(*, empty: bool) -> None:
    """The first records of a compacted log may be far from its start (``LogSegment.shouldRoll``)."""
    memory = memory_disk()
    log = new_log(memory.session(), COMPACTED)
    if not empty:
        log.append_as_follower(leaders((0, 3, 0)), NOW)
    far = 2**31 + (0 if empty else 3)
    for _ in range(3):
        log.append_as_follower(leaders((max(far, log.log_end_offset), 3, 1)), NOW)
    assert log.segments.base_offsets == [0, far]
    log.set_high_watermark(log.log_end_offset)
    log.close()
    for clean in (True, False):
        again = reopen_in_new_session(memory, COMPACTED, clean=clean)
        assert again.segments.base_offsets == [0, far]
        assert record_offsets(again) == [*range(0 if empty else 3), *range(far, far + 9 + 3 * (not clean))]
        again.append_as_leader(make_batch(0), 2, NOW)


def test_append_as_follower_last_offset_in_index_range_keeps_segment() -> None:
    log = new_log(memory_disk().session(), COMPACTED)
    log.append_as_follower(leaders((2**31 - 3, 3, 0)), NOW)
    assert (log.segments.base_offsets, log.log_end_offset) == ([0], 2**31)
    log.close()
    assert log.closed_cleanly
