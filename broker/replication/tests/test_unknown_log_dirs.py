"""Replicas assigned to a directory that this node does not have, as after a disk replacement; duplicate logs."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.broker.tests.handler_fixture import NOW_MS, run_virtual
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.jobs.time_slice import run_in_background
from ottla.log.log_config import LogConfig
from ottla.wire.record_batch.records import NewRecord, build_batch

GONE = b"gone".ljust(16, b"-")
OTHER = 2
AT = ("t", 0)


def topic_in_directory(place: bytes, leader: int, **more: Any) -> TopicImage:
    """Return a topic with one partition assigned to that directory of this node."""
    made = led_topic("t", 1, replicas=(NODE_ID, OTHER), isr=(OTHER,), leader=leader, **more)
    registration = replace(made.partitions[0], directories=(place, b"other".ljust(16, b"-")))
    return replace(made, partitions={0: registration})


def test_replica_on_replaced_disk_is_recreated_and_follows() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(topic_in_directory(GONE, OTHER))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.hosted() == {AT}
        assert not fixture.replica_manager.offline_partitions

    fixture.run(scenario)
    assert fixture.reported_directories == [(b"t".ljust(16, b"-"), 0, fixture.log_dirs.directories[0].id)]
    assert not fixture.led


@pytest.mark.parametrize("leader", [-1, NODE_ID])
def test_replica_on_replaced_disk_without_other_leader_stays_offline(
    leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(topic_in_directory(GONE, leader))
        await fixture.publisher.wait_applied_and_created()
        assert not fixture.hosted()
        assert fixture.replica_manager.offline_partitions == {AT}
        assert "Skipping creation of log t-0" in caplog.text
        fixture.commit_topics(topic_in_directory(GONE, OTHER, leader_epoch=1, partition_epoch=1))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.hosted() == {AT}, "there is a log it can be filled from"
        assert not fixture.replica_manager.offline_partitions

    fixture.run(scenario)


def test_replica_in_unknown_directory_with_offline_directory_stays_offline() -> None:
    fixture = BrokerStorageFixture("/a,/b")
    fixture.log_dirs.mark_offline(fixture.log_dirs.directories[1], OSError(errno.EIO, "gone"))

    async def scenario() -> None:
        for place in (GONE, fixture.log_dirs.directories[1].id):
            fixture.commit_topics(topic_in_directory(place, OTHER))
            await fixture.publisher.wait_applied_and_created()
            assert fixture.replica_manager.offline_partitions == {AT}
        assert not fixture.hosted()

    fixture.run(scenario)


def create_log(fixture: BrokerStorageFixture, directory: int, *epochs: int) -> None:
    """Create a log of an earlier process, with a record in each of these leader epochs."""
    where = fixture.log_dirs.directories[directory]
    log = where.create_partition("t", 0, led_topic("t", 1).id, LogConfig(), NOW_MS)
    for epoch in epochs:
        log.append_as_leader(bytearray(build_batch([NewRecord(None, b"x", NOW_MS)])), epoch, NOW_MS)
    log.close()
    where.logs.clear()


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        ((0, 0), (0, 0, 0), 1),
        ((0, 0, 0), (0, 0), 0),
        ((0, 0, 0), (0, 1), 1),
        ((0, 1), (0, 0, 0), 0),
        ((), (0,), 1),
    ],
)
def test_duplicate_log_with_older_records_is_renamed_to_stray(
    one: tuple[int, ...], other: tuple[int, ...], kept: int
) -> None:
    """The log was moved away and back, and the power failed before the old directory's new name was on the disk."""
    fixture = BrokerStorageFixture("/a,/b")
    create_log(fixture, 0, *one)
    create_log(fixture, 1, *other)
    known = topic_in_directory(fixture.log_dirs.directories[0].id, OTHER)
    fixture.image = MetadataImage(topics={"t": known}, topic_names={known.id: "t"})
    run_virtual(lambda: run_in_background(fixture.env, fixture.replica_manager.load(fixture.image)))
    replica = fixture.replica_manager.get("t", 0)
    assert replica is not None
    assert replica.log.directory == ("/a/t-0", "/b/t-0")[kept]
    assert replica.log.log_end_offset == len((one, other)[kept])
    assert [len(d.logs) for d in fixture.log_dirs.directories] == [1 - kept, kept]
    assert [name.endswith("-stray") for name in fixture.env.disk.listdir(("/a", "/b")[1 - kept]) if "t-0" in name] == [
        True
    ]
