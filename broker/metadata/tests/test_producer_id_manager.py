"""Blocks of producer ids: prefetch of the next one, and errors without one (KIP-730)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.metadata.producer_id_manager import ProducerIdManager
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.wire.errors import ErrorCode, ProtocolError

BLOCK = 1000


class ProducerIdsFixture:
    """Node with a controller that assigns blocks of 1,000 or refuses."""

    def __init__(self) -> None:
        self.requested: list[tuple[int, int]] = []
        self.refuses: Exception | int | None = None
        self.takes_s = 0.0
        self.beside: list[Callable[[], Awaitable[None]]] = []
        self.ids = ProducerIdManager(self, 7, self.beside.append)  # type: ignore[arg-type]
        self.ids.set_broker_epoch(70)

    async def submit(self, request: Any) -> Any:
        self.requested.append((request.broker_id, request.broker_epoch))
        await trio.sleep(self.takes_s)
        if isinstance(self.refuses, Exception):
            raise self.refuses
        first = (len(self.requested) - 1) * BLOCK + 5000
        return SimpleNamespace(error_code=self.refuses or 0, producer_id_start=first, producer_id_len=BLOCK)

    async def do_beside(self) -> None:
        while self.beside:
            await self.beside.pop(0)()

    async def used(self, count: int) -> int:
        """Take a number of ids; return the last."""
        last = -1
        for _ in range(count):
            last = await self.ids.generate()
        return last


def test_next_block_is_requested_at_90_percent_and_used_afterwards() -> None:
    node = ProducerIdsFixture()

    async def scenario() -> None:
        assert await node.used(899) == 5898
        assert (node.requested, node.beside) == ([(7, 70)], [])
        assert await node.used(1) == 5899
        assert len(node.beside) == 1
        await node.used(10)
        assert len(node.beside) == 1, "once"
        node.ids.set_broker_epoch(71)
        await node.do_beside()
        assert node.requested == [(7, 70), (7, 71)]
        assert await node.used(90) == 5999
        assert node.beside == [], "it is there"
        assert await node.used(1) == 6000
        assert await node.used(898) == 6898
        assert node.beside == []
        await node.used(1)
        assert len(node.beside) == 1

    run_virtual(scenario)


def test_generate_waits_for_next_block_when_none_is_left() -> None:
    node = ProducerIdsFixture()
    node.takes_s = 3

    async def scenario() -> None:
        assert await node.used(1000) == 5999
        assert len(node.requested) == 1
        began = trio.current_time()
        assert await node.used(1) == 6000
        assert trio.current_time() - began == 3
        await node.do_beside()
        assert len(node.requested) == 2, "who was to ask ahead finds that it is there"

    run_virtual(scenario)


def test_concurrent_generate_calls_share_one_request() -> None:
    node = ProducerIdsFixture()
    node.takes_s = 1
    got: list[int] = []

    async def one() -> None:
        got.append(await node.ids.generate())

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        assert (sorted(got), len(node.requested)) == ([5000, 5001], 1)

    run_virtual(scenario)


def test_concurrent_generate_calls_fail_together() -> None:
    node = ProducerIdsFixture()
    node.takes_s = 30
    node.refuses = ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
    received: list[float] = []

    async def one(after_s: float) -> None:
        await trio.sleep(after_s)
        began = trio.current_time()
        with pytest.raises(ProtocolError):
            await node.ids.generate()
        received.append(trio.current_time() - began)

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(one, number)

    run_virtual(scenario)
    assert max(received) == 30, "not one after the other"
    assert len(node.requested) == 1


@pytest.mark.parametrize("refusal", [ProtocolError(ErrorCode.NOT_CONTROLLER), ErrorCode.STALE_BROKER_EPOCH.value])
def test_generate_without_block_raises_coordinator_load_in_progress(refusal: Exception | int) -> None:
    node = ProducerIdsFixture()
    node.refuses = refusal

    async def scenario() -> None:
        with pytest.raises(ProtocolError) as caught:
            await node.ids.generate()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(ProtocolError) as caught:
            node.ids.generate_nowait()
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await node.do_beside()
        assert node.ids.try_generate() is None, "it has asked again meanwhile"
        node.refuses = None
        await node.do_beside()
        assert node.ids.try_generate() == (len(node.requested) - 1) * BLOCK + 5000

    run_virtual(scenario)


def test_try_generate_without_block_requests_one() -> None:
    node = ProducerIdsFixture()

    async def scenario() -> None:
        assert [node.ids.try_generate() for _ in range(3)] == [None] * 3
        assert len(node.beside) == 1
        await node.do_beside()
        assert [node.ids.try_generate() for _ in range(2)] == [5000, 5001]

    run_virtual(scenario)
