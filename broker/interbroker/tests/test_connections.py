"""Connections of share groups to other brokers: an isolated broker neither answers nor refuses, and its calls end."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.interbroker.connections import TIMEOUT_S, BrokerConnections
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.broker.tests.memory_net import MemoryNet
from ottla.client.channel import Disconnected
from ottla.wire.messages.api_versions import ApiVersionsRequest

AT = ("far", 9)


class BrokerAddress:
    """Address of broker 2, which is in the cluster for a given time."""

    def __init__(self, until_ms: float) -> None:
        self.env: Any = VirtualEnv()
        self.env.net = MemoryNet()
        self.until_ms = until_ms

    def address(self, broker_id: int) -> tuple[str, int] | None:
        return AT if broker_id == 2 and self.env.monotonic_ms() < self.until_ms else None


def took_s(until_ms: float) -> float:
    """Return the seconds that a call takes when the broker is registered for a time and does not answer."""
    dependencies = BrokerAddress(until_ms)

    async def scenario() -> float:
        await dependencies.env.net.listen(*AT)
        lines, began = (
            BrokerConnections(dependencies.env, "test", dependencies.address, lambda: None),
            trio.current_time(),
        )
        with pytest.raises(Disconnected):
            await lines.call(2, ApiVersionsRequest())
        lines.close()
        return trio.current_time() - began

    return run_virtual(scenario)


def test_call_ends_when_broker_leaves_the_cluster() -> None:
    assert took_s(5_000) < 7


def test_call_times_out_at_registered_broker() -> None:
    assert took_s(1e9) == pytest.approx(TIMEOUT_S, abs=1)


def test_call_waiting_for_connection_ends_when_broker_leaves() -> None:
    dependencies = BrokerAddress(5_000)

    async def scenario() -> None:
        await dependencies.env.net.listen(*AT)
        lines, ended = BrokerConnections(dependencies.env, "test", dependencies.address, lambda: None), []

        async def call() -> None:
            with pytest.raises(Disconnected):
                await lines.call(2, ApiVersionsRequest())
            ended.append(trio.current_time())

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
        assert max(ended) - began < 7
        assert len(dependencies.env.net.connect_attempts) == 1

    run_virtual(scenario)


def test_calls_queued_behind_failed_call_fail_and_later_ones_reconnect() -> None:
    dependencies = BrokerAddress(1e9)

    async def scenario() -> None:
        await dependencies.env.net.listen(*AT)
        lines, ended = BrokerConnections(dependencies.env, "test", dependencies.address, lambda: None), []

        async def call() -> None:
            with pytest.raises(Disconnected):
                await lines.call(2, ApiVersionsRequest())
            ended.append(trio.current_time())

        async def calls(count: int) -> float:
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(call)
            return max(ended) - began

        assert await calls(20) == pytest.approx(TIMEOUT_S, abs=1)
        assert await calls(1) == pytest.approx(TIMEOUT_S, abs=1)
        assert len(dependencies.env.net.connect_attempts) == 2

    run_virtual(scenario)
