"""What a log knows besides its records, its epochs and its aborted transactions, after a power cut at any moment.

The names and the bytes of files that were not synced go one by one, or stay. What is left of the records must be
described as it was; what recovery does not read again must be on the disk as a whole before it is believed.
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
    """A partition that is led under many epochs and written in transactions, and the truth about it."""

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
        """An ordinary batch."""
        self._put(make_batch(len(self.epochs)))

    def _put(self, data: bytearray) -> None:
        done = self.log.append_as_leader(data, self.epoch, NOW, AppendOrigin.COORDINATOR, txn=UNVERIFIED_TXN)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.epochs += [self.epoch] * (done.last_offset - done.first_offset + 1)

    def transaction(self) -> None:
        """Something in a transaction, or its end."""
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
        """The partition is led anew."""
        self.epoch += self._dice.randrange(1, 4)
        self.log.assign_epoch_start_offset(self.epoch)

    def roll(self) -> None:
        """A new segment, whatever the old one's size."""
        if self.log.segments.active.size_bytes:
            self.log.roll(NOW)

    def park(self) -> None:
        """Nobody uses it now."""
        self.log.close_idle_files()

    def flush(self) -> None:
        """All of it is synced."""
        self.log.flush()

    def note(self) -> None:
        """The checkpoints are written."""
        self.directory.checkpoints.write(sync=True)

    def live(self, steps: int) -> None:
        """Some of everything."""
        much = [self.append, self.append, self.append, self.transaction]
        for _ in range(steps):
            self._dice.choice([*much, self.next_epoch, self.roll, self.park, self.flush, self.note])()


@pytest.mark.parametrize("holes", [False, True])
def test_what_is_left_of_a_log_is_described_as_it_was(*, holes: bool) -> None:
    for seed in range(250):
        memory = memory_disk(seed)
        memory.holes = holes
        life = PowerLossHistory(memory, random.Random(seed))
        life.live(40)
        synced = life.log.recovery_point
        memory.lose_power()
        again = LogDirectory(memory.session(), "/data")
        again.load_checkpoints()
        log = again.open_partition("t", 0, SMALL, NOW)
        start, end = log.log_start_offset, log.log_end_offset
        assert start == 0 or synced == 0, seed
        assert end >= synced, seed
        assert [log.epochs.epoch_for_offset(offset) for offset in range(start, end)] == life.epochs[start:end], seed
        want = [(first, at) for first, at in life.aborted if at < end and first >= start]
        found = [(entry.first_offset, entry.last_offset) for entry in log.segments.collect_aborted_txns(start, end)]
        assert [entry for entry in found if entry[0] >= start] == want, seed


def test_the_name_of_a_transaction_index_is_as_durable_as_the_marker_it_tells_of() -> None:
    """A sealed segment below the recovery point is not read again: its index must be there."""
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


def test_the_name_of_a_new_transaction_index_awaits_a_sync() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 1)
    log.flush()
    for name_is_new in (True, False):
        append_committed(log, make_transactional_batch(1, 0))
        assert log.segments.directory_changes == log.flush_state.synced_directory_changes
        append_committed(log, make_marker(1, 0))
        assert (log.segments.directory_changes > log.flush_state.synced_directory_changes) == name_is_new
        log.flush()


def test_what_an_earlier_process_wrote_is_opened_for_its_sync_one_file_after_the_other() -> None:
    """There may be more segments to sync than descriptors."""
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

    def watch(what: str, path: str) -> None:
        if what == "fsync":
            synced.append(path)

    for disk in (session, again.segments[0]._disk):
        assert isinstance(disk, DiskSession)
        disk.fault = watch
    job()
    assert {path for path in synced if path.endswith(".log")} == {f"{s.path}.log" for s in log.segments}
    assert again.complete_flush(job) == end
    memory.lose_power()
    assert reopen_in_new_session(memory, point=end).log_end_offset == end
