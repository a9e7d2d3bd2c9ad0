"""Connections between nodes: reopened after they ended, one request at a time, closed when the node moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from trio.testing import MockClock

from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.client.channel import Channel, Disconnected
from ottla.client.connection_security import ConnectionSecurity
from ottla.client.node_connection import MAX_IDLE_MS, NodeConnection
from ottla.wire.errors import ErrorCode, ProtocolError

HERE, THERE = ("b0", 9000), ("b1", 9001)


class FakeStream:
    """Stream without responses: the tests pass `send` functions to the channels over it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.closed = False

    async def send(self, chunks: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        await trio.sleep(timeout_s)
        return 0

    def close(self) -> None:
        self.closed = True


class NodeFixture:
    """Node with a settable address, and the streams to it."""

    def __init__(self, **options: Any) -> None:
        self.address: tuple[str, int] | None = HERE
        self.streams: list[FakeStream] = []
        self.accesses: list[float] = []
        self.connect_s = 0.0
        env: Any = VirtualEnv()
        env.net = SimpleNamespace(connect=self.connect)
        options = {"negotiates": False, **options}
        self.connection = NodeConnection(
            env, "me", "broker 0", lambda: self.address, 3.0, access=self.access, **options
        )

    def access(self) -> ConnectionSecurity | None:
        self.accesses.append(trio.current_time())
        return None

    async def connect(self, host: str, port: int) -> FakeStream:
        await trio.sleep(self.connect_s)
        self.streams.append(FakeStream((host, port)))
        return self.streams[-1]

    async def exchange(self, seconds: float = 0, error: Exception | None = None) -> Any:
        async def send(channel: Channel) -> Any:
            await trio.sleep(seconds)
            if error is not None:
                raise error
            return channel.stream

        return await self.connection.exchange(send)


@pytest.mark.parametrize(("answer_s", "gives_up_s"), [(2.0, 2.0), (60.0, 10.0)])
@pytest.mark.parametrize("negotiates", [True, False])
def test_node_connection_unresponsive_host_times_out(answer_s: float, gives_up_s: float, *, negotiates: bool) -> None:
    async def connect(*_: Any) -> Any:
        await trio.sleep_forever()

    async def unreachable(channel: Channel) -> None:
        raise AssertionError

    env: Any = SimpleNamespace(net=SimpleNamespace(connect=connect), timeout=trio.move_on_after)

    async def main() -> float:
        connection = NodeConnection(env, "me", "broker 0", lambda: HERE, answer_s, negotiates=negotiates)
        with pytest.raises(OSError, match=r"b0:9000|broker 0"):
            await connection.exchange(unreachable)
        return trio.current_time()

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == pytest.approx(gives_up_s)


def test_node_connection_connect_and_api_versions_share_one_timeout() -> None:
    node = NodeFixture(negotiates=True)
    node.connect_s = 2.0

    async def scenario() -> None:
        with pytest.raises(Disconnected):
            await node.exchange()
        assert trio.current_time() == 3.0

    run_virtual(scenario)
    assert node.streams[0].closed


def test_node_connection_without_address_raises_disconnected() -> None:
    node = NodeFixture()
    node.address = None

    async def scenario() -> None:
        with pytest.raises(Disconnected, match="broker 0"):
            await node.exchange()

    run_virtual(scenario)
    assert (node.streams, node.accesses) == ([], [])


def test_node_connection_is_reused_until_it_ends_or_node_moves() -> None:
    node = NodeFixture()

    async def scenario() -> None:
        assert not node.connection.is_open
        first = await node.exchange()
        assert node.connection.is_open
        assert await node.exchange() is first
        node.address = THERE
        second = await node.exchange()
        assert (first.closed, second.address) == (True, THERE)
        node.connection.close()
        assert (second.closed, node.connection.is_open) == (True, False)
        third = await node.exchange()
        assert third is not second
        node.address = None
        with pytest.raises(Disconnected):
            await node.exchange()
        assert third.closed, "the node may restart as another process"

    run_virtual(scenario)
    assert [stream.address for stream in node.streams] == [HERE, THERE, THERE]


def test_node_connection_reopens_ended_connection() -> None:
    node = NodeFixture()

    async def end(channel: Channel) -> None:
        channel.close()

    async def scenario() -> None:
        first = await node.exchange()
        await node.connection.exchange(end)
        assert await node.exchange() is not first

    run_virtual(scenario)


def test_node_connection_idle_connection_is_not_reused() -> None:
    node = NodeFixture()

    async def scenario() -> None:
        first = await node.exchange(100)
        await trio.sleep(MAX_IDLE_MS / 1000 - 1)
        assert await node.exchange(100) is first
        await trio.sleep(MAX_IDLE_MS / 1000)
        second = await node.exchange()
        assert second is not first
        assert first.closed
        assert await node.exchange() is second

    run_virtual(scenario)


@pytest.mark.parametrize("error", [OSError("reset"), ProtocolError(ErrorCode.UNSUPPORTED_VERSION)])
@pytest.mark.parametrize("check_interval_s", [0.25, float("inf")])
def test_node_connection_exchange_error_is_raised_unchanged(error: Exception, check_interval_s: float) -> None:
    node = NodeFixture(check_interval_s=check_interval_s)

    async def scenario() -> None:
        with pytest.raises(type(error)) as caught:
            await node.exchange(1, error)
        assert caught.value is error

    run_virtual(scenario)


def test_node_connection_exchange_fails_when_node_moves() -> None:
    node = NodeFixture(check_interval_s=0.25)

    async def move() -> None:
        await trio.sleep(1.1)
        node.address = THERE

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(move)
            with pytest.raises(Disconnected, match="broker 0 is no longer at b0:9000"):
                await node.exchange(100)
            assert trio.current_time() == 1.25

    run_virtual(scenario)


def test_node_connection_exchange_without_checks_continues_when_node_moves() -> None:
    node = NodeFixture()

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.exchange, 100)
            await trio.sleep(1)
            node.address = THERE
        assert trio.current_time() == 100

    run_virtual(scenario)


def run_queued(node: NodeFixture, *exchanges: Callable[[], Awaitable[Any]]) -> list[tuple[float, str]]:
    """Start exchanges one after the other; return the end time and result of each."""
    out: list[tuple[float, str]] = []

    async def run(exchange: Callable[[], Awaitable[Any]]) -> None:
        try:
            await exchange()
            result = "ok"
        except (OSError, ProtocolError) as error:
            result = str(error)
        out.append((trio.current_time(), result))

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            for exchange in exchanges:
                nursery.start_soon(run, exchange)
                await trio.testing.wait_all_tasks_blocked()

    run_virtual(scenario)
    return out


def test_node_connection_exchanges_are_sequential() -> None:
    node = NodeFixture()
    assert run_queued(node, *(lambda: node.exchange(1) for _ in range(3))) == [(1, "ok"), (2, "ok"), (3, "ok")]
    assert len(node.streams) == 1


def test_node_connection_waiting_exchanges_fail_with_the_failed_one() -> None:
    node = NodeFixture()
    waiting = [lambda: node.exchange(1) for _ in range(2)]
    assert run_queued(node, lambda: node.exchange(1, OSError("cut off")), *waiting) == [(1, "cut off")] * 3
    assert run_queued(node, lambda: node.exchange(1)) == [(1, "ok")]


def test_node_connection_repeated_exchanges_reconnect() -> None:
    node = NodeFixture()
    attempts: list[float] = []

    async def send_until_answered() -> None:
        for _ in range(20):
            attempts.append(trio.current_time())
            try:
                await node.exchange(1, OSError("cut off") if len(attempts) == 1 else None)
                return
            except OSError:
                continue
        raise OSError("never answered")

    assert run_queued(node, send_until_answered, send_until_answered) == [(2, "ok"), (3, "ok")]
    assert attempts == [0, 0, 1, 1]


def test_node_connection_waiting_exchanges_continue_after_protocol_error() -> None:
    node = NodeFixture()
    refused = ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "too old")
    ends = run_queued(node, lambda: node.exchange(1, refused), lambda: node.exchange(1))
    assert [(at, result == "ok") for at, result in ends] == [(1, False), (2, True)]
