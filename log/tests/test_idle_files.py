"""Idle files and indexes of a log: closed, evicted from memory, reopened on use."""

from __future__ import annotations

from ottla.env.memory_disk import DiskSession
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import (
    DIRECTORY,
    NOW,
    append_batches,
    expected_values,
    make_batch,
    memory_disk,
    new_log,
    record_values,
    reopen_log,
)
from ottla.log.timestamp_lookup import find_offset_by_timestamp
from ottla.wire.record_batch.batch_header import parse_header


class OpenCounter:
    """Counter of opened segment files."""

    def __init__(self, disk: DiskSession) -> None:
        self.opened = 0
        disk.fault = self._count

    def _count(self, operation: str, path: str) -> None:
        self.opened += operation == "open" and path.endswith(".log")


def idle_log() -> tuple[DiskSession, PartitionLog]:
    disk = memory_disk().session()
    log = new_log(disk)
    append_batches(log, 40)
    log.flush()
    log.close_idle_files()
    log.close_idle_files()
    return disk, log


def first_offset(log: PartitionLog, offset: int) -> int:
    part = log.read(offset, 100_000, log.log_end_offset, at_least_one=True)
    assert part is not None
    return parse_header(part.read()).base_offset


def test_idle_log_opens_only_files_that_a_read_needs() -> None:
    disk, log = idle_log()
    opens = OpenCounter(disk)
    assert all(s._offset_index is None for s in log.segments[:-1])
    assert first_offset(log, 61) == 60
    assert opens.opened == 1
    assert first_offset(log, 62) == 60
    assert opens.opened == 1
    assert record_values(log) == expected_values(120)
    assert opens.opened == len(log.segments)
    found = find_offset_by_timestamp(log, NOW + 77, 120)
    assert found is not None
    assert found.offset == 77


def test_close_idle_files_keeps_recently_used_file_open() -> None:
    disk, log = idle_log()
    first_offset(log, 61)
    opens = OpenCounter(disk)
    log.close_idle_files()
    first_offset(log, 61)
    assert opens.opened == 0


def test_close_idle_files_keeps_pending_slice_readable() -> None:
    _, log = idle_log()
    part = log.read(61, 100_000, log.log_end_offset, at_least_one=True)
    assert part is not None
    log.close_idle_files()
    log.close_idle_files()
    assert parse_header(part.read()).base_offset == 60


def test_close_idle_files_keeps_unsynced_file_open_and_log_becomes_idle() -> None:
    disk = memory_disk().session()
    log = new_log(disk)
    append_batches(log, 2)
    assert not log.is_idle
    log.close_idle_files()
    assert log.is_idle
    log.close_idle_files()
    opens = OpenCounter(disk)
    append_batches(log, 1)
    assert opens.opened == 0
    assert not log.is_idle


def test_close_idle_files_writes_indexes_rebuilt_by_recovery() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 40)
    for path in [p for p in memory.files if p.endswith("index")]:
        memory.files[path].data[:] = b"nonsense"
    again = reopen_log(memory.session())
    again.flush()
    again.close_idle_files()
    again.close_idle_files()
    assert all(s._offset_index is None for s in again.segments[:-1])
    paths = [p for p in memory.files if p.startswith(DIRECTORY) and p.endswith("index")]
    assert sum(memory.files[p].data == b"nonsense" for p in paths) == 2, (
        "files of the active segment remain, as after a kill"
    )
    again.append_as_leader(make_batch(120), 0, NOW)
    assert record_values(again) == expected_values(123)


def test_close_soon_after_recovery_writes_valid_indexes() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 40)
    log.close()
    paths = [p for p in memory.files if p.endswith("index")]
    right = {p: bytes(memory.files[p].data) for p in paths}
    for path in paths:
        memory.files[path].data[:] = b"\0\0\0\1\0\0\0\2" if path.endswith(".index") else b""
    reopen_log(memory.session()).close()
    assert {p: bytes(memory.files[p].data) for p in paths} == right
