"""Pytest fixtures with another cluster: report header, and cleanup of topics and groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.real_env import RealEnv
from ottla.wire.messages.list_groups import ListGroupsRequest

TEST = """
import pytest
import trio
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.real_env import RealEnv
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
)

def test_one(kafka_bootstrap, kafka_topic, kafka_group):
    async def commit():
        client = ClusterClient(RealEnv(), kafka_bootstrap)
        await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[kafka_group]))
        topics = [OffsetCommitRequestTopic(kafka_topic, partitions=[OffsetCommitRequestPartition(0, 0)])]
        for _ in range(1200):
            answer = await client.call(OffsetCommitRequest(kafka_group, topics=topics), 9)
            if not answer.topics[0].partitions[0].error_code:
                return
            await trio.sleep(0.05)
        raise AssertionError(answer)

    trio.run(commit)
"""


def _run_pytest(folder: Path, **environment: str) -> str:
    (folder / "test_it.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "test_it.py"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout
    return done.stdout


def test_plugin_header_contains_cluster_and_fixtures_clean_up(tmp_path: Path) -> None:
    async def remaining(bootstrap: str) -> tuple[list[Any], list[Any]]:
        client = ClusterClient(RealEnv(), bootstrap)
        topics = [topic.name for topic in (await client.metadata(None)).topics if not topic.is_internal]
        return topics, [group.group_id for group in (await client.call(ListGroupsRequest())).groups]

    with ottla.Broker() as other:
        seen = _run_pytest(tmp_path, OTTLA_TEST_BOOTSTRAP=other.bootstrap_servers)
        assert f"ottla: cluster {other.bootstrap_servers} (OTTLA_TEST_BOOTSTRAP)" in seen
        assert trio.run(remaining, other.bootstrap_servers) == ([], [])


def test_plugin_ignores_bootstrap_variable_of_command_line(tmp_path: Path) -> None:
    assert "ottla: embedded broker" in _run_pytest(tmp_path, OTTLA_BOOTSTRAP="127.0.0.1:1", OTTLA_TEST_BOOTSTRAP="")


CONFIGURED = """
import pytest

@pytest.fixture(scope="module")
def kafka_broker_options(kafka_broker_options):
    kafka_broker_options["settings"]["message.max.bytes"] = 2000
    return kafka_broker_options

ports = set()

def test_topic_has_the_partitions_of_the_option(kafka_broker, kafka_client, kafka_topic):
    ports.add(kafka_broker.port)
    kafka_client.produce(kafka_topic, b"a", b"b", b"c")
    assert {x.partition for x in kafka_client.expect(kafka_topic, 3)} == {0, 1, 2}
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        kafka_client.produce(kafka_topic, b"x" * 3000)

@pytest.mark.kafka_topic(partitions=1, settings={"max.message.bytes": 9000})
def test_topic_has_the_settings_of_the_marker(kafka_client, kafka_topic):
    kafka_client.produce(kafka_topic, b"a", b"x" * 3000)
    assert {x.partition for x in kafka_client.expect(kafka_topic, 2)} == {0}

def test_factory_creates_topics(kafka_broker, kafka_topic_factory):
    ports.add(kafka_broker.port)
    assert kafka_topic_factory(2, name="named") == "named"
    assert kafka_topic_factory() != kafka_topic_factory()
    kafka_broker.produce("named", b"x")

def test_broker_is_the_modules_and_encrypts(kafka_broker, kafka_bootstrap):
    assert kafka_broker.client_config()["security.protocol"] == "SSL"
    assert "named" not in str(kafka_broker.client_config())
    with pytest.raises(Exception, match="UNKNOWN_TOPIC"):
        kafka_broker.records("named")
    assert ports == {kafka_broker.port}
"""
OPTIONS = """
[pytest]
ottla_scope = module
ottla_partitions = 3
ottla_tls = true
ottla_settings =
    auto.create.topics.enable=false
    num.partitions=5
"""


def _pytest_output(folder: Path, test: str, options: str = "[pytest]", **environment: str) -> str:
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text(options)
    command = [sys.executable, "-m", "pytest", "-n", "0", "--strict-markers", "-p", "no:cacheprovider", "test_it.py"]
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, check=False)
    return done.stdout + done.stderr


def test_plugin_options_overridden_fixture_and_marker_apply(tmp_path: Path) -> None:
    seen = _pytest_output(tmp_path, CONFIGURED, OPTIONS, OTTLA_TEST_BOOTSTRAP="")
    assert "4 passed" in seen, seen
    assert "warning" not in seen


def test_plugin_unreachable_address_prints_one_line_without_traceback(tmp_path: Path) -> None:
    test = "def test_one(kafka_topic): pass"
    seen = _pytest_output(tmp_path, test, OTTLA_TEST_BOOTSTRAP="127.0.0.1:1")
    assert "OTTLA_TEST_BOOTSTRAP=127.0.0.1:1: cannot connect to 127.0.0.1:1: Connection refused" in seen
    assert "Traceback" not in seen
    assert "trio" not in seen


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("ottla_scope = run", "ottla_scope: run (choose from session, package, module, class, function)"),
        ("ottla_partitions = 0", "ottla_partitions: number of 1 or more expected: 0"),
        ("ottla_nodes = x", "ottla_nodes: number of 1 or more expected: x"),
        ("ottla_settings = num.partitions", "ottla_settings: KEY=VALUE expected: num.partitions"),
    ],
)
def test_plugin_invalid_option_ends_run_with_its_name(tmp_path: Path, option: str, message: str) -> None:
    seen = _pytest_output(tmp_path, "def test_one(): pass", f"[pytest]\n{option}")
    assert message in seen, seen
    assert "Traceback" not in seen
