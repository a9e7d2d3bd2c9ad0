"""Heartbeats that run in slices: the pending request is answered in each outcome of the slices."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde
from ottla.broker.groups import records
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.share.heartbeat import heartbeat as share_heartbeat
from ottla.broker.groups.state_machine import GroupStateMachine, ShareGroupCommand, StreamsGroupCommand
from ottla.broker.groups.streams.heartbeat import heartbeat as streams_heartbeat
from ottla.broker.tests import streams_group_fixture
from ottla.broker.tests.consumer_group_fixture import image_of
from ottla.broker.tests.coordinator_runtime_fixture import (
    E,
    RegisterRuntime,
    code_of,
    failing_replica,
    start_leading,
    with_runtime,
)
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, share_group_heartbeat, streams_group_heartbeat

TOPICS = {"t": 5 * RECORDS_PER_STEP} | {f"t{number}": 1 for number in range(RECORDS_PER_STEP + 1)}


def consumer(pending: Any) -> Any:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "a", 0, None, None, 30_000, [*TOPICS], None, None, []
    )
    return GroupRequest(pending, request, 1, "c", "h")


def share(pending: Any) -> Any:
    call = GroupRequest(
        None, share_group_heartbeat.ShareGroupHeartbeatRequest("g", "a", 0, None, [*TOPICS]), 1, "c", "h"
    )
    return ShareGroupCommand(pending, partial(share_heartbeat, call=call))


def streams(pending: Any) -> Any:
    joins: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": "p"}
    request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        "g", "a", 0, topology=streams_group_fixture.PLAIN, rebalance_timeout_ms=30_000, **joins
    )
    return StreamsGroupCommand(pending, partial(streams_heartbeat, call=GroupRequest(None, request, 0, "c", "h")))


def groups() -> RegisterRuntime:
    """Return a shard of groups, alone in its ISR."""
    fixture, settings = RegisterRuntime(followed=False), streams_group_fixture.StreamsGroupShard().settings
    fixture.runtime = CoordinatorRuntime(
        fixture.env,
        fixture.timers,
        fixture._failed,
        "state",
        lambda: fixture.fixture.hosted.image,
        1,
        lambda: GroupStateMachine(settings, image_of(TOPICS)),
        Serde(records.encode, records.decode, records.form),
        5000,
    )
    return start_leading(fixture)


@pytest.mark.parametrize("joins", [consumer, share, streams])
def test_heartbeat_in_slices_is_answered_after_last_slice(joins: Any) -> None:
    fixture = groups()

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        pending = fixture.runtime.submit_to_partition(0, joins)
        assert pending.answer is None, "it goes in slices"
        answer = await pending.wait()
        assert getattr(answer, "response", answer).member_id == "a"

    with_runtime(fixture, scenario)


@pytest.mark.parametrize("joins", [consumer, share, streams])
def test_heartbeat_in_slices_shard_unloaded_returns_not_coordinator(joins: Any) -> None:
    fixture = groups()

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        pending = fixture.runtime.submit_to_partition(0, joins)
        fixture.runtime.on_resignation(fixture.replica)
        assert code_of(pending) is E.NOT_COORDINATOR

    with_runtime(fixture, scenario)


@pytest.mark.parametrize("joins", [consumer, share, streams])
@pytest.mark.parametrize("after", [0, 1])
def test_heartbeat_in_slices_append_error_returns_coordinator_not_available(joins: Any, after: int) -> None:
    fixture = groups()

    async def scenario() -> None:
        await trio.testing.wait_all_tasks_blocked()
        fixture.shard.replica = failing_replica(fixture, ProtocolError(E.NOT_ENOUGH_REPLICAS), after)
        pending = fixture.runtime.submit_to_partition(0, joins)
        with trio.move_on_after(60):
            await pending.wait()
        assert code_of(pending) is E.COORDINATOR_NOT_AVAILABLE

    with_runtime(fixture, scenario)
