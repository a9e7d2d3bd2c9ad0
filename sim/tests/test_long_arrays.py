"""Every array of every API at great length: the work between two yields of the event loop does not grow with it.

Work is counted in calls and returns of functions (`sys.setprofile`), so no clock decides. A whole node answers, over a
disk and a network in memory. Each element of a long array is at least one call when it is iterated.
"""

from __future__ import annotations

import struct
import sys
import traceback
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import trio

from compat_tests.long_arrays import KINDS, ArrayOf, arrays, long_request
from ottla.broker import turn
from ottla.broker.config import NodeConfig
from ottla.broker.node import Node
from ottla.broker.server import dispatch
from ottla.broker.server.controller_routes import CONTROLLER_ROUTES
from ottla.broker.server.dispatch import ROUTES
from ottla.wire.apis import ApiKey
from ottla.wire.framing import request_frame
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import init_producer_id as ip
from ottla.wire.schema import Message
from sim.clients import PORT
from sim.cluster import CONTROLLER_PORT, SHARED, format_host
from sim.network import WINDOW_BYTES
from sim.world import World

HOST = "n1"
ELEMENTS = 10_000
"""Enough for more than `LIMIT` when a walk over all of them does not yield."""
LIMIT = 20_000
"""Calls and returns between two yields."""
SLICE = 5_000
"""The same after which a `Turn` yields: it stands for 10 ms."""
SETTINGS = {
    **SHARED,
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": f"PLAINTEXT://{HOST}:{PORT},CONTROLLER://{HOST}:{CONTROLLER_PORT}",
    "controller.quorum.voters": f"1@{HOST}:{CONTROLLER_PORT}",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
LISTENERS = {"broker": (ROUTES, PORT), "controller": (CONTROLLER_ROUTES, CONTROLLER_PORT)}


class StepCounter(trio.abc.Instrument):
    """Counts calls and returns in each step of each task; is the clock of every `Turn`."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.worst = 0
        self.stack = ""

    def monotonic_ms(self) -> float:
        return (self.total + self.count) * turn.SLICE_MS / SLICE

    def reset(self) -> None:
        self.worst, self.stack = 0, ""

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += 1
        if self.count == LIMIT:
            stack = traceback.extract_stack(frame)
            self.stack = " < ".join(f"{x.filename.rpartition('/')[2]}:{x.lineno} {x.name}" for x in stack[:-7:-1])

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count = 0
        sys.setprofile(self._event)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        sys.setprofile(None)
        self.total += self.count
        self.worst = max(self.worst, self.count)
        self.count = 0


class Client:
    """One connection of a client process to the node, made again when the node closes it."""

    def __init__(self, world: World, port: int) -> None:
        self._process = world.process("client")
        self._port = port
        self._stream: Any = None

    async def call(self, key: ApiKey, version: int, request: Message) -> int | None:
        """Send a request; return the size of its response, None when the connection was closed."""
        raw = request_frame(key, version, 1, "client", request)
        if self._stream is None:
            self._stream = await self._process.env.net.connect(HOST, self._port)
        try:
            for at in range(0, len(raw), WINDOW_BYTES):
                await self._stream.send([raw[at : at + WINDOW_BYTES]])
            size = struct.unpack(">i", await self._read(4))[0]
            await self._read(size)
        except (OSError, EOFError):
            self._stream.close()
            self._stream = None
            return None
        return int(size)

    async def _read(self, count: int) -> bytes:
        out, buffer = bytearray(), memoryview(bytearray(WINDOW_BYTES))
        while len(out) < count:
            came = await self._stream.receive_into(buffer[: count - len(out)], 30.0)
            if not came:
                raise EOFError
            out += buffer[:came]
        return bytes(out)


async def _prepare(world: World) -> None:
    """Create a topic and the coordinators."""
    client = Client(world, PORT)
    topics = [ct.CreatableTopic(name, 3, 1) for name in ("t", "u")]
    assert await client.call(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics))
    for key_type, key in ((0, "long"), (1, "x"), (2, f"long:{'A' * 22}:0")):
        await client.call(
            ApiKey.FIND_COORDINATOR, 6, fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        )
    await trio.sleep(2)
    await client.call(ApiKey.INIT_PRODUCER_ID, 4, ip.InitProducerIdRequest("x", 60_000))


def _faults(cases: list[tuple[ArrayOf, str]], port: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Send every case to a node; return what took too many steps between two yields."""
    counter, found = StepCounter(), []
    init = turn.Turn.__init__
    monkeypatch.setattr(turn.Turn, "__init__", lambda self, env, limit_ms=turn.SLICE_MS: init(self, counter, limit_ms))
    monkeypatch.setattr(dispatch, "LARGE_PRODUCE_BYTES", dispatch.LARGE_BYTES)
    monkeypatch.setattr("sim.network.Network.piece", lambda self, left: min(left, WINDOW_BYTES))
    world = World(1)
    format_host(world.host(HOST), 1, SimpleNamespace(dirs="/data", settings={}, transactions=0))
    process = world.process(HOST)
    node = Node(process.env, NodeConfig(SETTINGS, "/data", 1, HOST, PORT))
    ready, stop = trio.Event(), trio.Event()

    async def main() -> None:
        await ready.wait()
        await _prepare(world)
        client = Client(world, port)
        for array, kind in cases:
            with trio.fail_after(600):
                await client.call(array.key, array.version, long_request(array, 1, kind))
                counter.reset()
                trio.lowlevel.add_instrument(counter)
                before = counter.total
                count = 2 * ELEMENTS if kind == "empty" else ELEMENTS  # of one byte each: many enough to be sliced
                size = await client.call(array.key, array.version, long_request(array, count, kind))
                trio.lowlevel.remove_instrument(counter)
                sys.setprofile(None)
            if DEBUG:
                print(
                    array,
                    kind,
                    "worst",
                    counter.worst,
                    "total",
                    counter.total - before,
                    "size",
                    size,
                    counter.stack,
                    flush=True,
                )
            if counter.worst >= LIMIT:
                found.append(f"{array} {kind}: {counter.worst} at {counter.stack}")
        stop.set()

    async def everything() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main)
            error = await process.live(lambda: node.run(lambda _: ready.set(), stop))
            if error is not None:
                raise error
            nursery.cancel_scope.cancel()

    world.run(everything)
    return found


DEBUG = True


def _parameters() -> Iterator[Any]:
    for name, (apis, _) in LISTENERS.items():
        for key in apis:
            yield pytest.param(name, key, id=f"{name}-{key.name}")


@pytest.mark.parametrize(("listener", "key"), list(_parameters()))
def test_long_array_of_a_request_yields_between_its_elements(
    listener: str, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    apis, port = LISTENERS[listener]
    cases = [(array, kind) for array in arrays(apis, key) for kind in KINDS]
    assert not _faults(cases, port, monkeypatch)
