"""Python API: settings, client of an embedded broker, asyncio and trio, restarts, public names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla
from ottla.client.cluster_client import ClusterClient
from ottla.env.tests.reference_cycles import count_cycles
from ottla.runtime.blocking_env import BlockingEnv, run_blocking
from ottla.tools.setting_values import broker_settings_text
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

pytestmark = pytest.mark.xdist_group(__name__)
ANY_API_VERSIONS = encode_request(ApiKey.API_VERSIONS, 3, 1, "cycles", ApiVersionsRequest("test", "1"))
LOOPS: dict[str, Callable[[Callable[[], Awaitable[Any]]], Any]] = {
    "asyncio": lambda main: asyncio.run(main()),  # type: ignore[arg-type]
    "trio": trio.run,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    with ottla.Broker(settings={"num.partitions": 3}) as running:
        yield running


def commit(broker: ottla.Broker, group: str, topic: str, partition: int, offset: int) -> None:
    """Commit an offset without group membership."""

    async def work() -> int:
        client = ClusterClient(BlockingEnv(), broker.bootstrap_servers)
        await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        rows = [OffsetCommitRequestPartition(partition, offset)]
        request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(topic, partitions=rows)])
        answer = await client.call(request, 9)
        client.close()
        return int(answer.topics[0].partitions[0].error_code)

    for _ in range(3000):
        code = run_blocking(work())
        if code not in (14, 15, 16):  # coordinator loading
            break
        trio.run(trio.sleep, 0.02)
    assert code == 0


def test_public_names_are_listed_and_importable() -> None:
    assert {"AsyncBroker", "Broker", "BrokerFailed", "Cluster", "ConfigException"} <= set(dir(ottla))
    for name in dir(ottla):
        assert getattr(ottla, name) is not None
    with pytest.raises(AttributeError, match="nope"):
        _ = ottla.nope


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (0.5, "0.5"), (True, "true"), (False, "false"), ("x", "x"), (["a", "b"], "a,b"), (Path("/d"), "/d")],
)
def test_broker_settings_text_converts_values(value: Any, text: str) -> None:
    assert broker_settings_text({"listener.name.x.y": value}) == {"listener.name.x.y": text}


@pytest.mark.parametrize("kind", ["Broker", "Cluster"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.partition": 3}, "unknown setting: num.partition; did you mean num.partitions?"),
        ({"num.partitions": None}, "setting num.partitions: .* expected, not NoneType"),
        ({"num.partitions": "x"}, "num.partitions"),
        ({3: "x"}, "name of a setting expected, not int: 3"),
    ],
)
def test_broker_and_cluster_invalid_settings_raise_config_exception(kind: str, settings: Any, message: str) -> None:
    with pytest.raises(ottla.ConfigException, match=message):
        getattr(ottla, kind)(settings=settings)


def test_produce_and_records_keep_all_fields(broker: ottla.Broker) -> None:
    broker.produce("fields", b"a", "b", None, key="k", headers={"h": "x", "n": None}, timestamp_ms=7)
    found = broker.records("fields")
    assert [(x.offset, x.timestamp_ms, x.key, x.value) for x in found] == [
        (0, 7, b"k", b"a"),
        (1, 7, b"k", b"b"),
        (2, 7, b"k", None),
    ]
    assert found[0].headers == (("h", b"x"), ("n", None))
    assert len({x.partition for x in found}) == 1
    assert (found[0].text, found[2].text) == ("a", None)


def test_produce_without_key_rotates_partitions_or_uses_given_one(broker: ottla.Broker) -> None:
    broker.produce("spread", b"0", b"1", b"2", b"3")
    broker.produce("spread", b"4", partition=1)
    found = sorted((x.partition, x.value) for x in broker.records("spread"))
    assert found == [(0, b"0"), (0, b"3"), (1, b"1"), (1, b"4"), (2, b"2")]


def test_records_missing_topic_raises_and_expect_waits(broker: ottla.Broker) -> None:
    with pytest.raises(ottla.ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION: topic nope"):
        broker.records("nope")
    with pytest.raises(ottla.ExpectationFailed, match="topic nope has 0 records, 1 expected"):
        broker.expect("nope", 1, timeout_s=0)
    assert broker.expect("nope", 0) == []


def test_expect_returns_when_records_exist(broker: ottla.Broker) -> None:
    with pytest.raises(AssertionError, match="topic late has 0 records, 2 expected"):
        broker.expect("late", 2, timeout_s=0)
    broker.produce("late", b"a", b"b", b"c")
    assert len(broker.expect("late", 2)) == 3


def test_wait_for_counts_partitions_without_committed_offset(broker: ottla.Broker) -> None:
    with pytest.raises(ottla.ExpectationFailed, match="group readers has committed no offset"):
        broker.wait_for("readers", timeout_s=0)
    for number in (0, 1):
        broker.produce("lagging", b"a", b"b", partition=number)
    commit(broker, "readers", "lagging", 0, 1)
    with pytest.raises(ottla.ExpectationFailed, match="group readers has a lag of 3 records, at most 2 expected"):
        broker.wait_for("readers", lag=2, timeout_s=0)
    with pytest.raises(ottla.ExpectationFailed, match="has committed no offset in topic other"):
        broker.wait_for("readers", lag=3, topic="other", timeout_s=0)
    broker.wait_for("readers", lag=3)
    commit(broker, "readers", "lagging", 0, 2)
    commit(broker, "readers", "lagging", 1, 2)
    broker.wait_for("readers", topic="lagging")


def test_create_topic_sets_configs_and_partitions(broker: ottla.Broker) -> None:
    broker.client.create_topic("made", 2, settings={"retention.ms": 5, "preallocate": True})
    with pytest.raises(ottla.ProtocolError, match="TOPIC_ALREADY_EXISTS: topic made"):
        broker.client.create_topic("made")
    with pytest.raises(ottla.ProtocolError, match="INVALID_CONFIG: topic bad"):
        broker.client.create_topic("bad", settings={"retention.ms": "x"})
    broker.client.delete_topic("made")
    with pytest.raises(ottla.ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION: topic made"):
        broker.client.delete_topic("made")


@pytest.mark.parametrize("loop", LOOPS)
def test_async_broker_restart_keeps_port_and_records(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> list[bytes | None]:
        async with ottla.Broker(settings={"num.partitions": 1}) as broker:
            await broker.create_topic("t", 1)
            await broker.produce("t", b"a", "b")
            port = broker.port
            await broker.restart()
            assert (broker.port, broker.bootstrap_servers) == (port, f"{broker.host}:{port}")
            assert len(await broker.expect("t", 2)) == 2
            with pytest.raises(ottla.ExpectationFailed):
                await broker.wait_for("g", timeout_s=0)
            return [record.value for record in await broker.records("t")]

    assert LOOPS[loop](main) == [b"a", b"b"]
    assert not list(tmp_path.iterdir())


def test_cancelled_start_under_asyncio_stops_broker() -> None:
    broker = ottla.Broker()

    async def enter() -> None:
        async with broker:
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(enter())
        await asyncio.sleep(0)  # the starting thread is running
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not broker.is_running


@pytest.mark.parametrize("isolate", [False, True])
def test_restart_with_tls_and_sasl_keeps_users_and_records(isolate: bool) -> None:
    with ottla.Broker(tls=True, sasl="SCRAM-SHA-512", isolate=isolate) as broker:
        broker.produce("t", b"a")
        broker.restart()
        assert [record.value for record in broker.expect("t", 1)] == [b"a"]


def test_start_twice_and_restart_of_stopped_broker_raise_broker_failed(broker: ottla.Broker) -> None:
    with pytest.raises(ottla.BrokerFailed, match="runs already"):
        broker.start()
    with pytest.raises(ottla.BrokerFailed, match="does not run"):
        ottla.Broker().restart()
    assert broker.is_running


def test_blocking_client_unreachable_address_error_contains_address() -> None:
    with pytest.raises(ConnectionError, match=r"cannot connect to 127\.0\.0\.1:1: Connection refused"):
        ottla.BlockingClient("127.0.0.1:1").records("t")


def cycles_of(work: Callable[[int], None]) -> int:
    """Run work 20 times, then up to ten times 100 times; return the fewest objects in reference cycles of these.

    Full collections of a node are rare. Work that a node does once, such as the compilation of a codec, and that of
    other threads is in some of the ten only.
    """
    for number in range(20):
        work(number)
    counts: list[int] = []
    for _ in range(3):
        with count_cycles(counts):
            for number in range(100):
                work(number)
    return min(counts)


@pytest.mark.parametrize(("tls", "sasl"), [(False, None), (True, None), (False, "PLAIN"), (True, "SCRAM-SHA-256")])
def test_node_creates_no_reference_cycles_per_connection_and_request(tls: bool, sasl: str | None) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect(number: int) -> None:
        with socket.create_connection((broker.host, broker.port), 10) as sock:
            stream = context.wrap_socket(sock) if tls and number % 3 else sock
            stream.sendall(b"\0\0\0\4abcd" if number % 2 else ANY_API_VERSIONS)
            with contextlib.suppress(OSError):
                stream.recv(1 << 16)
            stream.close()

    with ottla.Broker(tls=tls, sasl=sasl) as broker:
        assert cycles_of(connect) < 100


def test_node_creates_no_reference_cycles_per_deleted_topic(broker: ottla.Broker) -> None:
    def create_and_delete(number: int) -> None:
        if number % 10 == 0:
            broker.client.create_topic("short-lived")
            broker.produce("short-lived", b"x")
            broker.client.delete_topic("short-lived")

    assert cycles_of(create_and_delete) < 100


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_fork_of_the_program_leaves_broker_and_data_to_the_parent(broker: ottla.Broker) -> None:
    broker.produce("forked", b"before")
    child = os.fork()
    if child == 0:
        try:
            broker.stop()  # as at the end of a with block, and at exit
        finally:
            os._exit(int(broker.is_running))
    assert os.waitpid(child, 0)[1] == 0
    broker.produce("forked", b"after")
    assert [record.value for record in broker.expect("forked", 2)] == [b"before", b"after"]


def test_cancelled_wait_under_asyncio_does_not_delay_the_end_of_the_loop(broker: ottla.Broker) -> None:
    async def main() -> None:
        waiting = ottla.AsyncBroker(broker).expect("never", 1, timeout_s=3600)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0.05)

    asyncio.run(main())  # waits for the threads of the loop's executor


@pytest.mark.parametrize("loop", LOOPS)
def test_error_of_a_call_in_a_thread_reaches_the_task(broker: ottla.Broker, loop: str) -> None:
    async def main() -> None:
        with pytest.raises(ottla.ProtocolError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await ottla.AsyncBroker(broker).records("never")

    LOOPS[loop](main)


def test_produce_above_batch_size_splits_the_records(broker: ottla.Broker) -> None:
    values = [b"%05d" % number + b"x" * 1000 for number in range(2500)]
    broker.produce("large", *values, partition=1)
    assert [record.value for record in broker.records("large")] == values
    with pytest.raises(ottla.ProtocolError, match=r"^MESSAGE_TOO_LARGE: large-0$"):
        broker.produce("large", b"x" * 2_000_000, partition=0)


@pytest.mark.parametrize(
    "arguments", [{"key": 5}, {"headers": {"a": 5}}, {"headers": {"a": 1.5}}], ids=["key", "header", "number"]
)
def test_produce_with_value_of_other_type_raises_type_error(broker: ottla.Broker, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^bytes, text or None expected, not (int|float): [15]"):
        broker.produce("types", b"x", **arguments)
    with pytest.raises(TypeError, match="not dict"):
        broker.produce("types", {})  # type: ignore[arg-type]
    broker.produce("types", bytearray(b"a"), memoryview(b"b"), timestamp_ms=1.5e12)  # type: ignore[arg-type]
    assert {record.timestamp_ms for record in broker.records("types")} == {1_500_000_000_000}
    broker.client.delete_topic("types")


def test_produce_to_a_partition_that_does_not_exist_names_it(broker: ottla.Broker) -> None:
    with pytest.raises(
        ottla.ProtocolError, match=r"^UNKNOWN_TOPIC_OR_PARTITION: partition 99 of topic few does not exist$"
    ):
        broker.produce("few", b"x", partition=99)


def test_paths_of_any_type_are_data_directories_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    with ottla.Broker(data_dir=tmp_path / "a") as broker:
        broker.produce("t", b"x")
        assert (tmp_path / "a" / "t-0").is_dir()
        assert broker.is_running
    assert not broker.is_running
    assert ottla.Cluster(1, data_dir=tmp_path / "b").nodes[0].data_dir == str(tmp_path / "b" / "node-1")
    for start in (lambda: ottla.Broker(data_dir=""), lambda: ottla.Cluster(data_dir="")):
        with pytest.raises(ValueError, match=r"^data_dir: empty path$"):
            start()


def test_broker_whose_process_ended_is_not_running_and_starts_again(tmp_path: Path) -> None:
    broker = ottla.Broker(data_dir=tmp_path, isolate=True).start()
    try:
        broker.produce("t", b"x")
        assert broker._child is not None
        broker._child.kill()
        broker._child.wait()
        assert not broker.is_running
        with pytest.raises(ottla.BrokerFailed, match="does not run"):
            broker.restart()
        broker.start()
        assert [record.value for record in broker.records("t")] == [b"x"]
    finally:
        broker.stop()
