"""Fetch session of a follower: it visits only changed partitions, without a difference in responses or ISR."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel

from ottla.broker.fetch_sessions.follower_session import FULL_SCAN_INTERVAL
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import rows_of
from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, resolve, run_virtual, topic_id_of
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

ISR = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 3, 0)
SIZE = len(make_batch(0))
BATCH_RECORDS = 3


class FollowerSessionNode(HandlerFixture):
    """Topic with followers 2 and 3 in sync; broker 2 has a session."""

    def __init__(self, partitions: int = 3) -> None:
        super().__init__()
        self.hosted.host("t", partitions=partitions, isr=ISR.isr, replicas=ISR.replicas)
        for replica in self.hosted.replicas.values():
            replica._isr = IsrDependencies(30_000, lambda broker, epoch: True, lambda requested: None)
        self.session = self.epoch = 0
        self.looked: list[int] = []

    def replica(self, number: int = 0) -> HostedPartition:
        return self.hosted.replicas["t", number]

    def leading(self, number: int = 0) -> LeaderState:
        state = self.replica(number).state
        assert isinstance(state, LeaderState)
        return state

    def append(self, number: int = 0) -> None:
        self.replica(number).append(make_batch(0), NOW_MS)

    def other(self, number: int, offset: int) -> None:
        """Fetch as broker 3."""
        log = self.replica(number).log
        self.replica(number).update_follower_fetch_state(3, -1, offset, 0, log.log_end_offset, self.env.now_ms())

    async def fetch(
        self, offsets: dict[int, int], forgotten: tuple[int, ...] = (), wait: int = 0, epoch: int = 3, broker: int = 2
    ) -> FetchResponse:
        """Fetch as broker 2, another broker, or a consumer (-1), with these changed offsets."""
        parts = [FetchPartition(n, epoch, offset, -1, 0, 1 << 20) for n, offset in offsets.items()]
        request = FetchRequest(
            replica_state=ReplicaState(broker, -1),
            max_wait_ms=wait,
            min_bytes=1,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[FetchTopic("", topic_id_of("t"), parts)],
            forgotten_topics_data=[ForgottenTopic("", topic_id_of("t"), list(forgotten))] if forgotten else [],
        )
        self.looked.clear()
        answer: Any = await resolve(fetch.handle(self.context(ApiKey.FETCH, 17), request))
        self.session, self.epoch = answer.session_id, self.epoch + 1
        return answer

    async def fetch_until_unchanged(self) -> None:
        """Fetch until the session has no changed partition."""
        count = len(self.hosted.replicas)
        await self.fetch(dict.fromkeys(range(count), 0))
        await self.fetch({})


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> FollowerSessionNode:
    out, read = FollowerSessionNode(), fetch._read_partition

    def counted(context: Any, want: Any, *args: Any, **more: Any) -> Any:
        out.looked.append(want.partition)
        return read(context, want, *args, **more)

    monkeypatch.setattr(fetch, "_read_partition", counted)
    return out


def test_follower_session_visits_and_returns_only_changed_partitions(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        assert node.looked == []
        node.append(1)
        answer = await node.fetch({})
        assert (node.looked, [len(row.records) for row in rows_of(answer)]) == ([1], [SIZE])
        assert rows_of(await node.fetch({1: 3}))[0:] == []
        node.other(1, 3)
        answer = await node.fetch({})
        assert [(row.partition_index, row.high_watermark) for row in rows_of(answer)] == [(1, 3)]
        await node.fetch({})
        assert node.looked == []

    run_virtual(scenario)


@pytest.mark.parametrize("meanwhile", ["quiet", "the high watermark moved"])
def test_delayed_follower_fetch_completes_when_records_are_appended(node: FollowerSessionNode, meanwhile: str) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        if meanwhile != "quiet":
            node.append(2)
            await node.fetch({})
            await node.fetch({2: 3})
            await node.fetch({})
            await node.fetch({})
            assert node.looked == []
        began = trio.current_time()

        async def change() -> None:
            await trio.sleep(0.1)
            if meanwhile != "quiet":
                node.other(2, 3)  # a committed record is sent with the next response, and wakes no delayed fetch
                await trio.sleep(0.1)
            node.append(2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            answer = await node.fetch({}, wait=500)
        assert trio.current_time() - began == pytest.approx(0.1 if meanwhile == "quiet" else 0.2)
        assert [len(row.records) for row in rows_of(answer)] == [SIZE]

    run_virtual(scenario)


def test_late_request_of_old_session_does_not_affect_new_one(
    node: FollowerSessionNode,
) -> None:
    """A follower cancels a request to start a new session; its leader may answer the old one nonetheless."""

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(node.fetch, dict.fromkeys(range(3), 0), wait=500))
            await trio.sleep(0.1)
            node.session = node.epoch = 0
            await node.fetch_until_unchanged()
            session, epoch = node.session, node.epoch
            nursery.start_soon(trio.sleep, 0.1)
        node.session, node.epoch = session, epoch
        node.append(1)
        answer = await node.fetch({})
        assert [len(row.records) for row in rows_of(answer)] == [SIZE]

    run_virtual(scenario)


def test_regular_incremental_fetches_keep_follower_caught_up(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        for _ in range(80):
            await trio.sleep(0.5)
            await node.fetch({})
        node.other(0, 0)
        node.append(0)
        await trio.sleep(29)
        node.replica().maybe_shrink_isr(node.env.now_ms())
        assert set(node.leading().isr.maximal_isr) == {1, 2, 3}
        assert node.leading().followers[2].caught_up_ms == NOW_MS + 40_000
        node.other(0, 3)
        await trio.sleep(1.5)
        node.replica().maybe_shrink_isr(node.env.now_ms())
        assert getattr(node.leading().isr, "out_of_sync_replica_ids", None) == {2}

    run_virtual(scenario)


def test_forgotten_partition_is_not_caught_up_any_more(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        await trio.sleep(1)
        await node.fetch({})
        await trio.sleep(1)
        await node.fetch({}, forgotten=(1,))
        await trio.sleep(4)
        await node.fetch({})
        for number in (0, 1):
            node.append(number)
        assert [node.leading(n).followers[2].caught_up_ms - NOW_MS for n in (0, 1)] == [6000, 1000]

    run_virtual(scenario)


def test_partition_forgotten_after_a_change_of_its_high_watermark_is_not_caught_up(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        node.append(1)
        await node.fetch({})
        await node.fetch({1: BATCH_RECORDS})
        caught_up_ms = node.leading(1).followers[2].caught_up_ms
        node.other(1, BATCH_RECORDS)
        assert node.replica(1).log.high_watermark == BATCH_RECORDS
        await node.fetch({}, forgotten=(1,))
        await trio.sleep(4)
        await node.fetch({})
        node.append(1)
        assert node.leading(1).followers[2].caught_up_ms == caught_up_ms

    run_virtual(scenario)


def test_full_scan_finds_changes_without_notification(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        node.append(1)
        node.other(1, 3)
        await node.fetch(dict.fromkeys(range(3), 0))
        await node.fetch({1: 3})
        await node.fetch({})
        assert node.replica(1).log.maybe_increment_log_start_offset(3), "by retention"
        starts = [[r.log_start_offset for r in rows_of(await node.fetch({}))] for _ in range(FULL_SCAN_INTERVAL)]
        assert [x for x in starts if x] == [[3]]
        assert len(node.looked) == 0
        await trio.sleep(1)
        await node.fetch({})
        node.append(1)
        assert node.leading(1).followers[2].caught_up_ms == NOW_MS + 1000

    run_virtual(scenario)


def test_new_leader_epoch_and_lost_leadership_return_error(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        node.replica(0).apply_partition_state(1, PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 4, 1), NOW_MS)
        node.replica(1).apply_partition_state(1, PartitionRegistration((1, 2, 3), (1, 2, 3), 2, 4, 1), NOW_MS)
        gone = node.hosted.replicas.pop(("t", 2))
        gone.resign()
        gone.notify_waiters()
        answer = await node.fetch({})
        assert {row.partition_index: row.error_code for row in rows_of(answer)} == {
            0: ErrorCode.FENCED_LEADER_EPOCH,
            1: ErrorCode.FENCED_LEADER_EPOCH,
            2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    run_virtual(scenario)


def test_replica_outside_isr_is_always_visited_so_that_it_may_join(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        node.replica(0).apply_partition_state(1, PartitionRegistration((1, 2, 3), (1, 3), 1, 3, 1), NOW_MS)
        requested: list[Any] = []
        eligible = [False]
        node.replica(0)._isr = IsrDependencies(30_000, lambda broker, epoch: eligible[0], requested.append)
        await node.fetch_until_unchanged()
        await node.fetch({})
        assert (node.looked, requested) == ([0], [])
        eligible[0] = True
        await node.fetch({})
        assert len(requested) == 1

    run_virtual(scenario)


@pytest.mark.parametrize("seed", range(15))
def test_follower_session_returns_same_responses_as_full_scan(seed: int) -> None:
    pair = FollowerSessionNode(), FollowerSessionNode()
    always, rng = pair[1], random.Random(seed)
    ends, wanted = dict.fromkeys(range(3), 0), set(range(3))

    async def same_answer(moved: dict[int, int], away: tuple[int, ...]) -> None:
        session: Any = always.services.fetch_sessions.get(always.session)
        if session is not None:
            session._dirty = dict(session.partitions)
        rows = [
            sorted(
                (r.partition_index, r.error_code, r.high_watermark, r.log_start_offset, len(r.records))
                for r in rows_of(await node.fetch(moved, away))
            )
            for node in pair
        ]
        assert rows[0] == rows[1]
        for number in range(3):
            one, two = (node.leading(number).followers[2].end_offset for node in pair)
            assert one == two

    async def scenario() -> None:
        await same_answer(dict(ends), ())
        for _ in range(150):
            number, low = rng.randrange(3), 3 * rng.randrange(2)
            match rng.randrange(5):
                case 0:
                    ends[number] += 3
                    for node in pair:
                        node.append(number)
                case 1:
                    for node in pair:
                        node.other(number, max(ends[number] - low, 0))
                case 2 if len(wanted) > 1 and number in wanted:
                    wanted.remove(number)
                    await same_answer({}, (number,))
                case 3:
                    wanted.add(number)
                    await same_answer({number: ends[number]}, ())
                case _:
                    await same_answer({n: ends[n] for n in wanted if rng.random() < 0.5}, ())

    run_virtual(scenario)


def test_consumer_in_the_session_of_a_follower_reads_as_a_consumer(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        await trio.sleep(1)
        node.append(0)
        row = rows_of(await node.fetch({1: 0}, broker=-1))
        assert sorted(node.looked) == [0, 1, 2], "also what the follower was told all of"
        assert row == [], "the record is not committed"
        assert node.leading(0).followers[2].caught_up_ms == NOW_MS, "the follower has not asked"
        assert [r.partition_index for r in rows_of(await node.fetch({})) if len(r.records)] == [0]
        assert sorted(node.looked) == [0, 1], "the follower hears of what has changed"

    run_virtual(scenario)


def test_other_follower_in_the_session_of_a_follower_counts_as_itself(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch_until_unchanged()
        node.append(0)
        assert [len(r.records) for r in rows_of(await node.fetch({0: 0}, broker=3))] == [SIZE]
        await node.fetch({0: 3}, broker=3)
        assert [node.leading(0).followers[n].end_offset for n in (2, 3)] == [0, 3]
        assert sorted(node.looked) == [0, 1, 2]

    run_virtual(scenario)


def test_follower_in_the_session_of_a_consumer_reads_as_a_follower(node: FollowerSessionNode) -> None:
    async def scenario() -> None:
        await node.fetch({0: 0}, broker=-1)
        node.append(0)
        assert rows_of(await node.fetch({}, broker=-1)) == []
        assert [len(r.records) for r in rows_of(await node.fetch({}))] == [SIZE]
        await node.fetch({0: 3})
        assert node.leading(0).followers[2].end_offset == 3

    run_virtual(scenario)
