"""Exhaustion of file descriptors: twenty clients open connections until the nodes have no descriptor left.

``python -m bench.descriptors``: on one node and on three, each with 200 descriptors, for ten seconds. It prints the
nodes that ended, whether the quorum kept its leader, and the time of a new producer until its first acknowledgement,
meanwhile and afterwards.
"""

from __future__ import annotations

import argparse
import time

from compat_tests.support.connection_flood import (
    CLIENTS,
    ConnectionFlood,
    count_descriptors,
    create_topic,
    leader_epoch,
    set_descriptor_limit,
    time_first_produce_s,
)
from ottla import Cluster

SETTINGS = {"metadata.log.max.snapshot.interval.ms": "1000", "min.insync.replicas": "1"}


def run(nodes: int, seconds: float) -> None:
    """Exhaust the descriptors of a cluster of ``nodes`` nodes for a number of seconds, and print the results."""
    with Cluster(nodes, settings=SETTINGS) as cluster:
        ports = [node.port for node in cluster.nodes]
        create_topic(ports[0], nodes)
        time_first_produce_s(cluster.bootstrap_servers)
        before, waits, most = leader_epoch(ports[0]), [], 0
        pids = [node.pid for node in cluster.nodes if node.pid is not None]
        for pid in pids:
            set_descriptor_limit(pid)
        end = time.monotonic() + seconds
        with ConnectionFlood(ports) as crowd:
            time.sleep(1)
            while time.monotonic() < end:
                waits.append(time_first_produce_s(cluster.bootstrap_servers))
                most = max([most, *(count_descriptors(node.pid) for node in cluster.nodes if node.pid is not None)])
        after_s = time_first_produce_s(cluster.bootstrap_servers)
        ended = [node.id for node in cluster.nodes if node.status is not None]
        kept = not ended and leader_epoch(ports[0]) == before
        print(f"{nodes} node(s), {CLIENTS} clients, {crowd.opened} connections, at most {most} descriptors of a node")
        print(f"  ended: {ended or 'none'}; quorum kept its leader and epoch: {kept}")
        print(f"  new producer acknowledged meanwhile: worst {max(waits):.2f} s of {len(waits)}, after {after_s:.2f} s")


def main() -> None:
    """Run the benchmark on one node and on three."""
    parser = argparse.ArgumentParser("bench.descriptors", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    for nodes in (1, 3):
        run(nodes, options.seconds)


if __name__ == "__main__":
    main()
