"""Truncation of a log: remaining records and state, and the result of a crash. Rules: ``UnifiedLog.truncateTo``."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator

import pytest

from ottla.env.memory_disk import MemoryDisk, ProcessKilled
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segment import LogSegment
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    append_committed,
    expected_values,
    make_batch,
    make_marker,
    make_producer_batch,
    make_transactional_batch,
    memory_disk,
    new_log,
    record_offsets,
    record_values,
    reopen_in_new_session,
)
from ottla.wire.record_batch.batch_header import BatchHeader


def in_directory(memory: MemoryDisk) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory(memory.session(), "/data")
    directory.lock()
    directory.load_checkpoints()
    return directory, directory.create_partition("t", 0, TOPIC_ID, SMALL, NOW)


def again_in_directory(memory: MemoryDisk) -> PartitionLog:
    directory = LogDirectory(memory.session(), "/data")
    directory.load_checkpoints()
    return directory.open_partition("t", 0, SMALL, NOW)


@pytest.mark.parametrize(
    ("offset", "end"),
    [(0, 0), (1, 0), (2, 0), (3, 3), (40, 39), (42, 42), (59, 57), (60, 60), (88, 87), (89, 87), (90, 90), (91, 90)],
)
def test_truncate_to_ends_at_last_whole_batch(offset: int, end: int) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 30)
    assert log.truncate_to(offset, NOW) == end
    assert (log.log_end_offset, log.high_watermark) == (end, end)
    assert record_values(log) == expected_values(end)
    append_batches(log, 30)
    assert record_values(log) == expected_values(end + 90)
    log.close()
    for clean in (True, False):
        assert record_values(reopen_in_new_session(memory, clean=clean)) == expected_values(end + 90)


def test_truncate_to_segment_base_keeps_empty_segment() -> None:
    for less in (0, 1):
        log = new_log(memory_disk().session())
        append_batches(log, 30)
        at = log.segments.base_offsets[2]
        log.truncate_to(at - less, NOW)
        assert len(log.segments.base_offsets) == (3 if less == 0 else 2)
        assert log.log_end_offset == (at if less == 0 else at - 3)


def test_truncate_lowers_recovery_point_to_offset() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 30)
    log.flush()
    assert log.recovery_point == 90
    log.truncate_to(30, NOW)
    assert log.recovery_point == 30
    assert log.flush_state.sealed_end_offset == -1


def test_truncate_before_clean_shutdown_is_durable() -> None:
    """The remaining records were synced before; files trusted after a clean stop must not grow again."""
    for seed in range(20):
        memory = memory_disk(seed)
        directory, log = in_directory(memory)
        append_batches(log, 30)
        log.flush()
        log.truncate_to(30, NOW)
        directory.close(5)
        memory.lose_power()
        assert again_in_directory(memory).log_end_offset == 30, seed


@pytest.mark.parametrize("synced", [30, 90])
def test_truncate_undone_by_power_loss_is_repeated_by_recovery(synced: int) -> None:
    """With a next segment at the truncation offset, recovery would not read the one before it."""
    for seed in range(30):
        memory = memory_disk(seed)
        directory, log = in_directory(memory)
        append_batches(log, 30)
        log.flush()
        log.flush_state.recovery_point = synced
        directory.checkpoints.write()
        log.truncate_to(30, NOW)
        log.roll(NOW)
        assert log.segments.base_offsets[-1] == 30
        append_batches(log, 3, epoch=1)
        if seed % 2:
            log.flush()
            directory.checkpoints.write()
        memory.lose_power()
        again = again_in_directory(memory)
        assert record_offsets(again) == list(range(again.log_end_offset)), seed


@pytest.mark.parametrize("settings", [SMALL, LogConfig()], ids=["rolls meanwhile", "one segment"])
def test_flush_during_truncation_does_not_cover_rewritten_records(settings: LogConfig) -> None:
    log = new_log(memory_disk().session(), settings)
    append_batches(log, 10)
    job = log.start_flush(30)
    job()
    log.truncate_to(12, NOW)
    append_batches(log, 10)
    assert log.complete_flush(job) == 0, "rewritten records were not synced"
    assert log.recovery_point == 0
    job = log.start_flush(21)
    job()
    assert log.complete_flush(job) == 21
    late = log.start_flush(15)
    late()
    assert log.complete_flush(late) == 21, "recovery point never decreases"


def test_truncate_removes_aborted_transactions_and_epochs() -> None:
    """``LogSegment.truncateTo`` truncates all three indexes; otherwise committed records would be hidden as aborted."""
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig())
    append_committed(log, make_transactional_batch(1, 0))
    append_committed(log, make_marker(1, 0))
    append_committed(log, make_transactional_batch(2, 0))
    append_committed(log, make_marker(2, 0))
    log.assign_epoch_start_offset(3)
    append_batches(log, 2, epoch=3)
    assert [a.producer_id for a in log.segments.collect_aborted_txns(0, 9)] == [1, 2]
    log.truncate_to(3, NOW)
    assert [a.producer_id for a in log.segments.collect_aborted_txns(0, 9)] == [1]
    assert log.epochs.entries == [(0, 0)]
    assert log.last_stable_offset == 2, "transaction is open again"
    append_committed(log, make_marker(2, 1))
    assert log.last_stable_offset == 4
    log.close()
    again = reopen_in_new_session(memory, LogConfig(), clean=True)
    assert [a.producer_id for a in again.segments.collect_aborted_txns(0, 9)] == [1]
    assert again.epochs.entries == [(0, 0)]


def test_truncate_restores_producers_and_removes_later_snapshots() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(60):
        append_committed(log, make_producer_batch(5, number))
    assert len(log.segments.base_offsets) > 2
    log.truncate_to(log.segments.base_offsets[1] + 2, NOW)
    assert log.producers.producers[5].last_sequence == log.log_end_offset - 1
    names = [int(n[:20]) for n in log.disk.listdir(log.directory) if n.endswith(".snapshot")]
    assert max(names) <= log.log_end_offset


def test_truncate_fully_and_start_at_removes_all_state() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for number in range(30):
        append_committed(log, make_producer_batch(5, number))
    log.flush()
    log.truncate_fully_and_start_at(500, NOW)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (500, 500, 500)
    assert log.segments.base_offsets == [500]
    assert log.epochs.entries == []
    assert log.producers.producers == {}
    assert log.recovery_point == 30
    names = log.disk.listdir(log.directory)
    assert sorted(n for n in names if n[0] == "0") == [f"{500:020d}{s}" for s in (".index", ".log", ".timeindex")]
    append_batches(log, 30)
    again = reopen_in_new_session(memory)
    assert record_offsets(again) == list(range(500, 590))
    assert again.log_start_offset == 500


def test_truncate_below_first_segment_restarts_log_at_offset() -> None:
    memory = memory_disk()
    directory, log = in_directory(memory)
    append_batches(log, 30)
    log.flush()
    log.maybe_increment_log_start_offset(60)
    directory.checkpoints.write()
    log.delete_segments_below_start(NOW)
    assert log.segments.base_offsets[0] > 30
    assert log.truncate_to(30, NOW) == 30
    assert (log.log_start_offset, log.log_end_offset) == (30, 30)
    append_batches(log, 2)
    assert record_offsets(again_in_directory(memory)) == list(range(30, 36)), "checkpointed log start is lowered too"


def test_truncate_fully_then_flush_survives_power_loss() -> None:
    for seed in range(60):
        memory = memory_disk(seed)
        log = new_log(memory.session())
        append_batches(log, 30)
        log.flush()
        log.truncate_fully_and_start_at(500, NOW)
        append_batches(log, 20)
        log.flush()
        memory.lose_power()
        again = reopen_in_new_session(memory)
        assert again.log_start_offset == 500, seed
        assert record_offsets(again) == list(range(500, 560)), seed


def test_truncate_then_power_loss_restores_no_unsynced_records() -> None:
    """The recovery point checkpoint is lowered before the truncation (``LogManager.truncateTo``)."""
    for seed in range(60):
        memory = memory_disk(seed)
        directory, log = in_directory(memory)
        append_batches(log, 40)
        log.flush()
        directory.checkpoints.write()
        log.truncate_to(30, NOW)
        append_batches(log, 30, epoch=1)
        memory.lose_power()
        again = again_in_directory(memory)
        assert record_offsets(again) == list(range(again.log_end_offset)), seed
        assert again.log_end_offset >= 30, seed


def test_truncate_writes_checkpoints_only_when_above_the_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_disk()
    directory, log = in_directory(memory)
    append_batches(log, 30)
    written: list[int] = []
    real = directory.checkpoints.write
    monkeypatch.setattr(directory.checkpoints, "write", lambda: (written.append(1), real()))
    log.truncate_to(60, NOW)
    assert written == []
    log.flush()
    real()
    log.truncate_to(45, NOW)
    assert written == [1]
    log.truncate_to(44, NOW)
    assert written == [1, 1]
    log.truncate_to(44, NOW)
    assert written == [1, 1]


def test_truncate_failure_sets_log_offline() -> None:
    for target in range(1, 40):
        memory = memory_disk()
        session = memory.session()
        log = new_log(session)
        append_batches(log, 30)
        calls = iter(range(1, 1000))
        session.fault = lambda operation, path, c=calls, t=target: (
            OSError(errno.EMFILE, "short") if next(c) == t else None
        )
        failure = None
        try:
            log.truncate_to(40, NOW)
        except OSError as error:
            failure = error.errno
        assert log.closed == (failure == errno.EIO)
        if not log.closed:
            assert log.log_end_offset == (39 if failure is None else 90), "truncated completely or not at all"
        session.fault = None
        session.kill()
        again = reopen_in_new_session(memory)
        assert again.log_end_offset >= 39
        assert record_offsets(again) == [*range(again.log_end_offset)]


def test_truncate_killed_at_any_call_can_be_repeated() -> None:
    for seed in range(80):
        memory = memory_disk(seed)
        session = memory.session()
        log = new_log(session)
        append_batches(log, 40)
        log.flush()
        session.kill_at = memory.calls + random.Random(seed).randrange(1, 80)
        with contextlib.suppress(ProcessKilled):
            log.truncate_to(30, NOW)
            session.kill()
        again = reopen_in_new_session(memory)
        assert again.log_end_offset >= 30, seed
        again.truncate_to(30, NOW)
        assert record_values(again) == expected_values(30), seed


# ---------------------------------------------------------------- how much is looked at


def indexes(log: PartitionLog) -> list[tuple[list[int], ...]]:
    return [
        (
            s.offset_index.offsets.tolist(),
            s.offset_index.positions.tolist(),
            s.time_index.timestamps.tolist(),
            [s.max_timestamp],
        )
        for s in log.segments
    ]


def test_truncate_leaves_indexes_as_without_removed_batches() -> None:
    """``LogSegment.truncateTo``: both indexes are truncated, and continue as if the removed batches never existed."""
    for at in range(0, 90, 3):
        cut, never = (new_log(memory_disk().session()) for _ in range(2))
        append_batches(cut, 30)
        cut.truncate_to(at, NOW)
        append_batches(never, at // 3)
        assert cut.segments.base_offsets[-1] <= at
        # otherwise the log ends with the empty segment that began at the truncation offset
        if cut.segments.base_offsets == never.segments.base_offsets:
            assert indexes(cut) == indexes(never)
        append_batches(cut, 30 - at // 3)
        append_batches(never, 30 - at // 3)
        assert indexes(cut) == indexes(never)
        assert cut.segments.active.bytes_since_index_entry == never.segments.active.bytes_since_index_entry


def test_truncate_reads_only_after_last_index_entry_below_offset() -> None:
    session = memory_disk().session()
    log = new_log(session, LogConfig(index_interval_bytes=200))
    append_batches(log, 400)
    read: list[str] = []
    log.segments.active.offset_index  # noqa: B018 - loaded
    data = session.disk.files[f"{log.directory}/{0:020d}.log"].data
    data[:1000] = bytes(1000)  # a read would find no batch

    def watch(operation: str, path: str) -> None:
        if operation == "pread":
            read.append(path)

    session.fault = watch
    assert log.truncate_to(1100, NOW) == 1098
    assert len(read) == 1
    assert not log.recovery_notes


@pytest.mark.parametrize("damage", ["a size", "an index that lies", "an index of another batch"])
def test_truncate_damage_below_offset_ends_log_before_it(damage: str) -> None:
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig(index_interval_bytes=200))
    append_batches(log, 30)
    segment = log.segments.active
    known = segment.offset_index.entries_below(60)
    if damage == "a size":
        position = known.positions[-1]
        memory.files[f"{segment.path}.log"].data[position + 8 : position + 12] = b"\xff\xff\xff\xf4"
        assert log.truncate_to(60, NOW) == known.base_offset + known.offsets[-1] - 2
        assert log.recovery_notes
    else:
        segment.offset_index.positions[len(known.positions) - 1] += (
            5 if damage == "an index that lies" else -len(make_batch(0))
        )
        assert log.truncate_to(60, NOW) == 60
        assert not log.recovery_notes
    end = log.log_end_offset
    assert not log.closed
    assert record_values(log) == expected_values(end)
    append_batches(log, 3)
    assert record_values(log) == expected_values(end + 9)
    assert record_values(reopen_in_new_session(memory)) == expected_values(end + 9)


def test_truncate_log_without_producers_replays_no_batch() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 60)
    names = [n for n in log.disk.listdir(log.directory) if n.endswith(".snapshot")]
    assert len(names) > 2
    whole: list[bool] = []
    real = LogSegment.scan

    def scan(
        self: LogSegment, position: int = 0, *, check: bool = True
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        whole.append(check)
        return real(self, position, check=check)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogSegment, "scan", scan)
        log.truncate_to(log.segments.base_offsets[2] + 4, NOW)
    assert whole == [False]
    left = [n for n in log.disk.listdir(log.directory) if n.endswith(".snapshot")]
    assert left == names[: len(left)]
    assert int(left[-1][:20]) <= log.log_end_offset
