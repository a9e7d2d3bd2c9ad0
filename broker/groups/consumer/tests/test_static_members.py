"""Rules of static members of consumer groups."""

from __future__ import annotations

import pytest

from ottla.broker.tests.consumer_group_fixture import (
    ConsumerGroupShard,
    ConsumerMemberClient,
    assignment_by_letter,
    reconcile_members,
)
from ottla.broker.tests.handler_fixture import topic_id_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import consumer_group_heartbeat

ROW = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions
T = topic_id_of("t")


@pytest.mark.behaviour("C-172", "C-178")
def test_static_member_rejoin_gets_previous_assignment() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0, instance_id="i")
    shard.heartbeat("b", 0)
    assert shard.heartbeat("x", 0, instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    shard.heartbeat("a", 2, instance_id="i")
    shard.heartbeat("a", 2, instance_id="i", topic_partitions=[ROW(T, [0, 1, 2])])
    epoch, written = shard.consumer.epoch, len(shard.log)
    answer = shard.heartbeat("a", -2, instance_id="i")
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    assert (shard.records(written), shard.consumer.epoch) == (["8a"], epoch)
    away = shard.consumer.members["a"]
    assert (away.epoch, dict(away.assigned)) == (-2, {T: {0: 0, 1: 0, 2: 0}})
    written = len(shard.log)
    back = shard.heartbeat("x", 0, instance_id="i")
    assert (back.error_code, back.member_epoch, assignment_by_letter(back.assignment)) == (0, epoch, {"t": [0, 1, 2]})
    assert shard.records(written) == ["-8a", "-7a", "-5a", "5x", "7x", "8x", "8x"]
    assert (shard.consumer.epoch, set(shard.consumer.members)) == (epoch, {"x", "b"})
    assert shard.heartbeat("a", epoch, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat("a", -1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat("a", -1, instance_id="other").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("x", -1, instance_id="i").error_code == 0


@pytest.mark.behaviour("C-178")
def test_static_member_that_stays_away_is_removed_at_session_timeout() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("a", 0, instance_id="i")
    shard.heartbeat("a", -2, instance_id="i")
    shard.wait(45_000)
    assert not shard.consumer.members


def test_static_member_rejoin_with_other_subscription_bumps_epoch() -> None:
    shard = ConsumerGroupShard({"t": 2, "u": 2})
    shard.heartbeat("a", 0, instance_id="i")
    shard.heartbeat("a", -2, instance_id="i")
    back = ConsumerMemberClient(shard, "x", instance_id="i", subscribed_topic_names=["u"])
    reconcile_members(back)
    assert (back.owned, shard.consumer.epoch) == ({"u": [0, 1]}, 3)
