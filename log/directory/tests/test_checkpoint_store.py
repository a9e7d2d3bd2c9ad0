"""Checkpoints written in steps: whatever happens between two of them, no file says what is not true."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk
from ottla.log.checkpoints.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offsets,
)
from ottla.log.directory.checkpoint_store import LOGS_PER_STEP
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.wire.record_batch.records import NewRecord, build_batch

NOW = 1_000_000
LOGS = LOGS_PER_STEP + 3


class CheckpointFixture:
    """A directory with more logs than a step takes, three records in each."""

    def __init__(self, seed: int = 1) -> None:
        disk = MemoryDisk(random.Random(seed), lambda: NOW).session()
        self.directory = LogDirectory(disk, "/d")
        self.directory.lock()
        self.directory.write_meta_properties(MetaProperties("c", 1, bytes(16)), NOW)
        self.directory.load_checkpoints()
        for number in range(LOGS):
            self.make(number)
        self.store = self.directory.checkpoints

    def make(self, number: int) -> PartitionLog:
        log = self.directory.create_partition("t", number, bytes(16), LogConfig(segment_bytes=400), NOW)
        for _ in range(3):
            log.append_as_leader(bytearray(build_batch([NewRecord(None, bytes(200), NOW)])), 0, NOW)
        log.flush()
        log.set_high_watermark(3)
        return log

    def log(self, number: int) -> PartitionLog:
        return self.directory.logs["t", number]

    def write(self, *between: Callable[[], object]) -> int:
        """Go through the steps, doing something after each of the first; gives how many steps there were."""
        count = 0
        for count, _ in enumerate(self.store.write_job(), 1):
            if count <= len(between):
                between[count - 1]()
        return count

    def read(self, name: str) -> dict[tuple[str, int], int]:
        return read_offsets(self.directory.disk, f"/d/{name}")

    def writes(self) -> int:
        return sum(path == f"/d/{RECOVERY_POINT_CHECKPOINT}.tmp" for path in self.opened)

    def watch(self) -> None:
        self.opened: list[str] = []

        def seen(what: str, path: str) -> None:
            if what == "open":
                self.opened.append(path)

        self.directory.disk.fault = seen  # type: ignore[attr-defined]


def nothing() -> None: ...


def test_what_is_written_is_what_the_logs_say_and_nothing_is_written_twice() -> None:
    stage = CheckpointFixture()
    stage.log(5).maybe_increment_log_start_offset(1)
    stage.watch()
    assert stage.write() == 4
    assert (
        stage.read(RECOVERY_POINT_CHECKPOINT)
        == stage.read(REPLICATION_OFFSET_CHECKPOINT)
        == {("t", n): 3 for n in range(LOGS)}
    )
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 5): 1}
    assert stage.write() == 2, "nothing changed: looked at, not written"
    assert stage.writes() == 1
    stage.log(LOGS - 1).maybe_increment_log_start_offset(2)
    stage.write()
    assert stage.writes() == 2
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 5): 1, ("t", LOGS - 1): 2}


def test_a_log_that_came_or_went_alone_is_a_change() -> None:
    stage = CheckpointFixture()
    stage.write()
    stage.directory.rename_for_deletion("t", 0, "tag")
    stage.write()
    assert ("t", 0) not in stage.read(RECOVERY_POINT_CHECKPOINT)


@pytest.mark.parametrize("when", range(4))
def test_a_cut_between_two_steps_is_never_overwritten_by_what_was_true_before(when: int) -> None:
    stage = CheckpointFixture()
    between = [nothing] * when + [lambda: stage.log(1).truncate_to(1, NOW)]
    stage.write(*between)
    assert stage.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 1 or when == 3
    assert stage.read(REPLICATION_OFFSET_CHECKPOINT)["t", 1] <= 1 or when == 3
    if when == 3:  # behind the last look, before the writing: no step lies there
        assert stage.log(1).log_end_offset == 1


@pytest.mark.parametrize("when", range(3))
def test_a_start_that_was_raised_between_two_steps_is_in_what_is_written(when: int) -> None:
    stage = CheckpointFixture()
    stage.write(*[nothing] * when, lambda: stage.log(1).maybe_increment_log_start_offset(2))
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 1): 2}


@pytest.mark.parametrize("when", range(3))
def test_a_log_that_goes_between_two_steps_is_not_named(when: int) -> None:
    stage = CheckpointFixture()
    stage.write(*[nothing] * when, lambda: stage.directory.rename_for_deletion("t", 1, "tag"))
    assert ("t", 1) not in stage.read(RECOVERY_POINT_CHECKPOINT)
    assert ("t", 1) not in stage.read(REPLICATION_OFFSET_CHECKPOINT)
    assert ("t", 1) not in stage.store._bounds


def test_a_cut_behind_the_steps_rewrites_what_they_wrote() -> None:
    stage = CheckpointFixture()
    stage.write()
    stage.log(1).truncate_to(1, NOW)
    assert stage.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 1


def test_the_recovery_point_of_a_deleted_namesake_is_never_believed() -> None:
    stage = CheckpointFixture()
    stage.write()
    stage.directory.rename_for_deletion("t", 1, "tag")
    stage.directory.create_partition("t", 1, bytes(16), LogConfig(), NOW)
    assert stage.read(RECOVERY_POINT_CHECKPOINT).get(("t", 1), 0) == 0, (
        "what is appended now must be looked at after a crash"
    )
    stage.watch()
    stage.make(LOGS)
    assert stage.writes() == 0, "a name that is new costs nothing"


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_where_a_deleted_namesake_began_is_not_believed_where_the_steps_could_not_write_that_it_is_gone(
    name: str,
) -> None:
    stage = CheckpointFixture()
    stage.log(1).maybe_increment_log_start_offset(2)
    stage.write()
    stage.directory.rename_for_deletion("t", 1, "tag")

    def short(what: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "too many open files") if (what, path) == ("open", f"/d/{name}.tmp") else None

    stage.directory.disk.fault = short  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="too many"):
        stage.write()
    stage.directory.disk.fault = None  # type: ignore[attr-defined]
    stage.directory.create_partition("t", 1, bytes(16), LogConfig(), NOW)
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {}, "after a crash the new one would begin at 2"


def test_a_namesake_from_an_earlier_life_is_not_believed_either() -> None:
    stage = CheckpointFixture()
    stage.write()
    again = LogDirectory(stage.directory.disk, "/d")
    again.load_checkpoints()
    stage.directory.disk.rename("/d/t-1", "/d/t-1.x-delete")
    again.create_partition("t", 1, bytes(16), LogConfig(), NOW)
    assert ("t", 1) not in {at for at, point in stage.read(RECOVERY_POINT_CHECKPOINT).items() if point > 0}


def test_files_that_were_written_are_synced_as_a_whole() -> None:
    """``CheckpointFile.write`` syncs. A file put over another unsynced may be lost with it: then all is read again."""
    stage = CheckpointFixture()
    assert not stage.store.has_unsynced_files
    stage.write()
    assert stage.store.has_unsynced_files
    stage.store.complete_sync(stage.store.prepare_sync()())
    assert not stage.store.has_unsynced_files
    stage.write()
    assert not stage.store.has_unsynced_files, "nothing changed"
    disk = stage.directory.disk
    assert isinstance(disk, DiskSession)
    before = {
        name: stage.read(name)
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
    }
    disk.disk.lose_power()
    assert {name: stage.read(name) for name in before} == before
    assert len(before[RECOVERY_POINT_CHECKPOINT]) == LOGS


def test_a_start_that_is_noted_alone_is_synced_with_the_next_round() -> None:
    stage = CheckpointFixture()
    stage.write()
    stage.store.complete_sync(stage.store.prepare_sync()())
    stage.log(7).maybe_increment_log_start_offset(1)
    stage.store.write_log_start_offsets([stage.log(7)])
    assert stage.store.has_unsynced_files


@pytest.mark.parametrize("seed", range(20))
def test_where_a_deleted_namesake_began_is_not_believed_where_only_what_is_kept_names_it(seed: int) -> None:
    stage = CheckpointFixture(seed)
    stage.log(1).maybe_increment_log_start_offset(2)
    stage.store.write()
    stage.directory.rename_for_deletion("t", 1, "tag")
    stage.write()
    assert ("t", 1) not in stage.store._bounds
    stage.make(1)
    stage.directory.disk.fsync_dir("/d")
    stage.log(2).maybe_increment_log_start_offset(1)
    stage.store.write_log_start_offsets([stage.log(2)])
    disk = stage.directory.disk
    assert isinstance(disk, DiskSession)
    disk.disk.lose_power()
    again = LogDirectory(disk.disk.session(), "/d")
    again.load_checkpoints()
    assert again.checkpoints.log_starts.offsets.get(("t", 1), 0) == 0


def test_log_starts_that_were_written_stay_when_another_is_noted_alone() -> None:
    """DeleteRecords notes the starts that moved, and leaves those alone that lie within a first segment."""
    stage = CheckpointFixture()
    for number in (1, 4):
        stage.log(number).maybe_increment_log_start_offset(1)
    stage.write()
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 1): 1, ("t", 4): 1}
    stage.log(7).maybe_increment_log_start_offset(1)
    stage.store.write_log_start_offsets([stage.log(7)])
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 1): 1, ("t", 4): 1, ("t", 7): 1}


def test_truncation_lowers_a_recovery_point_that_a_power_cut_may_bring_back() -> None:
    for seed in range(20):
        stage = CheckpointFixture(seed)
        stage.store.write()
        stage.log(1).roll(NOW)  # lowers the recovery point to the start of the segment that is rolled
        assert stage.log(1).recovery_point < 3
        stage.store.write(sync=False)
        stage.log(1).truncate_to(2, NOW)
        disk = stage.directory.disk
        assert isinstance(disk, DiskSession)
        disk.disk.lose_power()
        assert stage.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 2, seed


def test_truncation_lowers_a_recovery_point_of_a_write_that_failed_half_way() -> None:
    stage = CheckpointFixture()

    def short(what: str, path: str) -> OSError | None:
        is_last_file = (what, path) == ("open", f"/d/{REPLICATION_OFFSET_CHECKPOINT}.tmp")
        return OSError(errno.EMFILE, "too many open files") if is_last_file else None

    stage.directory.disk.fault = short  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="too many"):
        stage.store.write()
    stage.directory.disk.fault = None  # type: ignore[attr-defined]
    assert stage.read(RECOVERY_POINT_CHECKPOINT)["t", 1] == 3
    stage.log(1).truncate_to(1, NOW)
    assert stage.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 1


def test_a_new_log_does_not_inherit_the_cleaner_offset_of_a_removed_one() -> None:
    stage = CheckpointFixture()
    log = stage.directory.create_partition("u", 0, bytes(16), LogConfig(), NOW)
    log.raise_cleaner_offset(7)
    stage.store.write()
    assert stage.read(CLEANER_OFFSET_CHECKPOINT) == {("u", 0): 7}
    stage.directory.rename_for_deletion("u", 0, "tag")
    stage.directory.create_partition("u", 0, bytes(16), LogConfig(), NOW)
    assert stage.read(CLEANER_OFFSET_CHECKPOINT) == {}


def test_a_sync_before_the_newest_cleaner_write_does_not_count_for_it() -> None:
    stage = CheckpointFixture()
    stage.log(1).raise_cleaner_offset(2)
    write = stage.store.cleaner.prepare_write(stage.store.cleaner_offsets())
    assert write is not None
    write.run()
    assert stage.store.cleaner.replace(write, stage.store.cleaner_offsets())
    stage.log(1).raise_cleaner_offset(3)
    stage.store.cleaner.write(stage.store.cleaner_offsets(), sync_dir=False)
    stage.store.cleaner.complete_write(write)
    assert not stage.store.is_cleaner_offset_synced(stage.log(1))


@pytest.mark.parametrize("seed", range(20))
def test_truncation_below_a_log_start_that_was_written_alone_lowers_the_checkpoint(seed: int) -> None:
    stage = CheckpointFixture(seed)
    stage.log(1).maybe_increment_log_start_offset(3)
    stage.store.write_log_start_offsets([stage.log(1)])
    stage.log(1).truncate_to(1, NOW)
    assert stage.read(LOG_START_OFFSET_CHECKPOINT).get(("t", 1), 0) <= 1
    disk = stage.directory.disk
    assert isinstance(disk, DiskSession)
    disk.disk.lose_power()
    again = LogDirectory(disk.disk.session(), "/d")
    again.load_checkpoints()
    assert again.checkpoints.log_starts.offsets.get(("t", 1), 0) <= 1


def test_truncation_of_a_log_created_in_a_pause_lowers_a_recovery_point_that_a_power_cut_may_bring_back() -> None:
    for seed in range(20):
        stage = CheckpointFixture(seed)
        stage.store.write()

        def create_and_checkpoint(stage: CheckpointFixture = stage) -> None:
            stage.make(LOGS)
            stage.store.write()  # as the truncation of another log does

        stage.log(2).maybe_increment_log_start_offset(1)
        stage.write(nothing, create_and_checkpoint)
        stage.log(LOGS).truncate_to(1, NOW)
        disk = stage.directory.disk
        assert isinstance(disk, DiskSession)
        disk.disk.lose_power()
        assert stage.read(RECOVERY_POINT_CHECKPOINT).get(("t", LOGS), 0) <= 1, seed


@pytest.mark.parametrize("when", range(3))
def test_the_log_start_of_a_log_created_in_a_pause_stays_in_the_checkpoint(when: int) -> None:
    stage = CheckpointFixture()

    def delete_records() -> None:
        stage.make(LOGS).maybe_increment_log_start_offset(2)
        stage.store.write_log_start_offsets([stage.log(LOGS)])

    stage.write(*[nothing] * when, delete_records)
    assert stage.read(LOG_START_OFFSET_CHECKPOINT) == {("t", LOGS): 2}


def test_truncation_lowers_a_cleaner_offset_before_records_are_written_behind_it() -> None:
    """Else recovery would take the loss of some of those records for compaction."""
    stage = CheckpointFixture()
    stage.log(1).raise_cleaner_offset(3)
    stage.store.cleaner.write(stage.store.cleaner_offsets(), sync_dir=True)
    stage.log(1).truncate_to(1, NOW)
    assert stage.read(CLEANER_OFFSET_CHECKPOINT) == {("t", 1): 1}
    assert stage.store.is_cleaner_offset_synced(stage.log(1))
