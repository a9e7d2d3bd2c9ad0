"""What a log knows besides its records, its epochs and its aborted transactions, after a power cut at any moment.

The names and the bytes of files that were not synced go one by one, or stay. What is left of the records must be
described as it was; what recovery does not read again must be on the disk as a whole before it is believed.
"""

from __future__ import annotations

import random

import pytest

from ottla.log.directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.world import (
    NOW,
    SMALL,
    TOPIC_ID,
    UNASKED,
    a_batch,
    fill,
    in_transaction,
    marker,
    memory_disk,
    new_log,
    opened,
    put,
)
from ottla.log.validate import Origin
from ottla.world.memory_disk import MemoryDisk, Session


class Life:
    """A partition that is led under many epochs and written in transactions, and the truth about it."""

    def __init__(self, memory: MemoryDisk, dice: random.Random) -> None:
        self.directory = LogDirectory(memory.session(), "/data")
        self.directory.lock()
        self.directory.begin()
        self.log: PartitionLog = self.directory.create_partition("t", 0, TOPIC_ID, SMALL, NOW)
        self.log.begin_epoch(0)
        self.epoch = self.sequence = 0
        self.open = -1
        self.epochs: list[int] = []
        self.aborted: list[tuple[int, int]] = []
        self._dice = dice

    def append(self) -> None:
        """An ordinary batch."""
        self._put(a_batch(len(self.epochs)))

    def _put(self, data: bytearray) -> None:
        done = self.log.append_as_leader(data, self.epoch, NOW, Origin.COORDINATOR, txn=UNASKED)
        self.log.set_high_watermark(self.log.log_end_offset)
        self.epochs += [self.epoch] * (done.last_offset - done.first_offset + 1)

    def transaction(self) -> None:
        """Something in a transaction, or its end."""
        if self.open < 0:
            self.open = len(self.epochs)
            self._put(in_transaction(7, self.sequence))
            self.sequence += 1
            return
        kind = self._dice.randrange(2)
        if kind == 0:
            self.aborted.append((self.open, len(self.epochs)))
        self.open = -1
        self._put(marker(7, kind))

    def next_epoch(self) -> None:
        """The partition is led anew."""
        self.epoch += self._dice.randrange(1, 4)
        self.log.begin_epoch(self.epoch)

    def roll(self) -> None:
        """A new segment, whatever the old one's size."""
        if self.log.active.size_bytes:
            self.log.roll(NOW)

    def park(self) -> None:
        """Nobody uses it now."""
        self.log.park()

    def flush(self) -> None:
        """All of it is synced."""
        self.log.flush()

    def note(self) -> None:
        """The checkpoints are written."""
        self.directory.write_checkpoints(sync=True)

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
        life = Life(memory, random.Random(seed))
        life.live(40)
        synced = life.log.recovery_point
        memory.lose_power()
        again = LogDirectory(memory.session(), "/data")
        again.begin()
        log = again.open_partition("t", 0, SMALL, NOW)
        start, end = log.log_start_offset, log.log_end_offset
        assert start == 0 or synced == 0, seed
        assert end >= synced, seed
        assert [log.epochs.epoch_at(offset) for offset in range(start, end)] == life.epochs[start:end], seed
        want = [(first, at) for first, at in life.aborted if at < end and first >= start]
        found = [(entry.first_offset, entry.last_offset) for entry in log.aborted_between(start, end)]
        assert [entry for entry in found if entry[0] >= start] == want, seed


def test_the_name_of_a_transaction_index_is_as_durable_as_the_marker_it_tells_of() -> None:
    """A sealed segment below the recovery point is not read again: its index must be there."""
    for seed in range(200):
        memory = memory_disk(seed)
        log = new_log(memory.session())
        fill(log, 1)
        log.flush()
        put(log, in_transaction(1, 0))
        put(log, marker(1, 0))
        log.flush()
        log.roll(NOW)
        point = log.recovery_point
        memory.lose_power()
        again = opened(memory, point=point)
        assert [tuple(entry)[:3] for entry in again.aborted_between(0, 5)] == [(1, 3, 4)], seed


def test_the_name_of_a_new_transaction_index_awaits_a_sync() -> None:
    log = new_log(memory_disk().session())
    fill(log, 1)
    log.flush()
    for name_is_new in (True, False):
        put(log, in_transaction(1, 0))
        assert log.names_made == log.names_synced
        put(log, marker(1, 0))
        assert (log.names_made > log.names_synced) == name_is_new
        log.flush()


def test_what_an_earlier_process_wrote_is_opened_for_its_sync_one_file_after_the_other() -> None:
    """There may be more segments to sync than descriptors."""
    memory = memory_disk()
    log = new_log(memory.session())
    fill(log, 60)
    segments, end = len(log.bases), log.log_end_offset
    assert segments > 4
    session = memory.session()
    again = opened(memory)
    again.disk = session
    job = again.begin_sync(end)
    assert [s.is_open for s in again.segments] == [False] * (segments - 1) + [True]
    synced: list[str] = []

    def watch(what: str, path: str) -> None:
        if what == "fsync":
            synced.append(path)

    for disk in (session, again.segments[0]._disk):
        assert isinstance(disk, Session)
        disk.fault = watch
    job()
    assert {path for path in synced if path.endswith(".log")} == {f"{s.path}.log" for s in log.segments}
    assert again.finish_sync(job) == end
    memory.lose_power()
    assert opened(memory, point=end).log_end_offset == end
