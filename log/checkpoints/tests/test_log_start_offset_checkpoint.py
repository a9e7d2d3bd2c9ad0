"""Log start offset checkpoint on a disk that tears unsynced data: durable entries are never lost."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled
from ottla.log.checkpoints.checkpoint_files import LOG_START_OFFSET_CHECKPOINT
from ottla.log.checkpoints.log_start_offset_checkpoint import BACKUP_FILE, LogStartOffsetCheckpoint

PATH, KEPT_PATH = f"/d/{LOG_START_OFFSET_CHECKPOINT}", f"/d/{BACKUP_FILE}"
HAD = {("t", number): 100 + number for number in range(300)}
"""Large enough for a file of several sectors."""
NEWER = {**HAD, ("u", 0): 7}
SEEDS = range(60)


class LogStartFixture:
    def __init__(self, seed: int = 1) -> None:
        self.memory = MemoryDisk(random.Random(seed), lambda: 0)
        self.memory.holes = seed % 2 == 0
        self.begin()

    def begin(self) -> dict[tuple[str, int], int]:
        self.disk: DiskSession = self.memory.session()
        self.disk.makedirs("/d")
        self.file = LogStartOffsetCheckpoint(self.disk, "/d")
        self.file.load()
        return dict(self.file.offsets)

    def complete_sync(self) -> None:
        """Sync as the flusher does."""
        self.file.complete_sync(self.file.prepare_sync()())

    def names(self) -> set[str]:
        return set(self.memory.files)


def short(at: str, fixture: LogStartFixture) -> None:
    """Make every later call of one kind fail with ENOSPC."""

    def fault(operation: str, path: str) -> OSError | None:
        return OSError(errno.ENOSPC, "full") if operation == at else None

    fixture.disk.fault = fault


@pytest.mark.parametrize("seed", SEEDS)
def test_write_torn_by_power_loss_keeps_durable_entries(seed: int) -> None:
    fixture = LogStartFixture(seed)
    fixture.file.write(HAD, sync=True, sync_dir=True)
    fixture.file.write(NEWER, sync=False)
    fixture.file.write({**NEWER, ("u", 1): 8}, sync=False)
    fixture.memory.lose_power()
    assert fixture.begin().items() >= HAD.items()


@pytest.mark.parametrize("seed", SEEDS)
def test_synced_write_is_not_replaced_by_an_older_file(seed: int) -> None:
    fixture = LogStartFixture(seed)
    fixture.file.write(HAD, sync=True, sync_dir=True)
    fixture.file.write(NEWER, sync=False)
    fixture.complete_sync()
    assert fixture.file.is_durable
    assert KEPT_PATH not in fixture.names()
    fixture.file.write({**NEWER, ("u", 1): 8}, sync=False)
    fixture.memory.lose_power()
    assert fixture.begin().items() >= NEWER.items()


def test_kill_at_any_call_leaves_old_or_new_entries() -> None:
    calls = 0
    while True:
        fixture = LogStartFixture()
        fixture.file.write(HAD, sync=True, sync_dir=True)
        left = calls

        def fault(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ProcessKilled

        fixture.disk.fault = fault
        try:
            fixture.file.write(NEWER, sync=False)
            fixture.complete_sync()
        except ProcessKilled:
            assert fixture.begin() in (HAD, NEWER)
            assert KEPT_PATH not in fixture.names(), "start leaves no temporary file"
            calls += 1
            continue
        break
    assert calls > 5
    assert fixture.begin() == NEWER


@pytest.mark.parametrize("seed", SEEDS)
def test_load_makes_entries_durable(seed: int) -> None:
    fixture = LogStartFixture(seed)
    fixture.file.write(HAD, sync=True, sync_dir=True)
    fixture.file.write(NEWER, sync=False)
    assert fixture.begin() == NEWER, "simulated kill"
    fixture.file.write({**NEWER, ("u", 1): 8}, sync=False)
    fixture.memory.lose_power()
    assert fixture.begin().items() >= NEWER.items()


def test_write_during_sync_is_not_marked_durable() -> None:
    fixture = LogStartFixture()
    fixture.file.write(HAD, sync=True, sync_dir=True)
    fixture.file.write(NEWER, sync=False)
    sync = fixture.file.prepare_sync()
    fixture.file.write({**NEWER, ("u", 1): 8}, sync=False)
    fixture.file.complete_sync(sync())
    assert KEPT_PATH in fixture.names()
    assert not fixture.file.is_durable


@pytest.mark.parametrize("at", ["open", "pwrite", "rename"])
def test_failed_write_keeps_previous_entries(at: str) -> None:
    fixture = LogStartFixture()
    fixture.file.write(HAD, sync=True, sync_dir=True)
    short(at, fixture)
    with pytest.raises(OSError, match="full"):
        fixture.file.write(NEWER, sync=False)
    fixture.disk.fault = None
    assert fixture.file.needs_write(NEWER), "the entries are not in the file"
    assert fixture.begin() == HAD


@pytest.mark.parametrize("seed", SEEDS)
def test_removed_log_is_not_restored_from_backup(seed: int) -> None:
    """Otherwise a new log of the same name would begin at the start offset of the old log."""
    fixture = LogStartFixture(seed)
    fixture.file.write(HAD, sync=True, sync_dir=True)
    fixture.file.write(NEWER, sync=False)
    assert set(fixture.file.backup_partitions) == set(HAD), "partitions that a restore would recreate"
    gone = dict(NEWER)
    del gone["t", 5]
    fixture.file.write(gone, sync=False)
    assert fixture.file.needs_write(gone), "the backup still contains the name"
    fixture.file.write(gone, sync=True)
    assert not fixture.file.backup_partitions
    fixture.disk.fsync_dir("/d")  # with the name of the new log
    fixture.file.write({**gone, ("u", 1): 8}, sync=False)
    fixture.memory.lose_power()
    assert ("t", 5) not in fixture.begin()


def test_first_write_keeps_no_backup() -> None:
    fixture = LogStartFixture()
    fixture.file.write(HAD, sync=False)
    assert fixture.names() == {PATH}
    assert not fixture.file.is_durable
    assert fixture.begin() == HAD
