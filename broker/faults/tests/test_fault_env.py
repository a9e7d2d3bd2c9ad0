"""Clock that is advanced, network with a gate, and disk that is full."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from ottla.broker.coordinator.timers import Timers
from ottla.broker.faults.fault_rule import FaultKind, FaultLimits, FaultSpec
from ottla.broker.faults.node_faults import NodeFaults
from ottla.broker.tests.connection_fixture import ClientStream, FakeListener, in_virtual_time
from ottla.broker.tests.handler_fixture import VirtualEnv
from ottla.env.env import steady_env

WEEK_MS = 7 * 24 * 3600 * 1000


class FakeNetwork:
    """A network whose connections are the test's."""

    def __init__(self) -> None:
        self.listener: Any = FakeListener()
        self.streams: list[ClientStream] = []

    async def listen(self, host: str, port: int, *rest: Any) -> Any:
        return self.listener

    async def connect(self, host: str, port: int, tls: Any = None) -> Any:
        self.streams.append(ClientStream())
        return self.streams[-1]


def in_node(work: Callable[[NodeFaults], Awaitable[None]]) -> None:
    """Run with the faults of a node in virtual time."""

    async def run() -> None:
        env: Any = VirtualEnv()
        env.net = FakeNetwork()
        await work(NodeFaults(env))

    in_virtual_time(run)


def test_advanced_clock_ends_waits_and_deadlines_that_are_over() -> None:
    async def scenario(faults: NodeFaults) -> None:
        env, ended = faults.env, []

        async def sleep(days: int) -> None:
            await env.sleep(days * 24 * 3600)
            ended.append((days, "sleep"))

        async def wait(days: int) -> None:
            with env.timeout(days * 24 * 3600) as deadline:
                await trio.Event().wait()
            ended.append((days, "deadline" if deadline.cancelled_caught else "event"))

        began_s, now_ms = trio.current_time(), env.now_ms()
        async with trio.open_nursery() as nursery:
            for days in (1, 6, 8):
                nursery.start_soon(sleep, days)
                nursery.start_soon(wait, days)
            await trio.testing.wait_all_tasks_blocked()
            faults.clock.advance(WEEK_MS)
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(ended) == [(1, "deadline"), (1, "sleep"), (6, "deadline"), (6, "sleep")]
            assert trio.current_time() == began_s
            assert env.now_ms() - now_ms == WEEK_MS
        assert round(trio.current_time() - began_s) == 24 * 3600
        assert sorted(ended)[4:] == [(8, "deadline"), (8, "sleep")]

    async def bounded(faults: NodeFaults) -> None:
        await scenario(faults)

    trio.run(_run_unbounded, bounded, clock=trio.testing.MockClock(autojump_threshold=0.001))


async def _run_unbounded(work: Callable[[NodeFaults], Awaitable[None]]) -> None:
    env: Any = VirtualEnv()
    env.net = FakeNetwork()
    await work(NodeFaults(env))


def test_advanced_clock_fires_the_timers_of_sessions() -> None:
    async def scenario(faults: NodeFaults) -> None:
        timers, fired = Timers(faults.env), []
        timers.arm("member", faults.env.now_ms() + 45_000, lambda: fired.append("member"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
            await trio.testing.wait_all_tasks_blocked()
            assert not fired
            faults.clock.advance(45_000)
            await trio.testing.wait_all_tasks_blocked()
            assert fired == ["member"]
            nursery.cancel_scope.cancel()

    in_node(scenario)


def test_clock_of_the_controller_is_steady() -> None:
    async def scenario(faults: NodeFaults) -> None:
        steady = steady_env(faults.env)
        before_ms = steady.monotonic_ms()
        faults.clock.advance(WEEK_MS)
        assert steady.monotonic_ms() - before_ms < WEEK_MS / 2
        assert steady.disk is faults.env.disk
        assert steady.net is faults.env.net
        assert steady_env(steady) is steady

    in_node(scenario)


def test_environment_without_faults_is_its_own_steady_one() -> None:
    env: Any = VirtualEnv()
    assert steady_env(env) is env


def test_paused_node_receives_and_sends_later() -> None:
    async def scenario(faults: NodeFaults) -> None:
        listener = await faults.env.net.listen("127.0.0.1", 0)
        client = ClientStream()
        await faults.base_env.net.listener.send.send(client)  # type: ignore[attr-defined]
        stream = await listener.accept()
        assert stream.peer == "10.0.0.9"
        faults.gate.set_state(is_paused=True)
        client.send_bytes(b"request")
        buffer, received = bytearray(10), []

        async def serve() -> None:
            received.append(await stream.receive_into(memoryview(buffer), float("inf")))
            await stream.send([b"response"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await trio.sleep(60)
            assert not received
            faults.gate.set_state(is_paused=False)
            await trio.testing.wait_all_tasks_blocked()
            assert (received, client.received) == ([7], b"response")

    in_node(scenario)


def test_paused_node_makes_tls_handshakes_later() -> None:
    async def scenario(faults: NodeFaults) -> None:
        listener = await faults.env.net.listen("127.0.0.1", 0)
        client: Any = ClientStream()
        subjects: list[str | None] = []

        async def handshake() -> str:
            return "CN=client"

        async def serve() -> None:
            subjects.append(await stream.handshake())

        client.handshake = handshake
        await faults.base_env.net.listener.send.send(client)  # type: ignore[attr-defined]
        stream: Any = await listener.accept()
        faults.gate.set_state(is_paused=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await trio.testing.wait_all_tasks_blocked()
            assert not subjects
            faults.gate.set_state(is_paused=False)
        assert subjects == ["CN=client"]

    in_node(scenario)


def test_blocked_address_is_connected_to_once_it_is_open() -> None:
    async def scenario(faults: NodeFaults) -> None:
        net = faults.env.net
        reached = []
        faults.gate.set_state(blocked=frozenset({("127.0.0.1", 9093)}))

        async def connect(port: int) -> None:
            stream = await net.connect("127.0.0.1", port)
            await stream.send([b"x"])
            reached.append(port)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect, 9092)
            nursery.start_soon(connect, 9093)
            await trio.testing.wait_all_tasks_blocked()
            assert reached == [9092]
            faults.gate.set_state(blocked=frozenset())
            await trio.testing.wait_all_tasks_blocked()
            assert reached == [9092, 9093]

    in_node(scenario)


def test_faulty_listener_passes_attributes_of_the_acceptor_on() -> None:
    async def scenario(faults: NodeFaults) -> None:
        listener = await faults.env.net.listen("127.0.0.1", 0)
        listener.on_descriptors_low = lambda: 3
        assert faults.base_env.net.listener.on_descriptors_low() == 3  # type: ignore[attr-defined]
        assert listener.port == 9092

    in_node(scenario)


def test_full_disk_fails_writes_and_nothing_else() -> None:
    async def scenario(faults: NodeFaults) -> None:
        disk = faults.env.disk
        disk.makedirs("/a/t-0")
        file = disk.open("/a/t-0/0.log", create=True)
        file.pwrite(b"abc", 0)
        faults.rules.add(FaultSpec(FaultKind.DISK_FULL, directory="/a"), FaultLimits(times=2))
        file.truncate(2)
        with pytest.raises(OSError, match=r"/a/t-0/0\.log") as caught:
            file.pwrite(b"def", 3)
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError):
            file.truncate(100)
        assert file.pread(10, 0) == b"ab"
        file.pwrite(b"def", 2)
        assert file.size() == 5

    in_node(scenario)


def test_full_disk_fails_the_metadata_log() -> None:
    async def scenario(faults: NodeFaults) -> None:
        disk = faults.env.disk.private()
        disk.makedirs("/a")
        file = disk.open("/a/0.log", create=True)
        faults.rules.add(FaultSpec(FaultKind.DISK_FULL))
        with pytest.raises(OSError):
            file.pwrite(b"abc", 0)

    in_node(scenario)
