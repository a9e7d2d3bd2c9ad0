"""Command line against a node and against Kafka: the same output."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from compat_tests.support.processes import OTTLA, KafkaProcess, OttlaProcess
from compat_tests.support.round_trip import round_trip

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kind = OttlaProcess if request.param == "ottla" else KafkaProcess
    with kind(tmp_path_factory.mktemp(request.param) / "data") as process:
        yield process.bootstrap


def ottla(*arguments: str, stdin: str = "", status: int = 0) -> str:
    done = subprocess.run([OTTLA, *arguments], input=stdin, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def rows(*arguments: str) -> Any:
    return json.loads(ottla(*arguments, "-o", "json"))


def test_ottla_commands_manage_topics_records_and_groups(bootstrap: str) -> None:
    at = ["-b", bootstrap]
    ottla("topic", "create", "events", "--partitions", "2", "--config", "retention.ms=86400000", *at)
    assert [r["topic"] for r in rows("topic", "list", *at)] == ["events"]
    lines = "".join(f"user-{i % 10}:clicked {i}\n" for i in range(30))
    ottla("produce", "events", "--key-separator", ":", "--codec", "zstd", "--header", "from=test", *at, stdin=lines)
    described = rows("topic", "describe", "events", *at)
    assert sum(r["end"] for r in described) == 30
    assert [r["leader"] for r in described] == [1, 1]
    ottla("topic", "config", "events", "--set", "max.message.bytes=5000", *at)
    config = {r["key"]: r["value"] for r in rows("topic", "config", "events", *at)}
    assert config["max.message.bytes"] == "5000"
    assert config["retention.ms"] == "86400000"
    got = [json.loads(x) for x in ottla("consume", "events", "--exit", "-o", "json", *at).splitlines()]
    assert sorted(x["value"] for x in got) == sorted(f"clicked {i}" for i in range(30))
    assert {x["headers"]["from"] for x in got} == {"test"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    assert len(consumer.consume(30, 30)) == 30
    consumer.commit(asynchronous=False)
    consumer.close()
    deadline = time.monotonic() + 120
    (group,) = rows("group", "describe", "billing", *at)
    while group["state"] != "Empty":  # the leave of the member may still be on its way
        assert time.monotonic() < deadline, group
        (group,) = rows("group", "describe", "billing", *at)
    assert [p["lag"] for p in group["positions"]] == [0, 0]
    assert "billing" in [r["group"] for r in rows("group", "list", *at)]
    ottla("topic", "partitions", "events", "--partitions", "4", *at)
    ottla("topic", "delete", "events", *at)
    assert "group nobody does not exist" in ottla("group", "describe", "nobody", *at, status=1)
    assert "topic nowhere does not exist" in ottla("topic", "describe", "nowhere", *at, status=1)


@pytest.mark.parametrize("mode", [[], ["--bytes"]])
def test_ottla_trace_prints_requests_of_client_and_rewrites_addresses(
    bootstrap: str, mode: list[str], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    with seen.open("w") as out:
        proxy = subprocess.Popen([OTTLA, "trace", "--listen", "0", "--to", bootstrap, *mode], stdout=out)
    deadline = time.monotonic() + 120
    while "\n" not in seen.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    where = seen.read_text().split()[2]
    topic = f"traced{len(mode)}"
    value = round_trip(where, topic, b"seen")
    proxy.terminate()
    proxy.wait()
    assert value == b"seen"
    text = seen.read_text()
    assert "cannot be read" not in text
    for api in ("API_VERSIONS", "METADATA", "PRODUCE", "FIND_COORDINATOR", "JOIN_GROUP", "SYNC_GROUP", "FETCH"):
        assert f" -> {api} v" in text, f"{api} went by unseen"
        assert f" <- {api} v" in text
    assert ("magic = 2" in text) if mode else ("(1 records, none)" in text)


def test_ottla_command_with_unreachable_broker_prints_one_line_and_exits_with_1() -> None:
    text = ottla("topic", "list", "-b", "127.0.0.1:1", status=1)
    assert len(text.splitlines()) == 1
