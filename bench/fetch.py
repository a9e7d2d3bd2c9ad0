"""Large answers: fetches of 8 MiB over four connections from Kafka and Ottla in turn, what lies in the page cache.

``python -m bench.fetch``. The JVM is warmed first, so that its compiled code is what is compared; rounds alternate, and
the median of each counts. The reader only receives: threads that wait in the system call. How much the kernel keeps of
an answer decides: `--set socket.send.buffer.bytes=102400` shows Kafka's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

from bench.produce import cpu_s
from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import fetch as f
from ottla.wire.record_batch import records

CONNECTIONS = 4
BATCH_BYTES = 1_048_000
RECORDS = 8
BATCHES = 64
"""In each partition, so a reader starts over after eight answers."""


def fill(node: NodeProcess, topic: str) -> None:
    """Make the topic and give every partition the same batches."""
    java_tool(
        "TopicCommand",
        *("--bootstrap-server", node.bootstrap, "--create", "--topic", topic, "--partitions", str(CONNECTIONS)),
    )
    value = bytes(range(256)) * (BATCH_BYTES // RECORDS // 256)
    now_ms = int(time.time() * 1000)
    raw = records.build_batch([records.NewRecord(None, value, now_ms)] * RECORDS)
    client = RawClient(node.port)
    for partition in range(CONNECTIONS):
        for _ in range(BATCHES):
            row = client.produce(topic, partition, raw)
            assert row.error_code == 0, row
    client.close()


class FetchingConnection(threading.Thread):
    """Connection that fetches one partition again and again."""

    def __init__(self, node: NodeProcess, topic: str, partition: int, answer_bytes: int, until: float) -> None:
        super().__init__()
        self._client = RawClient(node.port)
        self._topic = topic
        self._partition = partition
        self._answer_bytes = answer_bytes
        self._until = until
        self.bytes = 0

    def _frame(self, offset: int) -> bytes:
        part = f.FetchPartition(self._partition, fetch_offset=offset, partition_max_bytes=self._answer_bytes)
        topics = [f.FetchTopic(self._topic, partitions=[part])]
        request = f.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=self._answer_bytes, topics=topics)
        return encode_request(ApiKey.FETCH, 12, 1, "bench", request)

    def run(self) -> None:
        """Fetch until the time is over."""
        a_batch = self._answer_bytes // BATCH_BYTES
        frames = [self._frame(start * RECORDS) for start in range(0, BATCHES - a_batch + 1, max(a_batch, 1))]
        buffer = memoryview(bytearray(self._answer_bytes + 65536))
        sock = self._client.sock
        turn = 0
        while time.monotonic() < self._until:
            sock.sendall(frames[turn % len(frames)])
            turn += 1
            have = 0
            while have < 4:
                have += sock.recv_into(buffer[have:4])
            size = int.from_bytes(buffer[:4], "big")
            assert size <= len(buffer), size
            done = 0
            while done < size:
                count = sock.recv_into(buffer[: size - done])
                assert count, "closed"
                done += count
            self.bytes += size
        self._client.close()


def measure(node: NodeProcess, topic: str, answer_bytes: int, seconds: float) -> tuple[float, float]:
    """(bytes a second, broker CPU seconds per GiB)."""
    before, began = cpu_s(node.pid), time.monotonic()
    readers = [FetchingConnection(node, topic, p, answer_bytes, began + seconds) for p in range(CONNECTIONS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    total = sum(reader.bytes for reader in readers)
    return total / (time.monotonic() - began), (cpu_s(node.pid) - before) / (total / 2**30)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm-s", type=float, default=15.0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting for Ottla")
    options = parser.parse_args()
    rates: dict[str, list[float]] = {"kafka": [], "ottla": []}
    costs: dict[str, list[float]] = {"kafka": [], "ottla": []}
    settings = {key.replace(".", "_"): value for key, value in (text.split("=", 1) for text in options.set)}
    with tempfile.TemporaryDirectory() as where:
        nodes: dict[str, NodeProcess] = {
            "kafka": KafkaProcess(Path(where) / "kafka"),
            "ottla": OttlaProcess(Path(where) / "ottla", **settings),
        }
        for node in nodes.values():
            node.start()
            fill(node, "large")
        measure(nodes["kafka"], "large", options.mebibytes << 20, options.warm_s)
        measure(nodes["ottla"], "large", options.mebibytes << 20, 1.0)
        for number in range(options.rounds):
            for name, node in nodes.items():
                rate, cost = measure(node, "large", options.mebibytes << 20, options.seconds)
                rates[name].append(rate)
                costs[name].append(cost)
                print(f"{name:6} round {number}: {rate / 2**20:8,.0f} MiB/s, {cost:.3f} s of CPU a GiB", flush=True)
        for node in nodes.values():
            node.stop()
    ratio = statistics.median(rates["ottla"]) / statistics.median(rates["kafka"])
    cpu = statistics.median(costs["ottla"]) / statistics.median(costs["kafka"])
    print(f"ottla / kafka, answers of {options.mebibytes} MiB: rate {ratio:.2f}, broker cpu {cpu:.2f}")


if __name__ == "__main__":
    main()
