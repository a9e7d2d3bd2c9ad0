"""Raw fetches over four connections from Kafka and Ottla in turn: rate and broker CPU by response size.

``python -m bench.fetch``. The fetched data is in the page cache. The JVM is warmed first, at each size, so that its
compiled code is compared; rounds alternate, and the median of each counts. Batches are as large as a response, up to
one MiB. The client only receives: threads that wait in the system call. ``--set socket.send.buffer.bytes=102400`` gives
Ottla's connections the send buffers that Kafka's have.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.produce import cpu_s
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import fetch
from ottla.wire.record_batch import records

CONNECTIONS = 4
MAX_BATCH_BYTES = 1_048_000
RECORDS = 8
BATCHES = 64
"""Batches in each partition, so a client starts over after eight responses of 8 MiB."""
OVERHEAD_BYTES = 576
"""Maximum bytes of a batch besides its values."""


def batch_bytes(response_bytes: int) -> int:
    """Return about the size in bytes of the batches of the topic that is fetched in responses of this size."""
    return min(response_bytes - OVERHEAD_BYTES, MAX_BATCH_BYTES)


def topic_name(response_bytes: int) -> str:
    """Return the name of the topic that is fetched in responses of this size."""
    return f"fetch-{response_bytes}"


def fill(node: NodeProcess, response_bytes: int) -> None:
    """Create the topic of a response size, and produce `BATCHES` equal batches to each of its partitions."""
    topic = topic_name(response_bytes)
    java_tool(
        "TopicCommand",
        *("--bootstrap-server", node.bootstrap, "--create", "--topic", topic, "--partitions", str(CONNECTIONS)),
    )
    value = bytes(range(256)) * (batch_bytes(response_bytes) // RECORDS // 256)
    now_ms = int(time.time() * 1000)
    raw = records.build_batch([records.NewRecord(None, value, now_ms)] * RECORDS)
    client = RawClient(node.port)
    for partition in range(CONNECTIONS):
        # the leader of a new partition may not have it yet
        wait_until(partial(is_produced, client, topic, partition, raw))
        for _ in range(BATCHES - 1):
            assert is_produced(client, topic, partition, raw)
    client.close()


def is_produced(client: RawClient, topic: str, partition: int, raw: bytes) -> bool:
    """Produce a batch; return True if it was accepted."""
    return client.produce(topic, partition, raw).error_code == 0


class FetchingConnection(threading.Thread):
    """Thread with a connection that fetches one partition again and again, and counts the bytes in `bytes`.

    Args:
        node: node to fetch from.
        partition: partition of the topic.
        response_bytes: size of a response.
        until: time of the monotonic clock in s at which it ends.
    """

    def __init__(self, node: NodeProcess, partition: int, response_bytes: int, until: float) -> None:
        super().__init__()
        self._client = RawClient(node.port)
        self._partition = partition
        self._response_bytes = response_bytes
        self._until = until
        self.bytes = 0

    def _frame(self, offset: int) -> bytes:
        size_bytes = self._response_bytes
        part = fetch.FetchPartition(self._partition, fetch_offset=offset, partition_max_bytes=size_bytes)
        topics = [fetch.FetchTopic(topic_name(size_bytes), partitions=[part])]
        request = fetch.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=size_bytes, topics=topics)
        return encode_request(ApiKey.FETCH, 12, 1, "bench", request)

    def run(self) -> None:
        """Fetch from the first offset to the last and again until the time is over; then close the connection."""
        a_batch = max(self._response_bytes // batch_bytes(self._response_bytes), 1)
        frames = [self._frame(start * RECORDS) for start in range(0, BATCHES - a_batch + 1, a_batch)]
        buffer = memoryview(bytearray(self._response_bytes + 65536))
        sock = self._client.sock
        turn = 0
        while time.monotonic() < self._until:
            sock.sendall(frames[turn % len(frames)])
            turn += 1
            have = sock.recv_into(buffer)
            while have < 4:
                have += sock.recv_into(buffer[have:])
            size = 4 + int.from_bytes(buffer[:4], "big")
            assert size <= len(buffer), size
            while have < size:
                count = sock.recv_into(buffer[have:])
                assert count, "closed"
                have += count
            self.bytes += size
        self._client.close()


def measure(node: NodeProcess, response_bytes: int, seconds: float) -> tuple[float, float]:
    """Fetch over `CONNECTIONS` connections for ``seconds``; return bytes per second, and broker CPU seconds per GiB."""
    before, began = cpu_s(node.pid), time.monotonic()
    readers = [FetchingConnection(node, p, response_bytes, began + seconds) for p in range(CONNECTIONS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    total = sum(reader.bytes for reader in readers)
    return total / (time.monotonic() - began), (cpu_s(node.pid) - before) / (total / 2**30)


@contextmanager
def started_nodes(settings: dict[str, str]) -> Iterator[dict[str, NodeProcess]]:
    """Start a node of Kafka and one of Ottla, which gets ``settings``; yield both by name, and stop them at the end."""
    with tempfile.TemporaryDirectory() as where:
        nodes: dict[str, NodeProcess] = {
            "kafka": KafkaProcess(Path(where) / "kafka"),
            "ottla": OttlaProcess(Path(where) / "ottla", **settings),
        }
        with nodes["kafka"], nodes["ottla"]:
            yield nodes


def main() -> None:
    """Measure both nodes in rounds for each response size, and print each round and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kibibytes", type=int, nargs="+", default=[16, 256, 1024, 8192], help="response sizes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm-s", type=float, default=15.0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for Ottla")
    options = parser.parse_args()
    settings = {key.replace(".", "_"): value for key, value in (text.split("=", 1) for text in options.set)}
    summary = []
    with started_nodes(settings) as nodes:
        for size_bytes in (kibibytes << 10 for kibibytes in options.kibibytes):
            for node in nodes.values():
                fill(node, size_bytes)
            measure(nodes["kafka"], size_bytes, options.warm_s)
            measure(nodes["ottla"], size_bytes, 1.0)
            rates: dict[str, list[float]] = {name: [] for name in nodes}
            costs: dict[str, list[float]] = {name: [] for name in nodes}
            for number in range(options.rounds):
                for name, node in nodes.items():
                    rate, cost = measure(node, size_bytes, options.seconds)
                    rates[name].append(rate)
                    costs[name].append(cost)
                    text = f"{name:6} {size_bytes >> 10:5} KiB round {number}: {rate / 2**20:8,.0f} MiB/s"
                    print(f"{text}, {cost:.3f} s of CPU a GiB", flush=True)
            ratio = statistics.median(rates["ottla"]) / statistics.median(rates["kafka"])
            cpu = statistics.median(costs["ottla"]) / statistics.median(costs["kafka"])
            summary.append(
                f"ottla / kafka, responses of {size_bytes >> 10} KiB: rate {ratio:.2f}, broker cpu {cpu:.2f}"
            )
    print("\n".join(summary))


if __name__ == "__main__":
    main()
