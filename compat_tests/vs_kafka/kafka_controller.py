"""Kafka's controller classes in a process of their own, driven step by step.

The Java side is ``java/controller/ControllerDriver.java``.
"""

from __future__ import annotations

import struct
import subprocess
from typing import NamedTuple

from ottla.controller.metadata.record_serde import decode_record
from ottla.wire.codec.schema import Message
from ottla.wire.messages import (
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)

CLUSTER = "c"
SESSION_MS = 9_000
REPLAY, ADVANCE, ACTIVATE, RESET = 0, 1, 2, 99
FENCE_STALE, BALANCE, ELECT_UNCLEAN = 17, 18, 19
REQUEST_CODES: dict[type[Message], tuple[int, int]] = {
    broker_registration.BrokerRegistrationRequest: (10, 4),
    broker_heartbeat.BrokerHeartbeatRequest: (11, 2),
    alter_partition.AlterPartitionRequest: (12, 3),
    elect_leaders.ElectLeadersRequest: (13, 2),
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: (14, 1),
    list_partition_reassignments.ListPartitionReassignmentsRequest: (15, 0),
    unregister_broker.UnregisterBrokerRequest: (16, 0),
    assign_replicas_to_dirs.AssignReplicasToDirsRequest: (20, 0),
}
"""Names of requests on Kafka's side, with their versions."""


class ControllerStepResult(NamedTuple):
    """Result of a step by Kafka's classes."""

    records: list[Message]
    error: int
    answer: bytes | None


class KafkaControllerProcess:
    """Kafka's classes in a process of their own."""

    def __init__(self, classpath: str) -> None:
        self._process = subprocess.Popen(
            ["java", "-cp", classpath, "org.apache.kafka.controller.ControllerDriver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )

    def reset(self) -> None:
        """Start a new, empty cluster."""
        self._send(RESET, SESSION_MS, CLUSTER.encode())

    def step(self, call: int, version: int = 0, body: bytes = b"") -> ControllerStepResult:
        """Run a step."""
        self._send(call, version, body)
        records = [decode_record(self._read(self._int())) for _ in range(self._int())]
        error = struct.unpack(">h", self._read(2))[0]
        length = self._int()
        return ControllerStepResult(records, error, None if length < 0 else self._read(length))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _send(self, call: int, version: int, body: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(struct.pack(">ibh", len(body) + 3, call, version) + body)

    def _int(self) -> int:
        return int(struct.unpack(">i", self._read(4))[0])

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        out = b""
        while len(out) < count:
            more = self._process.stdout.read(count - len(out))
            assert more, "Kafka's side has ended"
            out += more
        return out
