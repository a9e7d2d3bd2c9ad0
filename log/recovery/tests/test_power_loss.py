"""Epochs and aborted transactions of a log after power loss at any time.

Names and bytes of unsynced files are lost one by one, or stay. The remaining records must keep their epochs and aborted
transactions; files that recovery does not read again must be fully durable before they are trusted.
"""

from __future__ import annotations

import random

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    TOPIC_ID,
    UNVERIFIED_TXN,
    append_batches,
    append_committed,
    make_batch,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
    reopen_in_new_session,
)


class PowerLossHistory:
    """Partition with many leader epochs and transactions, and its expected state."""

    def __init__(self, memory: MemoryDisk, dice: random.Random) -> None:
        self.directory = LogDirectory(memory.session(), "/data")
        self.directory.lock()
        self.directory.load_checkpoints()
        self.log: PartitionLog = self.directory.create_partition("t", 0, TOPIC_ID, SMALL, NOW)
        self.log.assign_epoch_start_offset(0)
        self.epoch = self.sequence = 0
        self.open = -1
        self.epochs: list[int] = []
        self.aborted: list[tuple[int, int]] = []
        self._dice = dice

    def append(self) -> None:
        """Append an ordinary batch."""
        self._put(make_batch(len(self.epochs)))

    def _put(self, data: bytearray) -> None:
        done = self.log.append_as_leader(data, self.epoch, NOW, AppendOrigin.COORDINATOR, txn=UNVERIFIED_TXN)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.epochs += [self.epoch] * (done.last_offset - done.first_offset + 1)

    def transaction(self) -> None:
        """Append a transactional batch, or the end of its transaction."""
        if self.open < 0:
            self.open = len(self.epochs)
            self._put(make_transactional_batch(7, self.sequence))
            self.sequence += 1
            return
        kind = self._dice.randrange(2)
        if kind == 0:
            self.aborted.append((self.open, len(self.epochs)))
        self.open = -1
        self._put(make_marker(7, kind))

    def next_epoch(self) -> None:
        """Begin a new leader epoch."""
        self.epoch += self._dice.randrange(1, 4)
        self.log.assign_epoch_start_offset(self.epoch)

    def roll(self) -> None:
        """Roll a new segment, independent of the size of the active one."""
        if self.log.segments.active.size_bytes:
            self.log.roll(NOW)

    def close_idle_files(self) -> None:
        """Close idle files."""
        self.log.close_idle_files()

    def flush(self) -> None:
        """Sync the whole log."""
        self.log.flush()

    def write_checkpoints(self) -> None:
        """Write the checkpoints."""
        self.directory.checkpoints.write(sync=True)

    def run(self, steps: int) -> None:
        """Run random operations."""
        much = [self.append, self.append, self.append, self.transaction]
        for _ in range(steps):
            self._dice.choice(
                [*much, self.next_epoch, self.roll, self.close_idle_files, self.flush, self.write_checkpoints]
            )()


@pytest.mark.parametrize("holes", [False, True])
def test_recovery_after_power_loss_keeps_epochs_and_aborted_transactions(*, holes: bool) -> None:
    for seed in range(250):
        memory = memory_disk(seed)
        memory.holes = holes
        history = PowerLossHistory(memory, random.Random(seed))
        history.run(40)
        synced = history.log.recovery_point
        memory.lose_power()
        again = LogDirectory(memory.session(), "/data")
        again.load_checkpoints()
        log = again.open_partition("t", 0, SMALL, NOW)
        start, end = log.log_start_offset, log.log_end_offset
        assert start == 0 or synced == 0, seed
        assert end >= synced, seed
        assert [log.epochs.epoch_for_offset(offset) for offset in range(start, end)] == history.epochs[start:end], seed
        want = [(first, at) for first, at in history.aborted if at < end and first >= start]
        found = [(entry.first_offset, entry.last_offset) for entry in log.segments.collect_aborted_txns(start, end)]
        assert [entry for entry in found if entry[0] >= start] == want, seed


def test_transaction_index_name_is_as_durable_as_its_marker() -> None:
    """A sealed segment below the recovery point is not read again: its index must exist."""
    for seed in range(200):
        memory = memory_disk(seed)
        log = new_log(memory.session())
        append_batches(log, 1)
        log.flush()
        append_committed(log, make_transactional_batch(1, 0))
        append_committed(log, make_marker(1, 0))
        log.flush()
        log.roll(NOW)
        point = log.recovery_point
        memory.lose_power()
        again = reopen_in_new_session(memory, point=point)
        assert [tuple(entry)[:3] for entry in again.segments.collect_aborted_txns(0, 5)] == [(1, 3, 4)], seed


def test_new_transaction_index_requires_directory_sync() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 1)
    log.flush()
    for name_is_new in (True, False):
        append_committed(log, make_transactional_batch(1, 0))
        assert log.segments.directory_changes == log.flush_state.synced_directory_changes
        append_committed(log, make_marker(1, 0))
        assert (log.segments.directory_changes > log.flush_state.synced_directory_changes) == name_is_new
        log.flush()


def test_flush_of_reopened_log_opens_one_file_at_a_time() -> None:
    """The segments to sync may outnumber the file descriptors."""
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, 60)
    segments, end = len(log.segments.base_offsets), log.log_end_offset
    assert segments > 4
    session = memory.session()
    again = reopen_in_new_session(memory)
    again.disk = session
    job = again.start_flush(end)
    assert [s.is_open for s in again.segments] == [False] * (segments - 1) + [True]
    synced: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation == "fsync":
            synced.append(path)

    for disk in (session, again.segments[0]._disk):
        assert isinstance(disk, DiskSession)
        disk.fault = watch
    job()
    assert {path for path in synced if path.endswith(".log")} == {f"{s.path}.log" for s in log.segments}
    assert again.complete_flush(job) == end
    memory.lose_power()
    assert reopen_in_new_session(memory, point=end).log_end_offset == end
