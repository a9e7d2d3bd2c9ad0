"""Embedded broker and its fixtures: starts, stops and resources."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer

import ottla
from compat_tests.support.raw_client import RawClient, wait_until
from compat_tests.support.round_trip import round_trip
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics

CYCLES = int(os.environ.get("OTTLA_CYCLES", "300"))
"""Number of starts; ``make soak`` sets more."""


@pytest.mark.parametrize("isolate", [False, True])
def test_embedded_broker_serves_a_client(isolate: bool) -> None:
    with ottla.Broker(isolate=isolate) as broker:
        assert round_trip(broker.bootstrap_servers, "t") == b"hello"


def test_isolated_broker_settings_override_environment_and_are_no_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "2")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = {"num.partitions": "3", "ssl.keystore.password": "not for other users"}
    with ottla.Broker(isolate=True, settings=settings) as broker:
        assert broker._child is not None
        assert b"not for other users" not in Path(f"/proc/{broker._child.pid}/cmdline").read_bytes()
        assert list(tmp_path.glob("*.properties")) == []
        body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", -1, -1)], 30_000)
        assert RawClient(broker.port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].num_partitions == 3


def test_embedded_broker_with_data_dir_keeps_topics(tmp_path: Path) -> None:
    with ottla.Broker(data_dir=str(tmp_path / "d")) as broker:
        assert round_trip(broker.bootstrap_servers, "t") == b"hello"
    with ottla.Broker(data_dir=str(tmp_path / "d")) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        assert "t" in consumer.list_topics(timeout=120).topics
        consumer.close()


def test_embedded_broker_in_async_with_serves_under_trio() -> None:
    async def main() -> bytes:
        async with ottla.Broker() as broker:
            return await trio.to_thread.run_sync(round_trip, broker.bootstrap_servers, "t")

    assert trio.run(main) == b"hello"


def test_embedded_broker_with_used_port_raises_and_leaves_no_thread() -> None:
    threads = threading.active_count()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with pytest.raises(Exception, match="did not start"), ottla.Broker(port=sock.getsockname()[1]):
            pass
    wait_until(lambda: threading.active_count() <= threads + 1)


def test_embedded_broker_in_300_cycles_leaks_no_thread_descriptor_or_port() -> None:
    with ottla.Broker():
        pass
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    ports = set()
    for _ in range(CYCLES):
        with ottla.Broker() as broker:
            ports.add(broker.port)
            with socket.create_connection(("127.0.0.1", broker.port), 5) as sock:
                sock.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
                assert len(sock.recv(4)) == 4
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", broker.port), 5).close()
    wait_until(lambda: threading.active_count() <= threads + 1)  # trio keeps idle worker threads for ten seconds
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


PLUGIN_TEST = """
from confluent_kafka import Producer

def test_one(kafka_bootstrap, kafka_topic, kafka_group):
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(kafka_topic, b"x")
    assert producer.flush(120) == 0
    assert kafka_group != kafka_topic

def test_two(kafka_broker, kafka_topic):
    assert "test_two" in kafka_topic
"""


@pytest.mark.parametrize("workers", ["0", "2"])
@pytest.mark.parametrize("external", [False, True])
def test_pytest_fixtures_work_under_xdist_and_with_external_cluster(
    tmp_path: Path,
    workers: str,
    external: bool,
) -> None:
    (tmp_path / "test_it.py").write_text(PLUGIN_TEST)
    with ottla.Broker() as other:
        environment = {**os.environ, **({"OTTLA_TEST_BOOTSTRAP": other.bootstrap_servers} if external else {})}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", str(tmp_path)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
