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


def lying(place: bytes, leader: int, **more: Any) -> TopicImage:
    """Return a topic with one partition assigned to that directory of this node."""
    made = led_topic("t", 1, replicas=(NODE_ID, OTHER), isr=(OTHER,), leader=leader, **more)
    told = replace(made.partitions[0], directories=(place, b"other".ljust(16, b"-")))
    return replace(made, partitions={0: told})


def test_replica_on_replaced_disk_is_recreated_and_follows() -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(lying(GONE, OTHER))
        await ground.publisher.wait_applied_and_created()
        assert ground.hosted() == {AT}
        assert not ground.replica_manager.offline_partitions

    ground.run(story)
    assert ground.reported_directories == [(b"t".ljust(16, b"-"), 0, ground.log_dirs.directories[0].id)]
    assert not ground.led


@pytest.mark.parametrize("leader", [-1, NODE_ID])
def test_replica_on_replaced_disk_without_other_leader_stays_offline(
    leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    ground = BrokerStorageFixture()

    async def story() -> None:
        ground.commit_topics(lying(GONE, leader))
        await ground.publisher.wait_applied_and_created()
        assert not ground.hosted()
        assert ground.replica_manager.offline_partitions == {AT}
        assert "Skipping creation of log t-0" in caplog.text
        ground.commit_topics(lying(GONE, OTHER, leader_epoch=1, partition_epoch=1))
        await ground.publisher.wait_applied_and_created()
        assert ground.hosted() == {AT}, "there is a log it can be filled from"
        assert not ground.replica_manager.offline_partitions

    ground.run(story)


def test_replica_in_unknown_directory_with_offline_directory_stays_offline() -> None:
    ground = BrokerStorageFixture("/a,/b")
    ground.log_dirs.mark_offline(ground.log_dirs.directories[1], OSError(errno.EIO, "gone"))

    async def story() -> None:
        for place in (GONE, ground.log_dirs.directories[1].id):
            ground.commit_topics(lying(place, OTHER))
            await ground.publisher.wait_applied_and_created()
            assert ground.replica_manager.offline_partitions == {AT}
        assert not ground.hosted()

    ground.run(story)


def left(ground: BrokerStorageFixture, directory: int, *epochs: int) -> None:
    """Create a log of an earlier process, with a record in each of these leader epochs."""
    where = ground.log_dirs.directories[directory]
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
    ground = BrokerStorageFixture("/a,/b")
    left(ground, 0, *one)
    left(ground, 1, *other)
    known = lying(ground.log_dirs.directories[0].id, OTHER)
    ground.image = MetadataImage(topics={"t": known}, topic_names={known.id: "t"})
    run_virtual(lambda: run_in_background(ground.env, ground.replica_manager.load(ground.image)))
    replica = ground.replica_manager.get("t", 0)
    assert replica is not None
    assert replica.log.directory == ("/a/t-0", "/b/t-0")[kept]
    assert replica.log.log_end_offset == len((one, other)[kept])
    assert [len(d.logs) for d in ground.log_dirs.directories] == [1 - kept, kept]
    assert [name.endswith("-stray") for name in ground.env.disk.listdir(("/a", "/b")[1 - kept]) if "t-0" in name] == [
        True
    ]
