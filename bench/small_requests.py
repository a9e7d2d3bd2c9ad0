"""Produce requests of one record over eight connections to Kafka and Ottla in turn: rate and broker CPU.

``python -m bench.small_requests``. Each connection sends the next request once it has the response (acks=all). The JVM
is warmed first, so that its compiled code is compared; rounds alternate, and the median of each counts.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from functools import partial

from bench.build_comparison import produce_frame
from bench.fetch import is_produced, started_nodes
from bench.produce import cpu_s
from compat_tests.support.processes import NodeProcess, java_tool
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.record_batch import records

CONNECTIONS = 8


def create_topic(node: NodeProcess) -> None:
    """Create the topic of `produce_frame`, and wait until its leader accepts a record."""
    java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", "small")
    client = RawClient(node.port)
    raw = records.build_batch([records.NewRecord(None, bytes(100), int(time.time() * 1000))])
    wait_until(partial(is_produced, client, "small", 0, raw))
    client.close()


class ProducingConnection(threading.Thread):
    """Thread with a connection that repeats a Produce request of one record and counts the responses in `requests`."""

    def __init__(self, node: NodeProcess, until: float) -> None:
        super().__init__()
        self._client = RawClient(node.port)
        self._until = until
        self.requests = 0

    def run(self) -> None:
        """Send a request, wait for its response, and repeat until the monotonic time ``until`` (s); then close."""
        frame, sock, buffer = produce_frame(), self._client.sock, memoryview(bytearray(4096))
        while time.monotonic() < self._until:
            sock.sendall(frame)
            have = sock.recv_into(buffer)
            while have < 4 or have < 4 + int.from_bytes(buffer[:4], "big"):
                have += sock.recv_into(buffer[have:])
            self.requests += 1
        self._client.close()


def measure(node: NodeProcess, seconds: float) -> tuple[float, float]:
    """Produce over `CONNECTIONS` connections for ``seconds``; return requests/s, and us of broker CPU per request."""
    before, began = cpu_s(node.pid), time.monotonic()
    connections = [ProducingConnection(node, began + seconds) for _ in range(CONNECTIONS)]
    for connection in connections:
        connection.start()
    for connection in connections:
        connection.join()
    total = sum(connection.requests for connection in connections)
    return total / (time.monotonic() - began), (cpu_s(node.pid) - before) / total * 1e6


def main() -> None:
    """Measure both nodes in rounds, and print each round and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm-s", type=float, default=15.0)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"kafka": [], "ottla": []}
    costs: dict[str, list[float]] = {"kafka": [], "ottla": []}
    with started_nodes({}) as nodes:
        for name, node in nodes.items():
            create_topic(node)
            measure(node, options.warm_s if name == "kafka" else 1.0)
        for number in range(options.rounds):
            for name, node in nodes.items():
                rate, cost = measure(node, options.seconds)
                rates[name].append(rate)
                costs[name].append(cost)
                print(f"{name:6} round {number}: {rate:9,.0f} requests/s, {cost:.1f} us of CPU a request", flush=True)
    ratio = statistics.median(rates["ottla"]) / statistics.median(rates["kafka"])
    cpu = statistics.median(costs["ottla"]) / statistics.median(costs["kafka"])
    print(f"ottla / kafka, requests of one record: rate {ratio:.2f}, broker cpu {cpu:.2f}")


if __name__ == "__main__":
    main()
