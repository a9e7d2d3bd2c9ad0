"""Nodes in network namespaces, cut off from each other: the majority continues, and no record is lost.

``OTTLA_CUTS=3`` runs each kind of cut with three nodes in turn, for 20 seconds and with Kafka's timeouts, and ``-s``
shows the gaps. Otherwise one cut is run, with shorter timeouts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests.cluster.network_namespaces import CLIENTS, NamespaceNetwork, unavailable_reason
from compat_tests.cluster.producer_campaign import WriteGaps, have_all_progressed, running_producers
from compat_tests.cluster.stock_producers import StockProducer
from compat_tests.cluster.test_mixed_cluster import partitions
from compat_tests.cluster.test_three_nodes import WITHIN_S, OttlaFromFile, all_in_sync, running_nodes, wait_for
from compat_tests.support.processes import OTTLA

VICTIMS = int(os.environ.get("OTTLA_CUTS", "0"))
FULL = VICTIMS > 0
CUT_S = 20.0 if FULL else 6.0
TIMEOUTS = "" if FULL else "broker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=500\n"
REQUEST_TIMEOUT_MS = 3000
NODES = (1, 2, 3)
PORT = 9092
CUTS = ["one", "with the clients", "from its side", "one way"]

pytestmark = [
    pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason()),
    pytest.mark.xdist_group("namespaces"),
]


class NamespacedNode(OttlaFromFile):
    """Node in a network namespace."""

    def __init__(self, network: NamespaceNetwork, number: int, file: Path, data_dir: Path) -> None:
        super().__init__(file, data_dir, PORT)
        self._network, self._number = network, number
        self.bootstrap = f"{network.host(number)}:{PORT}"

    def command(self) -> list[str]:
        """Return the command line."""
        return [*self._network.command(self._number), *super().command()]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._network.host(self._number), PORT), 1):
                return True
        except OSError:
            return False


@pytest.fixture
def network() -> Iterator[NamespaceNetwork]:
    with NamespaceNetwork(len(NODES)) as out:
        yield out


@pytest.fixture
def nodes(network: NamespaceNetwork, tmp_path: Path) -> Iterator[list[NamespacedNode]]:
    voters = ",".join(f"{i}@{network.host(i)}:9093" for i in NODES)
    out = []
    for i in NODES:
        file, data, host = tmp_path / f"{i}.properties", tmp_path / f"data-{i}", network.host(i)
        file.write_text(
            f"node.id={i}\nlog.dirs={data}\nprocess.roles=broker,controller\ncontroller.quorum.voters={voters}\n"
            f"listeners=PLAINTEXT://{host}:{PORT},CONTROLLER://{host}:9093\ncontroller.listener.names=CONTROLLER\n"
            f"offsets.topic.replication.factor=3\n{TIMEOUTS}"
        )
        command = [OTTLA, "format", "--cluster-id", "5L6g3nShT-eMCtK--X86sw", "--config", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        out.append(NamespacedNode(network, i, file, data))
    with running_nodes(list(out)):
        client = AdminClient({"bootstrap.servers": out[0].bootstrap})
        wait_for(lambda: len(client.list_topics(timeout=WITHIN_S).brokers) == len(NODES))
        yield out


def cut(network: NamespaceNetwork, label: str, node: int) -> bool:
    """Cut one node off; return True if its clients can write meanwhile."""
    others = [i for i in NODES if i != node]
    if label == "one way":
        network.drop_packets([node], others)
        return True
    network.drop_packets([node], others)
    network.drop_packets(others, [node])
    if label == "with the clients":
        network.drop_packets([node], [CLIENTS])
        network.drop_packets([CLIENTS], [node])
    elif label == "from its side":
        network.drop_packets(others, [CLIENTS])
        network.drop_packets([CLIENTS], others)
    return label != "from its side"


def led_by(bootstrap: str, writers: list[StockProducer], node: int) -> dict[str, list[int]]:
    found = {writer.topic: partitions(bootstrap, writer.topic) for writer in writers}
    return {topic: [n for n, (leader, _) in rows.items() if leader == node] for topic, rows in found.items()}


@pytest.mark.parametrize("label", CUTS if FULL else CUTS[:1])
def test_producers_with_isolated_node_lose_no_record_and_continue_after_healing(
    network: NamespaceNetwork, nodes: list[NamespacedNode], label: str
) -> None:
    bootstrap = ",".join(node.bootstrap for node in nodes)
    gaps = WriteGaps()
    with running_producers(bootstrap, REQUEST_TIMEOUT_MS) as writers:
        for node in NODES[: max(VICTIMS, 1)]:
            wait_for(lambda: all(all_in_sync(bootstrap, writer.topic) for writer in writers))
            led = led_by(bootstrap, writers, node)
            began = time.monotonic()
            goes_on = cut(network, label, node)
            time.sleep(CUT_S)
            if goes_on:
                gaps.add(label, writers, led, began)
            network.restore()
            healed = time.monotonic()
            wait_for(lambda healed=healed: have_all_progressed(writers, healed))
            gaps.add(f"{label}, until whole", writers, led, began)
    gaps.print_summary()
