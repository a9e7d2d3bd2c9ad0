"""Speed of Fetch from the remote tier of a node, cold and through a filled chunk cache, beside local segments.

``python -m bench.tiered_fetch [--mib 128] [--s3]``: one connection fetches 1 MiB at a time, as a consumer does by
default. Each number is the median of 6 rounds, in MiB/s; records that are cached or local are read for a second
in each, in alternating order. Another connection produces small batches all the
time; its 99th percentile of latency is printed, too. The store is a directory, with ``--s3`` an S3-compatible server
(moto) in another process; "plain client" reads the objects of the store themselves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import ottla
from compat_tests.support.object_stores import object_store
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.broker.storage.tiered.object_store import ObjectStore
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import fetch, list_offsets
from ottla.wire.record_batch.batch_header import read_offset_and_size
from ottla.wire.record_batch.records import NewRecord, build_batch

MIB = 1024 * 1024
ROUNDS = 6
BATCH_BYTES = 128 * 1024
SEGMENT_MIB = 16
EARLIEST_LOCAL = -4
WARM = {"tiered": "remote, cached", "local": "local"}
"""Topics that are read from memory, and the names of these ways."""


class TieredBenchmarkNode:
    """Running node with the topics ``tiered`` and ``local``, which have the same records: ``mib`` MiB each.

    Most segments of ``tiered`` are only in the remote store.
    """

    def __init__(self, directory: Path, store: dict[str, str], mib: int) -> None:
        self.cache = directory / "cache"
        self.broker = ottla.Broker(
            isolate=True,
            settings={
                "remote.log.storage.system.enable": True,
                "rsm.config.chunk.cache.path": str(self.cache),
                "remote.log.manager.task.interval.ms": 500,
                "log.retention.check.interval.ms": 500,
                "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
                **store,
            },
        ).start()
        self.client = RawClient(self.broker.port)
        segments = {"segment.bytes": str(SEGMENT_MIB * MIB), "retention.ms": "-1"}
        tiered = {"remote.storage.enable": "true", "local.retention.bytes": "1", **segments}
        for topic, settings in (("local", segments), ("tiered", tiered), ("other", {})):
            self.broker.client.create_topic(topic, 1, settings=settings)
        for _ in range(mib * MIB // BATCH_BYTES):
            batch = build_batch([NewRecord(None, bytes(BATCH_BYTES - 200), time.time_ns() // 10**6)])
            assert not self.client.produce("tiered", 0, batch).error_code
            assert not self.client.produce("local", 0, batch).error_code
        least = (mib - 2 * SEGMENT_MIB) * MIB // BATCH_BYTES
        wait_until(lambda: self.local_start() > least)
        self.end = self.local_start()

    def local_start(self) -> int:
        """Request and return the local log start offset of the topic ``tiered``: older records are remote only."""
        wanted = [list_offsets.ListOffsetsTopic("tiered", [list_offsets.ListOffsetsPartition(0, -1, EARLIEST_LOCAL)])]
        answer = self.client.call(ApiKey.LIST_OFFSETS, 11, list_offsets.ListOffsetsRequest(topics=wanted))
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    def read(self, topic: str) -> float:
        """Fetch the records of a topic up to `end`, the offset up to which ``tiered`` is remote; return MiB/s."""
        offset, size, started = 0, 0, time.perf_counter()
        while offset < self.end:
            part = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=MIB)
            request = fetch.FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=50 * MIB,
                session_epoch=-1,
                topics=[fetch.FetchTopic(topic, partitions=[part])],
            )
            (row,) = self.client.call(ApiKey.FETCH, 12, request).responses[0].partitions
            assert not row.error_code, row.error_code
            raw, at = bytes(row.records), 0
            while len(raw) - at >= 12:
                base, length = read_offset_and_size(raw, at)
                if at + length > len(raw):
                    break
                at, offset = at + length, base + 1
            size += at
        return size / MIB / (time.perf_counter() - started)


def with_producer(node: TieredBenchmarkNode, read: Callable[[], float]) -> tuple[float, float]:
    """Call ``read`` while another connection produces; return its result, and the p99 of the producer in ms.

    Of 100 or fewer latencies it is the maximum.
    """
    done, latencies = threading.Event(), []
    client, batch = RawClient(node.broker.port), build_batch([NewRecord(None, b"x" * 100, 0)])

    def produce() -> None:
        while not done.is_set():
            began = time.perf_counter()
            client.produce("other", 0, batch)
            latencies.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        speed = read()
    finally:
        done.set()
        thread.join()
    return speed, statistics.quantiles(latencies, n=100)[98] if len(latencies) > 100 else max(latencies)


def read_often(read: Callable[[], float]) -> float:
    """Call ``read``, which returns MiB/s, for at least a second, and return the median of its results.

    So there are enough latencies beside it for a 99th percentile.
    """
    speeds, until = [], time.perf_counter() + 1
    while time.perf_counter() < until:
        speeds.append(read())
    return statistics.median(speeds)


def read_objects(store: ObjectStore) -> float:
    """Read all objects of the store in ranges of 1 MiB; return MiB/s."""
    size, started = 0, time.perf_counter()
    for entry in store.list_objects():
        for start in range(0, entry.size_bytes, MIB):
            size += len(store.get_range(entry.name, start, min(start + MIB, entry.size_bytes)))
    return size / MIB / (time.perf_counter() - started)


def main() -> None:
    """Measure all ways to read in `ROUNDS` rounds, and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=128, help="size of each topic")
    parser.add_argument("--s3", action="store_true", help="use an S3-compatible server")
    options = parser.parse_args()
    speeds: dict[str, list[float]] = {}
    latencies: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as root, object_store(Path(root), s3=options.s3) as (store, settings):
        node = TieredBenchmarkNode(Path(root), settings, options.mib)

        def measure(way: str, read: Callable[[], float]) -> None:
            speed, latency = with_producer(node, read)
            speeds.setdefault(way, []).append(speed)
            latencies.setdefault(way, []).append(latency)

        try:
            for _ in range(ROUNDS):
                for path in node.cache.iterdir():
                    os.truncate(path, 0)  # the node has it open
                    path.unlink()
                measure("plain client", lambda: read_objects(store))
                measure("remote, cold", lambda: node.read("tiered"))
            for number in range(ROUNDS):  # behind all cold rounds: the disk still writes what they have cached
                for topic, way in list(WARM.items())[:: -1 if number % 2 else 1]:
                    measure(way, lambda topic=topic: read_often(lambda: node.read(topic)))  # type: ignore[misc]
        finally:
            node.broker.stop()
            shutil.rmtree(node.cache, ignore_errors=True)
    medians = {way: statistics.median(each) for way, each in speeds.items()}
    for way, speed in medians.items():
        print(f"{way:<16} {speed:8.1f} MiB/s, p99 of a producer {statistics.median(latencies[way]):6.2f} ms")
    print(f"cold / plain client  {medians['remote, cold'] / medians['plain client']:.2f}")
    print(f"cached / local       {medians['remote, cached'] / medians['local']:.2f}")
    slow = {way: statistics.median(latencies[way]) for way in ("remote, cached", "local")}
    print(f"p99, cached / local  {slow['remote, cached'] / slow['local']:.2f}")


if __name__ == "__main__":
    main()
