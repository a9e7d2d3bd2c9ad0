"""Validation of classic members' metadata when a classic group becomes a consumer group."""

from __future__ import annotations

import pytest

from ottla.broker.groups.consumer import consumer_protocol, records
from ottla.broker.groups.consumer.consumer_group import ConsumerGroupMember, ConsumerMemberState
from ottla.broker.groups.consumer.tests.test_migration import subscription_of
from ottla.broker.groups.records import GroupRecord
from ottla.broker.tests.consumer_group_fixture import ConsumerGroupShard, ConsumerMemberClient, image_of
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat, offset_records, sync_group
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription

T = topic_id_of("t")
IMAGE = image_of({"t": 6})


def stored(shard: ConsumerGroupShard, *shares: list[int], topics: tuple[str, ...] = ("t",)) -> list[str]:
    """Store a stable classic group with these shares as the leader's assignment; return the member ids."""
    names = [f"old-{number}" for number in range(len(shares))]
    rows = [
        offset_records.MemberMetadata(
            name,
            None,
            "c",
            "/h",
            30_000,
            10_000,
            subscription_of(topics=topics),
            consumer_protocol.encode_assignment({T: share}, IMAGE, 3),
        )
        for name, share in zip(names, shares, strict=True)
    ]
    value = offset_records.GroupMetadataValue("consumer", 5, "cooperative-sticky", names[0], shard.now, rows)
    shard.machine.replay(0, GroupRecord(offset_records.GroupMetadataKey("g"), value))
    return names


@pytest.mark.parametrize(("rack", "expected"), [("r1", "r1"), (None, None), ("", None)])
def test_upgrade_keeps_rack_of_classic_member(rack: str | None, expected: str | None) -> None:
    shard = ConsumerGroupShard()
    (name,) = stored(shard, [0, 1, 2, 3, 4, 5])
    subscription = ConsumerProtocolSubscription(["t"], rack_id=rack)
    member = shard.machine.classic_groups.groups["g"].members[name]
    member.protocols = [("cooperative-sticky", b"\x00\x03" + compiler.encode(subscription, 3))]
    ConsumerMemberClient(shard, "new").beat()
    assert shard.consumer.members[name].rack_id == expected


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        (([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]), "all of it twice: what is over is nobody's"),
        (([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 15, 16]), "partitions there are not"),
    ],
)
def test_upgrade_with_inconsistent_assignment_returns_error_and_keeps_group(
    shares: tuple[list[int], ...], why: str
) -> None:
    shard = ConsumerGroupShard()
    stored(shard, *shares)
    answer = ConsumerMemberClient(shard, "new").beat()
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, why
    assert answer.error_message == (
        "Failed to compute a new target assignment for epoch 6: Partitions were left unassigned"
    )
    assert (shard.log, "g" in shard.machine.classic_groups.groups) == ([], True)


@pytest.mark.parametrize("number", [6, 2**31 - 1, -1, -7])
def test_upgrade_with_nonexistent_partition_in_assignment_returns_error(number: int) -> None:
    shard = ConsumerGroupShard({"t": 6, "u": 1})
    stored(shard, [0, 1, number], topics=("t",))
    answer = ConsumerMemberClient(shard, "new", subscribed_topic_names=["u"]).beat()
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (shard.log, "g" in shard.machine.classic_groups.groups) == ([], True)


def test_sync_of_member_with_undecodable_protocol_fails_only_that_member() -> None:
    shard = ConsumerGroupShard()
    names = stored(shard, [0, 1, 2], [3, 4, 5])
    ConsumerMemberClient(shard, "new").beat()
    shard.machine.replay(0, records.target_assignment_epoch_record("g", 5, 0))
    member = shard.consumer.members[names[0]]
    assert member.classic_metadata is not None
    member.classic_metadata.supported_protocols[0].metadata = b"\x00"
    codes = [shard.call(sync_group.SyncGroupRequest("g", 5, name, None, "consumer"), 5).error_code for name in names]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]


@pytest.mark.parametrize("many", [3, RECORDS_PER_STEP + 1])
def test_heartbeat_of_member_in_unknown_state_returns_fenced_member_epoch(many: int) -> None:
    """The state is read from the log; the target of a large group is computed in slices."""
    shard = ConsumerGroupShard({"t": many})
    for number in range(many):
        shard.heartbeat(f"m{number}", 0)
    odd = ConsumerGroupMember(
        "odd",
        5,
        5,
        state=ConsumerMemberState.UNKNOWN,
        subscribed_topic_names=frozenset(["t"]),
        rebalance_timeout_ms=1_000,
    )
    for record in (records.member_record("g", odd), records.current_assignment_record("g", odd)):
        shard.machine.replay(0, record)
    shard.consumer.hash_checked_epoch = None
    row = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(T, [0])
    shard.heartbeat("m0", 0, subscribed_topic_names=["t", "u"])
    written = len(shard.log)
    answer = shard.heartbeat("odd", 5, topic_partitions=[row], subscribed_topic_names=["t", "w"])
    assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert len(shard.log) == written
