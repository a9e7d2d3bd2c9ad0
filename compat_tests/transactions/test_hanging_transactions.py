"""Hanging transactions, which no coordinator has: our command and Kafka's tool both find and abort them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from compat_tests.transactions.test_transactions import command, confluent, make, read, wait_until_committed, write
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import init_producer_id, produce
from ottla.wire.record_batch import batch_header, records

TOPIC = "hangs"
HOUR_MS = 3_600_000
OFF = {"transaction_partition_verification_enable": "false"}
"""Setting of brokers before Kafka 3.6: a partition of a transactional batch is not verified with its coordinator."""


@pytest.fixture(params=["ottla", "kafka"])
def node(request: pytest.FixtureRequest, data_dir: Path) -> Iterator[NodeProcess]:
    """Start a node that verifies no partition."""
    made = OttlaProcess(data_dir, **OFF) if request.param == "ottla" else KafkaProcess(data_dir, **OFF)
    with made as process:
        yield process


def hang(node: NodeProcess, name: str, partition: int) -> None:
    """Write a record of a transaction, an hour old, that its coordinator does not have."""
    peer = RawClient(node.port)
    given = None
    deadline = time.monotonic() + peer.timeout_s
    while given is None or given.error_code:  # Kafka creates the partitions of the coordinator first
        assert time.monotonic() < deadline, given
        given = peer.call(ApiKey.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest(name, 60_000))
        time.sleep(0.1)
    made = records.NewRecord(b"k", name.encode(), time.time_ns() // 10**6 - HOUR_MS)
    raw = records.build_batch(
        [made],
        attributes=batch_header.TRANSACTIONAL_BIT,
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
    )
    data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(partition, raw)])
    answer = peer.call(ApiKey.PRODUCE, 11, produce.ProduceRequest(name, -1, 10_000, [data]))
    assert answer.responses[0].partition_responses[0].error_code == 0
    peer.close()


def found_by_us(node: NodeProcess, *options: str) -> list[tuple[str, int, int]]:
    rows = json.loads(command("txn", "hanging", "-b", node.bootstrap, "-o", "json", *options))
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def found_by_kafkas(node: NodeProcess) -> list[tuple[str, int, int]]:
    """Return topic, partition, first offset."""
    lines = java_tool(
        "TransactionsCommand", "--bootstrap-server", node.bootstrap, "find-hanging", "--broker-id", "1"
    ).splitlines()
    rows = [line.split() for line in lines[1:]]
    return sorted((row[0], int(row[1]), int(row[5])) for row in rows)


def test_hanging_transactions_are_found_and_aborted_by_ottla_txn_and_kafka_tool(node: NodeProcess) -> None:
    make(node.bootstrap, TOPIC)
    confluent(node.bootstrap, "first")  # so that there are coordinators
    open_one = confluent(node.bootstrap, "open", **{"transaction.timeout.ms": 600_000})
    open_one.begin_transaction()
    write(open_one, TOPIC, "a")
    for partition in (0, 1):
        hang(node, f"lost-{partition}", partition)
    both = [(TOPIC, 0, 1), (TOPIC, 1, 1)]
    assert found_by_us(node, "--older-than", "0") == both, "and not the one that is open, which its coordinator knows"
    assert found_by_us(node) == both
    assert found_by_us(node, "--older-than", "7200") == []
    assert found_by_kafkas(node) == both
    open_one.commit_transaction(120)
    wait_until_committed(node.bootstrap, TOPIC, ["a0", "a1"])
    late = confluent(node.bootstrap, "late")
    late.begin_transaction()
    write(late, TOPIC, "b")
    late.commit_transaction(120)
    assert read(node.bootstrap, TOPIC) == ["a0", "a1"], "whoever reads what is committed waits there for ever"
    assert "aborted" in command("txn", "abort", TOPIC, "0", "1", "-b", node.bootstrap)
    assert found_by_us(node) == found_by_kafkas(node) == both[1:]
    at = ["--topic", TOPIC, "--partition", "1", "--start-offset", "1"]
    java_tool("TransactionsCommand", "--bootstrap-server", node.bootstrap, "abort", *at)
    assert found_by_us(node) == found_by_kafkas(node) == []
    wait_until_committed(node.bootstrap, TOPIC, ["a0", "a1", "b0", "b1"])
