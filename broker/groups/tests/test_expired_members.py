"""Members that expire while the log refuses writes: they are removed once it accepts writes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.share.heartbeat import heartbeat as share_heartbeat
from ottla.broker.groups.state_machine import ShareGroupCommand
from ottla.broker.groups.tests.test_heartbeat_slices import groups, streams
from ottla.broker.tests.coordinator_runtime_fixture import E, failing_replica, with_runtime
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, share_group_heartbeat

LONGEST_SESSION_S = 50


def consumer(pending: Any, epoch: int = 0) -> Any:
    names = ["t"] if epoch == 0 else None
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", epoch, None, None, 30_000, names, None, None, []
    )
    return GroupRequest(pending, request, 1, "c", "h")


def share(pending: Any) -> Any:
    call = GroupRequest(None, share_group_heartbeat.ShareGroupHeartbeatRequest("g", "a", 0, None, ["t"]), 1, "c", "h")
    return ShareGroupCommand(pending, partial(share_heartbeat, call=call))


@pytest.mark.parametrize("joins", [consumer, share, streams])
def test_member_expired_while_log_refuses_writes_is_removed_afterwards(joins: Any) -> None:
    fixture = groups()

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        await fixture.runtime.submit_to_partition(0, joins).wait()
        shard, replica = fixture.shard, fixture.shard.replica
        machine: Any = shard.machine
        (group,) = (*machine.list_consumer_groups(), *machine.list_share_groups(), *machine.list_streams_groups())
        shard.replica = failing_replica(fixture, ProtocolError(E.NOT_ENOUGH_REPLICAS))
        await trio.sleep(LONGEST_SESSION_S)
        assert list(group.members) == ["a"]
        shard.replica = replica
        await trio.sleep(1)
        assert list(group.members) == []

    with_runtime(fixture, scenario)


def test_member_with_heartbeat_while_log_refuses_writes_is_kept() -> None:
    fixture = groups()

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        joined = await fixture.runtime.submit_to_partition(0, consumer).wait()
        shard, replica = fixture.shard, fixture.shard.replica
        machine: Any = shard.machine
        shard.replica = failing_replica(fixture, ProtocolError(E.NOT_ENOUGH_REPLICAS))
        await trio.sleep(LONGEST_SESSION_S)
        shard.replica = replica
        await fixture.runtime.submit_to_partition(0, lambda pending: consumer(pending, joined.member_epoch)).wait()
        await trio.sleep(LONGEST_SESSION_S - 20)
        assert list(machine.find_consumer_group("g").members) == ["a"]
        await trio.sleep(20)
        assert list(machine.find_consumer_group("g").members) == []

    with_runtime(fixture, scenario)
