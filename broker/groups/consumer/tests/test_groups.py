"""Rules of groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember, ConsumerMemberState
from ottla.broker.tests.consumer_group_fixture import (
    ConsumerGroupShard,
    ConsumerMemberClient,
    assignment_by_letter,
    reconcile_members,
    two_reconciled_members,
)
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat

ROW = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions
T = topic_id_of("t")


@pytest.mark.behaviour("C-162", "C-166", "C-170")
def test_first_member_joins_at_epoch_2_with_all_partitions() -> None:
    shard = ConsumerGroupShard()
    answer = shard.heartbeat("a", 0)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert assignment_by_letter(answer.assignment) == {"t": [0, 1, 2, 3, 4, 5]}
    assert shard.records() == ["5a", "3", "7a", "6", "8a"]
    group = shard.consumer
    assert (group.epoch, group.target_epoch, group.target_computed_ms, group.state) == (2, 2, shard.now, "Stable")


def test_heartbeat_without_member_id_before_v1_returns_generated_id() -> None:
    assert ConsumerGroupShard().heartbeat("", 0, version=0).member_id.startswith("id-")


def test_heartbeat_in_unknown_group_returns_group_id_not_found() -> None:
    answer = ConsumerGroupShard().heartbeat("a", 3)
    assert (answer.error_code, answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    assert ConsumerGroupShard().heartbeat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.behaviour("C-171")
def test_unchanged_heartbeat_writes_no_record_and_returns_no_assignment() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0)
    written = len(shard.log)
    answer = shard.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment, len(shard.log)) == (2, None, written)


@pytest.mark.behaviour("C-171")
def test_full_heartbeat_returns_current_assignment() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0)
    rows = [ROW(T, [0])]
    full: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": rows}
    assert assignment_by_letter(shard.heartbeat("a", 2, **full).assignment) == {"t": [0, 1, 2, 3, 4, 5]}
    for left_out in full:
        rest = {name: value for name, value in full.items() if name != left_out}
        assert shard.heartbeat("a", 2, **rest).assignment is None


@pytest.mark.behaviour("C-166")
def test_heartbeat_with_new_client_id_writes_member_record() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0)
    written = len(shard.log)
    shard.call(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", "a", 2), client_id="other")
    assert shard.records(written) == ["5a"]
    member = shard.consumer.members["a"]
    assert (member.client_id, member.client_host, member.rebalance_timeout_ms) == ("other", "/10.0.0.1", 30_000)


@pytest.mark.behaviour("C-173", "C-174", "P-92")
def test_partitions_are_revoked_before_they_are_assigned() -> None:
    """UNREVOKED keeps its epoch, UNRELEASED goes ahead and waits."""
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0)
    new = shard.heartbeat("b", 0)
    assert (new.member_epoch, assignment_by_letter(new.assignment)) == (3, {})
    assert shard.consumer.members["b"].state is ConsumerMemberState.UNRELEASED_PARTITIONS
    response = shard.heartbeat("a", 2)
    assert (response.member_epoch, assignment_by_letter(response.assignment)) == (2, {"t": [0, 1, 2]})
    a = shard.consumer.members["a"]
    assert (a.state, a.previous_epoch, dict(a.revoking)) == (
        ConsumerMemberState.UNREVOKED_PARTITIONS,
        2,
        {T: {3: 2, 4: 2, 5: 2}},
    )
    assert shard.consumer.state == "Reconciling"
    assert shard.heartbeat("b", 3).assignment is None, "a has not given them up"
    assert shard.heartbeat("a", 2, topic_partitions=[ROW(T, [0, 1, 2, 3])]).member_epoch == 2, "one is still there"
    assert shard.heartbeat("a", 2, topic_partitions=[ROW(T, [0, 1, 2])]).member_epoch == 3
    assert assignment_by_letter(shard.heartbeat("b", 3).assignment) == {"t": [3, 4, 5]}
    assert shard.consumer.members["b"].assigned == {T: {3: 3, 4: 3, 5: 3}}
    assert shard.consumer.members["a"].assigned == {T: {0: 2, 1: 2, 2: 2}}, "174: what stays keeps its epoch"
    assert shard.consumer.state == "Stable"


@pytest.mark.behaviour("C-167")
@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (4, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (3, None, 0),
        (2, [ROW(T, [0])], 0),
        (2, [], 0),
        (2, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (2, [ROW(T, [5])], ErrorCode.FENCED_MEMBER_EPOCH),
        (1, [ROW(T, [0])], ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
def test_heartbeat_epoch_must_be_current_or_previous_with_owned_partitions(epoch: int, owned: Any, code: int) -> None:
    """A's epoch is 3, its last 2; it has 0 to 2."""
    shard, _, _ = two_reconciled_members()
    member = shard.consumer.members["a"]
    assert (member.epoch, member.previous_epoch) == (3, 2)
    assert shard.heartbeat("a", epoch, topic_partitions=owned).error_code == code


@pytest.mark.behaviour("C-167")
def test_rejoin_with_epoch_0_returns_target_assignment() -> None:
    shard, a, _ = two_reconciled_members()
    a.epoch = 0
    written = len(shard.log)
    assert assignment_by_letter(a.beat().assignment) == {"t": [0, 1, 2]}
    assert shard.records(written) == []


@pytest.mark.behaviour("C-165")
def test_heartbeat_in_full_group_returns_group_max_size_reached() -> None:
    shard = ConsumerGroupShard(max_size=1)
    assert shard.heartbeat("a", 0).error_code == 0
    assert shard.heartbeat("b", 0).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.heartbeat("a", 0).error_code == 0


@pytest.mark.behaviour("C-168", "C-173")
def test_changed_subscription_bumps_group_epoch() -> None:
    """Partitions of an unsubscribed topic are revoked at once."""
    shard = ConsumerGroupShard({"t": 2, "u": 2})
    shard.heartbeat("a", 0)
    answer = shard.heartbeat("a", 2, subscribed_topic_names=["u"])
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (2, {})
    assert shard.consumer.epoch == 3
    answer = shard.heartbeat("a", 2, topic_partitions=[])
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (3, {"u": [0, 1]})


@pytest.mark.behaviour("C-173")
def test_partitions_of_unsubscribed_topic_are_revoked_before_next_target() -> None:
    shard = ConsumerGroupShard({"t": 1, "u": 1}, assignment_interval_ms=15_000)
    a = ConsumerMemberClient(shard, "a", subscribed_topic_names=["t", "u"])
    reconcile_members(a)
    a.beat(subscribed_topic_names=["t"])
    assert (a.owned, shard.consumer.state) == ({"t": [0]}, "Assigning")


@pytest.mark.behaviour("C-168")
def test_topic_with_new_partitions_is_assigned_at_next_heartbeat() -> None:
    shard = ConsumerGroupShard({"t": 2})
    shard.heartbeat("a", 0)
    shard.heartbeat("a", 2)
    shard.image({"t": 3})
    answer = shard.heartbeat("a", 2)
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (3, {"t": [0, 1, 2]})
    shard.image({"t": 3, "other": 1}, has_new=True)
    assert shard.heartbeat("a", 3).member_epoch == 3


@pytest.mark.behaviour("C-168")
def test_topic_metadata_without_change_bumps_no_epoch() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0)
    shard.image({"t": 6})
    written = len(shard.log)
    assert shard.heartbeat("a", 2).member_epoch == 2
    assert len(shard.log) == written


@pytest.mark.behaviour("C-169")
def test_target_assignment_is_computed_at_most_once_per_interval() -> None:
    shard = ConsumerGroupShard(assignment_interval_ms=1_000)
    shard.heartbeat("a", 0)
    shard.now += 999
    answer = shard.heartbeat("b", 0)
    assert (answer.member_epoch, assignment_by_letter(answer.assignment)) == (2, {})
    assert (shard.consumer.epoch, shard.consumer.target_epoch, shard.consumer.state) == (3, 2, "Assigning")
    shard.now += 1
    assert shard.heartbeat("b", 2).member_epoch == 3


@pytest.mark.behaviour("C-188")
def test_group_configs_are_clamped_to_broker_bounds() -> None:
    shard = ConsumerGroupShard()
    shard.image({"t": 6}, consumer_heartbeat_interval_ms="7000", consumer_session_timeout_ms="99999")
    assert shard.heartbeat("a", 0).heartbeat_interval_ms == 7000
    shard.image({"t": 6}, consumer_heartbeat_interval_ms="700", consumer_session_timeout_ms="99999")
    assert shard.heartbeat("a", 2).heartbeat_interval_ms == 5000
    shard.wait(59_999)
    assert "a" in shard.consumer.members
    shard.wait(1)
    assert "a" not in shard.consumer.members


@pytest.mark.behaviour("C-169")
def test_assignor_named_by_most_members_is_used() -> None:
    """Range gives 0 and 1 of each topic to the first, uniform deals them out."""
    shard = ConsumerGroupShard({"t": 3, "u": 3})
    both = {"subscribed_topic_names": ["t", "u"]}
    a, b = ConsumerMemberClient(shard, "a", **both, server_assignor="range"), ConsumerMemberClient(shard, "b", **both)
    reconcile_members(a)
    reconcile_members(a, b)
    assert (a.owned, b.owned) == ({"t": [0, 1], "u": [0, 1]}, {"t": [2], "u": [2]})
    assert shard.consumer.preferred_assignor() == "range"


@pytest.mark.behaviour("C-172", "C-177")
def test_leave_removes_member_and_reassigns_its_partitions() -> None:
    shard, a, b = two_reconciled_members()
    written = len(shard.log)
    answer = shard.heartbeat("b", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "b", -1)
    assert shard.records(written) == ["-8b", "-7b", "-5b", "3"]
    reconcile_members(a)
    assert a.owned == {"t": [0, 1, 2, 3, 4, 5]}
    shard.heartbeat("a", -1)
    assert (shard.consumer.state, shard.consumer.metadata_hash, shard.consumer.epoch) == ("Empty", 0, 5)
    assert b.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour("C-176")
def test_session_timeout_removes_member_without_heartbeats() -> None:
    shard, a, _ = two_reconciled_members()
    shard.wait(40_000)
    a.beat()
    shard.wait(5_000)
    assert set(shard.consumer.members) == {"a"}
    shard.wait(40_000)
    assert shard.consumer.state == "Empty"


@pytest.mark.behaviour("C-176")
def test_rebalance_timeout_removes_member_that_does_not_revoke() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0, rebalance_timeout_ms=10_000)
    shard.heartbeat("b", 0)
    shard.heartbeat("a", 2)
    shard.wait(9_999)
    shard.heartbeat("a", 2)
    assert "a" in shard.consumer.members
    shard.wait(1)
    assert "a" not in shard.consumer.members


@pytest.mark.behaviour("C-176")
def test_rebalance_timeout_keeps_member_that_revoked() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0, rebalance_timeout_ms=10_000)
    shard.heartbeat("b", 0)
    shard.heartbeat("a", 2)
    shard.heartbeat("a", 2, topic_partitions=[])
    shard.wait(20_000)
    assert "a" in shard.consumer.members


@pytest.mark.behaviour("C-176")
def test_shard_loaded_restores_groups_and_arms_timers() -> None:
    shard, _, _ = two_reconciled_members()
    shard.heartbeat("c", 0)
    shard.heartbeat("a", 3)
    again = shard.restart()
    for name in (
        "epoch",
        "target_epoch",
        "metadata_hash",
        "members",
        "target",
        "owner_epochs",
        "subscribed_topic_names",
        "state",
    ):
        assert getattr(again.consumer, name) == getattr(shard.consumer, name), name
    again.wait(29_999)
    assert "a" in again.consumer.members
    again.wait(1)
    assert set(again.consumer.members) == {"b", "c"}, "a had until then to give something up"
    again.wait(15_000)
    assert not again.consumer.members


@pytest.mark.behaviour("C-175")
def test_partition_owner_epoch_is_not_cleared_by_previous_owner() -> None:
    group = ConsumerGroup("g")
    group.update(ConsumerGroupMember("a", epoch=2, assigned={T: {0: 2}}))
    group.update(ConsumerGroupMember("b", epoch=3, assigned={T: {0: 3}}))
    group.update(ConsumerGroupMember("a", epoch=3))
    assert (group.owner_epoch(T, 0), group.owner_epoch(T, 1)) == (3, -1)
    group.remove("b")
    assert (group.owner_epoch(T, 0), group.owner_epochs) == (-1, {})
