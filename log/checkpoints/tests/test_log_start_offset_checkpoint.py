"""Where logs start, on a disk that tears what was not synced: nothing the disk had is taken back."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled
from ottla.log.checkpoints.checkpoint_files import LOG_START_OFFSET_CHECKPOINT
from ottla.log.checkpoints.log_start_offset_checkpoint import BACKUP_FILE, LogStartOffsetCheckpoint

PATH, KEPT_PATH = f"/d/{LOG_START_OFFSET_CHECKPOINT}", f"/d/{BACKUP_FILE}"
HAD = {("t", number): 100 + number for number in range(300)}
"""Enough that the file has several sectors."""
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

    def settle(self) -> None:
        """As the flusher does."""
        self.file.complete_sync(self.file.prepare_sync()())

    def names(self) -> set[str]:
        return set(self.memory.files)


def short(at: str, stage: LogStartFixture) -> None:
    """From now on a call fails for want of something."""

    def fault(what: str, path: str) -> OSError | None:
        return OSError(errno.ENOSPC, "full") if what == at else None

    stage.disk.fault = fault


@pytest.mark.parametrize("seed", SEEDS)
def test_a_writing_that_was_torn_leaves_the_one_the_disk_had(seed: int) -> None:
    stage = LogStartFixture(seed)
    stage.file.write(HAD, sync=True, sync_dir=True)
    stage.file.write(NEWER, sync=False)
    stage.file.write({**NEWER, ("u", 1): 8}, sync=False)
    stage.memory.lose_power()
    assert stage.begin().items() >= HAD.items()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_writing_that_was_settled_is_never_given_up_for_an_older_one(seed: int) -> None:
    stage = LogStartFixture(seed)
    stage.file.write(HAD, sync=True, sync_dir=True)
    stage.file.write(NEWER, sync=False)
    stage.settle()
    assert stage.file.is_durable
    assert KEPT_PATH not in stage.names()
    stage.file.write({**NEWER, ("u", 1): 8}, sync=False)
    stage.memory.lose_power()
    assert stage.begin().items() >= NEWER.items()


def test_after_a_kill_at_any_call_the_file_says_the_former_or_the_newer() -> None:
    calls = 0
    while True:
        stage = LogStartFixture()
        stage.file.write(HAD, sync=True, sync_dir=True)
        left = calls

        def fault(what: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ProcessKilled

        stage.disk.fault = fault
        try:
            stage.file.write(NEWER, sync=False)
            stage.settle()
        except ProcessKilled:
            assert stage.begin() in (HAD, NEWER)
            assert KEPT_PATH not in stage.names(), "a start leaves nothing beside the file"
            calls += 1
            continue
        break
    assert calls > 5
    assert stage.begin() == NEWER


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_start_found_is_on_the_disk(seed: int) -> None:
    stage = LogStartFixture(seed)
    stage.file.write(HAD, sync=True, sync_dir=True)
    stage.file.write(NEWER, sync=False)
    assert stage.begin() == NEWER, "the process was killed"
    stage.file.write({**NEWER, ("u", 1): 8}, sync=False)
    stage.memory.lose_power()
    assert stage.begin().items() >= NEWER.items()


def test_what_is_written_while_the_disk_is_waited_for_is_not_settled_with_the_former() -> None:
    stage = LogStartFixture()
    stage.file.write(HAD, sync=True, sync_dir=True)
    stage.file.write(NEWER, sync=False)
    settle = stage.file.prepare_sync()
    stage.file.write({**NEWER, ("u", 1): 8}, sync=False)
    stage.file.complete_sync(settle())
    assert KEPT_PATH in stage.names()
    assert not stage.file.is_durable


@pytest.mark.parametrize("at", ["open", "pwrite", "rename"])
def test_a_writing_that_fails_leaves_what_was_said(at: str) -> None:
    stage = LogStartFixture()
    stage.file.write(HAD, sync=True, sync_dir=True)
    short(at, stage)
    with pytest.raises(OSError, match="full"):
        stage.file.write(NEWER, sync=False)
    stage.disk.fault = None
    assert stage.file.needs_write(NEWER), "it is not in the file"
    assert stage.begin() == HAD


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_struck_off_for_sure_is_not_named_again_by_what_is_kept(seed: int) -> None:
    """A log of the same name is made anew: it would begin where the old one did."""
    stage = LogStartFixture(seed)
    stage.file.write(HAD, sync=True, sync_dir=True)
    stage.file.write(NEWER, sync=False)
    assert set(stage.file.backup_partitions) == set(HAD), "whose names may come back"
    gone = dict(NEWER)
    del gone["t", 5]
    stage.file.write(gone, sync=False)
    assert stage.file.needs_write(gone), "what is kept names it still"
    stage.file.write(gone, sync=True)
    assert not stage.file.backup_partitions
    stage.disk.fsync_dir("/d")  # with the name of the new log
    stage.file.write({**gone, ("u", 1): 8}, sync=False)
    stage.memory.lose_power()
    assert ("t", 5) not in stage.begin()


def test_nothing_is_kept_before_there_was_anything() -> None:
    stage = LogStartFixture()
    stage.file.write(HAD, sync=False)
    assert stage.names() == {PATH}
    assert not stage.file.is_durable
    assert stage.begin() == HAD
