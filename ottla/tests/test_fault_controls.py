"""Faults of an embedded broker: in a thread or process, under asyncio and trio, over HTTP and on the command line."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla
from ottla.cli.tests.command_runs import run_command
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.wire.record_batch.records import NewRecord

pytestmark = pytest.mark.xdist_group(__name__)
LOOPS: dict[str, Callable[[Callable[[], Awaitable[Any]]], Any]] = {
    "asyncio": lambda main: asyncio.run(main()),  # type: ignore[arg-type]
    "trio": trio.run,
}
FAULTS = {"ottla.faults": True}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.Broker]:
    path = tmp_path_factory.mktemp("faults") / "data"
    with ottla.Broker(data_dir=str(path), settings=FAULTS) as running:
        yield running


@pytest.fixture
def broker(shared: ottla.Broker) -> Iterator[ottla.Broker]:
    yield shared
    shared.faults.clear()


def test_error_is_raised_the_given_number_of_times(broker: ottla.Broker) -> None:
    handle = broker.faults.error("Produce", ottla.ErrorCode.NOT_ENOUGH_REPLICAS).times(2)
    for _ in range(2):
        with pytest.raises(ottla.ProtocolError) as caught:
            broker.produce("errors", b"x")
        assert caught.value.code == ottla.ErrorCode.NOT_ENOUGH_REPLICAS
    broker.produce("errors", b"y")
    assert [record.value for record in broker.records("errors")] == [b"y"]
    assert (handle.calls, handle.applied) == (3, 2)


@pytest.mark.parametrize(
    ("add", "limits"),
    [
        (lambda faults: faults.drop("Produce").once(), {"times": 1}),
        (lambda faults: faults.drop("Produce", times=4), {"times": 4}),
        (lambda faults: faults.disconnect("Produce").on_call(3), {"on_call": 3}),
        (lambda faults: faults.delay("Produce", 0.5).probability(0.25, seed=3), {"probability": 0.25, "seed": 3}),
        (lambda faults: faults.throttle("Produce", 5, times=2).probability(0.5), {"times": 2, "probability": 0.5}),
        (lambda faults: faults.half_response("Produce", topic="t", client_id="c"), {"topic": "t", "client_id": "c"}),
        (lambda faults: faults.disk_full("/nowhere"), {"directory": "/nowhere"}),
        (lambda faults: faults.disk_full("./nowhere"), {"directory": os.path.abspath("nowhere")}),
    ],
)
def test_fault_is_listed_with_its_limits(
    broker: ottla.Broker, add: Callable[[Any], ottla.FaultHandle], limits: dict[str, Any]
) -> None:
    added = add(broker.faults)
    (listed,) = broker.faults.list()
    assert listed.described == added.described
    assert limits.items() <= listed.described.items()
    listed.remove()
    assert broker.faults.list() == []


def test_handle_removes_its_fault_at_the_end_of_a_block(broker: ottla.Broker) -> None:
    with broker.faults.half_response("Metadata") as handle, pytest.raises(OSError):
        broker.records("none")
    assert broker.faults.list() == []
    assert handle.applied >= 1
    handle.remove()


def test_block_of_a_fault_ends_although_the_fault_is_gone(tmp_path: Path) -> None:
    with ottla.Broker(data_dir=str(tmp_path / "d"), settings=FAULTS) as broker:
        with broker.faults.drop("Heartbeat"):
            broker.faults.clear()
        with broker.faults.drop("Heartbeat") as before:
            broker.restart()
            for _ in range(before.id):
                added = broker.faults.drop("Produce")
            assert added.id == before.id
            with pytest.raises(ottla.FaultRejected):
                before.refresh()
        assert added.refresh().described["api"] == "Produce"
        with broker.faults.drop("Heartbeat"):
            broker.stop()


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (lambda faults: faults.error("Produce", "NO_SUCH_ERROR"), "unknown error code: NO_SUCH_ERROR"),
        (lambda faults: faults.drop("Prodduce"), "unknown API: Prodduce"),
        (lambda faults: faults.drop("Produce", colour="red"), "unknown field: colour"),
        (lambda faults: faults.drop("Produce").times(0), "times: at least 1 expected: 0"),
        (lambda faults: faults.add("explode"), "unknown fault: explode; one of error"),
    ],
)
def test_invalid_fault_is_rejected(broker: ottla.Broker, add: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(ottla.FaultRejected) as caught:
        add(broker.faults)
    assert str(caught.value).startswith(problem)


def test_every_request_of_a_connection_that_repeats_it_is_counted() -> None:
    with ottla.Broker(settings=FAULTS, isolate=True) as broker:  # nodes of this process check their responses
        broker.client.create_topic("repeated", 1)
        fetched, produced = broker.faults.delay("Fetch", 0), broker.faults.delay("Produce", 0)

        async def work() -> None:
            client = ClusterClient(BlockingEnv(), broker.bootstrap_servers)
            for _ in range(20):
                await client.produce("repeated", 0, [NewRecord(None, b"x")])
            for number in range(20):
                assert len(await client.fetch("repeated", 0, number)) == 20 - number
            client.close()

        run_blocking(work())
        assert (produced.calls, fetched.calls) == (20, 20)


def test_paused_broker_answers_after_it_is_resumed(broker: ottla.Broker) -> None:
    broker.produce("paused", b"x")
    broker.pause()
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(len(broker.records("paused"))))
    reader.start()
    reader.join(0.2)
    assert not found
    broker.resume()
    reader.join(120)
    assert found == [1]


@pytest.mark.parametrize("isolate", [False, True])
def test_clock_is_advanced_for_retention(isolate: bool) -> None:
    with ottla.Broker(settings=FAULTS, isolate=isolate) as broker:
        broker.produce("old", b"x")
        before_ms = broker.clock.now_ms
        broker.clock.advance(days=7, hours=1)
        assert broker.clock.now_ms - before_ms >= 7 * 24 * 3600 * 1000
        assert broker.clock.offset_ms == (7 * 24 + 1) * 3600 * 1000
        deadline_s = time.monotonic() + 120
        while broker.records("old"):
            assert time.monotonic() < deadline_s
        broker.restart()
        assert broker.clock.offset_ms == 0


def test_faults_apply_behind_tls_and_a_login() -> None:
    with ottla.Broker(settings=FAULTS, tls=True, sasl="SCRAM-SHA-512") as broker:
        with broker.faults.half_response("Metadata") as half, pytest.raises(OSError):
            broker.records("t")
        assert half.applied >= 1
        error = broker.faults.error("Produce", "POLICY_VIOLATION", times=1)
        broker.client.create_topic("t", 1)
        with pytest.raises(ottla.ProtocolError):
            broker.produce("t", b"x")
        broker.produce("t", b"y")
        assert (error.applied, len(broker.records("t"))) == (1, 1)


def test_full_disk_ends_a_broker_with_one_directory_as_kafka_does(tmp_path: Path) -> None:
    broker = ottla.Broker(data_dir=str(tmp_path / "d"), settings=FAULTS).start()
    try:
        broker.produce("t", b"kept")
        broker.faults.disk_full()
        with pytest.raises((ottla.ProtocolError, OSError)):
            broker.produce("t", b"lost")
        broker.restart()
        assert [record.value for record in broker.records("t")] == [b"kept"]
    finally:
        broker.stop()


@pytest.mark.parametrize("loop", LOOPS)
def test_faults_under_a_loop(loop: str) -> None:
    async def main() -> tuple[Any, ...]:
        async with ottla.Broker(settings=FAULTS) as broker:
            async with await broker.faults.delay("Metadata", 0.01) as delay:
                await broker.produce("t", b"x")
                calls = await delay.calls()
            error = await broker.faults.error("Produce", "POLICY_VIOLATION", topic="t")
            await error.once()
            with pytest.raises(ottla.ProtocolError):
                await broker.produce("t", b"y")
            await broker.clock.advance(days=1)
            await broker.pause()
            await broker.resume()
            await broker.produce("t", b"z")
            listed, applied = len(await broker.faults.list()), await error.applied()
            await broker.faults.clear()
            return calls >= 1, applied, listed, len(await broker.faults.list())

    assert LOOPS[loop](main) == (True, 1, 1, 0)


def test_broker_without_the_setting_has_no_faults() -> None:
    with ottla.Broker() as broker, pytest.raises(ottla.FaultsDisabled, match=r"ottla\.faults=true"):
        broker.faults.list()


def test_node_without_the_setting_loads_nothing_of_faults() -> None:
    code = """
import sys, ottla
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.node import Node
from ottla.runtime.real_env import RealEnv

nodes = []
init = Node.__init__
Node.__init__ = lambda node, *a, **k: (init(node, *a, **k), nodes.append(node))[0]
with ottla.Broker() as broker:
    broker.produce("t", b"x")
    broker.records("t")
    (node,) = nodes
    print(type(node.env).__name__, {type(x._dispatcher).__name__ for x in node.components.acceptors})
    print([name for name in sys.modules if "fault" in name])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["RealEnv {'Dispatcher'}", "['ottla.tools.fault_controls']"]


def request(
    broker: ottla.Broker, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """Send a request to the listener for faults; return the status and the response."""
    found = json.loads(Path(broker._fault_dir(), "ottla-faults.json").read_text())
    connection = http.client.HTTPConnection(found["address"], timeout=300)
    sent = {"Authorization": f"Bearer {found['token']}", **headers}
    connection.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body), sent)
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    return response.status, json.loads(raw) if raw.startswith(b"{") else {"text": raw.decode()}


def test_http_adds_lists_and_removes_faults(broker: ottla.Broker) -> None:
    status, added = request(broker, "POST", "/faults", {"fault": "drop", "api": "Produce", "times": 1})
    assert status == 200
    state = request(broker, "GET", "/faults")[1]
    assert (state["faults"], state["node"], state["listeners"][0]) == ([added], 1, broker.bootstrap_servers)
    status, removed = request(broker, "POST", "/faults/remove", {"id": added["id"]})
    assert (status, removed) == (200, {"removed": [added]})


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer \xe9"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "evil.example"}, 421),
    ],
)
def test_http_request_without_the_token_or_of_another_site_is_refused(
    broker: ottla.Broker, headers: dict[str, str], expected: int
) -> None:
    for method, path in (("GET", "/faults"), ("POST", "/faults"), ("POST", "/clock/advance")):
        assert request(broker, method, path, None, **headers)[0] == expected
    assert broker.faults.list() == []


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("/faults", b"{", "malformed JSON"),
        ("/faults", b"\xff", "malformed JSON"),
        ("/faults", b"[" * 60_000, "malformed JSON"),
        ("/faults", [], "JSON object expected"),
        ("/faults/limits", {"times": 1}, "id: number expected: None"),
        ("/faults/limits", {"id": 10**9}, "fault 1000000000 does not exist"),
        ("/faults/remove", {"id": "1"}, "id: number expected: '1'"),
        ("/clock/advance", {"ms": -1}, "ms: number from 0 to 31536000000000 expected: -1"),
        ("/clock/advance", {}, "ms: number from 0 to 31536000000000 expected: None"),
        ("/network", {"paused": 1}, "paused: true or false expected; blocked: list of addresses expected"),
        ("/network", {"blocked": ["nowhere"]}, "blocked: "),
    ],
)
def test_http_request_that_is_invalid_is_refused(broker: ottla.Broker, path: str, body: Any, problem: str) -> None:
    status, answer = request(broker, "POST", path, body)
    assert status == 400
    assert answer["error"].startswith(problem)


def test_file_with_the_token_is_private_and_removed(tmp_path: Path) -> None:
    left = tmp_path / "d" / "ottla-faults.json.tmp"
    left.parent.mkdir()
    left.write_text("left by another process")
    left.chmod(0o666)
    with ottla.Broker(data_dir=str(tmp_path / "d"), settings=FAULTS):
        assert stat.S_IMODE(os.stat(tmp_path / "d" / "ottla-faults.json").st_mode) == 0o600
    assert not (tmp_path / "d" / "ottla-faults.json").exists()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.0.0.1:9309", "kafka.example:9309"])
def test_listener_for_faults_is_on_a_loopback_address(address: str, tmp_path: Path) -> None:
    broker = ottla.Broker(data_dir=str(tmp_path / "d"), settings={**FAULTS, "ottla.faults.listener": address})
    with pytest.raises(ottla.BrokerFailed, match=f"ottla.faults.listener={address}: loopback address expected"):
        broker.start()
    assert not (tmp_path / "d" / "meta.properties").exists()


def command(broker: ottla.Broker, *words: str) -> tuple[int, str, str]:
    done = run_command("fault", words[0], "--data-dir", broker._fault_dir(), *words[1:])
    return done.status, done.out.decode(), done.err


def test_command_adds_lists_and_removes_faults(broker: ottla.Broker) -> None:
    status, out, _ = command(broker, "add", "error", "Produce", "NOT_ENOUGH_REPLICAS", "--times", "1", "-o", "json")
    (added,) = json.loads(out)
    assert status == 0
    assert added["code"] == "NOT_ENOUGH_REPLICAS"
    assert json.loads(command(broker, "list", "-o", "json")[1]) == [added]
    assert command(broker, "remove", str(added["id"]))[0] == 0
    assert command(broker, "list")[2] == "no faults\n"
    (full,) = json.loads(command(broker, "add", "disk_full", "--directory", "no/where", "-o", "json")[1])
    assert full["directory"] == os.path.abspath("no/where")


def test_command_advances_the_clock_and_pauses(broker: ottla.Broker) -> None:
    before_ms = broker.clock.offset_ms
    status, out, _ = command(broker, "clock", "--advance-minutes", "1.5", "-o", "json")
    assert (status, json.loads(out)[0]["offset_ms"]) == (0, before_ms + 90_000)
    assert command(broker, "pause")[0] == 0
    assert request(broker, "GET", "/faults")[1]["paused"]
    assert command(broker, "resume")[0] == 0
    assert not request(broker, "GET", "/faults")[1]["paused"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add", "drop", "Prodduce"], "ottla fault: unknown API: Prodduce\n"),
        (["add", "drop"], "ottla fault: drop needs api\n"),
        (["add", "delay", "Fetch"], "ottla fault: delay needs --seconds\n"),
        (["add", "error", "Fetch", "NOPE"], "ottla fault: unknown error code: NOPE\n"),
        (["remove"], "ottla fault: ids of faults, or --all, expected\n"),
        (["remove", "999999"], "ottla fault: fault 999999 does not exist\n"),
    ],
)
def test_command_with_wrong_arguments_names_the_cause(broker: ottla.Broker, words: list[str], problem: str) -> None:
    assert command(broker, *words) == (1, "", problem)


def test_command_names_a_node_without_faults(tmp_path: Path) -> None:
    done = run_command("fault", "list", "--data-dir", str(tmp_path))
    file = tmp_path / "ottla-faults.json"
    assert (done.status, done.err) == (
        1,
        f"ottla fault: {file} does not exist: start the node with ottla.faults=true\n",
    )
