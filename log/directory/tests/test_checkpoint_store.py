"""Checkpoint files written in steps: no change between two steps makes a file wrong."""

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
    """Directory with more logs than one step covers, three records in each."""

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
        """Run the steps with an action after each of the first; return the number of steps."""
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

        def seen(operation: str, path: str) -> None:
            if operation == "open":
                self.opened.append(path)

        self.directory.disk.fault = seen  # type: ignore[attr-defined]


def no_action() -> None: ...


def test_checkpoint_write_equals_log_state_and_skips_unchanged_files() -> None:
    fixture = CheckpointFixture()
    fixture.log(5).maybe_increment_log_start_offset(1)
    fixture.watch()
    assert fixture.write() == 4
    assert (
        fixture.read(RECOVERY_POINT_CHECKPOINT)
        == fixture.read(REPLICATION_OFFSET_CHECKPOINT)
        == {("t", n): 3 for n in range(LOGS)}
    )
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 5): 1}
    assert fixture.write() == 2, "unchanged files are not written"
    assert fixture.writes() == 1
    fixture.log(LOGS - 1).maybe_increment_log_start_offset(2)
    fixture.write()
    assert fixture.writes() == 2
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 5): 1, ("t", LOGS - 1): 2}


def test_checkpoint_write_after_removed_log_updates_the_file() -> None:
    fixture = CheckpointFixture()
    fixture.write()
    fixture.directory.rename_for_deletion("t", 0, "tag")
    fixture.write()
    assert ("t", 0) not in fixture.read(RECOVERY_POINT_CHECKPOINT)


@pytest.mark.parametrize("when", range(4))
def test_checkpoint_write_with_truncation_between_steps_has_lower_offset(when: int) -> None:
    fixture = CheckpointFixture()
    between = [no_action] * when + [lambda: fixture.log(1).truncate_to(1, NOW)]
    fixture.write(*between)
    assert fixture.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 1 or when == 3
    assert fixture.read(REPLICATION_OFFSET_CHECKPOINT)["t", 1] <= 1 or when == 3
    if when == 3:  # after the last step, before the write: there is no step in between
        assert fixture.log(1).log_end_offset == 1


@pytest.mark.parametrize("when", range(3))
def test_checkpoint_write_includes_log_start_raised_between_steps(when: int) -> None:
    fixture = CheckpointFixture()
    fixture.write(*[no_action] * when, lambda: fixture.log(1).maybe_increment_log_start_offset(2))
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 1): 2}


@pytest.mark.parametrize("when", range(3))
def test_checkpoint_write_omits_log_removed_between_steps(when: int) -> None:
    fixture = CheckpointFixture()
    fixture.write(*[no_action] * when, lambda: fixture.directory.rename_for_deletion("t", 1, "tag"))
    assert ("t", 1) not in fixture.read(RECOVERY_POINT_CHECKPOINT)
    assert ("t", 1) not in fixture.read(REPLICATION_OFFSET_CHECKPOINT)
    assert ("t", 1) not in fixture.store._bounds


def test_truncation_after_checkpoint_write_rewrites_the_files() -> None:
    fixture = CheckpointFixture()
    fixture.write()
    fixture.log(1).truncate_to(1, NOW)
    assert fixture.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 1


def test_recreated_log_does_not_inherit_recovery_point() -> None:
    fixture = CheckpointFixture()
    fixture.write()
    fixture.directory.rename_for_deletion("t", 1, "tag")
    fixture.directory.create_partition("t", 1, bytes(16), LogConfig(), NOW)
    assert fixture.read(RECOVERY_POINT_CHECKPOINT).get(("t", 1), 0) == 0, (
        "appended records must be recovered after a crash"
    )
    fixture.watch()
    fixture.make(LOGS)
    assert fixture.writes() == 0, "a new name needs no write"


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_recreated_log_after_failed_checkpoint_write_does_not_inherit_log_start(
    name: str,
) -> None:
    fixture = CheckpointFixture()
    fixture.log(1).maybe_increment_log_start_offset(2)
    fixture.write()
    fixture.directory.rename_for_deletion("t", 1, "tag")

    def short(operation: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "too many open files") if (operation, path) == ("open", f"/d/{name}.tmp") else None

    fixture.directory.disk.fault = short  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="too many"):
        fixture.write()
    fixture.directory.disk.fault = None  # type: ignore[attr-defined]
    fixture.directory.create_partition("t", 1, bytes(16), LogConfig(), NOW)
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {}, "a restored entry would start the new log at 2"


def test_recreated_log_after_restart_does_not_inherit_recovery_point() -> None:
    fixture = CheckpointFixture()
    fixture.write()
    again = LogDirectory(fixture.directory.disk, "/d")
    again.load_checkpoints()
    fixture.directory.disk.rename("/d/t-1", "/d/t-1.x-delete")
    again.create_partition("t", 1, bytes(16), LogConfig(), NOW)
    assert ("t", 1) not in {at for at, point in fixture.read(RECOVERY_POINT_CHECKPOINT).items() if point > 0}


def test_checkpoint_files_are_synced_together() -> None:
    """``CheckpointFile.write`` syncs. An unsynced rename may lose both files; then recovery reads all logs."""
    fixture = CheckpointFixture()
    assert not fixture.store.has_unsynced_files
    fixture.write()
    assert fixture.store.has_unsynced_files
    fixture.store.complete_sync(fixture.store.prepare_sync()())
    assert not fixture.store.has_unsynced_files
    fixture.write()
    assert not fixture.store.has_unsynced_files, "unchanged files"
    disk = fixture.directory.disk
    assert isinstance(disk, DiskSession)
    before = {
        name: fixture.read(name)
        for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
    }
    disk.disk.lose_power()
    assert {name: fixture.read(name) for name in before} == before
    assert len(before[RECOVERY_POINT_CHECKPOINT]) == LOGS


def test_log_start_written_alone_is_synced_with_next_round() -> None:
    fixture = CheckpointFixture()
    fixture.write()
    fixture.store.complete_sync(fixture.store.prepare_sync()())
    fixture.log(7).maybe_increment_log_start_offset(1)
    fixture.store.write_log_start_offsets([fixture.log(7)])
    assert fixture.store.has_unsynced_files


@pytest.mark.parametrize("seed", range(20))
def test_recreated_log_does_not_inherit_log_start_from_backup(seed: int) -> None:
    fixture = CheckpointFixture(seed)
    fixture.log(1).maybe_increment_log_start_offset(2)
    fixture.store.write()
    fixture.directory.rename_for_deletion("t", 1, "tag")
    fixture.write()
    assert ("t", 1) not in fixture.store._bounds
    fixture.make(1)
    fixture.directory.disk.fsync_dir("/d")
    fixture.log(2).maybe_increment_log_start_offset(1)
    fixture.store.write_log_start_offsets([fixture.log(2)])
    disk = fixture.directory.disk
    assert isinstance(disk, DiskSession)
    disk.disk.lose_power()
    again = LogDirectory(disk.disk.session(), "/d")
    again.load_checkpoints()
    assert again.checkpoints.log_starts.offsets.get(("t", 1), 0) == 0


def test_write_log_start_offsets_keeps_other_entries() -> None:
    """DeleteRecords writes the changed log start offsets and leaves others within a first segment unchanged."""
    fixture = CheckpointFixture()
    for number in (1, 4):
        fixture.log(number).maybe_increment_log_start_offset(1)
    fixture.write()
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 1): 1, ("t", 4): 1}
    fixture.log(7).maybe_increment_log_start_offset(1)
    fixture.store.write_log_start_offsets([fixture.log(7)])
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {("t", 1): 1, ("t", 4): 1, ("t", 7): 1}


def test_truncation_lowers_recovery_point_that_power_loss_may_restore() -> None:
    for seed in range(20):
        fixture = CheckpointFixture(seed)
        fixture.store.write()
        fixture.log(1).roll(NOW)  # lowers the recovery point to the start of the rolled segment
        assert fixture.log(1).recovery_point < 3
        fixture.store.write(sync=False)
        fixture.log(1).truncate_to(2, NOW)
        disk = fixture.directory.disk
        assert isinstance(disk, DiskSession)
        disk.disk.lose_power()
        assert fixture.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 2, seed


def test_truncation_lowers_recovery_point_of_half_failed_write() -> None:
    fixture = CheckpointFixture()

    def short(operation: str, path: str) -> OSError | None:
        is_last_file = (operation, path) == ("open", f"/d/{REPLICATION_OFFSET_CHECKPOINT}.tmp")
        return OSError(errno.EMFILE, "too many open files") if is_last_file else None

    fixture.directory.disk.fault = short  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="too many"):
        fixture.store.write()
    fixture.directory.disk.fault = None  # type: ignore[attr-defined]
    assert fixture.read(RECOVERY_POINT_CHECKPOINT)["t", 1] == 3
    fixture.log(1).truncate_to(1, NOW)
    assert fixture.read(RECOVERY_POINT_CHECKPOINT)["t", 1] <= 1


def test_recreated_log_does_not_inherit_cleaner_offset() -> None:
    fixture = CheckpointFixture()
    log = fixture.directory.create_partition("u", 0, bytes(16), LogConfig(), NOW)
    log.raise_cleaner_offset(7)
    fixture.store.write()
    assert fixture.read(CLEANER_OFFSET_CHECKPOINT) == {("u", 0): 7}
    fixture.directory.rename_for_deletion("u", 0, "tag")
    fixture.directory.create_partition("u", 0, bytes(16), LogConfig(), NOW)
    assert fixture.read(CLEANER_OFFSET_CHECKPOINT) == {}


def test_cleaner_sync_before_newest_write_does_not_cover_it() -> None:
    fixture = CheckpointFixture()
    fixture.log(1).raise_cleaner_offset(2)
    write = fixture.store.cleaner.prepare_write(fixture.store.cleaner_offsets())
    assert write is not None
    write.run()
    assert fixture.store.cleaner.replace(write, fixture.store.cleaner_offsets())
    fixture.log(1).raise_cleaner_offset(3)
    fixture.store.cleaner.write(fixture.store.cleaner_offsets(), sync_dir=False)
    fixture.store.cleaner.complete_write(write)
    assert not fixture.store.is_cleaner_offset_synced(fixture.log(1))


@pytest.mark.parametrize("seed", range(20))
def test_truncation_below_separately_written_log_start_lowers_checkpoint(seed: int) -> None:
    fixture = CheckpointFixture(seed)
    fixture.log(1).maybe_increment_log_start_offset(3)
    fixture.store.write_log_start_offsets([fixture.log(1)])
    fixture.log(1).truncate_to(1, NOW)
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT).get(("t", 1), 0) <= 1
    disk = fixture.directory.disk
    assert isinstance(disk, DiskSession)
    disk.disk.lose_power()
    again = LogDirectory(disk.disk.session(), "/d")
    again.load_checkpoints()
    assert again.checkpoints.log_starts.offsets.get(("t", 1), 0) <= 1


def test_truncation_of_log_created_between_steps_lowers_recovery_point() -> None:
    for seed in range(20):
        fixture = CheckpointFixture(seed)
        fixture.store.write()

        def create_and_checkpoint(fixture: CheckpointFixture = fixture) -> None:
            fixture.make(LOGS)
            fixture.store.write()  # as the truncation of another log does

        fixture.log(2).maybe_increment_log_start_offset(1)
        fixture.write(no_action, create_and_checkpoint)
        fixture.log(LOGS).truncate_to(1, NOW)
        disk = fixture.directory.disk
        assert isinstance(disk, DiskSession)
        disk.disk.lose_power()
        assert fixture.read(RECOVERY_POINT_CHECKPOINT).get(("t", LOGS), 0) <= 1, seed


@pytest.mark.parametrize("when", range(3))
def test_log_start_of_log_created_between_steps_stays_in_checkpoint(when: int) -> None:
    fixture = CheckpointFixture()

    def delete_records() -> None:
        fixture.make(LOGS).maybe_increment_log_start_offset(2)
        fixture.store.write_log_start_offsets([fixture.log(LOGS)])

    fixture.write(*[no_action] * when, delete_records)
    assert fixture.read(LOG_START_OFFSET_CHECKPOINT) == {("t", LOGS): 2}


def test_truncation_lowers_cleaner_offset_before_later_appends() -> None:
    """Otherwise recovery would take a loss of some of those records for compaction."""
    fixture = CheckpointFixture()
    fixture.log(1).raise_cleaner_offset(3)
    fixture.store.cleaner.write(fixture.store.cleaner_offsets(), sync_dir=True)
    fixture.log(1).truncate_to(1, NOW)
    assert fixture.read(CLEANER_OFFSET_CHECKPOINT) == {("t", 1): 1}
    assert fixture.store.is_cleaner_offset_synced(fixture.log(1))
