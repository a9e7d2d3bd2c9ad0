"""Consumer groups loaded from records that no coordinator writes: requests are answered and the group continues."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.events import TimerExpired
from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.consumer.consumer_group import ConsumerGroupMember, ConsumerMemberState
from ottla.broker.groups.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    target_assignment_epoch_record,
)
from ottla.broker.groups.records import GroupRecord
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_records, sync_group

METADATA = b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01t" + b"\xff\xff\xff\xff"
"""A subscription to "t", of version 0."""


def shard_of(*protocols: list[str], **more: str) -> ConsumerGroupShard:
    """Return a shard with a group of members with these classic protocols, and "new" of the consumer protocol."""
    shard = ConsumerGroupShard()
    records = [epoch_record("g", 5, 0), target_assignment_epoch_record("g", 5, 0)]
    for number, names in enumerate(protocols):
        classic = consumer_group_records.ClassicMemberMetadata(
            10_000, [consumer_group_records.ClassicProtocol(name, METADATA) for name in names]
        )
        records.append(
            member_record(
                "g",
                ConsumerGroupMember(
                    f"m{number}", subscribed_topic_names=frozenset("t"), classic_metadata=classic, **more
                ),
            )
        )  # type: ignore[arg-type]
    records.append(member_record("g", ConsumerGroupMember("new", subscribed_topic_names=frozenset("t"), **more)))  # type: ignore[arg-type]
    records += [
        current_assignment_record(
            "g", ConsumerGroupMember(name, epoch=5, previous_epoch=5, state=ConsumerMemberState.STABLE)
        )
        for name in [*(f"m{number}" for number in range(len(protocols))), "new"]
    ]
    for number, record in enumerate(records):
        shard.machine.replay(number, record)
    return shard


def leave(shard: ConsumerGroupShard) -> None:
    """Expire the session of the last member of the consumer protocol."""
    shard.apply(shard.machine.handle(shard.now, TimerExpired(("consumer-session", "g", "new"))))


def test_downgrade_of_members_without_a_common_protocol_leaves_a_consumer_group() -> None:
    cases: list[list[list[str]]] = [[["a"], ["b"]], [["a", "a"], ["b"]], [[], ["a"]], [[]]]
    for protocols in cases:
        shard = shard_of(*protocols)
        leave(shard)
        assert "g" not in shard.machine.classic_groups.groups
        assert "new" not in shard.consumer.members
        assert shard.consumer.epoch == 6


def test_downgrade_with_protocol_listed_twice_counts_it_once() -> None:
    shard = shard_of(["a", "a", "b"], ["b"])
    leave(shard)
    group = shard.machine.classic_groups.groups["g"]
    assert (group.protocol, group.state) == ("b", ClassicGroupState.PREPARING_REBALANCE)


def test_sync_of_a_member_without_a_protocol_is_a_server_error() -> None:
    answer = shard_of([]).call(sync_group.SyncGroupRequest("g", 5, "m0"), 5)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_heartbeat_with_unknown_assignor_returns_unknown_server_error() -> None:
    shard = shard_of(assignor="sticky-from-a-newer-version")
    assert shard.heartbeat("other", 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "other" not in shard.consumer.members


@pytest.mark.parametrize(
    "record",
    [partition_metadata_tombstone("g"), GroupRecord(consumer_group_records.ConsumerGroupMetadataKey("g"), None)],
)
def test_tombstone_of_unknown_group_is_ignored(record: GroupRecord) -> None:
    shard = ConsumerGroupShard()
    shard.machine.replay(0, record)
    assert shard.machine.find_consumer_group("g") is None
