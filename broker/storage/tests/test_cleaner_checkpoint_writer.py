"""Cleaner checkpoint file: the newest offsets are written, and a writer returns when they are durable."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.broker.storage.cleaner_checkpoint_writer import write_cleaner_checkpoint
from ottla.broker.tests.log_dir_moves_fixture import TOPIC_PARTITION, LogDirMovesFixture
from ottla.env.env import ThreadPool
from ottla.log.checkpoints.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, read_offsets
from ottla.wire.record_batch.batch_header import set_offset_and_epoch
from ottla.wire.record_batch.records import NewRecord, build_batch

PATH = f"/a/{CLEANER_OFFSET_CHECKPOINT}"


def durable(ground: LogDirMovesFixture) -> bytes:
    return bytes(ground.env.memory.durable_files[PATH].durable)


def test_cleaner_offset_changed_during_write_is_written_too() -> None:
    ground = LogDirMovesFixture()
    in_thread = ground.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        ground.env.in_thread = in_thread
        done = await in_thread(work, lane)
        ground.replica.log.raise_cleaner_offset(9)
        return done

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        ground.env.in_thread = meanwhile
        await write_cleaner_checkpoint(ground.env, ground.log_dirs, ground.log_dirs.directories[0])
        assert durable(ground) == b"0\n1\nt 0 9\n"
        assert ground.log_dirs.directories[0].checkpoints.is_cleaner_offset_synced(ground.replica.log)

    ground.run_moves(story)


def test_cleaner_offset_changing_constantly_does_not_block_writer() -> None:
    """As a log copied from its leader does: the offset of the time of the call is durable soon."""
    ground = LogDirMovesFixture()
    directory, in_thread = ground.log_dirs.directories[0], ground.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        log = ground.replica.log
        log.raise_cleaner_offset(log.cleaner_offset + 1)
        return await in_thread(work, lane)

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        ground.env.in_thread = meanwhile
        with trio.fail_after(1):
            await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        assert int(durable(ground).split()[-1]) >= 7
        ground.env.in_thread = in_thread
        await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        assert directory.checkpoints.is_cleaner_offset_synced(ground.replica.log)

    ground.run_moves(story)


@pytest.mark.parametrize("how", ["others wrote", "cut", "gone"])
def test_cleaner_checkpoint_never_replaces_newer_file(how: str) -> None:
    ground = LogDirMovesFixture()
    directory, in_thread = ground.log_dirs.directories[0], ground.env.in_thread
    said: list[bytes] = []

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        ground.env.in_thread = in_thread
        done = await in_thread(work, lane)
        if how == "others wrote":
            ground.replica.log.raise_cleaner_offset(9)
            directory.checkpoints.write()
        elif how == "cut":
            ground.replica.log.truncate_to(5, ground.env.now_ms())
        else:
            del directory.logs[TOPIC_PARTITION]
        return done

    def fault(what: str, path: str) -> OSError | None:
        if (what, path) == ("rename", f"{PATH}.new"):
            said.append(bytes(ground.env.memory.files[path].data))
        return None

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        ground.env.in_thread, ground.env.disk.fault = meanwhile, fault
        await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        wanted: dict[str, list[bytes]] = {"others wrote": [], "cut": [b"0\n1\nt 0 5\n"], "gone": []}
        assert said == wanted[how]
        assert directory.checkpoints.cleaner.synced_offsets == directory.checkpoints.cleaner_offsets()

    ground.run_moves(story)


def test_concurrent_cleaner_checkpoint_writers_share_one_write() -> None:
    ground = LogDirMovesFixture()
    directory = ground.log_dirs.directories[0]
    seen: list[bytes] = []

    async def note() -> None:
        await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        seen.append(durable(ground))

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        before = ground.env.in_threads
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(note)
        assert seen == [b"0\n1\nt 0 7\n"] * 3
        assert ground.env.in_threads - before == 2, "it is written once"
        assert TOPIC_PARTITION in directory.logs

    ground.run_moves(story)


def test_unsynced_cleaner_checkpoint_is_unknown_until_synced() -> None:
    ground, synced = LogDirMovesFixture(), list[str]()
    directory = ground.log_dirs.directories[0]

    def fault(what: str, path: str) -> OSError | None:
        if what != "fsync_dir":
            return None
        synced.append(path)
        return OSError(errno.EMFILE, "too many open files") if len(synced) == 1 else None

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        ground.env.disk.fault = fault
        with pytest.raises(OSError, match="too many"):
            await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        assert not directory.checkpoints.is_cleaner_offset_synced(ground.replica.log), (
            "a power cut may take the new name back"
        )
        await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        assert synced == ["/a", "/a"]
        assert directory.checkpoints.is_cleaner_offset_synced(ground.replica.log)

    ground.run_moves(story)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_cleaner_checkpoint_written_unsynced_by_log_creation_is_synced(when: str) -> None:
    ground = LogDirMovesFixture()
    directory, in_thread = ground.log_dirs.directories[0], ground.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        done = await in_thread(work, lane)
        ground.env.in_thread = in_thread
        ground.replica.log.raise_cleaner_offset(9)
        directory.checkpoints.write(sync=False)
        return done

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        if when == "before":
            directory.checkpoints.write(sync=False)
        else:
            ground.env.in_thread = meanwhile
        assert not directory.checkpoints.is_cleaner_offset_synced(ground.replica.log)
        await write_cleaner_checkpoint(ground.env, ground.log_dirs, directory)
        assert durable(ground) == (b"0\n1\nt 0 7\n" if when == "before" else b"0\n1\nt 0 9\n")
        assert directory.checkpoints.is_cleaner_offset_synced(ground.replica.log)

    ground.run_moves(story)


def test_move_of_compacted_log_does_not_sync_on_event_loop() -> None:
    ground, told = LogDirMovesFixture(), list[bytes]()

    def noted(directory: str) -> dict[tuple[str, int], int]:
        return read_offsets(ground.env.disk, f"/{directory}/{CLEANER_OFFSET_CHECKPOINT}")

    def durable(_: bytes, __: int, ___: bytes) -> None:
        told.append(bytes(ground.env.memory.durable_files[f"/b/{CLEANER_OFFSET_CHECKPOINT}"].durable))
        ground.commit(ground.ids[1])

    async def story() -> None:
        ground.write(20)
        ground.replica.log.raise_cleaner_offset(7)
        ground.log_dirs.directories[0].checkpoints.write()
        assert noted("a") == {TOPIC_PARTITION: 7}
        waited, ground.replica_manager.on_directory_changed = ground.watch_disk(), durable
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.alter_and_wait("/b")
        assert noted("b") == {TOPIC_PARTITION: 7}
        await ground.until(lambda: not noted("a"))
        assert waited == []
        assert told == [b"0\n1\nt 0 7\n"], "a power cut would find it, once the controller may have heard"

    ground.run_moves(story)


def test_cleaner_offset_of_future_log_is_durable_before_swap() -> None:
    ground, noted = LogDirMovesFixture(obeys=False), list[bytes]()

    def fault(what: str, path: str) -> OSError | None:
        if (what, path) == (
            "rename",
            ground.replica_manager.future_logs[TOPIC_PARTITION].directory if ground.replica_manager.future_logs else "",
        ):
            noted.append(bytes(ground.env.memory.durable_files[f"/b/{CLEANER_OFFSET_CHECKPOINT}"].durable))
        return None

    async def story() -> None:
        ground.write(20)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.until(lambda: bool(ground.reported_directories))
        raw = bytearray(build_batch([NewRecord(None, b"x", ground.env.now_ms())]))
        set_offset_and_epoch(raw, 0, 30, 0)
        ground.replica.log.append_as_follower(raw, ground.env.now_ms())
        ground.env.disk.fault = fault
        ground.commit(ground.ids[1])
        await ground.alter_and_wait("/b")
        assert noted == [b"0\n1\nt 0 30\n"]

    ground.run_moves(story)


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("cut", [False, True])
def test_swapped_log_keeps_cleaner_offset(start: int, cut: bool) -> None:
    """A future log starts again where its log does and may be truncated: both reset its cleaner offset."""
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(20)
        log = ground.replica.log
        log.set_high_watermark(20)
        log.maybe_increment_log_start_offset(start)
        log.raise_cleaner_offset(15)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.until(lambda: bool(ground.reported_directories))
        if cut:
            ground.future_log.truncate_to(10, ground.env.now_ms())
        ground.commit(ground.ids[1])
        await ground.alter_and_wait("/b")
        assert ground.replica.log.cleaner_offset == 15
        assert read_offsets(ground.env.disk, f"/b/{CLEANER_OFFSET_CHECKPOINT}") == {TOPIC_PARTITION: 15}

    ground.run_moves(story)
