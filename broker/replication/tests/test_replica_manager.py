"""Replica manager: hosted partitions and metadata changes."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import FollowerState, LeaderState
from ottla.broker.replication.tests.test_replica_manager_load import load, made
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic, partition_of
from ottla.broker.tests.handler_fixture import NOW_MS
from ottla.controller.metadata.directory_id import MIGRATING, UNASSIGNED
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.metadata_records import RegisterBrokerRecord
from ottla.wire.record_batch import records

# ---------------------------------------------------------------------- leadership checks


def test_leader_lookup_of_other_partition_returns_error_code() -> None:
    fixture = BrokerStorageFixture()

    def refused(name: str, number: int = 0) -> ErrorCode:
        with pytest.raises(ProtocolError) as caught:
            fixture.replica_manager.leader(name, number)
        return caught.value.code

    async def scenario() -> None:
        fixture.commit_topics(
            led_topic("mine", 1), led_topic("followed", 1, leader=2, replicas=(2, NODE_ID), isr=(2, NODE_ID))
        )
        fixture.commit_topics(led_topic("elsewhere", 1, leader=2, replicas=(2,), isr=(2,)))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.replica_manager.leader("mine", 0) is fixture.replica_manager.get("mine", 0)
        assert refused("followed") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused("elsewhere") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused("elsewhere", 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused("nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fixture.replica_manager.offline_partitions.add(("elsewhere", 0))
        assert refused("elsewhere") is ErrorCode.KAFKA_STORAGE_ERROR

    fixture.run(scenario)


@pytest.mark.behaviour("R-331")
@pytest.mark.parametrize(
    ("fenced", "leaving", "epoch", "joins"),
    [
        (False, False, 7, True),
        (False, False, -1, True),
        (False, False, 6, False),
        (False, False, 8, False),
        (True, False, 7, False),
        (False, True, 7, False),
        (None, False, 7, False),
        (None, False, -1, False),
    ],
)
def test_isr_eligibility_requires_unfenced_broker_with_its_epoch(
    fenced: bool | None, leaving: bool, epoch: int, joins: bool
) -> None:
    fixture = BrokerStorageFixture()
    if fenced is not None:
        record = RegisterBrokerRecord(2, broker_epoch=7, fenced=fenced, in_controlled_shutdown=leaving)
        fixture.replica_manager.image = MetadataImage(brokers={2: record})
    assert fixture.replica_manager._isr.is_eligible(2, epoch) is joins, "KIP-841, KIP-903"


def test_replica_lag_time_max_ms_sets_isr_lag() -> None:
    assert BrokerStorageFixture(replica_lag_time_max_ms="1234").replica_manager._isr.lag_max_ms == 1234


# ---------------------------------------------------------------------- following


def test_leader_of_next_epoch_keeps_follower_state_and_former_follower_resets_it() -> None:
    """R-329."""
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1, replicas=(NODE_ID, 2), isr=(NODE_ID, 2)))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.leader("t", 0)
        first = replica.state
        assert isinstance(first, LeaderState)
        assert not replica.is_sole_replica
        first.update_follower(2, -1, 0, 0, 0, NOW_MS)
        fixture.commit_topics(
            led_topic("t", 1, replicas=(NODE_ID, 2), isr=(NODE_ID, 2), partition_epoch=1, recovering=1)
        )
        await fixture.publisher.wait_applied_and_created()
        assert replica.state is first, "the same epoch"
        assert first.followers[2].end_offset == 0
        assert first.isr == ((NODE_ID, 2), True)
        fixture.commit_topics(
            led_topic("t", 1, replicas=(NODE_ID, 2), isr=(NODE_ID, 2), partition_epoch=2, leader_epoch=1)
        )
        await fixture.publisher.wait_applied_and_created()
        assert isinstance(replica.state, LeaderState)
        assert replica.state is not first
        assert (replica.state.epoch, replica.state.followers[2].end_offset) == (1, 0)
        assert replica.leader_epoch == replica.log.epochs.latest_epoch() == 1
        for epoch, leader in ((2, 2), (3, NODE_ID)):
            more = {"leader": leader, "leader_epoch": epoch, "partition_epoch": epoch + 1}
            fixture.commit_topics(led_topic("t", 1, replicas=(NODE_ID, 2), isr=(NODE_ID, 2), **more))
            await fixture.publisher.wait_applied_and_created()
        assert isinstance(replica.state, LeaderState)
        assert replica.state.followers[2].end_offset == -1

    fixture.run(scenario)
    assert fixture.led == [("t", 0)] * 3, "once an epoch"


def test_is_sole_replica_follows_replica_set() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        alone: list[bool] = []
        for epoch, replicas in enumerate([(NODE_ID,), (NODE_ID, 2), (NODE_ID,)]):
            fixture.commit_topics(led_topic("t", 1, replicas=replicas, isr=(NODE_ID,), partition_epoch=epoch))
            await fixture.publisher.wait_applied_and_created()
            alone.append(fixture.replica_manager.leader("t", 0).is_sole_replica)
        assert alone == [True, False, True]

    fixture.run(scenario)


def test_resignation_wakes_delayed_operations_once() -> None:
    fixture = BrokerStorageFixture()
    resigned: list[HostedPartition] = []
    fixture.replica_manager.on_resigned.append(resigned.append)

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.leader("t", 0)
        assert replica.is_sole_replica
        fixture.woken.clear()
        for epoch in (1, 2):
            fixture.commit_topics(
                led_topic("t", 1, leader=2, leader_epoch=epoch, replicas=(NODE_ID, 2), partition_epoch=epoch)
            )
            await fixture.publisher.wait_applied_and_created()
            assert {("fetch", "t", 0), ("hw", "t", 0)} <= set(fixture.woken)
            assert replica.state == FollowerState(epoch, 2)
            assert (replica.is_leader, replica.is_sole_replica) == (False, False)
        assert resigned == [replica], "who has not led does not resign"

    fixture.run(scenario)


@pytest.mark.parametrize("lost", [False, True])
def test_removed_or_failed_partition_resigns_and_wakes_delayed_operations(lost: bool) -> None:
    fixture = BrokerStorageFixture("/a,/b")
    resigned: list[tuple[bool, Any]] = []
    fixture.replica_manager.on_resigned.append(lambda r: resigned.append((r.is_leader, r.state)))

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 2, leader_epoch=4))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.leader("t", 1)
        assert replica.log.directory == "/b/t-1"
        assert replica.traffic is fixture.replica_manager.leader("t", 0).traffic
        replica.traffic.bytes_in = 7
        fixture.woken.clear()
        if lost:
            fixture.failure_handler.handle_failure(OSError(errno.EIO, "gone"), replica.log)
        else:
            fixture.replica_manager.remove(("t", 1))
        assert resigned == [(False, FollowerState(4))]
        assert not replica.is_sole_replica
        assert fixture.woken == [(name, "t", 1) for name in ("fetch", "end", "hw", "start")]
        assert fixture.hosted() == {("t", 0)}
        assert (("t", 1) in fixture.replica_manager.offline_partitions) is lost
        assert fixture.scheduled_deletes == ([] if lost else fixture.scheduled_deletes[:1])
        fixture.replica_manager.remove(("t", 1))
        assert ("t", 1) not in fixture.replica_manager.offline_partitions, "of a topic that is gone nothing is missed"
        assert len(resigned) == 1
        assert fixture.replica_manager.removed_traffic.bytes_in == 0, "partition 0 is still hosted"
        fixture.replica_manager.remove(("t", 0))
        assert fixture.replica_manager.traffic == {}
        assert fixture.replica_manager.removed_traffic.bytes_in == 7

    fixture.run(scenario)


def test_rename_error_at_deletion_takes_directory_offline() -> None:
    fixture = BrokerStorageFixture("/a,/b")

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 2))
        await fixture.publisher.wait_applied_and_created()
        fixture.break_disk("/b/t-1")
        fixture.replica_manager.remove(("t", 1))
        assert list(fixture.log_dirs.offline) == ["/b"]
        assert fixture.scheduled_deletes == []

    fixture.run(scenario)


@pytest.mark.parametrize(("known", "reported_of"), [("own", 0), ("other", 1), ("none", 1)])
def test_directory_is_reported_unless_controller_knows_it(known: str, reported_of: int) -> None:
    fixture = BrokerStorageFixture("/a,/b")

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1))
        await fixture.publisher.wait_applied_and_created()
        ids = {
            "own": fixture.log_dirs.directories[0].id,
            "other": fixture.log_dirs.directories[1].id,
            "none": UNASSIGNED,
        }
        fixture.reported_directories.clear()
        partition = replace(partition_of(fixture, "t", 0), directories=(ids[known],))
        fixture.replica_manager.apply_partition_state(("t", 0), partition)
        expected = [(led_topic("t", 1).id, 0, ids["own"])]
        assert fixture.reported_directories == expected * reported_of
        assert MIGRATING not in ids.values()

    fixture.run(scenario)


def test_new_leader_recovers_high_watermark_before_listeners_run() -> None:
    fixture = BrokerStorageFixture()
    made(fixture, 0, "t", records=3)
    load(fixture, "t")
    replica = fixture.replica_manager.get("t", 0)
    assert replica is not None
    replica.log.append_as_leader(bytearray(records.build_batch([records.NewRecord(None, b"x", NOW_MS)])), 0, NOW_MS)
    seen: list[int] = []
    fixture.replica_manager.on_leader.append(lambda led: seen.append(led.log.high_watermark))
    fixture.replica_manager.apply_partition_state(("t", 0), fixture.image.topics["t"].partitions[0])
    assert seen == [4]
