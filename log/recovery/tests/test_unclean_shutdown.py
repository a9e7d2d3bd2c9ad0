"""Opening a log after a clean stop, a kill, a power loss or damage."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled
from ottla.log.checkpoints.checkpoint_files import LEADER_EPOCH_CHECKPOINT
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    append_batches,
    expected_values,
    make_batch,
    memory_disk,
    new_log,
    record_offsets,
    record_values,
    reopen_log,
)
from ottla.log.tests.test_truncation import again_in_directory, in_directory
from ottla.log.timestamp_lookup import find_offset_by_timestamp
from ottla.wire.errors import ProtocolError
from ottla.wire.record_batch.batch_header import iterate_batches, parse_header, set_offset_and_epoch


def test_open_log_after_clean_shutdown_trusts_files_and_keeps_all_records() -> None:
    disk = memory_disk().session()
    log = new_log(disk)
    append_batches(log, 40)
    log.append_as_leader(make_batch(120, producer_id=5, producer_epoch=0, base_sequence=0), 0, NOW)
    bases = log.segments.base_offsets
    log.close()
    again = reopen_log(disk, clean=True)
    assert again.segments.base_offsets == bases
    assert again.log_end_offset == 123
    assert record_values(again) == expected_values(123)
    assert again.producers.producers[5].last_sequence == 2
    found = find_offset_by_timestamp(again, NOW + 77, 123)
    assert found is not None
    assert found.offset == 77


@pytest.mark.behaviour("P-73")
def test_open_log_after_kill_rebuilds_indexes_and_producers() -> None:
    memory = memory_disk()
    first = memory.session()
    log = new_log(first)
    for start in range(0, 120, 3):
        log.append_as_leader(make_batch(start, producer_id=5, producer_epoch=0, base_sequence=start), 0, NOW)
    first.kill()
    again = reopen_log(memory.session())
    assert record_values(again) == expected_values(120)
    assert again.producers.producers[5].last_sequence == 119
    again.append_as_leader(make_batch(120, producer_id=5, producer_epoch=0, base_sequence=120), 0, NOW)
    assert again.log_end_offset == 123


@pytest.mark.behaviour("P-73")
@pytest.mark.parametrize("damage", ["flip", "cut", "garbage"])
def test_recovery_truncates_at_damaged_batch_and_removes_later_segments(damage: str) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    path = log.segments[2].path + ".log"
    inode = memory.files[path]
    position = len(inode.data) // 2
    starts = [at for at, _ in iterate_batches(inode.data)]
    kept = max(s for s in starts if s <= position)
    end = parse_header(inode.data, kept).base_offset
    if damage == "flip":
        inode.data[position] ^= 0x40
    elif damage == "cut":
        del inode.data[position:]
    else:
        inode.data[position:] = random.Random(1).randbytes(len(inode.data) - position)
    again = reopen_log(memory.session())
    assert record_values(again) == expected_values(end)
    assert again.segments.active.path + ".log" == path
    assert len(memory.files[path].data) == kept


def four_batches() -> tuple[DiskSession, PartitionLog, str, list[int]]:
    """Return a log of four batches with leader epoch 1: disk, log, file, and positions of the batches."""
    disk = memory_disk().session()
    log = new_log(disk)
    for start in range(0, 12, 3):
        log.append_as_leader(make_batch(start), 1, NOW)
    path = log.segments.active.path + ".log"
    return disk, log, path, [at for at, _ in iterate_batches(disk.disk.files[path].data)]


def test_recovery_stale_bytes_with_older_epoch_are_truncated() -> None:
    """The truncation was never synced, and the old bytes follow new ones at the next expected offset."""
    disk, log, path, starts = four_batches()
    stale = bytes(disk.disk.files[path].data[starts[2] :])
    log.truncate_to(3, NOW)
    log.append_as_leader(make_batch(3), 2, NOW)
    assert log.log_end_offset == 6
    disk.disk.files[path].data += stale
    disk.kill()
    again = reopen_log(disk.disk.session())
    assert again.log_end_offset == 6
    assert again.epochs.entries == [(1, 0), (2, 3)]
    assert again.segments.active.size_bytes == starts[2]


def test_recovery_batch_with_unknown_epoch_keeps_later_batches() -> None:
    """The epoch is outside the checksum: one flipped bit must not remove later batches of the previous epoch."""
    disk, _, path, starts = four_batches()
    disk.disk.files[path].data[starts[1] + 12] ^= 0x40
    disk.kill()
    assert reopen_log(disk.disk.session()).log_end_offset == 12


def test_recovery_batch_without_epoch_is_kept() -> None:
    disk = memory_disk().session()
    log = new_log(disk)
    log.append_as_leader(make_batch(0), 4, NOW)
    path = log.segments.active.path + ".log"
    old = bytearray(make_batch(3))
    set_offset_and_epoch(old, 0, 3, -1)
    disk.disk.files[path].data += bytes(old)
    disk.kill()
    assert reopen_log(disk.disk.session()).log_end_offset == 6


def test_recovery_reads_below_recovery_point_only_end_of_previous_segment() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    for segment in log.segments[:-1]:
        memory.files[segment.path + ".log"].data[70] ^= 1  # a read with a checksum check would detect it
    session, read = memory.session(), list[str]()
    session.fault = lambda operation, path: read.append(path) if operation == "pread" else None
    again = reopen_log(session, point=log.segments.base_offsets[-1])
    assert again.log_end_offset == 180
    believed = {segment.path + ".log" for segment in log.segments[:-2]}
    assert not believed & set(read)
    assert log.segments.active.path + ".log" in read, "data above the recovery point is read"


@pytest.mark.parametrize("back", ["rubbish", "batches"])
def test_recovery_restored_bytes_after_trusted_segment_are_truncated(back: str) -> None:
    """Power loss undoes an unsynced truncation; the next segment begins at the truncation offset."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 20)
    log.roll(NOW)
    append_batches(log, 20)
    log.roll(NOW)
    append_batches(log, 2)
    log.flush()
    inode = memory.files[log.segments[-2].path + ".log"]
    size, point = len(inode.data), log.segments.base_offsets[-1]
    inode.data += bytes(70) if back == "rubbish" else memory.files[log.segments.active.path + ".log"].data
    again = reopen_log(memory.session(), point=point)
    assert record_values(again) == expected_values(again.log_end_offset)
    assert len(inode.data) == size
    assert not inode.pending, "truncation is synced"
    assert [note for note in again.recovery_notes if note.startswith("Truncating segment ")]


@pytest.mark.parametrize("clean", [True, False])
def test_open_log_damaged_trusted_segment_without_snapshots_opens(*, clean: bool) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    for start in range(0, 180, 3):
        log.append_as_leader(make_batch(start, producer_id=5, producer_epoch=0, base_sequence=start), 0, NOW)
    log.close()
    memory.files[log.segments[1].path + ".log"].data[70] ^= 1
    for path in [p for p in memory.files if p.endswith(".snapshot")]:
        del memory.files[path]
    again = reopen_log(memory.session(), clean=clean, point=180)
    assert again.log_end_offset == 180
    assert again.producers.producers[5].last_sequence == 179
    assert "while rebuilding producer state" in again.recovery_notes[0]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
@pytest.mark.parametrize("damage", ["garbage", "gone", "cut"])
def test_open_log_damaged_or_missing_derived_files_are_rebuilt(suffix: str, damage: str) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    log.append_as_leader(make_batch(180, producer_id=5, producer_epoch=0, base_sequence=0), 0, NOW)
    log.close()
    for path in [p for p in memory.files if p.endswith(suffix)]:
        if damage == "gone":
            del memory.files[path]
        elif damage == "cut":
            del memory.files[path].data[len(memory.files[path].data) // 2 + 1 :]
        else:
            memory.files[path].data[:] = random.Random(3).randbytes(37)
    again = reopen_log(memory.session(), clean=True)
    assert record_values(again) == expected_values(183)
    assert again.producers.producers[5].last_sequence == 2
    part = again.read(100, 1000, 183, at_least_one=True)
    assert part is not None
    assert parse_header(part.read()).base_offset == 99


def append_until_failure(log: PartitionLog, limit: int = 60) -> int:
    """Append until a call fails; return the number of acknowledged records."""
    done = log.log_end_offset
    try:
        while done < limit * 3:
            log.append_as_leader(make_batch(done), 0, NOW)
            done = log.log_end_offset
            if done % 30 == 0:
                log.flush()
    except (ProcessKilled, OSError):
        pass
    return done


def test_kill_at_every_io_call_keeps_acknowledged_records() -> None:
    calls = 0
    for at in range(1, 400):
        memory = memory_disk(at)
        session = memory.session()
        log = new_log(session)
        session.kill_at = memory.calls + at
        acknowledged = append_until_failure(log)
        calls = memory.calls
        again = reopen_log(memory.session())
        assert again.log_end_offset >= acknowledged
        assert record_values(again) == expected_values(again.log_end_offset)
        if not session.dead:
            break
    assert calls > 150


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_error_at_every_io_call_keeps_acknowledged_records(number: int) -> None:
    for at in range(1, 200):
        memory = memory_disk(at)
        session = memory.session()
        log = new_log(session)
        target = memory.calls + at

        def fault(operation: str, path: str, memory: MemoryDisk = memory, target: int = target) -> OSError | None:
            return OSError(number, "injected", path) if memory.calls == target else None

        session.fault = fault
        acknowledged = append_until_failure(log)
        session.kill()
        again = reopen_log(memory.session())
        assert again.log_end_offset >= acknowledged
        assert record_values(again) == expected_values(again.log_end_offset)


def test_200_power_losses_keep_synced_records() -> None:
    for seed in range(200):
        memory = memory_disk(seed)
        session = memory.session()
        log = new_log(session)
        log.flush()
        session.kill_at = memory.calls + random.Random(seed).randrange(1, 250)
        append_until_failure(log)
        synced = log.recovery_point
        memory.lose_power()
        again = reopen_log(memory.session(), point=0)
        assert again.log_end_offset >= synced, seed
        assert record_values(again) == expected_values(again.log_end_offset), seed


def test_append_failed_write_leaves_no_bytes() -> None:
    memory = memory_disk()
    session = memory.session()
    log = new_log(session)
    append_batches(log, 2)
    before = {path: bytes(inode.data) for path, inode in memory.files.items()}
    session.fault = lambda operation, path: OSError(errno.ENOSPC, "full", path) if operation == "pwrite" else None
    for _ in range(5):  # each failure leaves another part of the batch
        with pytest.raises(OSError, match="full"):
            log.append_as_leader(make_batch(6), 0, NOW)
    session.fault = None
    assert log.log_end_offset == 6
    assert {path: bytes(inode.data) for path, inode in memory.files.items()} == before
    append_batches(log, 1)
    assert record_values(log) == expected_values(9)


def test_append_after_rejected_batch_succeeds() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 1)
    with pytest.raises(ProtocolError):
        log.append_as_leader(bytearray(b"nonsense" * 20), 0, NOW)
    append_batches(log, 1)
    assert record_values(log) == expected_values(6)


@pytest.mark.parametrize("torn", [False, True])
def test_recovery_truncation_undone_by_power_loss_is_repeated(*, torn: bool) -> None:
    """The recovery point is at the truncation offset: no later sync and no later start reads the segment again, unless
    another file is torn.
    """
    for seed in range(30):
        memory = memory_disk(seed)
        directory, log = in_directory(memory)
        append_batches(log, 3)
        log.flush()
        directory.checkpoints.write()
        log.segments.active.file.pwrite(bytes(161), log.segments.active.size_bytes)  # the rest of a batch
        log.segments.active.file.fsync()
        memory.lose_power()
        if torn:
            memory.files[f"/data/t-0/{LEADER_EPOCH_CHECKPOINT}"].data[:] = b"0"
        memory.locks.clear()
        directory = LogDirectory(memory.session(), "/data")
        directory.load_checkpoints()
        log = directory.open_partition("t", 0, SMALL, NOW)
        end = log.log_end_offset
        log.roll(NOW)
        append_batches(log, 3, epoch=1)
        memory.lose_power()
        again = again_in_directory(memory)
        assert record_offsets(again) == list(range(again.log_end_offset)), seed
        assert again.log_end_offset >= end, seed
