"""Ten thousand partitions on one node: memory, open files, and duration of restarts.

``python -m bench.partitions [--topics 10] [--partitions 1000] [--unflushed-mib 1024]``. Every partition gets a record;
then the node is idle until its files are closed, stopped and started, filled, killed and started again.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, list_offsets, produce
from ottla.wire.record_batch import records

IDLE_WITHIN_S = 300.0
FILES_PER_100 = 5


def memory_mb(node: OttlaProcess) -> float:
    """Return the resident memory of the node's process in MiB."""
    text = Path(f"/proc/{node.pid}/status").read_text()
    return int(next(x for x in text.split("\n") if x.startswith("VmRSS")).split()[1]) / 1024


def data_files(node: OttlaProcess) -> int:
    """Return the number of open segment and index files of the node's process."""
    count = 0
    for fd in Path(f"/proc/{node.pid}/fd").iterdir():
        try:
            count += os.readlink(fd).endswith((".log", "index"))
        except OSError:
            continue
    return count


class PartitionSet:
    """Names of ``topics`` topics with ``partitions`` partitions each, and requests to all of them."""

    def __init__(self, topics: int, partitions: int) -> None:
        self.names = [f"t{number}" for number in range(topics)]
        self.partitions = partitions

    def create(self, node: OttlaProcess) -> None:
        """Create the topics, one request for each."""
        peer = RawClient(node.port, timeout_s=300)
        for name in self.names:
            request = create_topics.CreateTopicsRequest(
                [create_topics.CreatableTopic(name, self.partitions, 1)], 300_000
            )
            assert peer.call(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == 0

    def write(self, node: OttlaProcess, value_bytes: int) -> None:
        """Produce a batch of one record with ``value_bytes`` bytes to every partition, and check the responses."""
        peer = RawClient(node.port, timeout_s=300)
        raw = records.build_batch([records.NewRecord(None, bytes(value_bytes), time.time_ns() // 10**6)])
        at_once = max(min((32 << 20) // len(raw), self.partitions), 1)
        for name in self.names:
            for first in range(0, self.partitions, at_once):
                numbers = range(first, min(first + at_once, self.partitions))
                rows = [produce.PartitionProduceData(number, raw) for number in numbers]
                request = produce.ProduceRequest(
                    None, -1, 60_000, [produce.TopicProduceData(name, partition_data=rows)]
                )
                answer = peer.call(ApiKey.PRODUCE, 9, request)
                assert not any(x.error_code for x in answer.responses[0].partition_responses)

    def ends(self, node: OttlaProcess) -> list[int]:
        """Return the end offsets of all partitions, topic by topic."""
        peer = RawClient(node.port, timeout_s=300)
        out = []
        for name in self.names:
            rows = [list_offsets.ListOffsetsPartition(number, timestamp=-1) for number in range(self.partitions)]
            answer = peer.call(
                ApiKey.LIST_OFFSETS,
                5,
                list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(name, rows)]),
            )
            out += [x.offset for x in answer.topics[0].partitions]
        return out


def timed(label: str, began: float) -> None:
    """Print the time in s since ``began`` (`time.perf_counter`), with a label."""
    print(f"{label}: {time.perf_counter() - began:.1f} s", flush=True)


def main() -> None:
    """Take a node through the steps, and print duration, memory and open files after each."""
    parser = argparse.ArgumentParser("bench.partitions")
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--unflushed-mib", type=int, default=1024)
    options = parser.parse_args()
    fleet = PartitionSet(options.topics, options.partitions)
    total = options.topics * options.partitions
    with tempfile.TemporaryDirectory() as where:
        node = OttlaProcess(Path(where) / "data").start()
        print(f"empty: {memory_mb(node):.0f} MB", flush=True)
        began = time.perf_counter()
        fleet.create(node)
        timed(f"{total} partitions made", began)
        began = time.perf_counter()
        fleet.write(node, 100)
        timed("a record in each", began)
        print(f"busy: {memory_mb(node):.0f} MB, {data_files(node)} files open", flush=True)
        began = time.perf_counter()
        while data_files(node) > total * FILES_PER_100 / 100 and time.perf_counter() - began < IDLE_WITHIN_S:
            time.sleep(1)
        timed("until idle", began)
        print(f"idle: {memory_mb(node):.0f} MB, {data_files(node)} files open", flush=True)
        began = time.perf_counter()
        node.stop()
        timed("clean stop", began)
        began = time.perf_counter()
        node.start()
        timed("start after a clean stop", began)
        print(f"then: {memory_mb(node):.0f} MB, {data_files(node)} files open", flush=True)
        assert fleet.ends(node) == [1] * total
        size = (options.unflushed_mib << 20) // total
        began = time.perf_counter()
        fleet.write(node, size)
        timed(f"{options.unflushed_mib} MiB more", began)
        node.kill()
        began = time.perf_counter()
        node.start()
        timed("start after kill -9", began)
        print(f"then: {memory_mb(node):.0f} MB, {data_files(node)} files open", flush=True)
        assert fleet.ends(node) == [2] * total
        node.stop()


if __name__ == "__main__":
    main()
