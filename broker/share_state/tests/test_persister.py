"""Persister requests of one share partition: retried in their order, and dropped once superseded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC as TOPIC
from ottla.broker.share_state.persister import Persister
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import write_share_group_state

KEY, OTHER = SharePartitionKey("g", b"t" * 16, 0), SharePartitionKey("g", b"t" * 16, 1)


class FakeShareCoordinator:
    """Share coordinator with scripted results; it keeps the start offsets of accepted writes."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.answers: list[Callable[[], Awaitable[None]]] = []
        self.env, self.address, self.access = SimpleNamespace(sleep=trio.sleep), None, None
        self.persister = Persister(self, self)  # type: ignore[arg-type]
        self.failed: list[int] = []

    async def once(self, at: SharePartitionKey, event_of: Callable[[Any], Any], request: Any) -> bool:
        start = event_of(None).start_offset
        if self.answers:
            await self.answers.pop(0)()
        self.taken.append(start)
        return True

    async def write(self, start: int, at: SharePartitionKey = KEY) -> None:
        try:
            await self.persister.write(at, 0, 0, start, 0, (PersisterStateBatch(start, start, 1, 2),))
        except ProtocolError:
            self.failed.append(start)


async def is_on_its_way() -> None:
    raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


async def is_good() -> None:
    pass


def fake_coordinator(*answers: Callable[[], Awaitable[None]]) -> FakeShareCoordinator:
    made = FakeShareCoordinator()
    made.persister._call_once = made.once  # type: ignore[method-assign]
    made.answers = list(answers)
    return made


def test_write_retried_keeps_order_of_later_writes() -> None:
    coordinator = fake_coordinator(is_on_its_way, is_good)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.write, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(coordinator.write, 9, OTHER)
            for start in (2, 3, 4):
                nursery.start_soon(coordinator.write, start)
                await trio.testing.wait_all_tasks_blocked()

    run_virtual(main)
    assert coordinator.taken == [9, 1, 2, 3, 4]
    assert coordinator.failed == []
    assert not coordinator.persister._calls


def test_writes_keep_the_order_of_their_calls() -> None:
    coordinator = fake_coordinator()

    async def run(call: Awaitable[None]) -> None:
        await call

    async def main() -> None:
        calls = [coordinator.persister.write(KEY, 0, 0, n, 0, (PersisterStateBatch(n, n, 1, 2),)) for n in (1, 2, 3)]
        async with trio.open_nursery() as nursery:
            for call in reversed(calls):
                nursery.start_soon(run, call)
                await trio.testing.wait_all_tasks_blocked()

    run_virtual(main)
    assert coordinator.taken == [1, 2, 3]
    assert not coordinator.persister._calls


def test_superseded_write_is_not_retried() -> None:
    go = trio.Event()

    async def is_lost() -> None:
        await go.wait()
        raise ProtocolError(ErrorCode.NOT_COORDINATOR)

    coordinator = fake_coordinator(is_lost, is_good)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.write, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(coordinator.write, 2)
            await trio.testing.wait_all_tasks_blocked()
            go.set()

    run_virtual(main)
    assert coordinator.taken == [2]
    assert coordinator.failed == [1]


@pytest.mark.behaviour("C-236")
def test_writes_queued_behind_failing_writes_share_their_backoff() -> None:
    coordinator, took_s = fake_coordinator(*[is_on_its_way] * 1_000), list[float]()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for start in range(1, 31):
                nursery.start_soon(coordinator.write, start)
                await trio.testing.wait_all_tasks_blocked()
        took_s.append(trio.current_time())
        coordinator.answers = [*[is_on_its_way] * 4, is_good, *[is_on_its_way] * 4, is_good]
        async with trio.open_nursery() as nursery:
            for start in (31, 32):  # the first succeeds at last: the other has all its attempts
                nursery.start_soon(coordinator.write, start)
                await trio.testing.wait_all_tasks_blocked()

    run_virtual(main)
    assert coordinator.failed == list(range(1, 31))
    assert coordinator.taken == [31, 32]
    assert took_s[0] < 60


class RemoteShareCoordinatorNode:
    """Node with its share coordinator at broker 2, which returns these responses in order."""

    node_id = 1

    def __init__(self, *answers: Any) -> None:
        self.env, self.address, self.access = SimpleNamespace(sleep=trio.sleep), None, None
        topic = SimpleNamespace(partitions={0: SimpleNamespace(leader=2)})
        self._image = SimpleNamespace(topics={TOPIC: topic})
        self.persister = Persister(self, SimpleNamespace(partition_for=lambda at: 0))  # type: ignore[arg-type]
        self.persister._connections = SimpleNamespace(call=self.call)  # type: ignore[assignment]
        self.answers = list(answers)

    def image(self) -> Any:
        return self._image

    async def call(self, broker_id: int, request: Any) -> Any:
        return self.answers.pop(0)

    def write(self) -> ErrorCode:
        """Return the result of a write."""

        async def scenario() -> ErrorCode:
            try:
                await self.persister.write(KEY, 0, 0, 1, 0, ())
            except ProtocolError as error:
                return error.code
            return ErrorCode.NONE

        return run_virtual(scenario)


def write_response(*codes: int) -> write_share_group_state.WriteShareGroupStateResponse:
    rows = [write_share_group_state.PartitionResult(0, code) for code in codes]
    return write_share_group_state.WriteShareGroupStateResponse(
        [write_share_group_state.WriteStateResult(KEY.topic_id, rows)]
    )


def test_write_unknown_error_code_returns_unknown_server_error() -> None:
    assert RemoteShareCoordinatorNode(write_response(30_000)).write() is ErrorCode.UNKNOWN_SERVER_ERROR


def test_write_empty_response_is_retried() -> None:
    other = RemoteShareCoordinatorNode(
        write_share_group_state.WriteShareGroupStateResponse([]), write_response(), write_response(0)
    )
    assert other.write() is ErrorCode.NONE
    assert not other.answers
