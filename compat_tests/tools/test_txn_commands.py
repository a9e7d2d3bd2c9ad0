"""Commands that describe and abort transactions: ours, and Kafka's tool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from compat_tests.cluster.test_three_nodes import wait_for
from compat_tests.support.processes import OTTLA, OttlaProcess, java_tool
from compat_tests.transactions.test_transactions import (
    WAIT_S,
    command,
    commit_a_abort_b,
    confluent,
    is_stable,
    make,
    read,
    write,
)


def test_ottla_txn_lists_describes_and_aborts_transaction(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    at = ["-b", node.bootstrap, "-o", "json"]
    producer = confluent(node.bootstrap, topic, **{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    write(producer, topic, "a")
    (row,) = [x for x in json.loads(command("txn", "list", *at)) if x["id"] == topic]
    assert row["state"] == "Ongoing"
    (row,) = json.loads(command("txn", "describe", topic, *at))
    assert (row["state"], row["timeout_s"], row["partitions"]) == ("Ongoing", 600.0, [f"{topic}-0", f"{topic}-1"])
    assert json.loads(command("txn", "hanging", "--older-than", "0", "--topic", topic, *at)) == []
    assert "is not hanging" in command("txn", "abort", topic, "0", "0", "-b", node.bootstrap, status=1)
    assert "aborted" in command("txn", "abort", topic, "0", "0", "--force", "-b", node.bootstrap)
    assert "no transaction" in command("txn", "abort", topic, "0", "0", "-b", node.bootstrap, status=1)
    assert "id nobody does not exist" in command("txn", "describe", "nobody", "-b", node.bootstrap, status=1)


def test_ottla_consume_with_read_committed_skips_aborted_and_open_records(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    producer = confluent(node.bootstrap, topic)
    commit_a_abort_b(producer, topic)
    wait_for(lambda: is_stable(node.bootstrap, topic))
    producer.begin_transaction()
    write(producer, topic, "c")

    def printed(*more: str) -> list[str]:
        return sorted(command("consume", topic, "-b", node.bootstrap, "--from-beginning", "--exit", *more).split())

    assert printed("--isolation", "read_committed") == ["a0", "a1"]
    assert printed() == ["a0", "a1", "b0", "b1", "c0", "c1"]
    producer.abort_transaction(WAIT_S)


def test_ottla_trace_prints_requests_of_transaction(node: OttlaProcess, topic: str, tmp_path: Path) -> None:
    make(node.bootstrap, topic)
    seen = tmp_path / "seen"
    with seen.open("w") as out:
        proxy = subprocess.Popen([OTTLA, "trace", "--listen", "0", "--to", node.bootstrap], stdout=out)
    wait_for(lambda: "\n" in seen.read_text())
    producer = confluent(seen.read_text().split()[2], topic)
    producer.begin_transaction()
    write(producer, topic, "a")
    producer.commit_transaction(WAIT_S)
    proxy.terminate()
    proxy.wait()
    for api in ("INIT_PRODUCER_ID", "ADD_PARTITIONS_TO_TXN", "PRODUCE", "END_TXN"):
        assert f" -> {api} v" in seen.read_text(), f"{api} went by unseen"
        assert f" <- {api} v" in seen.read_text()


def test_transactions_command_lists_describes_and_aborts_transaction(node: OttlaProcess, topic: str) -> None:
    make(node.bootstrap, topic)
    at = ["--bootstrap-server", node.bootstrap]
    producer = confluent(node.bootstrap, topic, **{"transaction.timeout.ms": 600_000})
    producer.begin_transaction()
    write(producer, topic, "a")
    listed = java_tool("TransactionsCommand", *at, "list")
    row = next(line.split() for line in listed.splitlines() if line.startswith(topic))
    assert row[3] == "Ongoing"
    output = java_tool("TransactionsCommand", *at, "describe", "--transactional-id", topic)
    row = next(line.split() for line in output.splitlines() if topic in line)
    assert row[4] == "Ongoing"
    assert sorted(row[-1].split(",")) == [f"{topic}-0", f"{topic}-1"]
    output = java_tool("TransactionsCommand", *at, "describe-producers", "--topic", topic, "--partition", "0")
    row = output.splitlines()[1].split()
    assert (row[1], row[-1]) == ("0", "0"), "its epoch, and the first offset of its transaction"
    hanging = java_tool(
        "TransactionsCommand", *at, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1"
    )
    assert topic not in hanging, "its coordinator knows it"
    java_tool("TransactionsCommand", *at, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert read(node.bootstrap, topic, "read_uncommitted") == ["a0", "a1"]
    output = java_tool("TransactionsCommand", *at, "describe-producers", "--topic", topic, "--partition", "0")
    assert output.splitlines()[1].split()[-1] == "None"
