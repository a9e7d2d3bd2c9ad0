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


def durable(fixture: LogDirMovesFixture) -> bytes:
    return bytes(fixture.env.memory.durable_files[PATH].durable)


def test_cleaner_offset_changed_during_write_is_written_too() -> None:
    fixture = LogDirMovesFixture()
    in_thread = fixture.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        fixture.env.in_thread = in_thread
        done = await in_thread(work, lane)
        fixture.replica.log.raise_cleaner_offset(9)
        return done

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        fixture.env.in_thread = meanwhile
        await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, fixture.log_dirs.directories[0])
        assert durable(fixture) == b"0\n1\nt 0 9\n"
        assert fixture.log_dirs.directories[0].checkpoints.is_cleaner_offset_synced(fixture.replica.log)

    fixture.run_moves(scenario)


def test_cleaner_offset_changing_constantly_does_not_block_writer() -> None:
    """As a log copied from its leader does: the offset of the time of the call is durable soon."""
    fixture = LogDirMovesFixture()
    directory, in_thread = fixture.log_dirs.directories[0], fixture.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        log = fixture.replica.log
        log.raise_cleaner_offset(log.cleaner_offset + 1)
        return await in_thread(work, lane)

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        fixture.env.in_thread = meanwhile
        with trio.fail_after(1):
            await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        assert int(durable(fixture).split()[-1]) >= 7
        fixture.env.in_thread = in_thread
        await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        assert directory.checkpoints.is_cleaner_offset_synced(fixture.replica.log)

    fixture.run_moves(scenario)


@pytest.mark.parametrize("how", ["others wrote", "cut", "gone"])
def test_cleaner_checkpoint_never_replaces_newer_file(how: str) -> None:
    fixture = LogDirMovesFixture()
    directory, in_thread = fixture.log_dirs.directories[0], fixture.env.in_thread
    collected: list[bytes] = []

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        fixture.env.in_thread = in_thread
        done = await in_thread(work, lane)
        if how == "others wrote":
            fixture.replica.log.raise_cleaner_offset(9)
            directory.checkpoints.write()
        elif how == "cut":
            fixture.replica.log.truncate_to(5, fixture.env.now_ms())
        else:
            del directory.logs[TOPIC_PARTITION]
        return done

    def fault(call: str, path: str) -> OSError | None:
        if (call, path) == ("rename", f"{PATH}.new"):
            collected.append(bytes(fixture.env.memory.files[path].data))
        return None

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        fixture.env.in_thread, fixture.env.disk.fault = meanwhile, fault
        await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        wanted: dict[str, list[bytes]] = {"others wrote": [], "cut": [b"0\n1\nt 0 5\n"], "gone": []}
        assert collected == wanted[how]
        assert directory.checkpoints.cleaner.synced_offsets == directory.checkpoints.cleaner_offsets()

    fixture.run_moves(scenario)


def test_concurrent_cleaner_checkpoint_writers_share_one_write() -> None:
    fixture = LogDirMovesFixture()
    directory = fixture.log_dirs.directories[0]
    seen: list[bytes] = []

    async def note() -> None:
        await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        seen.append(durable(fixture))

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        before = fixture.env.in_threads
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(note)
        assert seen == [b"0\n1\nt 0 7\n"] * 3
        assert fixture.env.in_threads - before == 2, "it is written once"
        assert TOPIC_PARTITION in directory.logs

    fixture.run_moves(scenario)


def test_unsynced_cleaner_checkpoint_is_unknown_until_synced() -> None:
    fixture, synced = LogDirMovesFixture(), list[str]()
    directory = fixture.log_dirs.directories[0]

    def fault(call: str, path: str) -> OSError | None:
        if call != "fsync_dir":
            return None
        synced.append(path)
        return OSError(errno.EMFILE, "too many open files") if len(synced) == 1 else None

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        fixture.env.disk.fault = fault
        with pytest.raises(OSError, match="too many"):
            await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        assert not directory.checkpoints.is_cleaner_offset_synced(fixture.replica.log), (
            "a power cut may take the new name back"
        )
        await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        assert synced == ["/a", "/a"]
        assert directory.checkpoints.is_cleaner_offset_synced(fixture.replica.log)

    fixture.run_moves(scenario)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_cleaner_checkpoint_written_unsynced_by_log_creation_is_synced(when: str) -> None:
    fixture = LogDirMovesFixture()
    directory, in_thread = fixture.log_dirs.directories[0], fixture.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        done = await in_thread(work, lane)
        fixture.env.in_thread = in_thread
        fixture.replica.log.raise_cleaner_offset(9)
        directory.checkpoints.write(sync=False)
        return done

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        if when == "before":
            directory.checkpoints.write(sync=False)
        else:
            fixture.env.in_thread = meanwhile
        assert not directory.checkpoints.is_cleaner_offset_synced(fixture.replica.log)
        await write_cleaner_checkpoint(fixture.env, fixture.log_dirs, directory)
        assert durable(fixture) == (b"0\n1\nt 0 7\n" if when == "before" else b"0\n1\nt 0 9\n")
        assert directory.checkpoints.is_cleaner_offset_synced(fixture.replica.log)

    fixture.run_moves(scenario)


def test_move_of_compacted_log_does_not_sync_on_event_loop() -> None:
    fixture, reported = LogDirMovesFixture(), list[bytes]()

    def checkpointed(directory: str) -> dict[tuple[str, int], int]:
        return read_offsets(fixture.env.disk, f"/{directory}/{CLEANER_OFFSET_CHECKPOINT}")

    def durable(_: bytes, __: int, ___: bytes) -> None:
        reported.append(bytes(fixture.env.memory.durable_files[f"/b/{CLEANER_OFFSET_CHECKPOINT}"].durable))
        fixture.commit(fixture.ids[1])

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.raise_cleaner_offset(7)
        fixture.log_dirs.directories[0].checkpoints.write()
        assert checkpointed("a") == {TOPIC_PARTITION: 7}
        waited, fixture.replica_manager.on_directory_changed = fixture.watch_disk(), durable
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.alter_and_wait("/b")
        assert checkpointed("b") == {TOPIC_PARTITION: 7}
        await fixture.until(lambda: not checkpointed("a"))
        assert waited == []
        assert reported == [b"0\n1\nt 0 7\n"], "a power cut would find it, once the controller may have heard"

    fixture.run_moves(scenario)


def test_cleaner_offset_of_future_log_is_durable_before_swap() -> None:
    fixture, noted = LogDirMovesFixture(obeys=False), list[bytes]()

    def fault(call: str, path: str) -> OSError | None:
        if (call, path) == (
            "rename",
            fixture.replica_manager.future_logs[TOPIC_PARTITION].directory
            if fixture.replica_manager.future_logs
            else "",
        ):
            noted.append(bytes(fixture.env.memory.durable_files[f"/b/{CLEANER_OFFSET_CHECKPOINT}"].durable))
        return None

    async def scenario() -> None:
        fixture.write(20)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.until(lambda: bool(fixture.reported_directories))
        raw = bytearray(build_batch([NewRecord(None, b"x", fixture.env.now_ms())]))
        set_offset_and_epoch(raw, 0, 30, 0)
        fixture.replica.log.append_as_follower(raw, fixture.env.now_ms())
        fixture.env.disk.fault = fault
        fixture.commit(fixture.ids[1])
        await fixture.alter_and_wait("/b")
        assert noted == [b"0\n1\nt 0 30\n"]

    fixture.run_moves(scenario)


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("cut", [False, True])
def test_swapped_log_keeps_cleaner_offset(start: int, cut: bool) -> None:
    """A future log starts again where its log does and may be truncated: both reset its cleaner offset."""
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(20)
        log = fixture.replica.log
        log.set_high_watermark(20)
        log.maybe_increment_log_start_offset(start)
        log.raise_cleaner_offset(15)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.until(lambda: bool(fixture.reported_directories))
        if cut:
            fixture.future_log.truncate_to(10, fixture.env.now_ms())
        fixture.commit(fixture.ids[1])
        await fixture.alter_and_wait("/b")
        assert fixture.replica.log.cleaner_offset == 15
        assert read_offsets(fixture.env.disk, f"/b/{CLEANER_OFFSET_CHECKPOINT}") == {TOPIC_PARTITION: 15}

    fixture.run_moves(scenario)
