"""Node that runs out of file descriptors: requests that need one get an error, until descriptors are free again."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from compat_tests.support.connection_flood import (
    ConnectionFlood,
    create_topic,
    leader_epoch,
    set_descriptor_limit,
    time_first_produce_s,
)
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla import Cluster
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, describe_log_dirs
from ottla.wire.record_batch import records

PARTITIONS = 40
PATIENCE_S = 180.0


def produce(peer: RawClient, partition: int) -> tuple[int, int]:
    """Return error code and offset."""
    raw = records.build_batch([records.NewRecord(b"k", b"v" * 100, time.time_ns() // 10**6)])
    row = peer.produce("t", partition, raw)
    return row.error_code, row.base_offset


def test_produce_without_free_descriptors_returns_error_and_keeps_log_dir_online(data_dir: Path) -> None:
    with OttlaProcess(data_dir) as node:
        body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", PARTITIONS, 1)], 30_000)
        assert RawClient(node.port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0
    with OttlaProcess(data_dir, node.port) as node:  # after a clean start no file of a partition is open
        peer = RawClient(node.port)
        assert produce(peer, 0) == (0, 0)
        before = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
        highest = max(int(fd.name) for fd in Path(f"/proc/{node.pid}/fd").iterdir())
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (highest + 4, before[1]))
        codes = [produce(peer, number)[0] for number in range(PARTITIONS)]
        assert codes[0] == 0, "what is open goes on"
        assert 56 in codes
        assert set(codes) <= {0, 56}
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, before)
        again = [produce(peer, number) for number in range(PARTITIONS)]
        assert [code for code, _ in again] == [0] * PARTITIONS
        written = [1 + (number == 0) if codes[number] == 0 else 0 for number in range(PARTITIONS)]
        assert [offset for _, offset in again] == written, "a refused record left nothing behind"
        answer = peer.call(ApiKey.DESCRIBE_LOG_DIRS, 4, describe_log_dirs.DescribeLogDirsRequest(None))
        assert [x.error_code for x in answer.results] == [0]
        assert node.stop() == 0


@pytest.mark.parametrize("nodes", [1, 3])
def test_connection_flood_without_free_descriptors_ends_no_node(nodes: int) -> None:
    """Descriptors reserved for the node's own files; idle connections closed for new ones."""
    settings = {"metadata.log.max.snapshot.interval.ms": "500"}
    with Cluster(nodes, settings=settings) as cluster:
        ports = [node.port for node in cluster.nodes]
        create_topic(ports[0], nodes)
        assert time_first_produce_s(cluster.bootstrap_servers) < PATIENCE_S
        for node in cluster.nodes:
            assert node.pid is not None
            set_descriptor_limit(node.pid)
        with ConnectionFlood(ports):
            wait_until(lambda: all("Too many open files" in Path(node.log).read_text() for node in cluster.nodes), 0.2)
            body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("u", 3, nodes)], 30_000)
            wait_until(lambda: _created(ports[0], body))
        assert time_first_produce_s(cluster.bootstrap_servers) < PATIENCE_S
        assert [node.status for node in cluster.nodes] == [None] * nodes
        assert leader_epoch(ports[0])[0] in range(1, nodes + 1)


def _created(port: int, body: create_topics.CreateTopicsRequest) -> bool:
    try:
        return RawClient(port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code in (0, 36)
    except (OSError, EOFError):
        return False
