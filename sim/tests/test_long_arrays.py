"""Long arrays of every API: the work between two yields of the event loop does not grow with their length.

Work is counted in calls and returns of functions (`sys.setprofile`), so no clock decides. A whole node serves, over a
disk and a network in memory. Each element of a long array is at least one call when it is iterated. Of each array one
kind of elements is tried here; `bench.pauses --arrays` tries all of them at full length and measures milliseconds.
"""

from __future__ import annotations

import logging
import struct
import sys
import traceback
from collections.abc import Callable, Generator
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import trio

from compat_tests.support.long_array_requests import KINDS, RequestArray, find_arrays, long_request
from ottla.broker.api_spec import ApiSpec
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch.api_registry import BROKER_APIS, CONTROLLER_APIS
from ottla.broker.handlers.groups import list_groups
from ottla.broker.handlers.transactions import list_transactions
from ottla.broker.node import Node
from ottla.broker.observability import request_observers
from ottla.controller.control import scram_credentials
from ottla.controller.raft.driver import describe_quorum
from ottla.jobs import time_slice
from ottla.jobs.job import run_to_end
from ottla.jobs.sequences import collect_distinct_job
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request
from ottla.wire.messages import create_topics, find_coordinator, init_producer_id
from sim.engine.network import WINDOW_BYTES
from sim.engine.simulation import Simulation
from sim.scenarios.cluster import CLUSTER_ID, CONTROLLER_PORT, SHARED_SETTINGS, format_host
from sim.workload.clients import PORT

HOST = "n1"
ELEMENTS = 4_000
LIMIT = 14_000
"""Limit of calls and returns between two yields: a loop over all elements without a yield has more."""
SLICE = 3_000
"""Calls and returns after which a `TimeSlice` yields: they stand for 10 ms."""
TIMES = 3
"""Factor on the number of elements for cases above `LIMIT`; their calls must not grow by `MOST_GROWTH`."""
MOST_GROWTH = 1.5
"""Factor from which the growth of the calls is an error."""
SETTINGS = {
    **SHARED_SETTINGS,
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
LISTENERS = {"broker": (BROKER_APIS, PORT), "controller": (CONTROLLER_APIS, CONTROLLER_PORT)}
SHARDS = 6
"""Number of nodes that share the APIs of a listener."""
NEW_BROKER = 7


class LongArrayCase(NamedTuple):
    """Request to be sent."""

    array: RequestArray
    kind: str

    def __str__(self) -> str:
        return f"{self.array} {self.kind}"


class StepCounter(trio.abc.Instrument):
    """Counter of calls and returns in each step of each task; the clock of every `TimeSlice`."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.max_step = 0
        self.stack = ""

    def monotonic_ms(self) -> float:
        return (self.total + self.count) * time_slice.SLICE_MS / SLICE

    def reset(self) -> None:
        self.max_step, self.stack = 0, ""

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
        self.max_step = max(self.max_step, self.count)
        self.count = 0


class LoggedErrors(logging.Handler):
    """Errors that the node logs, for example requests that it could not handle."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else ""
        self.seen.append(f"{record.getMessage()} {error!r}")


class RawSimClient:
    """Connection of a client process to the node, opened again when the node closes it."""

    def __init__(self, env: Simulation, port: int) -> None:
        self._process = env.process("client")
        self._port = port
        self._stream: Any = None

    async def call(self, key: ApiKey, version: int, request: Message) -> None:
        """Send a request and read the response, or the end of the connection."""
        raw = encode_request(key, version, 1, "client", request)
        if self._stream is None:
            self._stream = await self._process.env.net.connect(HOST, self._port)
        try:
            for at in range(0, len(raw), WINDOW_BYTES):
                await self._stream.send([raw[at : at + WINDOW_BYTES]])
            await self._read(struct.unpack(">i", await self._read(4))[0])
        except (OSError, EOFError):
            self._stream.close()
            self._stream = None

    async def _read(self, count: int) -> bytes:
        out, buffer = bytearray(), memoryview(bytearray(WINDOW_BYTES))
        while len(out) < count:
            came = await self._stream.receive_into(buffer[: count - len(out)], 30.0)
            if not came:
                raise EOFError
            out += buffer[:came]
        return bytes(out)


async def make_topics(client: RawSimClient) -> None:
    """Create the topics that requests with valid values name."""
    topics = [create_topics.CreatableTopic(name, 3, 1) for name in ("t", "u")]
    await client.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest(topics))


async def prepare(client: RawSimClient) -> None:
    """Create topics and the coordinators."""
    await make_topics(client)
    for key_type, key in ((0, "long"), (1, "x"), (2, f"long:{'A' * 22}:0")):
        request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        await client.call(ApiKey.FIND_COORDINATOR, 6, request)
    await trio.sleep(2)
    await client.call(ApiKey.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest("x", 60_000))


def valid_values(node: Node, key: ApiKey) -> dict[str, Any]:
    """Return values with which a request passes the first checks."""
    assert node.components is not None
    image = node.components.controller.image
    registers = key is ApiKey.BROKER_REGISTRATION
    return {
        "cluster_id": CLUSTER_ID,
        "broker_id": NEW_BROKER if registers else 1,
        "broker_epoch": image.brokers[1].broker_epoch,
        "topic_id": image.topics["t"].id,
    }


class LongArrayFixture:
    """Node with a client that sends it long requests."""

    def __init__(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counter = counter = StepCounter()
        init = time_slice.TimeSlice.__init__
        clock = lambda self, env, limit_ms=time_slice.SLICE_MS: init(self, counter, limit_ms)  # noqa: E731
        monkeypatch.setattr(time_slice.TimeSlice, "__init__", clock)
        monkeypatch.setattr(ApiSpec, "large_bytes", 2048)
        monkeypatch.setattr("sim.engine.network.SimNetwork.piece", lambda self, left: min(left, WINDOW_BYTES))
        self.simulation = Simulation(1)
        # checks of responses decode whole requests in one step
        monkeypatch.setattr(request_observers, "request_observer_factories", [])
        host = self.simulation.host(HOST)
        format_host(host, 1, SimpleNamespace(dirs="/data", settings={}, transactions=0))  # type: ignore[arg-type]
        self._process = self.simulation.process(HOST)
        self.node = Node(self._process.env, NodeConfig(SETTINGS, "/data", 1, HOST, PORT))
        self._client, self._admin = RawSimClient(self.simulation, port), RawSimClient(self.simulation, PORT)

    def find_long_steps(self, cases: list[LongArrayCase]) -> list[str]:
        """Send every case; return those with too much work between two yields."""
        found: list[str] = []
        errors = LoggedErrors()
        ready, stop = trio.Event(), trio.Event()

        async def main() -> None:
            await ready.wait()
            await prepare(self._admin)
            for case in cases:
                await self._send(case, 1)  # loading and compiling on first use does not count
                first = await self._send(case, ELEMENTS)
                found.extend(f"{case}: {text}" for text in errors.seen)
                errors.seen.clear()
                if first >= LIMIT and await self._send(case, TIMES * ELEMENTS) > MOST_GROWTH * first:
                    found.append(f"{case}: {first}, then {self.counter.max_step} at {self.counter.stack}")
            stop.set()

        async def everything() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(main)
                error = await self._process.run_until_end(lambda: self.node.run(lambda _: ready.set(), stop))
                if error is not None:
                    raise error
                nursery.cancel_scope.cancel()

        logging.getLogger("ottla").addHandler(errors)
        try:
            self.simulation.run(everything)
        finally:
            logging.getLogger("ottla").removeHandler(errors)
        return found

    async def _send(self, case: LongArrayCase, count: int) -> int:
        """Send a request; return the largest number of calls and returns between two yields."""
        array, counter = case.array, self.counter
        await make_topics(self._admin)  # the request before may have deleted one
        request = long_request(array, count, case.kind, valid_values(self.node, array.key))
        counter.reset()
        trio.lowlevel.add_instrument(counter)
        try:
            with trio.fail_after(600):
                await self._client.call(array.key, array.version, request)
        finally:
            trio.lowlevel.remove_instrument(counter)
            sys.setprofile(None)
        return counter.max_step


def cases_of(listener: str, part: int) -> list[LongArrayCase]:
    """Return every array of some of the APIs, each with one of the kinds of elements in turn."""
    apis, _ = LISTENERS[listener]
    found = [array for key in list(apis)[part::SHARDS] for array in find_arrays(apis, key)]
    return [LongArrayCase(array, KINDS[number % len(KINDS)]) for number, array in enumerate(found)]


@pytest.mark.parametrize("part", range(SHARDS))
@pytest.mark.parametrize("listener", LISTENERS)
def test_long_array_of_request_yields_between_its_elements(
    listener: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not LongArrayFixture(LISTENERS[listener][1], monkeypatch).find_long_steps(cases_of(listener, part))


@pytest.mark.parametrize("listener", LISTENERS)
def test_long_array_cases_cover_every_array(listener: str) -> None:
    apis, _ = LISTENERS[listener]
    covered = {str(case.array) for part in range(SHARDS) for case in cases_of(listener, part)}
    assert covered == {str(array) for key in apis for array in find_arrays(apis, key)}


def without_yields(steps: Callable[..., Any]) -> Callable[..., Any]:
    """Return a generator function that does the same without a yield."""

    def run(*arguments: Any) -> Generator[None, None, Any]:
        return run_to_end(steps(*arguments))
        yield

    return run


SEEDED_FAULTS = {
    "DescribeQuorum": (
        ApiKey.DESCRIBE_QUORUM,
        describe_quorum,
        "_error_for_all",
        without_yields(describe_quorum._error_for_all),
    ),
    "ListGroups": (ApiKey.LIST_GROUPS, list_groups, "_recognized_names", without_yields(list_groups._recognized_names)),
    "ListTransactions": (
        ApiKey.LIST_TRANSACTIONS,
        list_transactions,
        "collect_distinct_job",
        without_yields(collect_distinct_job),
    ),
    "AlterUserScramCredentials": (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        scram_credentials,
        "_alter",
        without_yields(scram_credentials._alter),
    ),
}


@pytest.mark.parametrize("name", SEEDED_FAULTS)
def test_long_array_with_planted_loop_without_yield_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, module, attribute, planted = SEEDED_FAULTS[name]
    monkeypatch.setattr(module, attribute, planted)
    cases = [LongArrayCase(find_arrays(BROKER_APIS, key)[0], "distinct")]
    (fault,) = LongArrayFixture(PORT, monkeypatch).find_long_steps(cases)
    assert fault.startswith(f"{key.name} ")
