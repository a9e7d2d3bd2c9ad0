"""Moves of partitions between log directories of a broker that serves requests (AlterReplicaLogDirs)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.broker.replication.alter_log_dirs.future_replica_copier import ALTER_LOG_DIRS_RATE_KEY, COPY_CHUNK_BYTES
from ottla.broker.replication.log_maintenance import LogMaintenance
from ottla.broker.tests.broker_storage_fixture import led_topic
from ottla.broker.tests.log_dir_moves_fixture import NO_ERROR, TOPIC_PARTITION, LogDirMovesFixture
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.env.env import ThreadPool
from ottla.wire.errors import ErrorCode as E


def test_alter_log_dirs_moves_records_after_controller_assignment() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(20)
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        assert (ground.serving_directory(), ground.future_log.directory.rpartition("-")[2]) == ("/a", "future")
        await ground.until(lambda: bool(ground.reported_directories))
        assert ground.reported_directories == [(led_topic("t", 1).id, 0, ground.ids[1])]
        ground.write(5)
        await trio.sleep(2)
        assert ground.serving_directory() == "/a", "nothing is decided yet"
        ground.commit(ground.ids[1])
        await ground.alter_and_wait("/b")
        log = ground.replica.log
        assert (log.log_end_offset, log.high_watermark, log.has_future_log) == (25, 25, False)
        ground.write()
        assert ground.replica.log.high_watermark == 26
        assert not ground.replica_manager.future_logs
        await trio.sleep(2)
        assert not len(ground.copier)
        assert ground.reported_directories == [(led_topic("t", 1).id, 0, ground.ids[1])]

    ground.run_moves(story)
    assert (ground.directory_names("/a"), ground.directory_names("/b")) == (["delete"], ["0"])
    assert ground.scheduled_deletes == [
        f"/a/{name}" for name in ground.env.disk.listdir("/a") if name.endswith("-delete")
    ]
    assert [list(d.logs) for d in ground.log_dirs.directories] == [[], [TOPIC_PARTITION], []]


def test_alter_log_dirs_under_load_keeps_high_watermark_on_disk() -> None:
    ground = LogDirMovesFixture(log_flush_interval_messages="1")

    async def load() -> None:
        while True:
            ground.write(1, 1000)
            await trio.sleep(0.0005)

    async def acknowledged() -> None:
        while True:
            log = ground.replica.log
            assert log.high_watermark <= log.recovery_point
            await trio.sleep(0.0002)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            flusher = LogMaintenance(
                ground.env, ground.log_dirs, 10**9, 10**9, ground.failure_handler.handle_failure, nursery.start_soon
            )
            ground.flush_due = flusher.request_flush
            ground.write(500, 5000)
            nursery.start_soon(load)
            await ground.until(lambda: not ground.replica.is_flushing or ground.replica.log.high_watermark > 500)
            nursery.start_soon(acknowledged)
            for path in ("/b", "/c", "/a"):
                assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, path) is NO_ERROR
                await ground.alter_and_wait(path)
            end = ground.replica.log.log_end_offset
            await ground.until(lambda: ground.replica.log.high_watermark > end)
            nursery.cancel_scope.cancel()

    ground.run_moves(story)


def test_large_log_is_copied_in_chunks_that_yield_to_event_loop() -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        ground.write(40, COPY_CHUNK_BYTES // 4)
        before = ground.env.in_threads
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.alter_and_wait("/b")
        assert ground.env.in_threads - before > 10
        assert ground.replica.log.log_end_offset == 40

    ground.run_moves(story)


def test_records_truncated_during_copy_are_not_copied() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(20)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.until(lambda: ground.future_log.log_end_offset == 20)
        ground.replica.log.truncate_to(7, ground.env.now_ms())
        ground.commit(ground.ids[1])
        await ground.alter_and_wait("/b")
        assert ground.replica.log.log_end_offset == 7

    ground.run_moves(story)


def test_alter_to_other_directory_replaces_move_and_to_own_cancels_it() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(20)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        first = ground.future_log
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        assert ground.future_log is first
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/c") is NO_ERROR
        assert ground.log_dirs.directory_of(ground.future_log).path == "/c"
        assert ground.directory_names("/b") == ["delete"]
        await ground.until(lambda: ground.reported_directories[-1][2] == ground.ids[2])
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/a") is NO_ERROR
        assert ground.reported_directories[-1][2] == ground.ids[0], "the controller may have taken the other for good"
        assert not ground.replica_manager.future_logs
        assert not ground.replica.log.has_future_log
        ground.commit(ground.ids[2])
        await trio.sleep(3)
        assert ground.serving_directory() == "/a"
        assert ground.reported_directories[-1][2] == ground.ids[0]

    ground.run_moves(story)
    assert [ground.directory_names(f"/{x}") for x in "abc"] == [["0"], ["delete"], ["delete"]]


def test_repeated_moves_between_directories_keep_all_records() -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        for number in range(6):
            path = "/bac"[1 + number % 3]
            ground.write(3)
            assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, f"/{path}") is NO_ERROR
            await ground.alter_and_wait(f"/{path}")
            assert ground.replica.log.log_end_offset == 3 * (number + 1)

    ground.run_moves(story)


@pytest.mark.parametrize(
    ("at", "path", "wanted"),
    [
        (("t" * 247, 0), "/b", E.INVALID_TOPIC_EXCEPTION),
        (TOPIC_PARTITION, "/d", E.LOG_DIR_NOT_FOUND),
        (TOPIC_PARTITION, "/b/", E.LOG_DIR_NOT_FOUND),
        (TOPIC_PARTITION, "b", E.LOG_DIR_NOT_FOUND),
        (TOPIC_PARTITION, "/c", E.INVALID_REPLICA_ASSIGNMENT),  # the directory is cordoned
        (("u", 0), "/b", E.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 1), "/b", E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_PARTITION, "/a", NO_ERROR),
    ],
)
def test_alter_log_dirs_invalid_request_returns_error_code(at: tuple[str, int], path: str, wanted: E) -> None:
    ground = LogDirMovesFixture()
    ground.log_dirs.cordon("/c")

    async def story() -> None:
        assert await ground.alter_log_dirs.alter(at, path) is wanted
        assert not ground.replica_manager.future_logs

    ground.run_moves(story)


def test_alter_log_dirs_with_offline_directory_returns_kafka_storage_error() -> None:
    ground = LogDirMovesFixture()
    ground.log_dirs.mark_offline(ground.log_dirs.directories[2], OSError(errno.EIO, "gone"))

    async def story() -> None:
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/c") is E.KAFKA_STORAGE_ERROR
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is E.KAFKA_STORAGE_ERROR
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/a") is NO_ERROR
        ground.replica_manager.mark_logs_offline(
            ground.log_dirs.mark_offline(ground.log_dirs.directories[0], OSError(errno.EIO, "gone"))
        )
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is E.KAFKA_STORAGE_ERROR

    ground.run_moves(story)


def test_alter_log_dirs_of_unknown_replica_places_its_later_creation() -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        elsewhere = led_topic("t", 1, replicas=(2,), isr=(2,), leader=2)
        ground.commit_topics(elsewhere)
        await ground.publisher.wait_applied_and_created()
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/c") is E.REPLICA_NOT_AVAILABLE
        ground.create_partition(1)
        await ground.publisher.wait_applied_and_created()
        assert ground.serving_directory() == "/c"
        assert ground.reported_directories == [(led_topic("t", 1).id, 0, ground.ids[2])]

    ground.run_moves(story, made=False)


def test_deleted_topic_removes_its_future_log() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        ground.commit_topics(gone=("t",))
        await ground.publisher.wait_applied_and_created()
        await trio.sleep(1)
        assert not len(ground.copier)

    ground.run_moves(story)
    assert (ground.directory_names("/a"), ground.directory_names("/b")) == (["delete"], ["delete"])
    assert [list(d.logs) for d in ground.log_dirs.directories] == [[], [], []]


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


def test_corrupt_records_block_move_until_repaired(caplog: pytest.LogCaptureFixture) -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        ground.write(20)
        ground.replica.log.segments[0].damaged_ranges.append((0, 10**6))
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await trio.sleep(5)
        assert ground.serving_directory() == "/a"
        assert caplog.text.count("Error while copying partition to its future log") == 1
        ground.replica.log.segments[0].damaged_ranges.clear()
        await ground.alter_and_wait("/b")

    ground.run_moves(story)


def test_move_rate_is_throttled() -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        ground.write(100, 100_000)
        ground.image = replace(ground.image, configs={(RESOURCE_BROKER, "1"): {ALTER_LOG_DIRS_RATE_KEY: "1000000"}})
        ground.replica_manager.image = ground.image
        began = trio.current_time()
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await trio.sleep(3)
        assert 2_000_000 < ground.future_log.size_bytes < 5_000_000
        ground.assigns_directories = False
        await ground.until(lambda: ground.future_log.log_end_offset == 100)
        assert trio.current_time() - began > 8

    ground.run_moves(story)


def test_log_is_not_compacted_while_it_moves() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        ground.write(3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        assert ground.replica.log.has_future_log
        ground.alter_log_dirs.cancel(TOPIC_PARTITION)
        assert not ground.replica.log.has_future_log
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        ground.commit(ground.ids[1])
        await ground.alter_and_wait("/b")
        assert not ground.replica.log.has_future_log

    ground.run_moves(story)


def test_log_short_of_descriptors_does_not_block_moves(caplog: pytest.LogCaptureFixture) -> None:
    ground = LogDirMovesFixture()

    async def story() -> None:
        ground.write(3)
        ground.replica.log.close_files()
        ground.break_disk("/a/t-0/0", errno.EMFILE, times=3)
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await ground.alter_and_wait("/b")
        assert "injected" in caplog.text

    ground.run_moves(story)
    assert not ground.log_dirs.offline


def test_waiting_future_log_holds_no_open_files() -> None:
    ground = LogDirMovesFixture(obeys=False)

    async def story() -> None:
        await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        assert not any(segment.is_open for segment in ground.future_log.segments)
        assert ground.serving_directory() == "/a"

    ground.run_moves(story)


def test_topic_recreated_during_future_log_creation_keeps_its_own_log() -> None:
    ground = LogDirMovesFixture(obeys=False)
    in_thread = ground.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        ground.env.in_thread = in_thread
        made = await in_thread(work, lane)
        ground.commit_topics(gone=("t",))
        await ground.publisher.wait_applied_and_created()
        known = led_topic("t", 1, b"another of that ")
        ground.commit_topics(replace(known, partitions={0: replace(known.partitions[0], directories=(ground.ids[1],))}))
        await ground.publisher.wait_applied_and_created()
        return made

    async def story() -> None:
        ground.env.in_thread = meanwhile
        assert await ground.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is E.KAFKA_STORAGE_ERROR
        assert ground.serving_directory() == "/b"
        assert ground.log_dirs.directories[1].logs == {TOPIC_PARTITION: ground.replica.log}
        assert not ground.replica.log.closed
        assert not ground.replica_manager.future_logs

    ground.run_moves(story)
    assert ground.directory_names("/b") == ["0", "delete"]
    assert len(ground.scheduled_deletes) == 2
