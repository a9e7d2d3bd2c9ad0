"""Failed moves of partitions: no remains of a future log return, and other moves continue."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.broker.replication.alter_log_dirs.tests.test_concurrent_moves import SeveralMovesFixture
from ottla.broker.tests.log_dir_moves_fixture import NO_ERROR, TOPIC_PARTITION, LogDirMovesFixture
from ottla.env.disk import FileSlice
from ottla.env.env import ThreadPool
from ottla.wire.errors import ErrorCode


@pytest.mark.parametrize("where", ["-future/0", "-future/leader-epoch"])
def test_future_log_creation_failure_removes_it_durably(where: str) -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        ground.write(3)
        ground.break_disk(where, errno.EMFILE, times=1)
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        ground.repair_disk()
        waited = ground.watch_disk()
        assert ground.directory_names("/b") == ["delete"]
        assert not ground.env.memory.renamed_dirs, "its new name is on the disk"
        assert waited == []
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        await ground.alter_and_wait("/b")

    ground.run_moves(story)


def test_future_log_of_replica_removed_meanwhile_is_removed_durably() -> None:
    ground = LogDirMovesFixture()
    in_thread = ground.env.in_thread

    async def gone(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        ground.env.in_thread = in_thread
        done = await in_thread(work, lane)
        ground.commit_topics(gone=("t",))
        await ground.publisher.wait_applied_and_created()
        return done

    async def story() -> None:
        ground.write(3)
        ground.env.in_thread = gone
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert ground.directory_names("/b") == ["delete"]
        assert not [old for old, _ in ground.env.memory.renamed_dirs if old.startswith("/b/")]

    ground.run_moves(story)


def test_log_with_missing_bytes_is_reported_once_and_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ground = SeveralMovesFixture(*"abcdef")
    in_thread = ground.env.in_thread

    async def without_abc(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        piece = getattr(work, "__self__", None)
        if isinstance(piece, FileSlice) and any(
            piece.file is ground.partition_named(name).log.segments.active.file for name in "abc"
        ):
            await trio.sleep(0.001)
            return b""
        return await in_thread(work, lane)

    async def story() -> None:
        await ground.make(*[3] * 6)
        ground.env.in_thread = without_abc
        for name in ground.names:
            assert await ground.alter_log_dirs.alter((name, 0), "/b") is NO_ERROR
        await ground.until(lambda: all(map(ground.is_there, "def")))
        assert not any(map(ground.is_there, "abc"))
        ground.env.in_thread = in_thread
        await ground.until(lambda: all(map(ground.is_there, "abc")))

    with caplog.at_level(logging.ERROR):
        ground.run_moves(story, made=False)
    said = [text.split(": ")[1] for text in caplog.messages if "Error while copying partition" in text]
    assert len(said) == 3, "each is named once"
    assert not ground.log_dirs.offline


def test_target_directory_failure_cancels_move_and_reassigns_current_directory() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.until(lambda: bool(ground.reported_directories))
        ground.commit(ground.ids[1])
        ground.break_disk("/b/")
        await ground.until(lambda: "/b" in ground.log_dirs.offline)
        ground.repair_disk()
        assert ground.reported_directories[-1][2] == ground.ids[0]
        ground.write()
        await trio.sleep(2)
        assert (ground.serving_directory(), ground.replica.log.log_end_offset) == ("/a", 4)
        assert not ground.replica.log.has_future_log

    ground.run_moves(story)


def test_source_directory_failure_takes_replica_offline_and_reassigns_it() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/c")
        await ground.until(lambda: bool(ground.reported_directories))
        ground.replica_manager.mark_logs_offline(
            ground.log_dirs.mark_offline(ground.log_dirs.directories[0], OSError(errno.EIO, "gone"))
        )
        assert ground.reported_directories[-1][2] == ground.ids[0]
        ground.commit(ground.ids[2])
        await trio.sleep(2)
        assert not len(ground.copier)
        assert ground.replica_manager.offline_partitions == {TOPIC_PARTITION}

    del ground.log_dirs.directories[1]
    ground.log_dirs.metadata = ground.log_dirs.directories[1]
    ground.run_moves(story)
    assert ground.directory_names("/c") == ["future"], "a later start may need it"


def test_write_error_for_want_of_descriptors_is_retried() -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        ground.write(3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        ground.break_disk("-future/", errno.EMFILE, times=2)
        await ground.alter_and_wait("/b")

    ground.run_moves(story)
    assert not ground.log_dirs.offline


def test_write_error_is_retried_once_a_second() -> None:
    ground = LogDirMovesFixture()
    refused: list[str] = []

    def fault(_: str, path: str) -> OSError | None:
        if "-future/" not in path or len(refused) == 1000:
            return None
        refused.append(path)
        return OSError(errno.EMFILE, "injected", path)

    async def story() -> None:
        ground.write(3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        ground.env.disk.fault = fault
        await trio.sleep(5)
        assert 0 < len(refused) < 20, "it is tried again once a second"
        ground.repair_disk()
        await ground.alter_and_wait("/b")

    ground.run_moves(story)
