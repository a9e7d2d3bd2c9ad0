"""Transactions of stock clients with a node and with Kafka: the results are equal.

Each program writes to both partitions of a topic: ``a`` is committed, ``b`` aborted; ``c`` is committed with a group's
offset, 1, and ``x`` aborted with another, 9; while ``d`` is open a second producer initializes the id and commits
``e``, and the first is fenced. Then it reads with both isolation levels up to ``e``. franz-go commits offsets of its
polled records: those behind ``a``, in both partitions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients import client_matrix
from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess
from compat_tests.transactions.test_transactions import committed, make

pytestmark = pytest.mark.xdist_group(__name__)
SEEN = {"read_committed": "ace", "read_uncommitted": "abcdex"}
NOWHERE = -1001


def _python(name: str) -> list[str]:
    return [sys.executable, str(client_matrix.SOURCES / "python" / "transactions.py"), name]


def _java() -> list[str]:
    jars("kafka")
    return ["java", "-cp", classpath(), str(client_matrix.SOURCES / "java" / "Transactions.java")]


def _kafkajs() -> list[str]:
    return ["env", f"NODE_PATH={client_matrix._node() / 'node_modules'}", "node", _KAFKAJS]


_KAFKAJS = str(client_matrix.SOURCES / "transactions" / "kafkajs.cjs")
PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "confluent-kafka": lambda: _python("confluent"),
    "kafka-python": lambda: _python("kafka-python"),
    "aiokafka": lambda: _python("aiokafka"),
    "Java kafka-clients": _java,
    "kafkajs": _kafkajs,
    "franz-go": lambda: [str(client_matrix._go() / "compat"), "franz-go", "transactions"],
    "sarama": lambda: [str(client_matrix._go() / "compat"), "sarama", "transactions"],
    "rdkafka (Rust)": lambda: [str(client_matrix._rust() / "target/debug/compat"), "rdkafka", "transactions"],
}


def run_client(node: NodeProcess, client: str) -> dict[str, Any] | str:
    """Return the results of a client and the offsets of its group, or the reason why it was left out."""
    row = client_matrix.MatrixClient(client, "", PROGRAMS[client])
    try:
        command = client_matrix.client_command(row)
    except client_matrix.ToolchainMissing as missing:
        return str(missing)
    name = "".join(c if c.isalnum() else "-" for c in client)
    make(node.bootstrap, name)
    arguments = [*command, node.bootstrap, name, name]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, env={**os.environ})
    assert done.returncode == 0, f"{client}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
    out: dict[str, Any] = json.loads(done.stdout.strip().split("\n")[-1])
    return {**out, "positions": committed(node.bootstrap, name, name)}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any] | str]]:
    """Return the results of all clients with Kafka and with Ottla; three run at a time."""
    out = []
    for kind in (KafkaProcess, OttlaProcess):
        where: Path = tmp_path_factory.mktemp("transactions") / "data"
        with kind(where) as node, ThreadPoolExecutor(3) as pool:
            rows = [pool.submit(run_client, node, client) for client in PROGRAMS]
            out.append({client: row.result() for client, row in zip(PROGRAMS, rows, strict=True)})
    return out


@pytest.mark.parametrize("client", PROGRAMS)
def test_transactions_of_stock_client_equal_kafka(client: str, both: Any) -> None:
    kafkas, ours = (rows[client] for rows in both)
    if isinstance(kafkas, str):
        pytest.skip(kafkas)
    wanted = {level: [f"{value}{number}" for value in values for number in (0, 1)] for level, values in SEEN.items()}
    positions = [1, 1 if client == "franz-go" else NOWHERE]
    assert kafkas == {"fenced": True, **wanted, "positions": positions}, "so it is with Kafka"
    assert ours == kafkas
