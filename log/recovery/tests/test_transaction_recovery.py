"""Kafka's cases for opening a log with transactions, told again from their facts; each test names its case.

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


def aborting(log: PartitionLog, count: int) -> None:
    """Transactions of several producers, every second of them aborted, over several segments."""
    aborting_from(log, 0, count)


def aborting_from(log: PartitionLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        pid = number % 4
        append_committed(log, make_transactional_batch(pid, number // 4))
        append_committed(log, make_marker(pid, number % 2))


def test_full_transaction_index_recovery() -> None:
    """testFullTransactionIndexRecovery: from the batches, where every index file is gone."""
    memory = memory_disk()
    log = new_log(memory.session())
    aborting(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    assert len(want) == 30
    for path in [p for p in memory.files if p.endswith(".txnindex")]:
        del memory.files[path]
    again = reopen_in_new_session(memory)
    assert len(again.segments) > 3
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want


def test_a_recovery_that_is_broken_off_leaves_what_it_does_not_look_at_again() -> None:
    """Below the recovery point it looks only because another file is damaged; that one is whole the next time."""
    target = 0
    while True:
        target += 1
        memory = memory_disk()
        log = new_log(memory.session())
        aborting(log, 60)
        log.flush()
        want = log.segments.collect_aborted_txns(0, log.log_end_offset)
        memory.files[f"{DIRECTORY}/{LEADER_EPOCH_CHECKPOINT}"].data[:] = b"0"
        left, session = target, memory.session()

        def fault(what: str, path: str) -> None:
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


def test_recover_only_last_segment() -> None:
    """testRecoverOnlyLastSegment: above the recovery point alone; the other indexes are taken as they lie there."""
    memory = memory_disk()
    log = new_log(memory.session())
    aborting(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    memory.files.pop(f"{DIRECTORY}/{log.segments.base_offsets[-1]:020d}.txnindex", None)
    again = reopen_in_new_session(memory, point=log.segments.base_offsets[-1])
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want


def test_recover_last_segment_with_no_snapshots() -> None:
    """testRecoverLastSegmentWithNoSnapshots: the producers are read from the start of the log then."""
    memory = memory_disk()
    log = new_log(memory.session())
    aborting(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    producers = log.producers.pack()
    memory.files.pop(f"{DIRECTORY}/{log.segments.base_offsets[-1]:020d}.txnindex", None)
    for path in [p for p in memory.files if p.endswith(".snapshot")]:
        del memory.files[path]
    again = reopen_in_new_session(memory, point=log.segments.base_offsets[-1])
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want
    assert again.producers.pack() == producers


def test_recover_with_empty_active_segment() -> None:
    """testRecoverWithEmptyActiveSegment: rolled just before the end, the last transaction index missing."""
    memory = memory_disk()
    log = new_log(memory.session())
    aborting(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    log.roll(NOW)
    memory.files.pop(f"{DIRECTORY}/{log.segments.base_offsets[-2]:020d}.txnindex", None)
    again = reopen_in_new_session(memory, point=log.segments.base_offsets[-2])
    assert again.segments.active.size_bytes == 0
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want


def test_recover_after_non_monotonic_coordinator_epoch_write() -> None:
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


def test_a_power_cut_takes_no_index_that_will_be_believed() -> None:
    """Below the recovery point nothing is read again, so what lies there must be whole: aborted stays aborted."""
    for seed in range(100):
        memory = memory_disk(seed)
        log = new_log(memory.session())
        aborting(log, 60)
        log.flush()
        want = log.segments.collect_aborted_txns(0, log.log_end_offset)
        point = log.recovery_point
        aborting_from(log, 60, 30)
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
def test_a_transaction_index_that_cannot_be_read_is_told_again_by_the_batches(damage: bytes, *, clean: bool) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    aborting(log, 60)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    log.close()
    path = f"{DIRECTORY}/{log.segments.base_offsets[2]:020d}.txnindex"
    memory.files[path].data[:] = damage
    again = reopen_in_new_session(memory, clean=clean, point=log.log_end_offset)
    assert path in again.recovery_notes[0]
    assert again.segments.collect_aborted_txns(0, again.log_end_offset) == want
    assert reopen_in_new_session(memory, point=log.log_end_offset).recovery_notes == []


def test_one_that_goes_bad_later_hides_nothing() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    aborting(log, 60)
    log.flush()
    log.close_idle_files()
    log.close_idle_files()
    memory.files[f"{DIRECTORY}/{log.segments.base_offsets[1]:020d}.txnindex"].data[:] = b"nonsense"
    with pytest.raises(ProtocolError) as error:
        log.segments.collect_aborted_txns(log.segments.base_offsets[1], log.log_end_offset)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("point", [0, 1])
def test_a_transaction_that_ended_below_the_log_start_is_not_open_again(point: int) -> None:
    """A snapshot calls it open; its marker is not read any more, as records up to there were deleted."""
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


def test_a_cut_leaves_one_entry_for_a_transaction_that_began_below_the_log_start() -> None:
    """What is read anew begins at the log start: its abort is told already, and two entries of a marker are damage."""
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig())
    for sequence in range(3):
        append_committed(log, make_transactional_batch(1, sequence))
    append_committed(log, make_marker(1, 0))
    aborting_from(log, 1, 2)
    want = log.segments.collect_aborted_txns(0, log.log_end_offset)
    assert len(want) == 2
    assert want[0].first_offset == 0
    log.maybe_increment_log_start_offset(1)
    append_committed(log, make_producer_batch(9, 0))
    log.truncate_to(log.log_end_offset - 1, NOW)
    assert log.segments.active.aborted_txns == want
    log.close_files()
    assert log.segments.active.aborted_txns == want, "as a file it is read: two of one marker are damage"


def test_telling_a_marker_again_costs_the_same_however_many_there_were() -> None:
    log = new_log(memory_disk().session(), LogConfig())
    aborting(log, 40)
    looked_at = 0

    class Entry(AbortedTxn):
        def __eq__(self, other: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return super().__eq__(other)

        __hash__ = AbortedTxn.__hash__

    log.segments.active.aborted_txns[:] = [Entry(*entry) for entry in log.segments.active.aborted_txns]
    log.truncate_to(log.log_end_offset - 1, NOW)
    assert looked_at == 0
    assert len(log.segments.collect_aborted_txns(0, log.log_end_offset)) == 20


def all_forgotten(log: PartitionLog) -> None:
    """Everybody has been silent for days."""
    for day in (2, 4):
        log.producers.expire(NOW + day * 86_400_000, 86_400_000)
    assert not log.producers.producers


def test_a_cut_once_all_producers_are_forgotten_brings_back_nothing_of_an_old_snapshot() -> None:
    log = new_log(memory_disk().session())
    append_committed(log, make_producer_batch(9, 0))
    append_committed(log, make_transactional_batch(1, 0))
    log.roll(NOW)
    append_committed(log, make_marker(1, 1))
    for sequence in range(1, 4):
        append_committed(log, make_producer_batch(9, sequence))
    all_forgotten(log)
    log.truncate_to(log.log_end_offset - 1, NOW)
    assert log.producers.ongoing_txns == {}, "its end lies below the cut"
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset
    append_committed(log, make_producer_batch(9, 3), AppendOrigin.CLIENT)


@pytest.mark.parametrize("how", ["as it stands", "cut before", "opened again"])
def test_a_cut_below_the_end_of_a_transaction_opens_it_again_though_its_producer_was_forgotten(how: str) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for pid in (8, 9):
        append_committed(log, make_producer_batch(pid, 0))
    append_committed(log, make_transactional_batch(1, 0))
    append_committed(log, make_marker(1, 1))
    for sequence in range(1, 4):
        append_committed(log, make_producer_batch(9, sequence))
    if how == "opened again":
        log.close()
        log = reopen_in_new_session(memory, clean=True, point=log.log_end_offset)
        log.set_high_watermark(log.log_end_offset)
    all_forgotten(log)
    if how == "cut before":
        log.truncate_to(5, NOW)
    log.truncate_to(3, NOW)
    assert log.producers.ongoing_txns == {1: 2}
    assert log.last_stable_offset == 2
