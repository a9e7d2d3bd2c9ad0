"""Log directory: lock, checkpoints and the clean shutdown file."""

from __future__ import annotations

import contextlib
import errno

import pytest

from ottla.env.memory_disk import DiskSession, MemoryDisk, ProcessKilled
from ottla.log.checkpoints.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offsets,
    write_offsets,
)
from ottla.log.directory.log_directory import LogDirectory, LogDirectoryInUse
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import COMPACTED, NOW, SMALL, TOPIC_ID, append_batches, memory_disk, record_offsets

OTHER_ID = bytes(range(16, 32))


def open_directory(disk: DiskSession) -> LogDirectory:
    directory = LogDirectory(disk, "/data")
    directory.lock()
    directory.load_checkpoints()
    return directory


def directory_with_logs(memory: MemoryDisk, partitions: int = 3, batches: int = 20) -> LogDirectory:
    directory = open_directory(memory.session())
    for number in range(partitions):
        append_batches(directory.create_partition("t", number, TOPIC_ID, SMALL, NOW), batches)
    return directory


def reopen_directory(memory: MemoryDisk, settings: LogConfig = SMALL) -> tuple[LogDirectory, list[PartitionLog]]:
    memory.locks.clear()  # the previous process ended
    directory = open_directory(memory.session())
    return directory, [directory.open_partition(t, p, settings, NOW) for t, p in sorted(directory.partition_dirs())]


def calls_of(session: DiskSession, *names: str) -> list[str]:
    seen: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation in names:
            seen.append(path)

    session.fault = note  # type: ignore[assignment]
    return seen


def read_checkpoint(memory: MemoryDisk, name: str) -> dict[tuple[str, int], int]:
    return read_offsets(memory.session(), f"/data/{name}")


# ---------------------------------------------------------------- close


def test_close_logs_shared_by_threads_closes_each_log_once() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 7)
    directory.sync_new_partition_directories()
    for first in range(3):
        directory.close_logs(first, 3)
    assert all(log.closed_cleanly for log in directory.logs.values())
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    assert [path for path in synced if "/t-" in path] == []
    again, logs = reopen_directory(memory)
    assert again.was_clean_shutdown
    assert [log.log_end_offset for log in logs] == [60] * 7


def test_close_logs_failed_log_is_not_retried_and_prevents_clean_shutdown() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 4)
    session = directory.disk
    assert isinstance(session, DiskSession)
    directory.sync_new_partition_directories()
    session.fault = lambda operation, path: (
        OSError(errno.EIO, "bad") if operation == "fsync" and "/t-1/" in path else None
    )
    for first in range(2):
        directory.close_logs(first, 2)
    assert [directory.logs["t", p].closed_cleanly for p in range(4)] == [True, False, True, False]
    session.fault = None
    with pytest.raises(OSError, match="t-1"):
        directory.close(2)
    directory.unlock()
    assert not reopen_directory(memory)[0].was_clean_shutdown


def test_close_unchanged_logs_syncs_no_log_file() -> None:
    memory = memory_disk()
    directory_with_logs(memory, 10).close(1)
    directory, _ = reopen_directory(memory)
    assert directory.was_clean_shutdown
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    assert [path for path in synced if "/t-" in path] == []
    assert len(synced) <= 10, "checkpoints and the clean shutdown file"


def test_close_syncs_changed_log_once() -> None:
    memory = memory_disk()
    directory_with_logs(memory, 3).close(1)
    directory, logs = reopen_directory(memory)
    append_batches(logs[1], 1)
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    assert {path.split("/")[2] for path in synced if "/t-" in path} == {"t-1"}
    assert {"/data/t-1/" + f"{63:020d}.snapshot", "/data/t-1/leader-epoch-checkpoint"} <= {*memory.durable_files}
    memory.lose_power()
    directory, logs = reopen_directory(memory)
    assert directory.was_clean_shutdown
    assert [log.log_end_offset for log in logs] == [60, 63, 60]


@pytest.mark.parametrize("interruption", ["fails", "is killed"])
def test_close_interrupted_leaves_no_clean_shutdown_file(interruption: str) -> None:
    finished = 0
    for number in range(1, 200, 3):
        memory = memory_disk(number)
        directory = directory_with_logs(memory)
        session = directory.disk
        assert isinstance(session, DiskSession)
        at = memory.calls + number
        done = False
        if interruption == "fails":
            session.fault = lambda operation, path, m=memory, at=at: (
                OSError(errno.EIO, "bad") if m.calls == at else None
            )
        else:
            session.kill_at = at
        with contextlib.suppress(OSError, ProcessKilled):
            directory.close(7)
            done = True
        if interruption == "fails" and not done:
            session.fault = None
            with contextlib.suppress(OSError):
                directory.close(7)  # a second attempt: files that failed to sync the first time are not trusted
                done = True
        session.kill()
        memory.lose_power()
        finished += done
        again, logs = reopen_directory(memory)
        assert again.was_clean_shutdown or not done
        for log in logs:
            assert record_offsets(log) == list(range(log.log_start_offset, log.log_end_offset))
            assert (log.log_start_offset, log.log_end_offset) == (0, 60) or not again.was_clean_shutdown
    assert 0 < finished < 67, "the fault must occur during close"


def test_close_with_offline_log_writes_no_clean_shutdown_file() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory)
    directory.logs["t", 1].set_offline()
    with pytest.raises(OSError, match="t-1"):
        directory.close(1)
    directory.unlock()
    assert not reopen_directory(memory)[0].was_clean_shutdown


def test_lock_of_second_node_raises_log_directory_in_use() -> None:
    memory = memory_disk()
    first = open_directory(memory.session())
    with pytest.raises(LogDirectoryInUse, match="/data"):
        LogDirectory(memory.session(), "/data").lock()
    first.unlock()
    first.unlock()
    open_directory(memory.session())


# ---------------------------------------------------------------- checkpoints


def test_checkpoints_write_recovery_point_log_start_and_high_watermark() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory)
    first, second, third = directory.logs.values()
    first.flush()
    first.maybe_increment_log_start_offset(30)
    second.maybe_increment_log_start_offset(second.segments.base_offsets[1])
    second.delete_segments_below_start(NOW)
    third.raise_cleaner_offset(12)
    directory.checkpoints.write()
    assert read_checkpoint(memory, RECOVERY_POINT_CHECKPOINT) == {("t", 0): 60, ("t", 1): 0, ("t", 2): 0}
    assert read_checkpoint(memory, LOG_START_OFFSET_CHECKPOINT) == {("t", 0): 30}, (
        "no entry where the first segment has the same offset"
    )
    assert read_checkpoint(memory, REPLICATION_OFFSET_CHECKPOINT) == {("t", 0): 60, ("t", 1): 60, ("t", 2): 60}
    assert read_checkpoint(memory, CLEANER_OFFSET_CHECKPOINT) == {("t", 2): 12}
    directory.unlock()
    _, logs = reopen_directory(memory)
    assert [log.log_start_offset for log in logs] == [30, second.log_start_offset, 0]
    assert [log.recovery_point for log in logs] == [60, 0, 0]
    assert [log.high_watermark for log in logs] == [60, 60, 60]
    assert [log.cleaner_offset for log in logs] == [0, second.log_start_offset, 12]


def test_open_partition_ignores_cleaner_offset_outside_the_log() -> None:
    for point, believed in ((59, 59), (60, 60), (61, 0), (5, 5)):
        memory = memory_disk()
        directory = directory_with_logs(memory, 1)
        write_offsets(memory.session(), f"/data/{CLEANER_OFFSET_CHECKPOINT}", {("t", 0): point})
        directory.unlock()
        assert reopen_directory(memory, COMPACTED)[1][0].cleaner_offset == believed


def test_write_log_start_offsets_writes_only_given_logs() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory)
    first, second, third = directory.logs.values()
    first.maybe_increment_log_start_offset(10)
    directory.checkpoints.write()
    second.maybe_increment_log_start_offset(20)
    third.maybe_increment_log_start_offset(5)
    written = calls_of(directory.disk, "rename")  # type: ignore[arg-type]
    directory.checkpoints.write_log_start_offsets([second])
    assert set(written) == {f"/data/{LOG_START_OFFSET_CHECKPOINT}.tmp", f"/data/{LOG_START_OFFSET_CHECKPOINT}"}, (
        "other entries are kept"
    )
    assert read_checkpoint(memory, LOG_START_OFFSET_CHECKPOINT) == {("t", 0): 10, ("t", 1): 20}
    directory.checkpoints.write_log_start_offsets([third])
    assert read_checkpoint(memory, LOG_START_OFFSET_CHECKPOINT) == {("t", 0): 10, ("t", 1): 20, ("t", 2): 5}


def test_write_log_start_offsets_torn_file_keeps_durable_offsets() -> None:
    """DeleteRecords does not wait for the disk; records deleted earlier must not reappear."""
    for seed in range(40):
        memory = memory_disk(seed)
        directory = directory_with_logs(memory)
        first, second, _ = directory.logs.values()
        first.maybe_increment_log_start_offset(10)
        directory.checkpoints.write()
        second.maybe_increment_log_start_offset(20)
        directory.checkpoints.write_log_start_offsets([second])
        memory.lose_power()
        assert reopen_directory(memory)[0].checkpoints.log_starts.offsets["t", 0] == 10


@pytest.mark.parametrize("noted", ["whole", "starts"])
def test_recreated_partition_does_not_inherit_checkpoints(noted: str) -> None:
    """``LogManager.asyncDelete`` writes the checkpoints without the log; here the creation of the next log does."""
    for seed in range(20):
        memory = memory_disk(seed)
        directory = directory_with_logs(memory, 2)
        old = directory.logs["t", 0]
        old.flush()
        old.maybe_increment_log_start_offset(50)
        if noted == "whole":
            directory.checkpoints.write(sync=seed % 2 == 0)
        else:
            directory.checkpoints.write_log_start_offsets([old])
        directory.rename_for_deletion("t", 0, "x")
        if seed % 3 == 0:
            directory.checkpoints.write(sync=False)  # the file without the old log may not be durable
        new = directory.create_partition("t", 0, OTHER_ID, SMALL, NOW)
        append_batches(new, 8)
        new.flush()
        memory.lose_power()
        log = reopen_directory(memory)[1][0]
        assert log.topic_id == OTHER_ID
        assert (log.log_start_offset, record_offsets(log)) == (0, list(range(24))), seed


@pytest.mark.parametrize("case", ["made anew", "compacted meanwhile"])
def test_power_loss_after_recreated_partition_keeps_offsets_of_other_logs(case: str) -> None:
    """Cleaner and log start offsets of the others: a torn file would lose all of them."""
    for seed in range(30):
        memory = memory_disk(seed)
        directory = directory_with_logs(memory, 3)
        for number, log in enumerate(directory.logs.values()):
            log.flush()
            log.raise_cleaner_offset(12)
            log.maybe_increment_log_start_offset(number)
        directory.sync_new_partition_directories()
        directory.checkpoints.write()
        if case == "compacted meanwhile":
            directory.logs["t", 1].raise_cleaner_offset(15)
        directory.rename_for_deletion("t", 0, "x")
        directory.create_partition("t", 0, OTHER_ID, SMALL, NOW)
        killed = read_offsets(memory.session(), f"/data/{CLEANER_OFFSET_CHECKPOINT}")
        assert ("t", 0) not in killed, "no entry for the recreated log"
        memory.lose_power()
        second, third = reopen_directory(memory, COMPACTED)[1][-2:]
        assert (second.cleaner_offset in (12, 15), third.cleaner_offset) == (True, 12), seed
        assert (second.log_start_offset, third.log_start_offset) == (1, 2), seed


def test_recreated_partition_syncs_no_file_without_cleaner_or_start_offsets() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 3)
    for log in directory.logs.values():
        log.flush()
    directory.logs["t", 1].raise_cleaner_offset(12)
    directory.checkpoints.write()
    directory.rename_for_deletion("t", 0, "x")
    log = directory.create_partition_files("t", 0, OTHER_ID, SMALL, NOW)
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.add_log(log)
    assert synced == []


def test_create_partition_with_new_name_writes_no_checkpoint() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 2)
    directory.checkpoints.write()
    written = calls_of(directory.disk, "rename")  # type: ignore[arg-type]
    directory.create_partition("u", 0, TOPIC_ID, SMALL, NOW)
    assert not [path for path in written if path.endswith("checkpoint.tmp") and path.count("/") == 2]


def test_malformed_checkpoint_is_treated_as_missing() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 1)
    directory.logs["t", 0].flush()
    directory.checkpoints.write()
    for name in (
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
    ):
        memory.files.setdefault(f"/data/{name}", memory.files[f"/data/{RECOVERY_POINT_CHECKPOINT}"]).data[:] = (
            b"nonsense"
        )
    directory.unlock()
    _, (log,) = reopen_directory(memory)
    assert (log.recovery_point, log.high_watermark, log.log_end_offset) == (0, 0, 60)


def test_clean_shutdown_file_is_removed_at_first_open() -> None:
    memory = memory_disk()
    directory_with_logs(memory, 1).close(5)
    directory, _ = reopen_directory(memory)
    assert directory.was_clean_shutdown
    directory.unlock()
    assert not reopen_directory(memory)[0].was_clean_shutdown


def test_ignore_checkpoints_recovers_all_segments() -> None:
    memory = memory_disk()
    directory_with_logs(memory, 1).close(5)
    directory = open_directory(memory.session())
    directory.ignore_checkpoints()
    log = directory.open_partition("t", 0, SMALL, NOW)
    assert (directory.was_clean_shutdown, log.recovery_point, log.flush_state.sealed_end_offset) == (False, 0, -1)


def test_recreating_many_partitions_writes_checkpoints_once() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 5)
    for log in directory.logs.values():
        log.flush()
    directory.checkpoints.write()
    for number in range(5):
        directory.rename_for_deletion("t", number, "x")
    written = calls_of(directory.disk, "rename")  # type: ignore[arg-type]
    for number in range(5):
        directory.create_partition("t", number, OTHER_ID, SMALL, NOW)
    assert written.count(f"/data/{RECOVERY_POINT_CHECKPOINT}.tmp") == 1


@pytest.mark.parametrize(("batches", "each"), [(0, []), (1, ["t-{p}", "log", "leader-epoch-checkpoint"])])
def test_close_soon_after_creation_syncs_only_log_and_epoch_files(batches: int, each: list[str]) -> None:
    """For ten thousand new partitions: an empty one can be created again; small files show that they are torn."""
    memory = memory_disk()
    directory = open_directory(memory.session())
    for number in range(5):
        log = directory.create_partition("t", number, TOPIC_ID, SMALL, NOW)
        log.assign_epoch_start_offset(0)
        append_batches(log, batches)
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    for number in range(5):
        mine = [path.rpartition("/")[2].removeprefix(f"{0:020d}.") for path in synced if f"/t-{number}" in path]
        assert sorted(mine) == sorted(name.format(p=number) for name in each)
    assert synced[: synced.index("/data/recovery-point-offset-checkpoint.tmp")].count("/data") == 1
    memory.lose_power()
    again, logs = reopen_directory(memory)
    assert again.was_clean_shutdown
    assert [log.log_end_offset for log in logs] == [3 * batches] * 5
