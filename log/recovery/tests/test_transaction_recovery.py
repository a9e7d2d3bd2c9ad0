"""Kafka's cases for opening a log with transactions, restated from their facts; each test names its case.

Source: the case names of ``LogLoaderTest.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import pytest

from ottla.env.memory_disk import ProcessKilled
from ottla.log.checkpoints.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import open_log
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.tests.log_fixtures import (
    DIRECTORY,
    NOW,
    SMALL,
    append_committed,
    make_marker,
    make_producer_batch,
    make_transactional_batch,
    memory_disk,
    new_log,
    reopen_in_new_session,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import set_offset_and_epoch


def append_transactions(log: PartitionLog, count: int) -> None:
    """Append transactions of several producers, every second one aborted, over several segments."""
    append_transactions_from(log, 0, count)


def append_transactions_from(log: PartitionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        pid = number % 4
        append_committed(log, make_transactional_batch(pid, number // 4))
        append_committed(log, make_marker(pid, number % 2))


def test_recovery_without_transaction_indexes_rebuilds_them() -> None:
    """testFullTransactionIndexRecovery: rebuilt from the batches when every index file is missing."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_transactions(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    assert len(want) == 30
    for path in [p for p in memory.files if p.endswith(".txnindex")]:
        del memory.files[path]
    again = reopen_in_new_session(memory)
    assert len(again.segments) > 3
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want


def test_interrupted_recovery_keeps_transaction_index_below_recovery_point() -> None:
    """Segments below the recovery point are read only because another file is damaged, which is intact next time."""
    target = 0
    while True:
        target += 1
        memory = memory_disk()
        log = new_log(memory.session())
        append_transactions(log, 60)
        log.flush()
        want = log.segments.collect_aborted_txns(0, log.log_end_offset)
        memory.files[f"{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}"].data[:] = b"0"
        left, session = target, memory.session()

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise ProcessKilled

        session.fault = fault
        point = log.log_end_offset
        try:
            open_log(session, DIRECTORY, "t", 0, SMALL, NOW, clean=False, recovery_point=point)
        except ProcessKilled:
            again = reopen_in_new_session(memory, point=point)
            assert again.segments.collect_aborted_txns(0, point) == want, target
            continue
        break
    assert target > 30


def test_recovery_of_last_segment_rebuilds_its_transaction_index() -> None:
    """testRecoverOnlyLastSegment: only above the recovery point; the other indexes are trusted."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_transactions(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    memory.files.pop(f"{DIRECTORY}/{log.segments.base_offsets[-1]:020d}.txnindex", None)
    again = reopen_in_new_session(memory, point=log.segments.base_offsets[-1])
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want


def test_recovery_of_last_segment_without_snapshots_reads_producers_from_log_start() -> None:
    """testRecoverLastSegmentWithNoSnapshots: producers are read from the start of the log."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_transactions(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    producers = log.producers.pack()
    memory.files.pop(f"{DIRECTORY}/{log.segments.base_offsets[-1]:020d}.txnindex", None)
    for path in [p for p in memory.files if p.endswith(".snapshot")]:
        del memory.files[path]
    again = reopen_in_new_session(memory, point=log.segments.base_offsets[-1])
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want
    assert again.producers.pack() == producers


def test_recovery_with_empty_active_segment_rebuilds_transaction_index() -> None:
    """testRecoverWithEmptyActiveSegment: rolled just before the end, the last transaction index missing."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_transactions(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    log.roll(NOW)
    memory.files.pop(f"{DIRECTORY}/{log.segments.base_offsets[-2]:020d}.txnindex", None)
    again = reopen_in_new_session(memory, point=log.segments.base_offsets[-2])
    assert again.segments.active.size_bytes == 0
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want


def test_recovery_after_marker_of_older_coordinator_epoch_keeps_all_records() -> None:
    """testRecoverAfterNonMonotonicCoordinatorEpochWrite: a marker of an older coordinator epoch does not stop it."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_committed(log, make_transactional_batch(5, 0))
    append_committed(log, make_marker(5, 1, coordinator_epoch=5))
    append_committed(log, make_transactional_batch(5, 1))
    data = make_marker(5, 1, coordinator_epoch=3)
    set_offset_and_epoch(data, 0, 3, 0)
    log.append_as_follower(data, NOW)
    again = reopen_in_new_session(memory)
    assert again.log_end_offset == 4
    assert again.producers.producers[5].coordinator_epoch == 3


def test_power_loss_keeps_trusted_transaction_indexes() -> None:
    """Files below the recovery point are not read again, so their aborted transactions must be complete."""
    for seed in range(100):
        memory = memory_disk(seed)
        log = new_log(memory.session())
        append_transactions(log, 60)
        log.flush()
        want = log.segments.collect_aborted_txns(0, log.log_end_offset)
        point = log.recovery_point
        append_transactions_from(log, 60, 30)
        memory.session().fsync_dir("/data")
        memory.lose_power()
        again = reopen_in_new_session(memory, point=point)
        assert again.log_end_offset >= point
        found = again.segments.collect_aborted_txns(0, point)
        assert [x for x in found if x.last_offset < point] == want, seed
        for segment in again.segments:
            assert segment.time_index.last_entry()[0] == segment.max_timestamp or segment is again.segments.active


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [b"nonsense", b"\0" * 68])
def test_open_log_unreadable_transaction_index_is_rebuilt(damage: bytes, *, clean: bool) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_transactions(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    log.close()
    path = f"{DIRECTORY}/{log.segments.base_offsets[2]:020d}.txnindex"
    memory.files[path].data[:] = damage
    again = reopen_in_new_session(memory, clean=clean, point=log.log_end_offset)
    assert path in again.recovery_notes[0]
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want
    assert reopen_in_new_session(memory, point=log.log_end_offset).recovery_notes == []


def test_collect_aborted_txns_index_damaged_at_runtime_raises_corrupt_message() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_transactions(log, 60)
    log.flush()
    log.close_idle_files()
    log.close_idle_files()
    memory.files[f"{DIRECTORY}/{log.segments.base_offsets[1]:020d}.txnindex"].data[:] = b"nonsense"
    with pytest.raises(ProtocolError) as error:
        log.segments.collect_aborted_txns(log.segments.base_offsets[1], log.log_end_offset)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("point", [0, 1])
def test_open_log_transaction_ended_below_log_start_is_not_open(point: int) -> None:
    """The snapshot has it open; its marker is below the log start and not read any more."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_committed(log, make_transactional_batch(1, 0))
    log.roll(NOW)
    append_committed(log, make_marker(1, 1))
    append_committed(log, make_transactional_batch(2, 0))
    log.maybe_increment_log_start_offset(2)
    again = reopen_in_new_session(memory, point=point, start=2)
    again.set_high_watermark(3)
    assert again.producers.ongoing_txns == {2: 2}
    assert again.last_stable_offset == 2


def test_truncate_keeps_one_index_entry_for_transaction_begun_below_log_start() -> None:
    """Replay begins at the log start: the abort has an entry already, and two entries of one marker are damage."""
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig())
    for sequence in range(3):
        append_committed(log, make_transactional_batch(1, sequence))
    append_committed(log, make_marker(1, 0))
    append_transactions_from(log, 1, 2)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    assert len(want) == 2
    assert want[0].first_offset == 0
    log.maybe_increment_log_start_offset(1)
    append_committed(log, make_producer_batch(9, 0))
    log.truncate_to(log.log_end_offset - 1, NOW)
    assert log.segments.active.aborted_txns == want
    log.close_files()
    assert log.segments.active.aborted_txns == want, "a file with a duplicate marker would be damaged"


def test_truncate_compares_no_aborted_transaction_entry() -> None:
    log = new_log(memory_disk().session(), LogConfig())
    append_transactions(log, 40)
    comparisons = 0

    class Entry(AbortedTxn):
        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return super().__eq__(other)

        __hash__ = AbortedTxn.__hash__

    log.segments.active.aborted_txns[:] = [Entry(*entry) for entry in log.segments.active.aborted_txns]
    log.truncate_to(log.log_end_offset - 1, NOW)
    assert comparisons == 0
    assert len(log.segments.collect_aborted_txns(0, log.log_end_offset)) == 20


def expire_all_producers(log: PartitionLog) -> None:
    """Expire all producers after days without an append."""
    for day in (2, 4):
        log.producers.expire(NOW + day * 86_400_000, 86_400_000)
    assert not log.producers.producers


def test_truncate_after_expiration_restores_no_transaction_of_old_snapshot() -> None:
    log = new_log(memory_disk().session())
    append_committed(log, make_producer_batch(9, 0))
    append_committed(log, make_transactional_batch(1, 0))
    log.roll(NOW)
    append_committed(log, make_marker(1, 1))
    for sequence in range(1, 4):
        append_committed(log, make_producer_batch(9, sequence))
    expire_all_producers(log)
    log.truncate_to(log.log_end_offset - 1, NOW)
    assert log.producers.ongoing_txns == {}, "its marker is below the truncation offset"
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset
    append_committed(log, make_producer_batch(9, 3), AppendOrigin.CLIENT)


@pytest.mark.parametrize("case", ["as it stands", "cut before", "opened again"])
def test_truncate_below_end_of_transaction_reopens_it_for_expired_producer(case: str) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for pid in (8, 9):
        append_committed(log, make_producer_batch(pid, 0))
    append_committed(log, make_transactional_batch(1, 0))
    append_committed(log, make_marker(1, 1))
    for sequence in range(1, 4):
        append_committed(log, make_producer_batch(9, sequence))
    if case == "opened again":
        log.close()
        log = reopen_in_new_session(memory, clean=True, point=log.log_end_offset)
        log.set_high_watermark(log.log_end_offset)
    expire_all_producers(log)
    if case == "cut before":
        log.truncate_to(5, NOW)
    log.truncate_to(3, NOW)
    assert log.producers.ongoing_txns == {1: 2}
    assert log.last_stable_offset == 2
