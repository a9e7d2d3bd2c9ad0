"""Time to find a record by timestamp and by offset in a log of 10 GiB, over the wire, at first and again.

``python -m bench.lookups [--gib 10] [--batch-kib 1024] [--record-bytes 1000]``.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, fetch, list_offsets, produce
from ottla.wire.record_batch.records import NewRecord, build_batch

LOOKUPS = 3000
START_MS = 1_700_000_000_000
TIMEOUT_S = 120.0


def fill(peer: RawClient, batches: int, records: int, record_bytes: int) -> None:
    """Create the topic ``t``; produce ``batches`` batches of ``records`` records, whose timestamps are 1 ms apart."""
    config = [
        create_topics.CreatableTopicConfig("retention.ms", "-1"),
        create_topics.CreatableTopicConfig("max.message.bytes", "10000000"),
    ]
    topic = create_topics.CreatableTopic("t", 1, 1, configs=config)
    assert (
        peer.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([topic], 10_000)).topics[0].error_code == 0
    )
    value = bytes(record_bytes)
    for number in range(batches):
        first = START_MS + number * records
        raw = build_batch([NewRecord(None, value, first + i) for i in range(records)])
        data = produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, raw)])
        answer = peer.call(ApiKey.PRODUCE, 9, produce.ProduceRequest(None, -1, 60_000, [data]))
        assert answer.responses[0].partition_responses[0].error_code == 0


def find_by_timestamp(peer: RawClient, at: int) -> None:
    """Request the offset of the record ``at`` ms after `START_MS` by ListOffsets; check that it is ``at``."""
    rows = [list_offsets.ListOffsetsPartition(0, timestamp=START_MS + at)]
    answer = peer.call(
        ApiKey.LIST_OFFSETS, 5, list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic("t", rows)])
    )
    assert answer.topics[0].partitions[0].offset == at


def find_by_offset(peer: RawClient, at: int) -> float:
    """Fetch the batch that contains offset ``at``; return the time (`time.perf_counter`) of the response's first bytes.

    The lookup ends with them; the rest of the response is read, too.
    """
    part = fetch.FetchPartition(0, fetch_offset=at, partition_max_bytes=1)
    body = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1, topics=[fetch.FetchTopic("t", partitions=[part])]
    )
    peer.send(ApiKey.FETCH, 12, body)
    peer.sock.recv(64, socket.MSG_PEEK | socket.MSG_WAITALL)
    found = time.perf_counter()
    answer = peer.receive(ApiKey.FETCH, 12)
    assert len(answer.responses[0].partitions[0].records) > 0
    return found


def measure(label: str, look: Callable[[RawClient, int], float | None], peer: RawClient, end: int) -> None:
    """Call ``look`` for `LOOKUPS` random offsets below ``end``, and print median, p99 and worst time in ms."""
    rng = random.Random(1)
    took = []
    for _ in range(LOOKUPS):
        at = rng.randrange(end)
        began = time.perf_counter()
        found = look(peer, at)
        took.append(((found or time.perf_counter()) - began) * 1000)
    took.sort()
    median, p99 = took[LOOKUPS // 2], took[LOOKUPS * 99 // 100]
    print(f"{label}: median {median:.2f} ms, p99 {p99:.2f} ms, worst {took[-1]:.2f} ms")


def main() -> None:
    """Fill a log, and print the times of lookups by timestamp and by offset, twice: the second time they are warm."""
    parser = argparse.ArgumentParser("bench.lookups")
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--batch-kib", type=int, default=1024)
    parser.add_argument("--record-bytes", type=int, default=1000)
    options = parser.parse_args()
    records = max(options.batch_kib * 1024 // (options.record_bytes + 10), 1)
    batches = int(options.gib * (1 << 20) / options.batch_kib)
    with tempfile.TemporaryDirectory() as where, OttlaProcess(Path(where) / "data") as node:
        peer = RawClient(node.port, TIMEOUT_S)
        began = time.perf_counter()
        fill(peer, batches, records, options.record_bytes)
        print(f"{options.gib} GiB, {records} records a batch, made in {time.perf_counter() - began:.0f} s", flush=True)
        os.sync()  # data in the page cache would be measured too
        for _ in range(2):  # the second round finds the cache warm
            measure("by time", find_by_timestamp, peer, batches * records)
            measure("by offset", find_by_offset, peer, batches * records)


if __name__ == "__main__":
    main()
