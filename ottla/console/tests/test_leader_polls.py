"""Long polls of an open tail at the leaders of its partitions on other brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.tests.connection_fixture import in_virtual_time
from ottla.broker.tests.handler_fixture import VirtualEnv
from ottla.console.leader_polls import LeaderPolls
from ottla.console.page import PageRequest
from ottla.console.pages import record_tail
from ottla.console.record_scan import ScanRange
from ottla.console.record_tail import RecordTail
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch

ROUND_TRIP_S = 0.01
UPDATE_S = 0.1
"""Time from the end of a wait to the next one."""


class PollRequest(NamedTuple):
    """Fetch request of a poll: time, broker, and offset by partition."""

    at_s: float
    node_id: int
    offsets: dict[int, int]


class OtherBrokers:
    """Client of brokers 2 and 3, which lead the partitions 2 and 3 of a topic."""

    def __init__(self) -> None:
        self.requests: list[PollRequest] = []
        self.cancelled = self.in_flight = 0
        self.is_closed = False
        self.ends = {2: 10, 3: 10}
        self.error = ErrorCode.NONE
        self.is_unreachable = self.has_low_watermark = False
        self._appended = trio.Event()

    def append(self, partition: int) -> None:
        self.ends[partition] += 1
        self._appended.set()
        self._appended = trio.Event()

    def create_connections(self) -> Any:
        return self

    def close(self) -> None:
        self.is_closed = True

    async def fetch_over(self, connections: Any, node_id: int, request: fetch.FetchRequest, version: int) -> Any:
        assert connections is self
        assert version == 10, "a follower on this node would answer a later version"
        offsets = {row.partition: row.fetch_offset for row in request.topics[0].partitions}
        self.requests.append(PollRequest(trio.current_time(), node_id, offsets))
        if self.is_unreachable:
            raise OSError("refused")
        self.in_flight += 1
        try:
            with trio.move_on_after(0 if self.has_low_watermark else request.max_wait_ms / 1000):
                while not self.error and all(self.ends[number] <= at for number, at in offsets.items()):
                    await self._appended.wait()
            await trio.sleep(ROUND_TRIP_S)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1
        rows = [
            fetch.PartitionData(number, self.error, 10, records=b"batch" if self.ends[number] > at else b"")
            for number, at in offsets.items()
        ]
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=rows)])


class RemoteTailFixture:
    """Page with a tail of the partitions 2 and 3, which brokers of the same number lead, up to offset 10."""

    def __init__(self) -> None:
        env: Any = VirtualEnv()
        self.brokers = OtherBrokers()
        self.purgatory = Purgatory(env)
        self.partitions = {number: SimpleNamespace(leader=number) for number in (2, 3)}
        image = SimpleNamespace(topics={"t": SimpleNamespace(partitions=self.partitions)})
        components = SimpleNamespace(
            replica_manager=SimpleNamespace(get=lambda topic, number: None, image=image),
            services=SimpleNamespace(purgatory=self.purgatory),
        )
        self.polls = LeaderPolls(env, self.purgatory)
        node: Any = SimpleNamespace(components=components, local=SimpleNamespace(node_id=1), leader_polls=self.polls)
        self.tail = RecordTail(50, [ScanRange(number, 10, 10) for number in (2, 3)])
        client: Any = self.brokers
        unused: Any = None
        self.page = PageRequest(node, unused, unused, client, {"name": "t"}, {"tail": self.tail})
        self.updates_s: list[float] = []

    async def follow(self) -> None:
        """Wait for records and read them, until cancelled."""
        while True:
            await record_tail.wait_for_records(self.page)
            self.updates_s.append(trio.current_time())
            ranges = self.tail.next_ranges(self.brokers.ends)
            self.tail.advance(ranges, [], 0)
            await trio.sleep(UPDATE_S)

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        """Run a test while the page is open; then close the page, after which no broker is polled."""

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.polls.run)
                await trio.testing.wait_all_tasks_blocked()
                async with trio.open_nursery() as page:
                    page.start_soon(self.follow)
                    await test()
                    page.cancel_scope.cancel()
                self.page.memory["close"]()
                await trio.testing.wait_all_tasks_blocked()
                assert self.brokers.in_flight == 0
                count = len(self.brokers.requests)
                await trio.sleep(10)
                assert len(self.brokers.requests) == count
                nursery.cancel_scope.cancel()

        in_virtual_time(run)
        assert self.brokers.is_closed
        assert len(self.purgatory) == 0


@pytest.fixture
def fixture() -> RemoteTailFixture:
    return RemoteTailFixture()


def test_idle_tail_sends_a_request_to_each_broker_in_two_seconds(fixture: RemoteTailFixture) -> None:
    async def idle() -> None:
        await trio.sleep(60)

    fixture.run(idle)
    for node_id in (2, 3):
        sent = [each for each in fixture.brokers.requests if each.node_id == node_id]
        assert 29 <= len(sent) <= 31
        assert {tuple(each.offsets.items()) for each in sent} == {((node_id, 10),)}
    assert len(fixture.updates_s) <= 31, "each update requests the end offsets"


def test_record_at_any_time_of_a_poll_ends_the_wait_at_once(fixture: RemoteTailFixture) -> None:
    async def append() -> None:
        for number in range(40):
            await trio.sleep(0.77)
            appended_s = trio.current_time()
            fixture.brokers.append(2 + number % 2)
            await trio.sleep(0.2)
            assert any(appended_s < at_s <= appended_s + 0.15 for at_s in fixture.updates_s)

    fixture.run(append)


def test_poll_of_another_broker_goes_on_during_an_update(fixture: RemoteTailFixture) -> None:
    async def append() -> None:
        for _ in range(20):
            await trio.sleep(0.3)
            fixture.brokers.append(2)
        assert fixture.brokers.cancelled == 0

    fixture.run(append)
    sent = [each.offsets for each in fixture.brokers.requests if each.node_id == 2]
    assert sent == [{2: 10 + number} for number in range(20)]
    assert len([each for each in fixture.brokers.requests if each.node_id == 3]) <= 4


@pytest.mark.parametrize("fault", ["error code", "unreachable"])
def test_failed_poll_is_repeated_after_a_pause(fixture: RemoteTailFixture, fault: str) -> None:
    async def fail() -> None:
        if fault == "unreachable":
            fixture.brokers.is_unreachable = True
        else:
            fixture.brokers.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await trio.sleep(10)

    fixture.run(fail)
    for node_id in (2, 3):
        assert 15 <= len([each for each in fixture.brokers.requests if each.node_id == node_id]) <= 20
    assert len(fixture.updates_s) >= 15, "an update finds the new leader"


def test_poll_below_which_the_high_watermark_lies_is_repeated_after_a_pause(fixture: RemoteTailFixture) -> None:
    async def follow() -> None:
        fixture.brokers.has_low_watermark = True
        await trio.sleep(10)
        fixture.brokers.has_low_watermark = False

    fixture.run(follow)
    for node_id in (2, 3):
        assert 15 <= len([each for each in fixture.brokers.requests if each.node_id == node_id]) <= 20


def test_broker_that_leads_no_partition_any_more_is_polled_no_more(fixture: RemoteTailFixture) -> None:
    async def move() -> None:
        await trio.sleep(3)
        fixture.partitions[2].leader = 3
        await trio.sleep(10)

    fixture.run(move)
    last_s = {each.node_id: each.at_s for each in fixture.brokers.requests}
    assert last_s[2] < 5
    assert fixture.brokers.requests[-1].offsets == {2: 10, 3: 10}
