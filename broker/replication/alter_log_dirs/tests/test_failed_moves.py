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
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(3)
        fixture.break_disk(where, errno.EMFILE, times=1)
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        fixture.repair_disk()
        waited = fixture.watch_disk()
        assert fixture.directory_names("/b") == ["delete"]
        assert not fixture.env.memory.renamed_dirs, "its new name is on the disk"
        assert waited == []
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        await fixture.alter_and_wait("/b")

    fixture.run_moves(scenario)


def test_future_log_of_replica_removed_meanwhile_is_removed_durably() -> None:
    fixture = LogDirMovesFixture()
    in_thread = fixture.env.in_thread

    async def gone(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        fixture.env.in_thread = in_thread
        done = await in_thread(work, lane)
        fixture.commit_topics(gone=("t",))
        await fixture.publisher.wait_applied_and_created()
        return done

    async def scenario() -> None:
        fixture.write(3)
        fixture.env.in_thread = gone
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert fixture.directory_names("/b") == ["delete"]
        assert not [old for old, _ in fixture.env.memory.renamed_dirs if old.startswith("/b/")]

    fixture.run_moves(scenario)


def test_log_with_missing_bytes_is_reported_once_and_others_continue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = SeveralMovesFixture(*"abcdef")
    in_thread = fixture.env.in_thread

    async def without_abc(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        piece = getattr(work, "__self__", None)
        if isinstance(piece, FileSlice) and any(
            piece.file is fixture.partition_named(name).log.segments.active.file for name in "abc"
        ):
            await trio.sleep(0.001)
            return b""
        return await in_thread(work, lane)

    async def scenario() -> None:
        await fixture.make(*[3] * 6)
        fixture.env.in_thread = without_abc
        for name in fixture.names:
            assert await fixture.alter_log_dirs.alter((name, 0), "/b") is NO_ERROR
        await fixture.until(lambda: all(map(fixture.is_there, "def")))
        assert not any(map(fixture.is_there, "abc"))
        fixture.env.in_thread = in_thread
        await fixture.until(lambda: all(map(fixture.is_there, "abc")))

    with caplog.at_level(logging.ERROR):
        fixture.run_moves(scenario, made=False)
    answer = [text.split(": ")[1] for text in caplog.messages if "Error while copying partition" in text]
    assert len(answer) == 3, "each is named once"
    assert not fixture.log_dirs.offline


def test_target_directory_failure_cancels_move_and_reassigns_current_directory() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.until(lambda: bool(fixture.reported_directories))
        fixture.commit(fixture.ids[1])
        fixture.break_disk("/b/")
        await fixture.until(lambda: "/b" in fixture.log_dirs.offline)
        fixture.repair_disk()
        assert fixture.reported_directories[-1][2] == fixture.ids[0]
        fixture.write()
        await trio.sleep(2)
        assert (fixture.serving_directory(), fixture.replica.log.log_end_offset) == ("/a", 4)
        assert not fixture.replica.log.has_future_log

    fixture.run_moves(scenario)


def test_source_directory_failure_takes_replica_offline_and_reassigns_it() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/c")
        await fixture.until(lambda: bool(fixture.reported_directories))
        fixture.replica_manager.mark_logs_offline(
            fixture.log_dirs.mark_offline(fixture.log_dirs.directories[0], OSError(errno.EIO, "gone"))
        )
        assert fixture.reported_directories[-1][2] == fixture.ids[0]
        fixture.commit(fixture.ids[2])
        await trio.sleep(2)
        assert not len(fixture.copier)
        assert fixture.replica_manager.offline_partitions == {TOPIC_PARTITION}

    del fixture.log_dirs.directories[1]
    fixture.log_dirs.metadata = fixture.log_dirs.directories[1]
    fixture.run_moves(scenario)
    assert fixture.directory_names("/c") == ["future"], "a later start may need it"


def test_write_error_for_want_of_descriptors_is_retried() -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        fixture.break_disk("-future/", errno.EMFILE, times=2)
        await fixture.alter_and_wait("/b")

    fixture.run_moves(scenario)
    assert not fixture.log_dirs.offline


def test_write_error_is_retried_once_a_second() -> None:
    fixture = LogDirMovesFixture()
    refused: list[str] = []

    def fault(_: str, path: str) -> OSError | None:
        if "-future/" not in path or len(refused) == 1000:
            return None
        refused.append(path)
        return OSError(errno.EMFILE, "injected", path)

    async def scenario() -> None:
        fixture.write(3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        fixture.env.disk.fault = fault
        await trio.sleep(5)
        assert 0 < len(refused) < 20, "it is tried again once a second"
        fixture.repair_disk()
        await fixture.alter_and_wait("/b")

    fixture.run_moves(scenario)
