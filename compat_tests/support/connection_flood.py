"""Clients that only open connections, as many as they can, and nodes with few descriptors."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Producer

from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, describe_quorum

CLIENTS = 20
DESCRIPTORS = 200
"""Limit of descriptors of each node; the clients open more connections than that to each."""
CONNECTIONS_PER_CLIENT = 4 * DESCRIPTORS // CLIENTS
"""Connections that a client of the crowd holds to each node at most."""

PAUSE_S = 0.01
"""Pause between two rounds of a client, so that the flood uses descriptors and not the processor."""


def set_descriptor_limit(pid: int, most: int = DESCRIPTORS) -> None:
    """Set the descriptor limit of a running process."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))


def count_descriptors(pid: int) -> int:
    """Return the number of descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


class ConnectionFlood:
    """Threads that open connections to ports of this machine and hold them, until they are stopped."""

    def __init__(self, ports: Sequence[int], clients: int = CLIENTS, held: int = CONNECTIONS_PER_CLIENT) -> None:
        self._ports = ports
        self._held = held
        self._stop = threading.Event()
        self.opened = 0
        self._threads = [threading.Thread(target=self._open, daemon=True) for _ in range(clients)]

    def _open(self) -> None:
        connections: list[socket.socket] = []
        while not self._stop.is_set():
            for port in self._ports:
                try:
                    connections.append(socket.create_connection(("127.0.0.1", port), 0.2))
                    self.opened += 1
                except OSError:
                    self._stop.wait(0.01)
            self._stop.wait(PAUSE_S)
            for connection in connections[: -self._held * len(self._ports)]:
                connection.close()
            del connections[: -self._held * len(self._ports)]
        for connection in connections:
            connection.close()

    def __enter__(self) -> ConnectionFlood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def time_first_produce_s(bootstrap: str, patience_s: float = 60) -> float:
    """Return how long a new producer waits for the acknowledgement of its first record; infinite if it never comes."""
    began, failures = time.monotonic(), []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
    left = producer.flush(patience_s)
    return float("inf") if left or failures else time.monotonic() - began


def leader_epoch(port: int) -> tuple[int, int]:
    """Return leader and epoch of the metadata quorum."""
    topic = describe_quorum.DescribeQuorumRequestTopicData(
        "__cluster_metadata", [describe_quorum.DescribeQuorumRequestPartitionData(0)]
    )
    answer = RawClient(port).call(ApiKey.DESCRIBE_QUORUM, 2, describe_quorum.DescribeQuorumRequest([topic]))
    row = answer.topics[0].partitions[0]
    return row.leader_id, row.leader_epoch


def create_topic(port: int, nodes: int) -> None:
    """Create the topic of the producer."""
    body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 3, nodes)], 30_000)
    assert RawClient(port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0
