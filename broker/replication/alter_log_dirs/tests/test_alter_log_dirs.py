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
from ottla.wire.errors import ErrorCode


def test_alter_log_dirs_moves_records_after_controller_assignment() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(20)
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        assert (fixture.serving_directory(), fixture.future_log.directory.rpartition("-")[2]) == ("/a", "future")
        await fixture.until(lambda: bool(fixture.reported_directories))
        assert fixture.reported_directories == [(led_topic("t", 1).id, 0, fixture.ids[1])]
        fixture.write(5)
        await trio.sleep(2)
        assert fixture.serving_directory() == "/a", "nothing is decided yet"
        fixture.commit(fixture.ids[1])
        await fixture.alter_and_wait("/b")
        log = fixture.replica.log
        assert (log.log_end_offset, log.high_watermark, log.has_future_log) == (25, 25, False)
        fixture.write()
        assert fixture.replica.log.high_watermark == 26
        assert not fixture.replica_manager.future_logs
        await trio.sleep(2)
        assert not len(fixture.copier)
        assert fixture.reported_directories == [(led_topic("t", 1).id, 0, fixture.ids[1])]

    fixture.run_moves(scenario)
    assert (fixture.directory_names("/a"), fixture.directory_names("/b")) == (["delete"], ["0"])
    assert fixture.scheduled_deletes == [
        f"/a/{name}" for name in fixture.env.disk.listdir("/a") if name.endswith("-delete")
    ]
    assert [list(d.logs) for d in fixture.log_dirs.directories] == [[], [TOPIC_PARTITION], []]


def test_alter_log_dirs_under_load_keeps_high_watermark_on_disk() -> None:
    fixture = LogDirMovesFixture(log_flush_interval_messages="1")

    async def load() -> None:
        while True:
            fixture.write(1, 1000)
            await trio.sleep(0.0005)

    async def acknowledged() -> None:
        while True:
            log = fixture.replica.log
            assert log.high_watermark <= log.recovery_point
            await trio.sleep(0.0002)

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            flusher = LogMaintenance(
                fixture.env, fixture.log_dirs, 10**9, 10**9, fixture.failure_handler.handle_failure, nursery.start_soon
            )
            fixture.flush_due = flusher.request_flush
            fixture.write(500, 5000)
            nursery.start_soon(load)
            await fixture.until(lambda: not fixture.replica.is_flushing or fixture.replica.log.high_watermark > 500)
            nursery.start_soon(acknowledged)
            for path in ("/b", "/c", "/a"):
                assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, path) is NO_ERROR
                await fixture.alter_and_wait(path)
            end = fixture.replica.log.log_end_offset
            await fixture.until(lambda: fixture.replica.log.high_watermark > end)
            nursery.cancel_scope.cancel()

    fixture.run_moves(scenario)


def test_large_log_is_copied_in_chunks_that_yield_to_event_loop() -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(40, COPY_CHUNK_BYTES // 4)
        before = fixture.env.in_threads
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.alter_and_wait("/b")
        assert fixture.env.in_threads - before > 10
        assert fixture.replica.log.log_end_offset == 40

    fixture.run_moves(scenario)


def test_records_truncated_during_copy_are_not_copied() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(20)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.until(lambda: fixture.future_log.log_end_offset == 20)
        fixture.replica.log.truncate_to(7, fixture.env.now_ms())
        fixture.commit(fixture.ids[1])
        await fixture.alter_and_wait("/b")
        assert fixture.replica.log.log_end_offset == 7

    fixture.run_moves(scenario)


def test_alter_to_other_directory_replaces_move_and_to_own_cancels_it() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(20)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        first = fixture.future_log
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is NO_ERROR
        assert fixture.future_log is first
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/c") is NO_ERROR
        assert fixture.log_dirs.directory_of(fixture.future_log).path == "/c"
        assert fixture.directory_names("/b") == ["delete"]
        await fixture.until(lambda: fixture.reported_directories[-1][2] == fixture.ids[2])
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/a") is NO_ERROR
        assert fixture.reported_directories[-1][2] == fixture.ids[0], "the controller may have taken the other for good"
        assert not fixture.replica_manager.future_logs
        assert not fixture.replica.log.has_future_log
        fixture.commit(fixture.ids[2])
        await trio.sleep(3)
        assert fixture.serving_directory() == "/a"
        assert fixture.reported_directories[-1][2] == fixture.ids[0]

    fixture.run_moves(scenario)
    assert [fixture.directory_names(f"/{x}") for x in "abc"] == [["0"], ["delete"], ["delete"]]


def test_repeated_moves_between_directories_keep_all_records() -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        for number in range(6):
            path = "/bac"[1 + number % 3]
            fixture.write(3)
            assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, f"/{path}") is NO_ERROR
            await fixture.alter_and_wait(f"/{path}")
            assert fixture.replica.log.log_end_offset == 3 * (number + 1)

    fixture.run_moves(scenario)


@pytest.mark.parametrize(
    ("at", "path", "wanted"),
    [
        (("t" * 247, 0), "/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC_PARTITION, "/d", ErrorCode.LOG_DIR_NOT_FOUND),
        (TOPIC_PARTITION, "/b/", ErrorCode.LOG_DIR_NOT_FOUND),
        (TOPIC_PARTITION, "b", ErrorCode.LOG_DIR_NOT_FOUND),
        (TOPIC_PARTITION, "/c", ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # the directory is cordoned
        (("u", 0), "/b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 1), "/b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_PARTITION, "/a", NO_ERROR),
    ],
)
def test_alter_log_dirs_invalid_request_returns_error_code(at: tuple[str, int], path: str, wanted: ErrorCode) -> None:
    fixture = LogDirMovesFixture()
    fixture.log_dirs.cordon("/c")

    async def scenario() -> None:
        assert await fixture.alter_log_dirs.alter(at, path) is wanted
        assert not fixture.replica_manager.future_logs

    fixture.run_moves(scenario)


def test_alter_log_dirs_with_offline_directory_returns_kafka_storage_error() -> None:
    fixture = LogDirMovesFixture()
    fixture.log_dirs.mark_offline(fixture.log_dirs.directories[2], OSError(errno.EIO, "gone"))

    async def scenario() -> None:
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/c") is ErrorCode.KAFKA_STORAGE_ERROR
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/a") is NO_ERROR
        fixture.replica_manager.mark_logs_offline(
            fixture.log_dirs.mark_offline(fixture.log_dirs.directories[0], OSError(errno.EIO, "gone"))
        )
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR

    fixture.run_moves(scenario)


def test_alter_log_dirs_of_unknown_replica_places_its_later_creation() -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        elsewhere = led_topic("t", 1, replicas=(2,), isr=(2,), leader=2)
        fixture.commit_topics(elsewhere)
        await fixture.publisher.wait_applied_and_created()
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/c") is ErrorCode.REPLICA_NOT_AVAILABLE
        fixture.create_partition(1)
        await fixture.publisher.wait_applied_and_created()
        assert fixture.serving_directory() == "/c"
        assert fixture.reported_directories == [(led_topic("t", 1).id, 0, fixture.ids[2])]

    fixture.run_moves(scenario, made=False)


def test_deleted_topic_removes_its_future_log() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        fixture.commit_topics(gone=("t",))
        await fixture.publisher.wait_applied_and_created()
        await trio.sleep(1)
        assert not len(fixture.copier)

    fixture.run_moves(scenario)
    assert (fixture.directory_names("/a"), fixture.directory_names("/b")) == (["delete"], ["delete"])
    assert [list(d.logs) for d in fixture.log_dirs.directories] == [[], [], []]


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


def test_corrupt_records_block_move_until_repaired(caplog: pytest.LogCaptureFixture) -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(20)
        fixture.replica.log.segments[0].damaged_ranges.append((0, 10**6))
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await trio.sleep(5)
        assert fixture.serving_directory() == "/a"
        assert caplog.text.count("Error while copying partition to its future log") == 1
        fixture.replica.log.segments[0].damaged_ranges.clear()
        await fixture.alter_and_wait("/b")

    fixture.run_moves(scenario)


def test_move_rate_is_throttled() -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(100, 100_000)
        fixture.image = replace(fixture.image, configs={(RESOURCE_BROKER, "1"): {ALTER_LOG_DIRS_RATE_KEY: "1000000"}})
        fixture.replica_manager.image = fixture.image
        began = trio.current_time()
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await trio.sleep(3)
        assert 2_000_000 < fixture.future_log.size_bytes < 5_000_000
        fixture.assigns_directories = False
        await fixture.until(lambda: fixture.future_log.log_end_offset == 100)
        assert trio.current_time() - began > 8

    fixture.run_moves(scenario)


def test_log_is_not_compacted_while_it_moves() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        fixture.write(3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        assert fixture.replica.log.has_future_log
        fixture.alter_log_dirs.cancel(TOPIC_PARTITION)
        assert not fixture.replica.log.has_future_log
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        fixture.commit(fixture.ids[1])
        await fixture.alter_and_wait("/b")
        assert not fixture.replica.log.has_future_log

    fixture.run_moves(scenario)


def test_log_short_of_descriptors_does_not_block_moves(caplog: pytest.LogCaptureFixture) -> None:
    fixture = LogDirMovesFixture()

    async def scenario() -> None:
        fixture.write(3)
        fixture.replica.log.close_files()
        fixture.break_disk("/a/t-0/0", errno.EMFILE, times=3)
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        await fixture.alter_and_wait("/b")
        assert "injected" in caplog.text

    fixture.run_moves(scenario)
    assert not fixture.log_dirs.offline


def test_waiting_future_log_holds_no_open_files() -> None:
    fixture = LogDirMovesFixture(obeys=False)

    async def scenario() -> None:
        await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b")
        assert not any(segment.is_open for segment in fixture.future_log.segments)
        assert fixture.serving_directory() == "/a"

    fixture.run_moves(scenario)


def test_topic_recreated_during_future_log_creation_keeps_its_own_log() -> None:
    fixture = LogDirMovesFixture(obeys=False)
    in_thread = fixture.env.in_thread

    async def meanwhile(work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        fixture.env.in_thread = in_thread
        made = await in_thread(work, lane)
        fixture.commit_topics(gone=("t",))
        await fixture.publisher.wait_applied_and_created()
        known = led_topic("t", 1, b"another of that ")
        fixture.commit_topics(
            replace(known, partitions={0: replace(known.partitions[0], directories=(fixture.ids[1],))})
        )
        await fixture.publisher.wait_applied_and_created()
        return made

    async def scenario() -> None:
        fixture.env.in_thread = meanwhile
        assert await fixture.alter_log_dirs.alter(TOPIC_PARTITION, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert fixture.serving_directory() == "/b"
        assert fixture.log_dirs.directories[1].logs == {TOPIC_PARTITION: fixture.replica.log}
        assert not fixture.replica.log.closed
        assert not fixture.replica_manager.future_logs

    fixture.run_moves(scenario)
    assert fixture.directory_names("/b") == ["0", "delete"]
    assert len(fixture.scheduled_deletes) == 2
