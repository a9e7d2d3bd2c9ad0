"""Pauses of the event loop while a node works on a request with one very long array.

``python -m bench.pauses --arrays [--elements 300000] [--kind distinct] [NAME...]``: every array of every API of the
broker's and of the controller's listener, by default with distinct, equal and empty elements in turn. A request that
the limits refuse is sent again with half as many elements each time, down to `LEAST_ELEMENTS`. A NAME is how the name
of an API begins (``LIST_GROUPS``); without one all are measured. ``JOIN_GROUP_SUBSCRIPTION``, given in full: the topics
of a classic member, an array in bytes of its request, with sizes of its own. Each API gets a fresh node of both roles.
Columns as in `bench.pauses`; at the end the ten longest pauses by processor time.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from compat_tests.support.long_array_requests import KINDS, RequestArray, find_arrays, long_request
from compat_tests.support.processes import OTTLA, free_port
from compat_tests.support.raw_client import RawClient
from ottla.broker.dispatch.api_registry import BROKER_APIS, CONTROLLER_APIS
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.framing import encode_request
from ottla.wire.messages import create_topics, find_coordinator, init_producer_id
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

SUBSCRIPTION_CASE = "JOIN_GROUP_SUBSCRIPTION"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
ELEMENTS = 300_000
LEAST_ELEMENTS = 10_000
TIMEOUT_S = 600
LISTENERS = {"broker": BROKER_APIS, "controller": CONTROLLER_APIS}


class ArrayPause(NamedTuple):
    """Longest pauses of the event loop during one request in s, as `bench.pauses` defines them, and its duration.

    ``name`` is listener, array and kind of elements; ``task`` is the trio task with the longest step by CPU time.
    """

    computed_s: float
    held_s: float
    late_s: float
    took_s: float
    name: str
    task: str


class MeasuredNode(Protocol):
    """Interface of `bench.pauses.NodeChildProcess`, which must not be imported here."""

    port: int
    controller_port: int

    def query(self, command: str = "report") -> dict[str, Any]:
        """Return the measurements since the last query in s, and the task's name (`bench.pauses`), and reset them."""

    def kill(self) -> None:
        """Kill the process of the node."""


Start = Callable[[Path, int, dict[str, str]], MeasuredNode]


def settings_of(port: int, controller_port: int) -> dict[str, str]:
    """Return the settings of a node that is broker and controller."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def start_node(start: Start, where: Path) -> MeasuredNode:
    """Format and start a node below ``where`` by ``start``, create topics and the coordinators' topics, and return it.

    Raises:
        CalledProcessError: the format failed; further errors are those of ``start`` and of the client.
    """
    port, controller_port = free_port(), free_port()
    settings = settings_of(port, controller_port)
    file = where / "server.properties"
    lines = [f"{key}={value}" for key, value in {**settings, "log.dirs": str(where / "data")}.items()]
    file.write_text("\n".join(lines) + "\n")
    command = [OTTLA, "format", "--cluster-id", CLUSTER_ID, "--config", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    child = start(where / "data", port, settings)
    client = RawClient(port, 60)
    topics = [create_topics.CreatableTopic(name, 3, 1) for name in ("t", "u")]
    client.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest(topics))
    for key_type, key in ((0, "long"), (1, "x"), (2, f"long:{'A' * 22}:0")):
        request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        client.call(ApiKey.FIND_COORDINATOR, 6, request)
    time.sleep(1)
    client.call(ApiKey.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest("x", 60_000))
    child.controller_port = controller_port
    return child


def _is_answered(port: int, raw: bytes) -> bool:
    """Send a request frame over a new connection and discard the response; return False if there is none.

    The connection was closed then, or there was no response within `TIMEOUT_S`.
    """
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.sendall(raw)
        head = sock.recv(4, socket.MSG_WAITALL)
        left = struct.unpack(">i", head)[0] if len(head) == 4 else -1
        while left > 0:
            came = len(sock.recv(min(1 << 20, left)))
            left = left - came if came else -1
        return left == 0
    return False


def _measured(
    child: MeasuredNode, port: int, array: RequestArray, kind: str, elements: int
) -> tuple[ArrayPause, int, bool]:
    count = elements
    while True:
        raw = encode_request(array.key, array.version, 1, "arrays", long_request(array, count, kind))
        child.query()
        began = time.perf_counter()
        is_answered = _is_answered(port, raw)
        took = time.perf_counter() - began
        seen = child.query()
        if is_answered or count <= LEAST_ELEMENTS:
            break
        count //= 2
    pause = ArrayPause(seen["computed"], seen["held"], seen["late"], took, f"{array} {kind}", seen["who"])
    return pause, count, is_answered


def measure_arrays(
    start: Start, elements: int, names: Collection[str], kinds: Collection[str] = KINDS
) -> list[ArrayPause]:
    """Measure requests with long arrays at new nodes, print each, and return the pauses, the longest by CPU first.

    ``names``: beginnings of API names; empty for all. ``kinds``: kinds of elements.
    """
    pauses: list[ArrayPause] = []
    print(f"{'milliseconds':64} {'elements':>8} {'held':>8} {'computed':>8} {'late':>8}  took  by")
    for listener, apis in LISTENERS.items():
        for key in apis:
            if (names and not any(key.name.startswith(name) for name in names)) or not find_arrays(apis, key):
                continue
            with tempfile.TemporaryDirectory() as where:
                child = start_node(start, Path(where))
                port = child.port if listener == "broker" else child.controller_port
                try:
                    for array in find_arrays(apis, key):
                        for kind in kinds:
                            small = long_request(array, 1, kind)
                            _is_answered(port, encode_request(key, array.version, 1, "arrays", small))
                            pause, count, is_answered = _measured(child, port, array, kind, elements)
                            pauses.append(pause._replace(name=f"{listener} {pause.name}"))
                            _print(pauses[-1], count, "" if is_answered else " (connection closed)")
                finally:
                    child.kill()
    if not names or SUBSCRIPTION_CASE in names:
        pauses += _measure_subscriptions(start)
    pauses.sort(reverse=True)
    print("\nthe ten longest, by processor time")
    for pause in pauses[:10]:
        _print(pause, elements, "")
    return pauses


def _measure_subscriptions(start: Start) -> list[ArrayPause]:
    """Measure and print JoinGroup of a classic member with long subscriptions of four sizes; return the pauses.

    The member joins a consumer group at a new node each time; the topics are an array in its protocol metadata.
    """
    pauses = []
    for letters, count in ((4, 340_000), (4, 80_000), (40, 50_000), (40, 12_000)):
        with tempfile.TemporaryDirectory() as where:
            child = start_node(start, Path(where))
            client = RawClient(child.port, TIMEOUT_S)
            beat = ConsumerGroupHeartbeatRequest("long", "m", 0, None, None, 30_000, ["t"], None, None, [])
            client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
            try:
                for topics in (["t"], [f"{number:0{letters}x}"[-letters:] for number in range(count)]):
                    raw = b"\0\1" + compiler.encode(ConsumerProtocolSubscription(topics), 1)
                    member = [JoinGroupRequestProtocol("range", raw)]
                    child.query()
                    began = time.perf_counter()
                    request = JoinGroupRequest("long", 10_000, 30_000, "", None, "consumer", member)
                    answer = client.call(ApiKey.JOIN_GROUP, 3, request)
                    took, seen = time.perf_counter() - began, child.query()
                name = f"broker {SUBSCRIPTION_CASE} {letters} letters (error {answer.error_code})"
                pauses.append(ArrayPause(seen["computed"], seen["held"], seen["late"], took, name, seen["who"]))
                _print(pauses[-1], count, "")
            finally:
                child.kill()
    return pauses


def _print(pause: ArrayPause, count: int, after: str) -> None:
    numbers = " ".join(f"{x * 1000:8.1f}" for x in (pause.held_s, pause.computed_s, pause.late_s))
    print(f"{pause.name:64} {count:8} {numbers} {pause.took_s:5.1f}  {pause.task}{after}", flush=True)
