"""Nodes in network namespaces of their own, cut off from each other: who can still decide goes on, nothing is lost.

``OTTLA_CUTS=3`` plays each kind of cut with three nodes in turn, for 20 seconds and with Kafka's timeouts, and ``-s``
shows the gaps. Otherwise one cut is played, with shorter ones.
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

from compat_tests.campaign import Gaps, all_go_on, writing
from compat_tests.cluster import OTTLA
from compat_tests.namespaces import CLIENTS, Network, why_not
from compat_tests.test_mixed import partitions
from compat_tests.test_three_nodes import WITHIN_S, FromFile, all_in_sync, running, until
from compat_tests.writers import Producing

VICTIMS = int(os.environ.get("OTTLA_CUTS", "0"))
FULL = VICTIMS > 0
CUT_S = 20.0 if FULL else 6.0
TIMEOUTS = "" if FULL else "broker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=500\n"
REQUEST_TIMEOUT_MS = 3000
NODES = (1, 2, 3)
PORT = 9092
CUTS = ["one", "with the clients", "from its side", "one way"]

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=why_not()), pytest.mark.xdist_group("namespaces")]


class Apart(FromFile):
    """A node in a namespace."""

    def __init__(self, network: Network, number: int, file: Path, data_dir: Path) -> None:
        super().__init__(file, data_dir, PORT)
        self._network, self._number = network, number
        self.bootstrap = f"{network.host(number)}:{PORT}"

    def command(self) -> list[str]:
        """The command line."""
        return [*self._network.command(self._number), *super().command()]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self._network.host(self._number), PORT), 1):
                return True
        except OSError:
            return False


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(len(NODES)) as out:
        yield out


@pytest.fixture
def nodes(network: Network, tmp_path: Path) -> Iterator[list[Apart]]:
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
        out.append(Apart(network, i, file, data))
    with running(list(out)):
        client = AdminClient({"bootstrap.servers": out[0].bootstrap})
        until(lambda: len(client.list_topics(timeout=WITHIN_S).brokers) == len(NODES))
        yield out


def cut(network: Network, what: str, node: int) -> bool:
    """Cut one node off; says whether its clients can write meanwhile."""
    others = [i for i in NODES if i != node]
    if what == "one way":
        network.cut([node], others)
        return True
    network.cut([node], others)
    network.cut(others, [node])
    if what == "with the clients":
        network.cut([node], [CLIENTS])
        network.cut([CLIENTS], [node])
    elif what == "from its side":
        network.cut(others, [CLIENTS])
        network.cut([CLIENTS], others)
    return what != "from its side"


def led_by(bootstrap: str, writers: list[Producing], node: int) -> dict[str, list[int]]:
    found = {writer.topic: partitions(bootstrap, writer.topic) for writer in writers}
    return {topic: [n for n, (leader, _) in rows.items() if leader == node] for topic, rows in found.items()}


@pytest.mark.parametrize("what", CUTS if FULL else CUTS[:1])
def test_a_node_that_is_cut_off_harms_nobody(network: Network, nodes: list[Apart], what: str) -> None:
    bootstrap = ",".join(node.bootstrap for node in nodes)
    gaps = Gaps()
    with writing(bootstrap, REQUEST_TIMEOUT_MS) as writers:
        for node in NODES[: max(VICTIMS, 1)]:
            until(lambda: all(all_in_sync(bootstrap, writer.topic) for writer in writers))
            led = led_by(bootstrap, writers, node)
            began = time.monotonic()
            goes_on = cut(network, what, node)
            time.sleep(CUT_S)
            if goes_on:
                gaps.note(what, writers, led, began)
            network.heal()
            healed = time.monotonic()
            until(lambda healed=healed: all_go_on(writers, healed))
            gaps.note(f"{what}, until whole", writers, led, began)
    gaps.show()
