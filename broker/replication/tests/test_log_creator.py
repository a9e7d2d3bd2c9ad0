"""Creation of logs: in batches outside the event loop, requested partitions first, each once."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace

import pytest
import trio

from ottla.broker.replication.log_creator import CREATION_BATCH_SIZE, GROWTH_NOTIFICATION_INTERVAL, RETRY_S
from ottla.broker.tests.broker_storage_fixture import THREAD_WORK_S, BrokerStorageFixture, led_topic
from ottla.controller.metadata.image import RESOURCE_TOPIC, MetadataImage
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.log.log_validator import AppendOrigin
from ottla.log.tests.log_fixtures import make_batch

ALL_S = 60.0


def test_logs_are_created_in_batches_and_reported_with_directory() -> None:
    ground = BrokerStorageFixture("/a,/b")

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE + 2))
        await ground.publisher.wait_applied()
        assert len(ground.log_creator) == CREATION_BATCH_SIZE + 2
        assert not ground.hosted()
        assert await ground.log_creator.wait_created([("t", n) for n in range(CREATION_BATCH_SIZE + 2)], ALL_S)
        assert len(ground.log_creator) == 0

    ground.run(story)
    assert ground.env.in_threads == 2
    assert sorted(ground.led) == sorted(ground.hosted()) == [("t", n) for n in range(CREATION_BATCH_SIZE + 2)]
    a, b = ground.log_dirs.directories
    assert [sum(t == "t" for t, _ in d.logs) for d in (a, b)] == [CREATION_BATCH_SIZE // 2 + 1] * 2
    assert {(n, d) for _, n, d in ground.reported_directories} == {
        (n, (a, b)[n % 2].id) for n in range(CREATION_BATCH_SIZE + 2)
    }


def test_awaited_log_is_created_first() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 10))
        await ground.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)  # the first batch is under way
        last = ("t", CREATION_BATCH_SIZE * 10 - 1)
        assert await ground.log_creator.wait_created([last, ("other", 0)], ALL_S)
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 2)
        assert last in ground.hosted()
        assert len(ground.hosted()) == CREATION_BATCH_SIZE * 2

    ground.run(story)


def test_wait_created_times_out() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 3))
        await ground.publisher.wait_applied()
        assert not await ground.log_creator.wait_created(
            [("t", n) for n in range(CREATION_BATCH_SIZE * 3)], THREAD_WORK_S * 1.5
        )
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 1.5)
        await ground.log_creator.wait_all_created(1, ALL_S)  # more than one is left: a wait is for one at most
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 1.5)
        await ground.log_creator.wait_all_created(CREATION_BATCH_SIZE * 3, ALL_S)
        assert len(ground.hosted()) == CREATION_BATCH_SIZE * 3

    ground.run(story)


def test_two_workers_create_each_log_once() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 4))
        await ground.log_creator.wait_all_created(1000, ALL_S)
        await ground.publisher.wait_applied_and_created()
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 2)
        ground.commit_topics(led_topic("u", 1))  # both sleep, and both wake
        await ground.publisher.wait_applied_and_created()

    ground.run(story, workers=2)
    assert ground.env.in_threads == 5
    assert len(ground.led) == CREATION_BATCH_SIZE * 4 + 1


def test_partition_changed_during_creation_has_latest_state() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(led_topic("t", 1))
        await ground.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        ground.commit_topics(led_topic("t", 1, leader_epoch=7), configs={(RESOURCE_TOPIC, "t"): {"retention.ms": "77"}})
        await ground.publisher.wait_applied_and_created()
        replica = ground.replica_manager.get("t", 0)
        assert replica is not None
        assert replica.leader_epoch == 7
        assert replica.log.config.retention_ms == 77

    ground.run(story)
    assert ground.env.in_threads == 1
    assert ground.led == [("t", 0)]


def test_topic_deleted_during_creation_leaves_directories_for_deletion() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE + 1))
        await ground.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        ground.commit_topics(gone=("t",))
        await ground.publisher.wait_applied()
        assert len(ground.log_creator) == CREATION_BATCH_SIZE  # the thread completes its batch
        await trio.sleep(1)
        assert len(ground.log_creator) == 0

    ground.run(story)
    assert not ground.hosted()
    assert not ground.log_dirs.directories[0].logs
    assert len(ground.scheduled_deletes) == CREATION_BATCH_SIZE
    assert all(path.endswith("-delete") for path in ground.scheduled_deletes)
    assert ground.env.in_threads == 1


def test_topic_recreated_during_creation_gets_its_own_log() -> None:
    ground = BrokerStorageFixture()
    again = b"again".ljust(16, b"-")

    async def story() -> None:
        ground.commit_topics(led_topic("t", 1))
        await ground.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        ground.commit_topics(led_topic("t", 1, again))
        await ground.publisher.wait_applied_and_created()

    ground.run(story)
    replica = ground.replica_manager.get("t", 0)
    assert replica is not None
    assert replica.topic_id == replica.log.topic_id == again
    assert len(ground.scheduled_deletes) == 1


def test_directory_failure_during_creation_takes_only_its_partitions_offline() -> None:
    ground = BrokerStorageFixture("/a,/b")

    told: list[tuple[int, bytes]] = []
    ground.replica_manager.on_directory_changed = lambda _, number, directory: told.append((number, directory))

    async def story() -> None:
        ground.break_disk("/b/t-")
        ground.commit_topics(led_topic("t", 4))
        await ground.publisher.wait_applied_and_created()
        assert list(ground.log_dirs.offline) == ["/b"]
        assert ground.hosted() == {("t", 0), ("t", 2)}
        assert ground.replica_manager.offline_partitions == {("t", 1), ("t", 3)}
        failed = ground.log_dirs.directories[1].id
        assert [x for x in told if x[1] == failed] == [(1, failed), (3, failed)], "others are to lead them"
        assert len(ground.log_creator) == 0
        ground.commit_topics(led_topic("t", 4, leader_epoch=1))  # a repeated assignment does not create them elsewhere
        await ground.publisher.wait_applied_and_created()
        assert ground.hosted() == {("t", 0), ("t", 2)}

    ground.run(story)
    assert ground.ended == 0


def test_log_created_in_directory_that_failed_meanwhile_is_offline() -> None:
    ground = BrokerStorageFixture("/a,/b")

    told: list[int] = []
    failed = ground.log_dirs.directories[1].id
    ground.replica_manager.on_directory_changed = lambda _, number, directory: (
        told.append(number) if directory == failed else None
    )

    async def story() -> None:
        ground.commit_topics(led_topic("t", 2))
        await ground.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        ground.failure_handler.handle_failure(OSError(errno.EIO, "gone"), ground.log_dirs.directories[1])
        await ground.publisher.wait_applied_and_created()

    ground.run(story)
    assert told == [1]
    assert ground.hosted() == {("t", 0)}
    assert ground.replica_manager.offline_partitions == {("t", 1)}


def test_creation_short_of_descriptors_is_retried_and_logged_once_per_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.break_disk("/a/t-", errno.EMFILE)
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE))
        await ground.publisher.wait_applied()
        with caplog.at_level(logging.ERROR):
            await trio.sleep(RETRY_S * 3)
        assert ground.env.in_threads == 3
        assert len(caplog.records) == 3
        assert not ground.hosted()
        assert not ground.replica_manager.offline_partitions
        ground.repair_disk()
        await ground.log_creator.wait_all_created(1000, ALL_S)
        assert len(ground.hosted()) == CREATION_BATCH_SIZE

    ground.run(story)
    assert ground.ended == 0
    assert not ground.log_dirs.offline


def test_incomplete_log_is_created_again_in_its_directory() -> None:
    ground = BrokerStorageFixture("/a,/b")

    async def story() -> None:
        ground.break_disk("/a/t-0", errno.EMFILE)
        ground.commit_topics(led_topic("t", 1))
        await ground.publisher.wait_applied()
        await trio.sleep(RETRY_S / 2)
        ground.repair_disk()
        ground.log_dirs.directories[0].create_partition(
            "x", 0, bytes(16), ground.config.log_settings(ground.image, "x"), 0
        )
        await ground.log_creator.wait_all_created(10, ALL_S)

    ground.run(story)
    assert ("t", 0) in ground.log_dirs.directories[0].logs


def test_topic_named_like_metadata_log_is_not_created() -> None:
    ground = BrokerStorageFixture("/a,/b")
    log = f"/a/{METADATA_TOPIC}-0/00000000000000000000.log"

    async def story() -> None:
        ground.env.disk.makedirs(f"/a/{METADATA_TOPIC}-0")
        ground.env.disk.open(log, create=True).pwrite(b"metadata", 0)
        ground.commit_topics(led_topic(METADATA_TOPIC, 2), led_topic("t", 1))
        await ground.publisher.wait_applied_and_created()
        assert ground.hosted() == {("t", 0)}
        ground.commit_topics(led_topic("t", 1))
        await ground.publisher.wait_applied_and_created()

    ground.run(story)
    assert ground.env.disk.stat(log).size_bytes == len(b"metadata")
    assert not ground.env.disk.exists(f"/a/{METADATA_TOPIC}-1")
    assert not ground.env.disk.exists(f"/b/{METADATA_TOPIC}-1")
    assert not ground.log_dirs.offline


def test_records_in_log_to_create_take_partition_offline() -> None:
    """A deletion was short of memory and left them there: the disk has no fault."""
    ground = BrokerStorageFixture("/a")

    async def story() -> None:
        ground.commit_topics(led_topic("t", 1), led_topic("u", 1))
        await ground.publisher.wait_applied_and_created()
        log = ground.replica_manager.get("t", 0).log  # type: ignore[union-attr]
        log.append_as_leader(bytearray(make_batch(0, 1)), 0, 0, AppendOrigin.RAFT_LEADER)
        left = [OSError(errno.ENOMEM, "no memory")]
        ground.env.disk.fault = lambda what, path: left.pop() if left and what == "rename" and "t-0" in path else None
        ground.commit_topics(gone=("t",))
        await ground.publisher.wait_applied_and_created()
        ground.commit_topics(led_topic("t", 1, b"another".ljust(16, b"-")), led_topic("v", 1))
        await ground.publisher.wait_applied_and_created()
        assert ground.log_dirs.offline == {}
        assert {at[0] for at in ground.hosted()} == {"u", "v"}
        assert ("t", 0) in ground.replica_manager.offline_partitions

    ground.run(story)


def test_log_missing_at_startup_with_offline_directory_is_not_created() -> None:
    ground = BrokerStorageFixture("/a,/b")
    ground.log_dirs.mark_offline(ground.log_dirs.directories[1], OSError(errno.EIO, "gone"))

    async def story() -> None:
        ground.commit_topics(led_topic("t", 1))
        await ground.publisher.wait_applied_and_created()
        assert ground.replica_manager.offline_partitions == {("t", 0)}
        ground.commit_topics(led_topic("new", 1))  # after startup, a new partition is new
        await ground.publisher.wait_applied_and_created()
        assert ground.hosted() == {("new", 0)}

    ground.run(story)


def test_log_count_growth_is_reported_per_interval() -> None:
    ground = BrokerStorageFixture()
    grown: list[int] = []
    ground.log_creator.on_log_count_grown = lambda: grown.append(len(ground.hosted()))

    async def story() -> None:
        ground.commit_topics(led_topic("t", GROWTH_NOTIFICATION_INTERVAL * 2 + 1))
        await ground.publisher.wait_applied()
        await ground.log_creator.wait_created([("t", n) for n in range(GROWTH_NOTIFICATION_INTERVAL * 2 + 1)], ALL_S)

    ground.run(story)
    assert grown == [GROWTH_NOTIFICATION_INTERVAL, GROWTH_NOTIFICATION_INTERVAL * 2]


def test_unwanted_logs_in_queue_are_skipped() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 1100))
        await ground.publisher.wait_applied()
        # as it is while the applier removes partition after partition
        ground.replica_manager.image = MetadataImage()
        await trio.sleep(1)
        assert len(ground.log_creator) == 0
        ground.commit_topics(gone=("t",))
        ground.commit_topics(led_topic("u", 1))
        await ground.publisher.wait_applied_and_created()
        assert ground.hosted() == {("u", 0)}

    ground.run(story)


def test_wait_created_returns_when_log_is_not_wanted_any_more() -> None:
    ground = BrokerStorageFixture("/a,/b")
    ground.log_dirs.mark_offline(ground.log_dirs.directories[1], OSError(errno.EIO, "gone"))
    gone, away = ("t", CREATION_BATCH_SIZE), ("t", CREATION_BATCH_SIZE + 1)

    async def story() -> None:
        ground.commit_topics(led_topic("t", CREATION_BATCH_SIZE + 2))
        await ground.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)  # the first batch is under way
        partitions = dict(ground.image.topics["t"].partitions)
        del partitions[gone[1]]
        partitions[away[1]] = replace(partitions[away[1]], directories=(ground.log_dirs.directories[1].id,))
        ground.replica_manager.image = MetadataImage(
            topics={"t": replace(ground.image.topics["t"], partitions=partitions)}
        )
        assert await ground.log_creator.wait_created([gone, away], ALL_S)
        assert trio.current_time() < THREAD_WORK_S * 2
        assert away in ground.replica_manager.offline_partitions, "where it lies nobody can look"
        assert gone not in ground.replica_manager.offline_partitions

    ground.log_creator.is_starting = False
    ground.run(story)
    assert not {gone, away} & ground.hosted()
