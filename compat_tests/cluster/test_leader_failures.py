"""Leaders killed, stopped and paused under three stock producers: no record lost or duplicated, and order kept.

``OTTLA_KILLS``, ``OTTLA_STOPS`` and ``OTTLA_PAUSES`` are the numbers of repetitions (40, 12 and 10 in the campaign);
``-s`` shows the durations of write gaps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

import ottla
from compat_tests.cluster.producer_campaign import WriteGaps, have_all_progressed, running_producers
from compat_tests.cluster.stock_producers import StockProducer
from compat_tests.cluster.test_mixed_cluster import partitions
from compat_tests.cluster.test_replication import ask
from compat_tests.cluster.test_three_nodes import all_in_sync, wait_for
from compat_tests.support.processes import OTTLA
from ottla.wire.messages.elect_leaders import ElectLeadersRequest

KILLS = int(os.environ.get("OTTLA_KILLS", "1"))
STOPS = int(os.environ.get("OTTLA_STOPS", "0"))
PAUSES = int(os.environ.get("OTTLA_PAUSES", "0"))
PAUSED_S = 14.0
"""Longer than the session timeout of a broker (9 s) and the fetch timeout of the quorum (2 s)."""
EVERY = 3
"""Every third victim is the active controller."""
REQUEST_TIMEOUT_MS = 2000
"""Request timeout of a producer. The default is half a minute, longer than any pause in this module."""


@pytest.fixture
def cluster() -> Iterator[ottla.Cluster]:
    with ottla.Cluster(3) as out:
        yield out


def active_controller(cluster: ottla.Cluster) -> int:
    """Return the node that leads the quorum."""
    command = [OTTLA, "cluster", "status", "-b", cluster.bootstrap_servers, "-o", "json"]

    def find_leader() -> int:
        done = subprocess.run(command, capture_output=True, check=False)
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return next((int(row["node"]) for row in rows if row["quorum"] == "leader"), 0)

    return int(wait_for(find_leader))  # there may be an election


def victim(cluster: ottla.Cluster, turn: int, writers: list[StockProducer]) -> tuple[int, dict[str, list[int]]]:
    """Return the next victim, and the partitions of each topic that it leads; by then each node leads some."""
    bootstrap = cluster.bootstrap_servers
    wait_for(lambda: all(all_in_sync(bootstrap, writer.topic) for writer in writers))
    ask(cluster, ElectLeadersRequest(0, None, 10_000))
    leaders = {writer.topic: partitions(bootstrap, writer.topic) for writer in writers}
    some = [leader for rows in leaders.values() for leader, _ in rows.values()]
    node = active_controller(cluster) if turn % EVERY == 0 else some[turn % len(some)]
    return node, {topic: [n for n, (leader, _) in rows.items() if leader == node] for topic, rows in leaders.items()}


def test_producers_with_killed_leaders_lose_and_duplicate_no_record(cluster: ottla.Cluster) -> None:
    gaps = WriteGaps()
    with running_producers(cluster.bootstrap_servers) as writers:
        for turn in range(KILLS):
            node, led = victim(cluster, turn, writers)
            began = time.monotonic()
            cluster.kill(node)
            wait_for(lambda began=began: have_all_progressed(writers, began))
            gaps.add("killed", writers, led, began)
            cluster.restart(node)
    gaps.print_summary()


@pytest.mark.skipif(not STOPS, reason="a few seconds each: only where OTTLA_STOPS says how often")
def test_producers_with_stopped_leaders_lose_and_duplicate_no_record(cluster: ottla.Cluster) -> None:
    gaps = WriteGaps()
    with running_producers(cluster.bootstrap_servers) as writers:
        for turn in range(STOPS):
            node, led = victim(cluster, turn, writers)
            began = time.monotonic()
            cluster.node(node).signal(signal.SIGTERM)
            cluster.node(node).wait_end()
            wait_for(lambda began=began: have_all_progressed(writers, began))
            gaps.add("stopped", writers, led, began)
            cluster.restart(node)
    gaps.print_summary()


@pytest.mark.skipif(not PAUSES, reason="half a minute each: only where OTTLA_PAUSES says how often")
def test_producers_with_paused_leaders_lose_and_duplicate_no_record(cluster: ottla.Cluster) -> None:
    gaps = WriteGaps()
    with running_producers(cluster.bootstrap_servers, REQUEST_TIMEOUT_MS) as writers:
        for turn in range(PAUSES):
            node, led = victim(cluster, turn, writers)
            began = time.monotonic()
            cluster.node(node).signal(signal.SIGSTOP)
            time.sleep(PAUSED_S)
            cluster.node(node).signal(signal.SIGCONT)
            woken = time.monotonic()
            wait_for(lambda woken=woken: have_all_progressed(writers, woken))
            gaps.add("stood still", writers, led, began)
    gaps.print_summary()
