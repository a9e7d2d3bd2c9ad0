"""The fixtures on another cluster: it is named in the header, and nothing stays behind on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import trio

import ottla
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.real_env import RealEnv
from ottla.wire.messages.list_groups import ListGroupsRequest

TEST = """
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
        for _ in range(100):
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


def test_header_names_the_cluster_and_topics_and_groups_are_deleted(tmp_path: Path) -> None:
    async def remaining(bootstrap: str) -> tuple[list[Any], list[Any]]:
        client = ClusterClient(RealEnv(), bootstrap)
        topics = [topic.name for topic in (await client.metadata(None)).topics if not topic.is_internal]
        return topics, [group.group_id for group in (await client.call(ListGroupsRequest())).groups]

    with ottla.Broker() as other:
        seen = _run_pytest(tmp_path, OTTLA_TEST_BOOTSTRAP=other.bootstrap_servers)
        assert f"ottla: cluster {other.bootstrap_servers} (OTTLA_TEST_BOOTSTRAP)" in seen
        assert trio.run(remaining, other.bootstrap_servers) == ([], [])


def test_variable_of_the_command_line_has_no_effect(tmp_path: Path) -> None:
    assert "ottla: embedded broker" in _run_pytest(tmp_path, OTTLA_BOOTSTRAP="127.0.0.1:1", OTTLA_TEST_BOOTSTRAP="")
