"""Log with tiered storage: local retention, local log start offset, and the next start of the node."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from ottla.env.memory_disk import MemoryDisk, ProcessKilled
from ottla.log.directory.checkpoint_store import offsets_to_checkpoint
from ottla.log.log_config import TieringConfig
from ottla.log.partition_log import PartitionLog, RemoteLogAuxState
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.retention import increment_log_start_by_retention, log_start_after_retention
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    append_batches,
    make_producer_batch,
    memory_disk,
    new_log,
    record_values,
    reopen_in_new_session,
)
from ottla.wire.errors import ErrorCode, ProtocolError

HOUR_MS = 3_600_000
TIERED = replace(SMALL, retention_ms=-1, tiering=TieringConfig(True, True, -1, 5000))


def tiered_log(memory: MemoryDisk | None = None) -> PartitionLog:
    """Return a committed log of several segments, of which none is in the remote store."""
    memory = memory or memory_disk()
    memory.now_ms = lambda: NOW + HOUR_MS
    log = new_log(memory.session(), TIERED)
    append_batches(log, 60)
    return log


def retain(log: PartitionLog, now_ms: int = NOW) -> int | None:
    start = log_start_after_retention(log, now_ms)
    if start is not None and increment_log_start_by_retention(log, start):
        log.delete_segments_below_start(NOW)
    return start


def error_of(log: PartitionLog, offset: int) -> ErrorCode | None:
    try:
        log.read(offset, 1000, log.log_end_offset, at_least_one=True)
    except ProtocolError as error:
        return error.code
    return None


def test_local_retention_without_copies_deletes_no_segment() -> None:
    log = tiered_log()
    bases = list(log.segments.base_offsets)
    assert retain(log) is None
    log.raise_highest_remote_offset(bases[1] - 2)  # not the whole first segment
    assert retain(log) is None
    assert log.segments.base_offsets == bases
    assert log.local_log_start_offset == 0


def test_copied_segments_are_deleted_by_local_retention_and_the_log_start_stays() -> None:
    log = tiered_log()
    bases = list(log.segments.base_offsets)
    log.raise_highest_remote_offset(bases[2] - 1)
    assert retain(log) == bases[2]
    assert (log.log_start_offset, log.local_log_start_offset) == (0, bases[2])
    assert log.segments.base_offsets == bases[2:]
    log.raise_highest_remote_offset(log.log_end_offset - 1)
    retain(log)
    assert 5000 <= log.size_bytes < 7000
    assert log.log_start_offset == 0
    assert record_values(log)[0][0] == log.local_log_start_offset


def test_local_retention_by_time_rolls_and_deletes_only_copied_segments() -> None:
    log = tiered_log()
    log.update_config(replace(TIERED, tiering=TieringConfig(True, True, HOUR_MS, -1)))
    end = log.log_end_offset
    assert retain(log, NOW + 10 * HOUR_MS) is None
    assert log.segments.base_offsets[-1] == end, "the active segment is rolled, so that it is copied"
    log.raise_highest_remote_offset(end - 1)
    assert retain(log, NOW + 10 * HOUR_MS) == end
    assert (log.log_start_offset, log.local_log_start_offset, log.size_bytes) == (0, end, 0)


def test_topic_that_is_no_longer_copied_is_retained_as_a_whole() -> None:
    log = tiered_log()
    log.update_config(replace(TIERED, retention_bytes=5000, tiering=TieringConfig(True, False, -1, -1)))
    start = retain(log)
    assert start is not None
    assert log.log_start_offset == log.local_log_start_offset == start > 0


def test_read_below_the_local_log_start_is_offset_moved_to_tiered_storage() -> None:
    log = tiered_log()
    log.raise_highest_remote_offset(log.log_end_offset - 1)
    retain(log)
    log.maybe_increment_log_start_offset(10)
    local = log.local_log_start_offset
    assert error_of(log, 9) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error_of(log, 10) is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert error_of(log, local - 1) is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert error_of(log, local) is None
    assert error_of(log, log.log_end_offset) is None
    assert error_of(log, log.log_end_offset + 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.bytes_between(10, log.log_end_offset) == 0


def test_log_start_above_the_local_one_raises_it_and_deletes_segments_without_a_copy() -> None:
    log = tiered_log()
    bases = list(log.segments.base_offsets)
    log.maybe_increment_log_start_offset(bases[2] + 1)
    assert log.local_log_start_offset == bases[2] + 1
    log.delete_segments_below_start(NOW)
    assert log.segments.base_offsets == bases[2:]


@pytest.mark.parametrize("clean", [True, False])
def test_log_start_offset_in_the_remote_store_survives_a_start(*, clean: bool) -> None:
    memory = memory_disk()
    log = tiered_log(memory)
    log.raise_highest_remote_offset(log.log_end_offset - 1)
    log.maybe_increment_log_start_offset(4)
    retain(log)
    local, end = log.local_log_start_offset, log.log_end_offset
    assert offsets_to_checkpoint(log).has_log_start_entry
    if clean:
        log.close()
    again = reopen_in_new_session(memory, TIERED, clean=clean, start=4)
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (4, local, end)
    assert again.highest_remote_offset == -1
    assert record_values(again) == [each for each in record_values(log) if each[0] >= local]
    untiered = reopen_in_new_session(memory, SMALL, clean=clean, start=4)
    assert untiered.log_start_offset == untiered.local_log_start_offset == local


def test_log_start_at_the_first_segment_is_checkpointed_only_with_tiered_storage() -> None:
    log = tiered_log()
    second = log.segments.base_offsets[1]
    log.maybe_increment_log_start_offset(second)
    log.delete_segments_below_start(NOW)
    assert log.segments.base_offsets[0] == second
    assert offsets_to_checkpoint(log).has_log_start_entry
    log.update_config(SMALL)
    assert not offsets_to_checkpoint(log).has_log_start_entry


def test_truncation_lowers_the_local_log_start_and_the_highest_remote_offset() -> None:
    log = tiered_log()
    log.raise_highest_remote_offset(log.log_end_offset - 1)
    retain(log)
    local = log.local_log_start_offset
    log.truncate_to(local + 4, NOW)
    assert log.highest_remote_offset < log.log_end_offset
    assert (log.log_start_offset, log.local_log_start_offset) == (0, local)
    log.truncate_to(local - 5, NOW)
    assert log.log_start_offset <= log.local_log_start_offset == log.log_end_offset == local - 5
    assert log.highest_remote_offset == -1


# ---------------------------------------------------------------------- start of the local log with a remote part


def aux_state(start: int = 4) -> RemoteLogAuxState:
    """Return the state that the records of two leader epochs and of producer 7 left in the remote store."""
    producers = new_log(memory_disk().session(), TIERED)
    producers.append_as_leader(make_producer_batch(7, 0), 2, NOW)
    return RemoteLogAuxState(start, [(2, start), (5, 60)], ProducerStateManager.unpack(producers.producers.pack()))


def last_sequence(log: PartitionLog) -> int:
    entry = log.producers.producers.entry(7)
    return -1 if entry is None else entry[2]


def test_truncate_fully_with_remote_state_keeps_the_log_start_epochs_and_producers() -> None:
    memory = memory_disk()
    log = tiered_log(memory)
    log.truncate_fully_and_start_at(100, NOW, aux_state())
    assert (log.log_start_offset, log.local_log_start_offset, log.high_watermark, log.log_end_offset) == (4, *[100] * 3)
    assert log.highest_remote_offset == 99
    assert log.segments.base_offsets == [100]
    assert log.epochs.entries == [(2, 4), (5, 60)]
    assert last_sequence(log) == 0
    with pytest.raises(ProtocolError, match="sequence"):
        log.append_as_leader(make_producer_batch(7, 5), 6, NOW)
    assert log.append_as_leader(make_producer_batch(7, 0), 6, NOW).duplicate
    log.append_as_leader(make_producer_batch(7, 1), 6, NOW)
    assert log.epochs.entries == [(2, 4), (5, 60), (6, 100)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("appends", [0, 2])
def test_remote_epochs_and_producers_survive_a_start(*, clean: bool, appends: int) -> None:
    memory = memory_disk()
    log = tiered_log(memory)
    log.truncate_fully_and_start_at(100, NOW, aux_state())
    append_batches(log, appends, epoch=6)
    epochs = list(log.epochs.entries)
    if clean:
        log.close()
    again = reopen_in_new_session(memory, TIERED, clean=clean, start=4)
    assert (again.log_start_offset, again.local_log_start_offset) == (4, 100)
    assert again.log_end_offset == 100 + 3 * appends
    assert again.epochs.entries == epochs
    assert last_sequence(again) == 0
    again.set_high_watermark(again.log_end_offset)
    again.truncate_to(101, NOW)
    assert last_sequence(again) == 0


def test_producers_of_the_log_start_are_not_restored_without_remote_records() -> None:
    memory = memory_disk()
    log = tiered_log(memory)
    log.truncate_fully_and_start_at(100, NOW, aux_state())
    again = reopen_in_new_session(memory, TIERED, start=100)
    assert (again.log_start_offset, last_sequence(again)) == (100, -1)


def test_kill_during_truncation_leaves_no_part_of_the_remote_state() -> None:
    outcomes = set()
    for calls in range(150):
        memory = memory_disk(calls)
        session = memory.session()
        log = new_log(session, TIERED)
        append_batches(log, 20)
        log.flush()
        session.kill_at = memory.calls + 1 + calls
        with contextlib.suppress(ProcessKilled):
            log.truncate_fully_and_start_at(100, NOW, aux_state())
            session.kill()
        again = reopen_in_new_session(memory, TIERED, start=4)
        outcomes.add(again.log_end_offset)
        if again.log_end_offset == 100:
            assert (again.log_start_offset, again.local_log_start_offset, last_sequence(again)) == (4, 100, 0), calls
            assert again.epochs.entries == [(2, 4), (5, 60)], calls
        else:
            assert again.log_end_offset <= 60, calls
            assert again.log_start_offset == again.local_log_start_offset, calls
    assert {4, 60, 100} <= outcomes


def test_leader_epochs_of_records_in_the_remote_store_survive_power_loss() -> None:
    """No local batch has them: without them the remote segments could not be found."""
    for seed in range(40):
        memory = memory_disk(seed)
        log = tiered_log(memory)
        log.assign_epoch_start_offset(1)
        append_batches(log, 3, epoch=1)
        log.flush()
        log.raise_highest_remote_offset(log.log_end_offset - 1)
        retain(log)
        assert log.local_log_start_offset > 0
        append_batches(log, 3, epoch=2)  # writes the file
        memory.lose_power()
        again = reopen_in_new_session(memory, TIERED)
        assert again.epochs.epoch_for_offset(0) == 0, seed
