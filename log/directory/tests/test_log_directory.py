"""A data directory: its checkpoints, and the mark of a clean stop."""

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


def begun(disk: DiskSession) -> LogDirectory:
    directory = LogDirectory(disk, "/data")
    directory.lock()
    directory.load_checkpoints()
    return directory


def with_logs(memory: MemoryDisk, partitions: int = 3, batches: int = 20) -> LogDirectory:
    directory = begun(memory.session())
    for number in range(partitions):
        append_batches(directory.create_partition("t", number, TOPIC_ID, SMALL, NOW), batches)
    return directory


def opened_again(memory: MemoryDisk, settings: LogConfig = SMALL) -> tuple[LogDirectory, list[PartitionLog]]:
    memory.locks.clear()  # the other one is gone
    directory = begun(memory.session())
    return directory, [directory.open_partition(t, p, settings, NOW) for t, p in sorted(directory.partition_dirs())]


def calls_of(session: DiskSession, *names: str) -> list[str]:
    seen: list[str] = []

    def note(what: str, path: str) -> None:
        if what in names:
            seen.append(path)

    session.fault = note  # type: ignore[assignment]
    return seen


def saying(memory: MemoryDisk, name: str) -> dict[tuple[str, int], int]:
    return read_offsets(memory.session(), f"/data/{name}")


# ---------------------------------------------------------------- the end


def test_threads_that_share_the_logs_of_a_stop_close_each_of_them_once() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 7)
    directory.sync_new_partition_directories()
    for first in range(3):
        directory.close_logs(first, 3)
    assert all(log.closed_cleanly for log in directory.logs.values())
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    assert [path for path in synced if "/t-" in path] == []
    again, logs = opened_again(memory)
    assert again.was_clean_shutdown
    assert [log.log_end_offset for log in logs] == [60] * 7


def test_a_log_that_fails_in_a_shared_stop_is_not_tried_again_and_takes_the_mark_with_it() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 4)
    session = directory.disk
    assert isinstance(session, DiskSession)
    directory.sync_new_partition_directories()
    session.fault = lambda what, path: OSError(errno.EIO, "bad") if what == "fsync" and "/t-1/" in path else None
    for first in range(2):
        directory.close_logs(first, 2)
    assert [directory.logs["t", p].closed_cleanly for p in range(4)] == [True, False, True, False]
    session.fault = None
    with pytest.raises(OSError, match="t-1"):
        directory.close(2)
    directory.unlock()
    assert not opened_again(memory)[0].was_clean_shutdown


def test_a_clean_stop_of_logs_nobody_wrote_to_syncs_nothing_of_them() -> None:
    memory = memory_disk()
    with_logs(memory, 10).close(1)
    directory, _ = opened_again(memory)
    assert directory.was_clean_shutdown
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    assert [path for path in synced if "/t-" in path] == []
    assert len(synced) <= 10, "checkpoints and the mark"


def test_a_clean_stop_syncs_once_what_was_written() -> None:
    memory = memory_disk()
    with_logs(memory, 3).close(1)
    directory, logs = opened_again(memory)
    append_batches(logs[1], 1)
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.close(2)
    assert {path.split("/")[2] for path in synced if "/t-" in path} == {"t-1"}
    assert {"/data/t-1/" + f"{63:020d}.snapshot", "/data/t-1/leader-epoch-checkpoint"} <= {*memory.durable_files}
    memory.lose_power()
    directory, logs = opened_again(memory)
    assert directory.was_clean_shutdown
    assert [log.log_end_offset for log in logs] == [60, 63, 60]


@pytest.mark.parametrize("how", ["fails", "is killed"])
def test_a_clean_stop_that_dies_on_the_way_leaves_no_mark(how: str) -> None:
    finished = 0
    for number in range(1, 200, 3):
        memory = memory_disk(number)
        directory = with_logs(memory)
        session = directory.disk
        assert isinstance(session, DiskSession)
        at = memory.calls + number
        done = False
        if how == "fails":
            session.fault = lambda what, path, m=memory, at=at: OSError(errno.EIO, "bad") if m.calls == at else None
        else:
            session.kill_at = at
        with contextlib.suppress(OSError, ProcessKilled):
            directory.close(7)
            done = True
        if how == "fails" and not done:
            session.fault = None
            with contextlib.suppress(OSError):
                directory.close(7)  # once more: what did not get on the disk the first time is not believed
                done = True
        session.kill()
        memory.lose_power()
        finished += done
        again, logs = opened_again(memory)
        assert again.was_clean_shutdown or not done
        for log in logs:
            assert record_offsets(log) == list(range(log.log_start_offset, log.log_end_offset))
            assert (log.log_start_offset, log.log_end_offset) == (0, 60) or not again.was_clean_shutdown
    assert 0 < finished < 67, "some stops ended before the fault came"


def test_a_log_out_of_service_takes_the_mark_with_it() -> None:
    memory = memory_disk()
    directory = with_logs(memory)
    directory.logs["t", 1].set_offline()
    with pytest.raises(OSError, match="t-1"):
        directory.close(1)
    directory.unlock()
    assert not opened_again(memory)[0].was_clean_shutdown


def test_a_second_node_does_not_get_in() -> None:
    memory = memory_disk()
    first = begun(memory.session())
    with pytest.raises(LogDirectoryInUse, match="/data"):
        LogDirectory(memory.session(), "/data").lock()
    first.unlock()
    first.unlock()
    begun(memory.session())


# ---------------------------------------------------------------- checkpoints


def test_checkpoints_say_what_a_start_needs() -> None:
    memory = memory_disk()
    directory = with_logs(memory)
    first, second, third = directory.logs.values()
    first.flush()
    first.maybe_increment_log_start_offset(30)
    second.maybe_increment_log_start_offset(second.segments.base_offsets[1])
    second.delete_segments_below_start(NOW)
    third.raise_cleaner_offset(12)
    directory.checkpoints.write()
    assert saying(memory, RECOVERY_POINT_CHECKPOINT) == {("t", 0): 60, ("t", 1): 0, ("t", 2): 0}
    assert saying(memory, LOG_START_OFFSET_CHECKPOINT) == {("t", 0): 30}, (
        "where the first segment says it there is no need"
    )
    assert saying(memory, REPLICATION_OFFSET_CHECKPOINT) == {("t", 0): 60, ("t", 1): 60, ("t", 2): 60}
    assert saying(memory, CLEANER_OFFSET_CHECKPOINT) == {("t", 2): 12}
    directory.unlock()
    _, logs = opened_again(memory)
    assert [log.log_start_offset for log in logs] == [30, second.log_start_offset, 0]
    assert [log.recovery_point for log in logs] == [60, 0, 0]
    assert [log.high_watermark for log in logs] == [60, 60, 60]
    assert [log.cleaner_offset for log in logs] == [0, second.log_start_offset, 12]


def test_a_cleaner_point_outside_the_log_is_not_believed() -> None:
    for point, believed in ((59, 59), (60, 60), (61, 0), (5, 5)):
        memory = memory_disk()
        directory = with_logs(memory, 1)
        write_offsets(memory.session(), f"/data/{CLEANER_OFFSET_CHECKPOINT}", {("t", 0): point})
        directory.unlock()
        assert opened_again(memory, COMPACTED)[1][0].cleaner_offset == believed


def test_log_starts_that_moved_are_noted_without_looking_at_the_others() -> None:
    memory = memory_disk()
    directory = with_logs(memory)
    first, second, third = directory.logs.values()
    first.maybe_increment_log_start_offset(10)
    directory.checkpoints.write()
    second.maybe_increment_log_start_offset(20)
    third.maybe_increment_log_start_offset(5)
    written = calls_of(directory.disk, "rename")  # type: ignore[arg-type]
    directory.checkpoints.write_log_start_offsets([second])
    assert set(written) == {f"/data/{LOG_START_OFFSET_CHECKPOINT}.tmp", f"/data/{LOG_START_OFFSET_CHECKPOINT}"}, (
        "the former is kept"
    )
    assert saying(memory, LOG_START_OFFSET_CHECKPOINT) == {("t", 0): 10, ("t", 1): 20}
    directory.checkpoints.write_log_start_offsets([third])
    assert saying(memory, LOG_START_OFFSET_CHECKPOINT) == {("t", 0): 10, ("t", 1): 20, ("t", 2): 5}


def test_log_starts_the_disk_has_stay_where_a_newer_one_is_torn() -> None:
    """DeleteRecords does not wait for the disk; what was deleted earlier must not come back with what it tears."""
    for seed in range(40):
        memory = memory_disk(seed)
        directory = with_logs(memory)
        first, second, _ = directory.logs.values()
        first.maybe_increment_log_start_offset(10)
        directory.checkpoints.write()
        second.maybe_increment_log_start_offset(20)
        directory.checkpoints.write_log_start_offsets([second])
        memory.lose_power()
        assert opened_again(memory)[0].checkpoints.log_starts.offsets["t", 0] == 10


@pytest.mark.parametrize("noted", ["whole", "starts"])
def test_a_log_made_anew_under_an_old_name_is_not_taken_for_the_old_one(noted: str) -> None:
    """``LogManager.asyncDelete`` writes the checkpoints without the log; here the next of its name does."""
    for seed in range(20):
        memory = memory_disk(seed)
        directory = with_logs(memory, 2)
        old = directory.logs["t", 0]
        old.flush()
        old.maybe_increment_log_start_offset(50)
        if noted == "whole":
            directory.checkpoints.write(sync=seed % 2 == 0)
        else:
            directory.checkpoints.write_log_start_offsets([old])
        directory.rename_for_deletion("t", 0, "x")
        if seed % 3 == 0:
            directory.checkpoints.write(sync=False)  # what names it no more may not be on the disk
        new = directory.create_partition("t", 0, OTHER_ID, SMALL, NOW)
        append_batches(new, 8)
        new.flush()
        memory.lose_power()
        log = opened_again(memory)[1][0]
        assert log.topic_id == OTHER_ID
        assert (log.log_start_offset, record_offsets(log)) == (0, list(range(24))), seed


@pytest.mark.parametrize("how", ["made anew", "compacted meanwhile"])
def test_a_power_cut_behind_a_new_log_takes_nothing_of_what_is_known_of_the_others(how: str) -> None:
    """How far the others are compacted, and where they start: a torn file would say nothing of any of them."""
    for seed in range(30):
        memory = memory_disk(seed)
        directory = with_logs(memory, 3)
        for number, log in enumerate(directory.logs.values()):
            log.flush()
            log.raise_cleaner_offset(12)
            log.maybe_increment_log_start_offset(number)
        directory.sync_new_partition_directories()
        directory.checkpoints.write()
        if how == "compacted meanwhile":
            directory.logs["t", 1].raise_cleaner_offset(15)
        directory.rename_for_deletion("t", 0, "x")
        directory.create_partition("t", 0, OTHER_ID, SMALL, NOW)
        killed = read_offsets(memory.session(), f"/data/{CLEANER_OFFSET_CHECKPOINT}")
        assert ("t", 0) not in killed, "nothing is believed of the new one"
        memory.lose_power()
        second, third = opened_again(memory, COMPACTED)[1][-2:]
        assert (second.cleaner_offset in (12, 15), third.cleaner_offset) == (True, 12), seed
        assert (second.log_start_offset, third.log_start_offset) == (1, 2), seed


def test_a_log_made_anew_syncs_nothing_where_nothing_was_compacted_or_deleted() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 3)
    for log in directory.logs.values():
        log.flush()
    directory.logs["t", 1].raise_cleaner_offset(12)
    directory.checkpoints.write()
    directory.rename_for_deletion("t", 0, "x")
    log = directory.create_partition_files("t", 0, OTHER_ID, SMALL, NOW)
    synced = calls_of(directory.disk, "fsync", "fsync_dir")  # type: ignore[arg-type]
    directory.add_log(log)
    assert synced == []


def test_making_logs_writes_no_checkpoint_for_names_nobody_had() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 2)
    directory.checkpoints.write()
    written = calls_of(directory.disk, "rename")  # type: ignore[arg-type]
    directory.create_partition("u", 0, TOPIC_ID, SMALL, NOW)
    assert not [path for path in written if path.endswith("checkpoint.tmp") and path.count("/") == 2]


def test_a_checkpoint_that_cannot_be_read_is_as_if_it_were_missing() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 1)
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
    _, (log,) = opened_again(memory)
    assert (log.recovery_point, log.high_watermark, log.log_end_offset) == (0, 0, 60)


def test_the_mark_is_taken_once() -> None:
    memory = memory_disk()
    with_logs(memory, 1).close(5)
    directory, _ = opened_again(memory)
    assert directory.was_clean_shutdown
    directory.unlock()
    assert not opened_again(memory)[0].was_clean_shutdown


def test_distrust_looks_at_everything() -> None:
    memory = memory_disk()
    with_logs(memory, 1).close(5)
    directory = begun(memory.session())
    directory.ignore_checkpoints()
    log = directory.open_partition("t", 0, SMALL, NOW)
    assert (directory.was_clean_shutdown, log.recovery_point, log.flush_state.sealed_end_offset) == (False, 0, -1)


def test_many_logs_made_anew_cost_one_writing_of_the_checkpoints() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 5)
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
def test_a_stop_soon_after_a_start_syncs_no_more_than_what_would_be_missed(batches: int, each: list[str]) -> None:
    """Ten thousand new partitions: one that holds nothing is made anew just so; small files show that they are torn."""
    memory = memory_disk()
    directory = begun(memory.session())
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
    again, logs = opened_again(memory)
    assert again.was_clean_shutdown
    assert [log.log_end_offset for log in logs] == [3 * batches] * 5
