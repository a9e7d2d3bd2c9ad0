"""Stock clients of four languages in consumer (KIP-848) and share groups: of two members one is killed.

``OTTLA_NEW_CLIENTS=both`` runs the tests with a real Kafka as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients.client_matrix import (
    CLIENTS,
    MEMBERS_TIMEOUT_S,
    MemberProcess,
    ToolchainMissing,
    client_command,
    two_members,
)
from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.vs_kafka.scenarios.consumer_group_scenarios import prepare_group
from compat_tests.vs_kafka.scenarios.scenario_session import ScenarioSession

pytestmark = pytest.mark.xdist_group(__name__)
DOCS = Path(__file__).parent.parent.parent / "docs" / "reference" / "clients.md"
PEERS = ["ottla", "kafka"] if os.environ.get("OTTLA_NEW_CLIENTS") == "both" else ["ottla"]
NEW_PROTOCOL = ("confluent-kafka", "Java kafka-clients", "franz-go", "rdkafka (Rust)")
SHARERS = ("confluent-kafka", "Java kafka-clients", "franz-go")
"""Clients whose library has share consumers."""
SOON = {
    f"group_{kind}_{name}": value
    for kind in ("consumer", "share")
    for name, value in (
        ("session_timeout_ms", "6000"),
        ("min_session_timeout_ms", "6000"),
        ("heartbeat_interval_ms", "500"),
        ("min_heartbeat_interval_ms", "500"),
    )
}


@pytest.fixture(scope="module", params=PEERS)
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    kind = OttlaProcess if request.param == "ottla" else KafkaProcess
    with kind(tmp_path_factory.mktemp(request.param) / "data", **SOON) as process:
        yield process


def command(name: str) -> list[str]:
    """Return the command of a client's program."""
    try:
        return client_command(next(client for client in CLIENTS if client.name == name))
    except ToolchainMissing as missing:
        pytest.skip(str(missing))


def plain(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


@pytest.mark.parametrize("name", NEW_PROTOCOL)
def test_consumer_group_after_kill_of_a_member_assigns_its_partition(node: Any, name: str) -> None:
    assert two_members(command(name), node.bootstrap, f"new-{plain(name)}", "new-member")


@pytest.mark.parametrize("name", SHARERS)
def test_share_group_after_kill_of_a_member_delivers_all_records(node: Any, name: str) -> None:
    topic, at = f"shared-{plain(name)}", {"bootstrap.servers": node.bootstrap}
    admin = AdminClient(at)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(120)
    stage = ScenarioSession(node.port)
    prepare_group(stage, topic, "share.assignment.interval.ms")
    stage.alter_configs("from its beginning", 32, topic, ("share.auto.offset.reset", 0, "earliest"))
    stage.wait_until_current()
    producer = Producer(at)
    members = [MemberProcess(command(name), node.bootstrap, topic, topic, "sharer") for _ in range(2)]
    first, second = members
    deadline = time.monotonic() + MEMBERS_TIMEOUT_S
    sent: list[str] = []

    def write() -> None:
        assert time.monotonic() < deadline, (len(sent), len(first.records_seen), len(second.records_seen))
        for partition in (0, 1):
            producer.produce(topic, f"record {len(sent)}", partition=partition)
            sent.append(f"record {len(sent)}")
        producer.flush(120)
        time.sleep(0.2)

    def seen() -> set[str]:
        return first.records_seen.keys() | second.records_seen.keys()

    try:
        while not (first.records_seen and second.records_seen):
            write()
        stable_at = time.monotonic() + 2
        # records that were locked when the second member joined may still be delivered again
        earlier = len(sent)
        while time.monotonic() < stable_at or not set(sent[:earlier]) <= seen():
            write()
        mark = len(sent)
        while not (len(sent) > mark + 20 and set(sent[:-10]) <= seen()):
            write()
        assert not set(sent[mark:]) & first.records_seen.keys() & second.records_seen.keys(), "each goes to one of them"
        second.kill()
        members.pop()
        mark = len(sent)
        while {place for value in sent[mark:] for place in first.records_seen.get(value, ())} != {0, 1}:
            write()
        while not set(sent) <= seen():
            assert time.monotonic() < deadline, sorted(set(sent) - seen())
            time.sleep(0.2)
    finally:
        for member in members:
            member.kill()


def test_documentation_lists_clients_of_the_group_protocols() -> None:
    output = DOCS.read_text()
    for name in NEW_PROTOCOL:
        assert f"| {name} | yes | {'yes' if name in SHARERS else '-'} |" in output
