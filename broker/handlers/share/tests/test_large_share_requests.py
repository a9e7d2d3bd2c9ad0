"""Share group requests for very many partitions: processed in steps, with changes between steps observed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.groups.share.offset_changes import ShareOffsetsToAlter
from ottla.broker.handlers.share.share_fetch import _ShareFetch
from ottla.broker.requests.peer import Peer
from ottla.broker.share_partitions.share_partition_leader import SharePartitionLeader
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.tests.handler_fixture import AdvancingClock
from ottla.broker.tests.share_group_fixture import ShareGroupNode, T
from ottla.jobs.bounded_concurrency import MAX_CONCURRENT
from ottla.jobs.time_slice import SLICE_MS
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)

MANY = 200


class SlowShareNode(ShareGroupNode):
    """Node with steps that each take a whole time slice."""

    step_ms = SLICE_MS


def test_share_fetch_of_many_partitions_runs_in_steps() -> None:
    node = SlowShareNode(MANY)

    async def scenario() -> None:
        fetch = partial(node.fetch, 0, *range(MANY))
        assert await node.rounds_in(fetch) > 5 * MANY, "named, had at hand, looked at, read, told of, answered"

    node.run(scenario)


def test_records_appended_during_share_fetch_are_found() -> None:
    node = SlowShareNode(MANY)

    async def scenario() -> None:
        await node.fetch(0, *range(MANY))
        began, looked = trio.current_time(), _ShareFetch._update_acquirable

        def once(fetch: Any, place: Any) -> bool:
            if place.partition == MANY - 1 and _ShareFetch._update_acquirable is once:
                _ShareFetch._update_acquirable = looked  # type: ignore[method-assign]
                node.produce(1)  # a partition that was examined already
            return looked(fetch, place)

        _ShareFetch._update_acquirable = once  # type: ignore[method-assign]
        try:
            (topic,) = (await node.fetch(1, max_wait_ms=60_000)).responses
        finally:
            _ShareFetch._update_acquirable = looked  # type: ignore[method-assign]
        assert [len(row.acquired_records) for row in topic.partitions] == [1]
        assert trio.current_time() == began
        assert len(node.fixture.services.purgatory) == 0

    node.run(scenario)


async def with_a_long_session(node: ShareGroupNode) -> Any:
    """Return a member with one partition more than are released at once; each step takes a whole time slice."""
    shares = node.fixture.services.share_partition_manager
    shares._env = AdvancingClock()
    await node.fetch(0, *range(MAX_CONCURRENT + 1))
    await trio.testing.wait_all_tasks_blocked()
    return shares


def test_session_release_of_many_partitions_runs_in_steps_and_persists_records() -> None:
    node = ShareGroupNode(MAX_CONCURRENT + 1)

    async def scenario() -> None:
        shares = await with_a_long_session(node)
        node.produce(MAX_CONCURRENT)
        await node.fetch(1)

        async def left() -> None:
            node.peer.mark_disconnected()
            while shares._removals:
                await trio.lowlevel.checkpoint()

        assert await node.rounds_in(left) > MAX_CONCURRENT
        await trio.testing.wait_all_tasks_blocked()
        assert ("write", SharePartitionKey("g", T, MAX_CONCURRENT)) in node.persister.calls
        assert list(shares._by_key) == []

    node.run(scenario)


def test_share_session_removal_failure_does_not_stop_later_removals(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = ShareGroupNode(2)

    def fail(shared: SharePartitionLeader, member_id: str) -> None:
        raise KeyError(member_id)

    async def scenario() -> None:
        shares = node.fixture.services.share_partition_manager
        node.produce(1)
        await node.fetch(0, 0, 1)
        with monkeypatch.context() as patch:
            patch.setattr(SharePartitionLeader, "release", fail)
            node.peer.mark_disconnected()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        node.peer = Peer("h", ("here", 9092))
        node.produce(0)
        await node.fetch(0, 0, 1)
        shares.sessions.close("g", "m")
        assert not shares._removals
        await trio.testing.wait_all_tasks_blocked()
        assert list(shares._by_key) == []

    node.run(scenario)


def test_session_reopened_during_release_keeps_new_records() -> None:
    node = ShareGroupNode(MAX_CONCURRENT + 1)

    async def scenario() -> None:
        shares = await with_a_long_session(node)
        shares.sessions.close("g", "m")
        for number in range(3):
            assert shares._removals, f"still at it after {number} rounds"
            await trio.lowlevel.checkpoint()
        node.produce(MAX_CONCURRENT)
        (topic,) = (await node.fetch(0, MAX_CONCURRENT)).responses
        assert [len(row.acquired_records) for row in topic.partitions] == [1]
        while shares._removals:
            await trio.lowlevel.checkpoint()
        shared = shares._by_key["g", T, MAX_CONCURRENT]
        assert shared.share_partition.in_flight_count == 5
        assert not [call for call in node.persister.calls if call[0] == "write"]

    node.run(scenario)


def test_alter_share_group_offsets_of_many_partitions_runs_in_steps() -> None:
    node = SlowShareNode(MANY)

    async def scenario() -> None:
        begun: list[tuple[int, int]] = []

        async def initialize(key: SharePartitionKey, epoch: int, start_offset: int) -> None:
            begun.append((key.partition, start_offset))
            if key.partition == 0:
                raise ProtocolError(ErrorCode.FENCED_STATE_EPOCH, "too old")

        class Groups:
            def submit(self, *_: object) -> PendingBrokerRequest:
                pending = PendingBrokerRequest()
                pending.deliver(ShareOffsetsToAlter(1, {}))
                return pending

        node.persister.initialize = initialize
        node.fixture.services.groups = Groups()
        parts = [AlterShareGroupOffsetsRequestPartition(number, 7) for number in (*range(MANY), 0)]
        parts[-1].start_offset = 8
        request = AlterShareGroupOffsetsRequest("g", [AlterShareGroupOffsetsRequestTopic("t", parts)])
        answers: list[Any] = []

        async def alter() -> None:
            answers.append(await node.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request))

        assert await node.rounds_in(alter) > 3 * MANY - 5, "looked at, sorted, begun"
        assert sorted(set(begun)) == [(0, 8), *((number, 7) for number in range(1, MANY))]
        assert len(begun) == MANY, "each is begun once"
        rows = answers[0].responses[0].partitions
        reported = [(row.partition_index, row.error_code, row.error_message) for row in rows if row.error_code]
        assert reported == [(0, ErrorCode.FENCED_STATE_EPOCH, "too old")] * 2, "and both of its rows hear of it"

    node.run(scenario)
