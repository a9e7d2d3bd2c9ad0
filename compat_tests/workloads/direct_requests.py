"""Requests that a workload sends to a broker directly: ListOffsets, Fetch, and batches made here."""

from __future__ import annotations

import random
import time
from typing import Any

from compat_tests.workloads.batch_frames import plain_batch, unusual_batch
from compat_tests.workloads.compared_broker import ComparedBroker
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import produce
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.record_batch import batch_header
from ottla.wire.record_batch.records import NewRecord

WITHOUT_TOPIC_NAMES = 13
"""Fetch names topics by id from this version on."""
WAITED = 0.8
"""A response counts as held back when it took this part of ``max_wait_ms``."""
TRIES = 3
MAX_TIMESTAMP = -3
AGE_MS = 4 * 3600 * 1000
"""Age of the earliest record: none is from the future, and retention deletes none."""
YOUNGEST_MS = AGE_MS - 60_000
"""Timestamps from here on, counted from the earliest record's, were made by a broker."""
Step = dict[str, Any]


def list_offsets(side: ComparedBroker, topic: str, step: Step, base_ms: int) -> dict[str, Any]:
    """List offsets for each timestamp of a step, with both isolation levels."""
    out: dict[str, Any] = {}
    for isolation in (0, 1):
        for at in step["times"]:
            requested = at if at < 0 else base_ms + at
            found = side.offsets(topic, dict.fromkeys(step["partitions"], requested), isolation, step["version"])
            for partition, (error, timestamp, offset, epoch) in found.items():
                row: list[Any] = [error, timestamp - base_ms if timestamp > 0 else timestamp, offset, epoch]
                by_time = at >= 0 or at == MAX_TIMESTAMP
                # Timestamps of markers and LogAppendTime are made by the broker; so the largest differs, too.
                if by_time and offset >= 0 and (step["kind"] == "stamped" or row[1] > YOUNGEST_MS):
                    row = [error, "any", "any", epoch]
                # Compaction, at a time of its own, removes records with a timestamp.
                if by_time and step["kind"] == "compact":
                    row = [error]
                out[f"{partition}: {at}, isolation {isolation}"] = row
    return out


def produce_batches(side: ComparedBroker, topic: str, step: Step, base_ms: int) -> list[Any]:
    """Produce batches built here, so that both logs hold the same ones; return error code and base offset of each."""
    rng = random.Random(step["seed"])
    out = []
    for partition, count, size, codec in step["batches"]:
        text = rng.randbytes(min(size, 4096)) or b""
        rows = [
            NewRecord(b"k%d" % i, (text * (size // max(len(text), 1) + 1))[:size], base_ms + rng.randrange(100_000))
            for i in range(count)
        ]
        out.append(_produced(side, topic, partition, plain_batch(rows, codec)))
    return out


def produce_frame(side: ComparedBroker, topic: str, step: Step, base_ms: int) -> list[Any]:
    """Produce a batch compressed in an unusual form; return error code and base offset."""
    raw = unusual_batch(step["kind"], step["seed"], step["size"], base_ms)
    return _produced(side, topic, step["partition"], raw)


def _produced(side: ComparedBroker, topic: str, partition: int, raw: bytes) -> list[Any]:
    data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, raw)])
    answer = side.call(ApiKey.PRODUCE, 9, produce.ProduceRequest(None, -1, 30_000, [data]))
    row = answer.responses[0].partition_responses[0]
    return [row.error_code, row.base_offset]


def fetch(side: ComparedBroker, topic: str, step: Step) -> dict[str, Any]:
    """Send one Fetch request without a session; return the records of each partition, and whether it was delayed."""
    version = step["version"]
    rows = []
    for partition, offset, limit in step["partitions"]:
        rows.append(FetchPartition(partition, fetch_offset=offset, partition_max_bytes=limit))
    named = FetchTopic(topic_id=side.topic_ids[topic]) if version >= WITHOUT_TOPIC_NAMES else FetchTopic(topic)
    named.partitions = rows
    topics = [named]
    if step["unknown_topic"]:
        lost = FetchTopic(topic_id=b"\x07" * 16) if version >= WITHOUT_TOPIC_NAMES else FetchTopic("no-such-topic")
        lost.partitions = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)]
        topics.append(lost)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=step["max_wait_ms"],
        min_bytes=step["min_bytes"],
        max_bytes=step["max_bytes"],
        isolation_level=step["isolation"],
        topics=topics,
    )
    held_back, tries = True, 0
    while held_back and tries < TRIES:  # a busy machine is slow, too, but not each time
        began = time.monotonic()
        answer = side.call(ApiKey.FETCH, version, request)
        held_back = time.monotonic() - began >= WAITED * step["max_wait_ms"] / 1000
        tries += 1
    out = [_fetched(row) for response in answer.responses for row in response.partitions]
    return {"error": answer.error_code, "partitions": out, "held back": held_back}


def _fetched(row: Any) -> dict[str, Any]:
    raw = bytes(row.records or b"")
    batches = [header for _, header in batch_header.iterate_batches(raw)]
    whole = sum(header.size_bytes for header in batches)
    return {
        "partition": row.partition_index,
        "error": row.error_code,
        "high watermark": row.high_watermark,
        "last stable offset": row.last_stable_offset,
        "log start": row.log_start_offset,
        "batches": [(x.base_offset, x.last_offset, x.size_bytes, x.attributes, x.records_count) for x in batches],
        "cut off": len(raw) - whole,
        "aborted": None if row.aborted_transactions is None else len(row.aborted_transactions),
    }
