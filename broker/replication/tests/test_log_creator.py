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
    fixture = BrokerStorageFixture("/a,/b")

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE + 2))
        await fixture.publisher.wait_applied()
        assert len(fixture.log_creator) == CREATION_BATCH_SIZE + 2
        assert not fixture.hosted()
        assert await fixture.log_creator.wait_created([("t", n) for n in range(CREATION_BATCH_SIZE + 2)], ALL_S)
        assert len(fixture.log_creator) == 0

    fixture.run(scenario)
    assert fixture.env.in_threads == 2
    assert sorted(fixture.led) == sorted(fixture.hosted()) == [("t", n) for n in range(CREATION_BATCH_SIZE + 2)]
    a, b = fixture.log_dirs.directories
    assert [sum(t == "t" for t, _ in d.logs) for d in (a, b)] == [CREATION_BATCH_SIZE // 2 + 1] * 2
    assert {(n, d) for _, n, d in fixture.reported_directories} == {
        (n, (a, b)[n % 2].id) for n in range(CREATION_BATCH_SIZE + 2)
    }


def test_awaited_log_is_created_first() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 10))
        await fixture.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)  # the first batch is under way
        last = ("t", CREATION_BATCH_SIZE * 10 - 1)
        assert await fixture.log_creator.wait_created([last, ("other", 0)], ALL_S)
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 2)
        assert last in fixture.hosted()
        assert len(fixture.hosted()) == CREATION_BATCH_SIZE * 2

    fixture.run(scenario)


def test_wait_created_times_out() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 3))
        await fixture.publisher.wait_applied()
        assert not await fixture.log_creator.wait_created(
            [("t", n) for n in range(CREATION_BATCH_SIZE * 3)], THREAD_WORK_S * 1.5
        )
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 1.5)
        await fixture.log_creator.wait_all_created(1, ALL_S)  # more than one is left: a wait is for one at most
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 1.5)
        await fixture.log_creator.wait_all_created(CREATION_BATCH_SIZE * 3, ALL_S)
        assert len(fixture.hosted()) == CREATION_BATCH_SIZE * 3

    fixture.run(scenario)


def test_two_workers_create_each_log_once() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 4))
        await fixture.log_creator.wait_all_created(1000, ALL_S)
        await fixture.publisher.wait_applied_and_created()
        assert trio.current_time() == pytest.approx(THREAD_WORK_S * 2)
        fixture.commit_topics(led_topic("u", 1))  # both sleep, and both wake
        await fixture.publisher.wait_applied_and_created()

    fixture.run(scenario, workers=2)
    assert fixture.env.in_threads == 5
    assert len(fixture.led) == CREATION_BATCH_SIZE * 4 + 1


def test_partition_changed_during_creation_has_latest_state() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        fixture.commit_topics(
            led_topic("t", 1, leader_epoch=7), configs={(RESOURCE_TOPIC, "t"): {"retention.ms": "77"}}
        )
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.get("t", 0)
        assert replica is not None
        assert replica.leader_epoch == 7
        assert replica.log.config.retention_ms == 77

    fixture.run(scenario)
    assert fixture.env.in_threads == 1
    assert fixture.led == [("t", 0)]


def test_topic_deleted_during_creation_leaves_directories_for_deletion() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE + 1))
        await fixture.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        fixture.commit_topics(gone=("t",))
        await fixture.publisher.wait_applied()
        assert len(fixture.log_creator) == CREATION_BATCH_SIZE  # the thread completes its batch
        await trio.sleep(1)
        assert len(fixture.log_creator) == 0

    fixture.run(scenario)
    assert not fixture.hosted()
    assert not fixture.log_dirs.directories[0].logs
    assert len(fixture.scheduled_deletes) == CREATION_BATCH_SIZE
    assert all(path.endswith("-delete") for path in fixture.scheduled_deletes)
    assert fixture.env.in_threads == 1


def test_topic_recreated_during_creation_gets_its_own_log() -> None:
    fixture = BrokerStorageFixture()
    again = b"again".ljust(16, b"-")

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        fixture.commit_topics(led_topic("t", 1, again))
        await fixture.publisher.wait_applied_and_created()

    fixture.run(scenario)
    replica = fixture.replica_manager.get("t", 0)
    assert replica is not None
    assert replica.topic_id == replica.log.topic_id == again
    assert len(fixture.scheduled_deletes) == 1


def test_directory_failure_during_creation_takes_only_its_partitions_offline() -> None:
    fixture = BrokerStorageFixture("/a,/b")

    reported: list[tuple[int, bytes]] = []
    fixture.replica_manager.on_directory_changed = lambda _, number, directory: reported.append((number, directory))

    async def scenario() -> None:
        fixture.break_disk("/b/t-")
        fixture.commit_topics(led_topic("t", 4))
        await fixture.publisher.wait_applied_and_created()
        assert list(fixture.log_dirs.offline) == ["/b"]
        assert fixture.hosted() == {("t", 0), ("t", 2)}
        assert fixture.replica_manager.offline_partitions == {("t", 1), ("t", 3)}
        failed = fixture.log_dirs.directories[1].id
        assert [x for x in reported if x[1] == failed] == [(1, failed), (3, failed)], "others are to lead them"
        assert len(fixture.log_creator) == 0
        fixture.commit_topics(led_topic("t", 4, leader_epoch=1))  # a repeated assignment does not create them elsewhere
        await fixture.publisher.wait_applied_and_created()
        assert fixture.hosted() == {("t", 0), ("t", 2)}

    fixture.run(scenario)
    assert fixture.ended == 0


def test_log_created_in_directory_that_failed_meanwhile_is_offline() -> None:
    fixture = BrokerStorageFixture("/a,/b")

    reported: list[int] = []
    failed = fixture.log_dirs.directories[1].id
    fixture.replica_manager.on_directory_changed = lambda _, number, directory: (
        reported.append(number) if directory == failed else None
    )

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 2))
        await fixture.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)
        fixture.failure_handler.handle_failure(OSError(errno.EIO, "gone"), fixture.log_dirs.directories[1])
        await fixture.publisher.wait_applied_and_created()

    fixture.run(scenario)
    assert reported == [1]
    assert fixture.hosted() == {("t", 0)}
    assert fixture.replica_manager.offline_partitions == {("t", 1)}


def test_creation_short_of_descriptors_is_retried_and_logged_once_per_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.break_disk("/a/t-", errno.EMFILE)
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE))
        await fixture.publisher.wait_applied()
        with caplog.at_level(logging.ERROR):
            await trio.sleep(RETRY_S * 3)
        assert fixture.env.in_threads == 3
        assert len(caplog.records) == 3
        assert not fixture.hosted()
        assert not fixture.replica_manager.offline_partitions
        fixture.repair_disk()
        await fixture.log_creator.wait_all_created(1000, ALL_S)
        assert len(fixture.hosted()) == CREATION_BATCH_SIZE

    fixture.run(scenario)
    assert fixture.ended == 0
    assert not fixture.log_dirs.offline


def test_incomplete_log_is_created_again_in_its_directory() -> None:
    fixture = BrokerStorageFixture("/a,/b")

    async def scenario() -> None:
        fixture.break_disk("/a/t-0", errno.EMFILE)
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied()
        await trio.sleep(RETRY_S / 2)
        fixture.repair_disk()
        fixture.log_dirs.directories[0].create_partition(
            "x", 0, bytes(16), fixture.config.log_settings(fixture.image, "x"), 0
        )
        await fixture.log_creator.wait_all_created(10, ALL_S)

    fixture.run(scenario)
    assert ("t", 0) in fixture.log_dirs.directories[0].logs


def test_topic_named_like_metadata_log_is_not_created() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    log = f"/a/{METADATA_TOPIC}-0/00000000000000000000.log"

    async def scenario() -> None:
        fixture.env.disk.makedirs(f"/a/{METADATA_TOPIC}-0")
        fixture.env.disk.open(log, create=True).pwrite(b"metadata", 0)
        fixture.commit_topics(led_topic(METADATA_TOPIC, 2), led_topic("t", 1))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.hosted() == {("t", 0)}
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied_and_created()

    fixture.run(scenario)
    assert fixture.env.disk.stat(log).size_bytes == len(b"metadata")
    assert not fixture.env.disk.exists(f"/a/{METADATA_TOPIC}-1")
    assert not fixture.env.disk.exists(f"/b/{METADATA_TOPIC}-1")
    assert not fixture.log_dirs.offline


def test_records_in_log_to_create_take_partition_offline() -> None:
    """A deletion was short of memory and left them there: the disk has no fault."""
    fixture = BrokerStorageFixture("/a")

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1), led_topic("u", 1))
        await fixture.publisher.wait_applied_and_created()
        log = fixture.replica_manager.get("t", 0).log  # type: ignore[union-attr]
        log.append_as_leader(bytearray(make_batch(0, 1)), 0, 0, AppendOrigin.RAFT_LEADER)
        left = [OSError(errno.ENOMEM, "no memory")]
        fixture.env.disk.fault = lambda call, path: left.pop() if left and call == "rename" and "t-0" in path else None
        fixture.commit_topics(gone=("t",))
        await fixture.publisher.wait_applied_and_created()
        fixture.commit_topics(led_topic("t", 1, b"another".ljust(16, b"-")), led_topic("v", 1))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.log_dirs.offline == {}
        assert {at[0] for at in fixture.hosted()} == {"u", "v"}
        assert ("t", 0) in fixture.replica_manager.offline_partitions

    fixture.run(scenario)


def test_log_missing_at_startup_with_offline_directory_is_not_created() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    fixture.log_dirs.mark_offline(fixture.log_dirs.directories[1], OSError(errno.EIO, "gone"))

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.replica_manager.offline_partitions == {("t", 0)}
        fixture.commit_topics(led_topic("new", 1))  # after startup, a new partition is new
        await fixture.publisher.wait_applied_and_created()
        assert fixture.hosted() == {("new", 0)}

    fixture.run(scenario)


def test_log_count_growth_is_reported_per_interval() -> None:
    fixture = BrokerStorageFixture()
    grown: list[int] = []
    fixture.log_creator.on_log_count_grown = lambda: grown.append(len(fixture.hosted()))

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", GROWTH_NOTIFICATION_INTERVAL * 2 + 1))
        await fixture.publisher.wait_applied()
        await fixture.log_creator.wait_created([("t", n) for n in range(GROWTH_NOTIFICATION_INTERVAL * 2 + 1)], ALL_S)

    fixture.run(scenario)
    assert grown == [GROWTH_NOTIFICATION_INTERVAL, GROWTH_NOTIFICATION_INTERVAL * 2]


def test_unwanted_logs_in_queue_are_skipped() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE * 1100))
        await fixture.publisher.wait_applied()
        # as it is while the applier removes partition after partition
        fixture.replica_manager.image = MetadataImage()
        await trio.sleep(1)
        assert len(fixture.log_creator) == 0
        fixture.commit_topics(gone=("t",))
        fixture.commit_topics(led_topic("u", 1))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.hosted() == {("u", 0)}

    fixture.run(scenario)


def test_wait_created_returns_when_log_is_not_wanted_any_more() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    fixture.log_dirs.mark_offline(fixture.log_dirs.directories[1], OSError(errno.EIO, "gone"))
    gone, away = ("t", CREATION_BATCH_SIZE), ("t", CREATION_BATCH_SIZE + 1)

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", CREATION_BATCH_SIZE + 2))
        await fixture.publisher.wait_applied()
        await trio.sleep(THREAD_WORK_S / 2)  # the first batch is under way
        partitions = dict(fixture.image.topics["t"].partitions)
        del partitions[gone[1]]
        partitions[away[1]] = replace(partitions[away[1]], directories=(fixture.log_dirs.directories[1].id,))
        fixture.replica_manager.image = MetadataImage(
            topics={"t": replace(fixture.image.topics["t"], partitions=partitions)}
        )
        assert await fixture.log_creator.wait_created([gone, away], ALL_S)
        assert trio.current_time() < THREAD_WORK_S * 2
        assert away in fixture.replica_manager.offline_partitions, "where it lies nobody can look"
        assert gone not in fixture.replica_manager.offline_partitions

    fixture.log_creator.is_starting = False
    fixture.run(scenario)
    assert not {gone, away} & fixture.hosted()
