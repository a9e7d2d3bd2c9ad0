"""``ottla topic list --size`` and ``describe --size``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import ottla
from ottla.cli.cluster_admin.replica_sizes import add_partition_sizes, add_topic_sizes
from ottla.cli.tests.command_runs import run_command
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_log_dirs as dld
from ottla.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

pytestmark = pytest.mark.xdist_group(__name__)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[ottla.Broker]:
    with ottla.Broker(data_dir=str(data_dir)) as node:
        for topic, partitions in (("events", 2), ("empty", 1)):
            node.client.create_topic(topic, partitions)
        node.produce("events", b"x" * 1000, partition=0)
        node.produce("events", b"x" * 50, partition=1)
        yield node


def rows(broker: ottla.Broker, *words: str) -> list[dict[str, Any]]:
    done = run_command("topic", *words, "-b", broker.bootstrap_servers, "-o", "json")
    assert (done.status, done.err) == (0, ""), done
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


def test_topic_sizes_are_those_of_the_segment_files(broker: ottla.Broker, data_dir: Path) -> None:
    first, second = (os.path.getsize(path) for path in sorted(data_dir.glob("events-*/*.log")))
    assert first > 1000 > second > 50
    by_topic = {row["topic"]: (row["size"], row["total size"]) for row in rows(broker, "list", "--size")}
    assert by_topic == {"events": (first + second, first + second), "empty": (0, 0)}
    found = rows(broker, "describe", "events", "--size")
    assert [(row["partition"], row["size"], row["total size"]) for row in found] == [
        (0, first, first),
        (1, second, second),
    ]


def test_topics_without_the_option_have_no_size(broker: ottla.Broker) -> None:
    assert not [row for words in (["list"], ["describe", "events"]) for row in rows(broker, *words) if "size" in row]


class SizedCluster:
    """Client of brokers 1 to 3, of which 3 is down; a replica has 100 bytes for each number of its broker.

    The directory of broker 2 with partition 2 has failed, and broker 1 is moving partition 0 to another directory.
    """

    def __init__(self) -> None:
        self.requests: list[int] = []

    async def metadata(self, topics: Any) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1), SimpleNamespace(node_id=2)])

    async def broker(self, node_id: int) -> Any:
        async def call(request: dld.DescribeLogDirsRequest) -> dld.DescribeLogDirsResponse:
            self.requests.append(node_id)
            results = [dld.DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, "/failed")]
            for topic in request.topics or ():
                numbers = [x for x in topic.partitions if (node_id, x) != (2, 2)]
                sizes = [dld.DescribeLogDirsPartition(number, node_id * 100) for number in numbers]
                sizes += [dld.DescribeLogDirsPartition(number, 7, 0, True) for number in numbers if number == 0]
                results.append(dld.DescribeLogDirsResult(0, "/d", [dld.DescribeLogDirsTopic(topic.topic, sizes)]))
            return dld.DescribeLogDirsResponse(results=results)

        return SimpleNamespace(call=call)


def topic(name: str, **partitions: tuple[int, list[int]]) -> MetadataResponseTopic:
    """Return a topic with leader and replicas of each partition."""
    numbered = enumerate(partitions.values())
    shown = [
        MetadataResponsePartition(partition_index=number, leader_id=leader, replica_nodes=replicas)
        for number, (leader, replicas) in numbered
    ]
    return MetadataResponseTopic(name=name, partitions=shown)


def test_size_of_leaders_and_of_all_replicas_takes_one_request_to_each_live_broker() -> None:
    cluster: Any = SizedCluster()
    topics = [
        topic("both", zero=(1, [1, 2]), one=(2, [2, 1])),
        topic("down", zero=(1, [1, 3])),
        topic("failed", zero=(1, [1, 2]), one=(1, [1]), two=(2, [2])),
        topic("leaderless", zero=(-1, [1])),
    ]
    found: list[dict[str, Any]] = [{} for _ in topics]
    trio.run(add_topic_sizes, cluster, topics, found)
    assert [(row["size"], row["total size"]) for row in found] == [(300, 600), (100, None), (None, None), (None, 100)]
    assert sorted(cluster.requests) == [1, 2]


def test_partition_sizes_are_unknown_for_one_partition_only() -> None:
    cluster: Any = SizedCluster()
    found: list[dict[str, Any]] = [{}, {}, {}]
    trio.run(add_partition_sizes, cluster, topic("t", zero=(1, [1, 2]), one=(1, [1]), two=(2, [2])), found)
    assert [(row["size"], row["total size"]) for row in found] == [(100, 300), (100, 100), (None, None)]
