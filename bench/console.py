"""Cost of the console and of metrics: throughput and memory of a node with them open, compared with a node without.

``python -m bench.console`` measures four cases in rounds of random order, each with a node of its own; all nodes run
all the time. The cases are ``off`` (a node without console and metrics), ``console`` (a node with both, none of them
used), ``scraped`` (metrics once a second) and ``open`` (the live tail of the topic under load, and the frames of the
API Produce). The load is Produce requests of 100 records, ten at a time. All nodes share a processor, and the client
has the others, if there are any. The median of the rounds' ratios counts: a machine whose processors or memory slow
down for some seconds changes all cases of a round alike.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from bench.produce import cpu_s
from compat_tests.support.processes import OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient
from ottla.tools.blocking_client import BlockingClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import produce
from ottla.wire.record_batch import records

TOGETHER = 10
"""Requests in flight at once."""
RECORDS = 100
TOPIC_SETTINGS = {"segment.bytes": str(64 * 1024**2), "retention.bytes": str(128 * 1024**2)}
"""Old segments are deleted, so that the page cache does not grow with each round."""
SCRAPE_S = 1.0
LIVE_PATHS = ("/records?name=load", "/frames?api=Produce")
LIMITS = {"open": 0.97, "scraped": 0.98, "console": 0.99}
"""Least throughput of each case, as a part of that without console and metrics."""
MAX_MEMORY_MIB = 25.0
Figures = dict[str, list[tuple[float, float, float]]]
"""Records per second, microseconds of broker CPU per request, and memory in MiB, by case and round."""


class ConsoleBenchmarkNode(OttlaProcess):
    """Node in a process of its own, with console and metrics or without."""

    def __init__(self, data_dir: Path, *, has_console: bool) -> None:
        super().__init__(data_dir)
        self.has_console = has_console
        self.console_port, self.metrics_port = free_port(), free_port()

    def command(self) -> list[str]:
        """Return the command of the process, with the listeners of console and metrics if the node has them."""
        command = [*super().command(), "--set", "log.retention.check.interval.ms=1000"]
        command += ["--set", "log.segment.delete.delay.ms=1000"]
        if self.has_console:
            command += ["--console", f"127.0.0.1:{self.console_port}"]
            command += ["--set", f"ottla.metrics.listener=127.0.0.1:{self.metrics_port}"]
        return command

    def memory_mib(self) -> float:
        """Return the resident memory of the process in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def produce_frame() -> bytes:
    """Return the frame of a Produce request (acks=all) with `RECORDS` records of 100 bytes for the topic ``load``."""
    now_ms = int(time.time() * 1000)
    raw = records.build_batch([records.NewRecord(None, bytes(100), now_ms) for _ in range(RECORDS)])
    data = produce.TopicProduceData("load", partition_data=[produce.PartitionProduceData(0, raw)])
    return encode_request(ApiKey.PRODUCE, 9, 1, "bench", produce.ProduceRequest(None, -1, 10_000, [data]))


def measure(node: ConsoleBenchmarkNode, requests: int) -> tuple[float, float]:
    """Send ``requests`` Produce requests, `TOGETHER` at a time; return records/s, and us of broker CPU per request."""
    client, frame = RawClient(node.port), produce_frame()
    before, began = cpu_s(node.pid), time.monotonic()
    for _ in range(requests // TOGETHER):
        client.sock.sendall(frame * TOGETHER)
        for _ in range(TOGETHER):
            client.read()
    rate = requests * RECORDS / (time.monotonic() - began)
    client.sock.close()
    return rate, (cpu_s(node.pid) - before) / requests * 1e6


@contextmanager
def repeated_scrape(node: ConsoleBenchmarkNode) -> Iterator[None]:
    """Read ``/metrics`` once a second in a thread while the body of a ``with`` statement runs."""
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(SCRAPE_S):
            connection = HTTPConnection("127.0.0.1", node.metrics_port, timeout=30)
            connection.request("GET", "/metrics")
            assert len(connection.getresponse().read()) > 1000
            connection.close()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def open_pages(node: ConsoleBenchmarkNode) -> Iterator[list[int]]:
    """Keep the live pages open while the body of a ``with`` statement runs, which starts after an update of each.

    Yields the list of the numbers of updates, which grow meanwhile.
    """
    updates = [0] * len(LIVE_PATHS)
    sockets = []

    def read(number: int, path: str) -> None:
        connection = HTTPConnection("127.0.0.1", node.console_port, timeout=60)
        connection.connect()
        sockets.append(connection.sock)  # the response takes it away from the connection
        connection.request("GET", f"/live{path}")
        response = connection.getresponse()
        assert response.status == 200, response.status
        try:
            while line := response.readline():
                updates[number] += line.startswith(b"event: live")
        except (OSError, ValueError, AttributeError):
            pass  # closed below

    threads = [threading.Thread(target=read, args=each, daemon=True) for each in enumerate(LIVE_PATHS)]
    for thread in threads:
        thread.start()
    while min(updates) == 0:
        time.sleep(0.05)
    try:
        yield updates
    finally:
        for sock in sockets:
            sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)


def run_rounds(
    nodes: dict[str, ConsoleBenchmarkNode], rounds: int, requests: int
) -> dict[str, list[tuple[float, float, float]]]:
    """Measure each case in each round, print the figures, and return them without the first round, by case.

    ``nodes``: running node of each case. Figures: records/s, us of broker CPU per request, memory of the node in MiB.
    """
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ("off", *reversed(LIMITS))}
    names = list(figures)
    for number in range(-1, rounds):  # the first round warms up
        for name in random.Random(number).sample(names, len(names)):  # the disk still writes what the case before wrote
            values = figures[name]
            node = nodes[name]
            with ExitStack() as stack:
                if name == "scraped":
                    stack.enter_context(repeated_scrape(node))
                updates = stack.enter_context(open_pages(node)) if name == "open" else []
                rate, cost = measure(node, requests)
                memory = node.memory_mib()
                print(
                    f"round {number}: {name:8} {rate:12,.0f} records/s, {cost:6.0f} us a request, {memory:6.1f} MiB",
                    end="",
                )
                print(f", updates {updates}" if updates else "", flush=True)
            if number >= 0:
                values.append((rate, cost, memory))
    return figures


def main() -> None:
    """Measure all cases in rounds, and print the ratios of throughput and the differences of memory to ``off``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as where:
        nodes = {
            name: ConsoleBenchmarkNode(Path(where) / name, has_console=name != "off") for name in ("off", *LIMITS)
        }  # a node for each case: no case deletes segments that another one has filled
        processors = sorted(os.sched_getaffinity(0))
        for node in nodes.values():
            os.sched_setaffinity(0, processors[:1])
            node.start()
            os.sched_setaffinity(0, processors[1:] or processors)
            BlockingClient(node.bootstrap).create_topic("load", 1, settings=TOPIC_SETTINGS)
        figures = run_rounds(nodes, options.rounds, options.requests)
        for node in nodes.values():
            node.stop()
    base_memory = statistics.median(memory for _, _, memory in figures["off"])
    for name, least in LIMITS.items():
        ratio = statistics.median(
            rate / base for (rate, _, _), (base, _, _) in zip(figures[name], figures["off"], strict=True)
        )
        memory = statistics.median(memory for _, _, memory in figures[name])
        print(f"{name:8} throughput {ratio:.3f} of that without (at least {least})", end="")
        print(f", memory {memory - base_memory:+.1f} MiB (at most {MAX_MEMORY_MIB:+.0f})")


if __name__ == "__main__":
    main()
