"""Comparison of one partition under transactions with Kafka: the same raw batches and markers.

Compared are each response (P-75 to P-78, C-144, C-145, C-149), the records and gaps of read_committed, the result of
DescribeProducers, and the files: the transaction index byte for byte, the producer snapshot without the time of
markers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.log.producers.producer_table import ENTRY, ENTRY_BYTES
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, describe_producers, fetch, list_offsets, produce, write_txn_markers
from ottla.wire.record_batch import batch_header, records

TOPIC = "t"
TOP = 32767
Step = tuple[Any, ...]
# ("data", producer, epoch, first sequence, records, transactional), ("mark", producer, epoch, commits, coordinator
# epoch, transaction version).
BY_HAND: list[Step] = [
    ("mark", 1, 3, True, 0, 2),  # unknown producer
    ("data", 1, 3, 0, 2, True),
    ("data", 1, 3, 0, 2, True),  # duplicate
    ("data", 1, 3, 2, 1, False),  # not transactional, while a transaction is open
    ("data", 1, 3, 3, 1, True),  # gap in sequence numbers
    ("data", 1, 3, 2, 3, True),
    ("mark", 1, 3, True, 0, 2),  # epoch of the open transaction
    ("mark", 1, 2, True, 0, 1),
    ("mark", 1, 4, False, 5, 2),
    ("mark", 1, 4, False, 5, 2),  # duplicate marker
    ("mark", 1, 4, True, 4, 2),  # older coordinator epoch
    ("mark", 1, 3, True, 6, 1),
    ("data", 1, 3, 5, 1, True),  # older producer epoch
    ("data", 1, 4, 5, 1, True),  # a new epoch must start at 0
    ("data", 1, 4, 0, 1, True),
    ("data", 2, 0, 0, 4, True),
    ("data", 3, 0, 7, 1, True),
    ("mark", 2, 0, False, 5, 1),
    ("data", 2, 0, 4, 4, True),
    ("mark", 3, 1, True, 5, 2),
    ("mark", 2, 0, True, 5, 1),
    ("data", 2, 0, 8, 1, False),
    ("mark", 1, 4, True, 5, 1),
    ("data", 4, TOP, 0, 1, True),
    ("mark", 4, TOP, False, 5, 2),
    ("data", 5, 0, 0, 1, True),
]


def by_chance(seed: int) -> Iterator[Step]:
    rng = random.Random(seed)
    for _ in range(150):
        pid, epoch = rng.randint(10, 13), rng.randint(0, 3)
        if rng.random() < 0.6:
            yield "data", pid, epoch, rng.choice([0, 0, 1, 2, 3]), rng.randint(1, 2), rng.random() < 0.9
        else:
            yield "mark", pid, epoch, rng.random() < 0.5, rng.randint(0, 2), rng.choice([0, 1, 2])


STEPS = [*BY_HAND, *by_chance(1), *by_chance(2)]


class ComparedPartition:
    """Partition on one of both brokers."""

    def __init__(self, port: int, began_ms: int) -> None:
        self.client = RawClient(port)
        self._began_ms = began_ms
        request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(TOPIC, 1, 1)], 10_000)
        wait_until(lambda: self.client.call(ApiKey.CREATE_TOPICS, 5, request).topics[0].error_code in (0, 36))
        wait_until(lambda: not self.run_step(("data", 99, 0, 0, 1, False))[0])

    def run_step(self, step: Step) -> tuple[int, int]:
        """Return the response to a step: an error, and the offset where the response has one."""
        kind, pid, epoch, *rest = step
        if kind == "mark":
            commits, coordinator_epoch, version = rest
            topics = [write_txn_markers.WritableTxnMarkerTopic(TOPIC, [0])]
            marker = write_txn_markers.WritableTxnMarker(pid, epoch, commits, topics, coordinator_epoch, version)
            answer = self.client.call(ApiKey.WRITE_TXN_MARKERS, 2, write_txn_markers.WriteTxnMarkersRequest([marker]))
            (row,) = answer.markers[0].topics[0].partitions
            return row.error_code, -1
        sequence, count, txn = rest
        raw = records.build_batch(
            [records.NewRecord(None, b"%d" % i, self._began_ms + i) for i in range(count)],
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=batch_header.TRANSACTIONAL_BIT if txn else 0,
        )
        data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(0, raw)])
        answer = self.client.call(ApiKey.PRODUCE, 11, produce.ProduceRequest("x" if txn else None, -1, 10_000, [data]))
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    def read(self, offset: int, max_bytes: int) -> tuple[Any, ...]:
        """Return the response to a read_committed fetch."""
        part = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = fetch.FetchRequest(
            max_wait_ms=0, isolation_level=1, topics=[fetch.FetchTopic(TOPIC, partitions=[part])]
        )
        row = self.client.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        aborted = sorted((x.producer_id, x.first_offset) for x in row.aborted_transactions or ())
        return row.error_code, row.last_stable_offset, row.high_watermark, len(row.records or b""), aborted

    def rest(self) -> list[Any]:
        """Return the end offsets of both isolation levels, and the producers."""
        out: list[Any] = []
        for isolation in (0, 1):
            wanted = list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0, timestamp=-1)])
            answer = self.client.call(ApiKey.LIST_OFFSETS, 5, list_offsets.ListOffsetsRequest(-1, isolation, [wanted]))
            out.append(answer.topics[0].partitions[0].offset)
        request = describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(TOPIC, [0])])
        answer = self.client.call(ApiKey.DESCRIBE_PRODUCERS, 0, request)
        for x in sorted(answer.topics[0].partitions[0].active_producers, key=lambda x: x.producer_id):
            out.append(
                (x.producer_id, x.producer_epoch, x.last_sequence, x.coordinator_epoch, x.current_txn_start_offset)
            )
        return out


def rows_of(path: Path) -> list[tuple[int, ...]]:
    """Return the producers of a snapshot; the time of the last batch may be that of a marker, which differs."""
    raw = path.read_bytes()[10:]
    rows = [ENTRY.unpack_from(raw, at) for at in range(0, len(raw), ENTRY_BYTES)]
    return sorted((*row[:5], *row[6:]) for row in rows)


@pytest.mark.xdist_group(__name__)
def test_partition_under_transactions_equals_kafka(tmp_path: Path) -> None:
    off = {"transaction_partition_verification_enable": "false"}
    began_ms = int(time.time() * 1000)
    ours, theirs = OttlaProcess(tmp_path / "ours", **off), KafkaProcess(tmp_path / "theirs", **off)
    with ours, theirs:
        both = ComparedPartition(ours.port, began_ms), ComparedPartition(theirs.port, began_ms)
        for number, step in enumerate(STEPS):
            mine, kafkas = (x.run_step(step) for x in both)
            assert mine == kafkas, f"step {number}: {step}"
            if number % 5 == 0:
                at = number * 3 % 60
                assert both[0].read(at, 400) == both[1].read(at, 400), f"after step {number}, from {at}"
        for offset in range(0, 60, 7):
            assert both[0].read(offset, 1 << 20) == both[1].read(offset, 1 << 20)
        assert both[0].rest() == both[1].rest()
    name = f"{0:020d}.txnindex"
    index = [(where / f"{TOPIC}-0" / name) for where in (tmp_path / "ours", tmp_path / "theirs")]
    assert index[0].read_bytes() == index[1].read_bytes() != b""
    shots = [max((where / f"{TOPIC}-0").glob("*.snapshot")) for where in (tmp_path / "ours", tmp_path / "theirs")]
    assert shots[0].name == shots[1].name
    assert rows_of(shots[0]) == rows_of(shots[1]) != []
    for pair in (index, shots):
        mine, kafkas = (java_tool("DumpLogSegments", "--files", str(path)) for path in pair)
        assert mine.count("producerId") == kafkas.count("producerId") > 5, mine
