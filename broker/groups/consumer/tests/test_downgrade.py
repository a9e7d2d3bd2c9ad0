"""Conversion of consumer groups to the classic protocol when the last member of the consumer protocol leaves."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.consumer.tests.test_migration import ClassicMemberClient, mixed
from ottla.broker.tests.consumer_group_fixture import (
    ConsumerGroupShard,
    decode_partitions,
)


@pytest.mark.behaviour("C-193")
def test_leave_of_last_consumer_member_downgrades_group() -> None:
    shard, _, a = mixed()
    epoch, written = shard.consumer.epoch, len(shard.log)
    assert shard.heartbeat("new", -1).error_code == 0
    assert shard.machine.find_consumer_group("g") is None
    records = shard.records(written)
    assert records[-3:] == ["-4", "-3", "GroupMetadataKey"]
    group = shard.machine.classic_groups.groups["g"]
    assert (group.generation, list(group.members), group.protocol_type) == (epoch, [a.name], "consumer")
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    stored = shard.machine.classic_groups.persisted_groups["g"]
    stored_header = (stored.protocol, stored.leader, stored.current_state_timestamp)
    assert stored_header == ("cooperative-sticky", a.name, shard.now)
    assert decode_partitions(stored.members[0].assignment)[0].partitions == [3, 4, 5]
    answer = a.join()
    assert answer is not None
    assert (answer.error_code, answer.leader, answer.generation_id) == (0, a.name, epoch + 1)
    assert shard.restart().machine.classic_groups.groups["g"].state is ClassicGroupState.STABLE


@pytest.mark.behaviour("C-193")
def test_session_timeout_of_last_consumer_member_downgrades_group() -> None:
    shard, _, a = mixed()
    for _ in range(9):
        assert a.beat() == 0
        shard.wait(5_000)
    assert shard.machine.find_consumer_group("g") is None
    assert list(shard.machine.classic_groups.groups["g"].members) == [a.name]


@pytest.mark.behaviour("C-193")
@pytest.mark.parametrize("settings", [{"allows_downgrade": False}, {}])
def test_downgrade_disabled_or_over_max_size_keeps_consumer_group(settings: dict[str, Any]) -> None:
    shard, _, a = mixed()
    if settings:
        shard.machine.consumer_groups.settings = shard.machine.consumer_groups.settings._replace(**settings)
    else:
        shard.machine.classic_groups.settings = shard.machine.classic_groups.settings._replace(max_size=0)
    shard.heartbeat("new", -1)
    assert set(shard.consumer.members) == {a.name}


@pytest.mark.behaviour("C-193")
def test_static_member_replaced_by_classic_member_downgrades_group() -> None:
    shard = ConsumerGroupShard()
    shard.heartbeat("new", 0, instance_id="i")
    a = ClassicMemberClient(shard, "i")
    epoch = shard.consumer.epoch
    answer = a.join()
    assert answer is not None
    assert (answer.error_code, answer.generation_id) == (0, epoch)
    group = shard.machine.classic_groups.groups["g"]
    assert (group.state, list(group.members), group.generation) == (ClassicGroupState.STABLE, [a.name], epoch)
    assert a.sync().error_code == 0
    assert a.owned == [0, 1, 2, 3, 4, 5], "it was known to be there: nobody is asked to come together"
    assert a.beat() == 0
