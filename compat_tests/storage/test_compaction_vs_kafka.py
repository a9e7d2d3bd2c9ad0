"""Compaction compared with Kafka after the same batches: the same records survive, and Kafka reads our files."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, fetch, incremental_alter_configs, list_offsets
from ottla.wire.record_batch import batch_header, records
from ottla.wire.record_batch.compression import CompressionType

TOPIC = "compacted"
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1500",
    "min.compaction.lag.ms": "3600000",
}
"""Settings that prevent cleaning while the topic is filled, so that the number of passes is the same."""
CompactedRecords = list[tuple[int, int, bytes | None, bytes | None]]


def batches(seed: int, count: int) -> list[bytes]:
    """Yield batches with repeated keys, tombstones, codecs and idempotent producers, the same for every cluster."""
    rng = random.Random(seed)
    now = time.time_ns() // 10**6
    out, sequence = [], 0
    for number in range(count):
        items = []
        for _ in range(rng.randint(1, 20)):
            key = b"key-%d" % rng.randrange(400)
            value = None if rng.random() < 0.1 else rng.randbytes(rng.randint(10, 700))
            items.append(records.NewRecord(key, value, now - 1000 + number % 7, (("h", b"1"),)))
        idempotent = number % 3 == 0
        out.append(
            records.build_batch(
                items,
                codec=rng.choice(list(CompressionType)),
                **({"producer_id": 76 + seed, "producer_epoch": 0, "base_sequence": sequence} if idempotent else {}),
            )
        )
        sequence += len(items) * idempotent
    return out


class CompactionBroker:
    """Broker of either kind with the topic."""

    def __init__(self, process: Any) -> None:
        self.peer = RawClient(process.port)
        self._data_dir: Path = process.data_dir

    def create(self) -> None:
        configs = [create_topics.CreatableTopicConfig(k, v) for k, v in SETTINGS.items()]
        request = create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(TOPIC, 1, 1, configs=configs)], 10_000
        )
        assert self.peer.call(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == 0
        while self.end(-1) < 0:
            time.sleep(0.05)

    def end(self, when: int) -> int:
        ask = list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0, -1, when)])
        row = (
            self.peer.call(ApiKey.LIST_OFFSETS, 7, list_offsets.ListOffsetsRequest(-1, 0, [ask]))
            .topics[0]
            .partitions[0]
        )
        return -1 if row.error_code else int(row.offset)

    def produce(self, raw: bytes) -> None:
        assert self.peer.produce(TOPIC, 0, raw).error_code == 0

    def read(self) -> CompactedRecords:
        """Return every record with its offset, time, key and value, after verifying each checksum."""
        at, end = self.end(-2), self.end(-1)
        out: CompactedRecords = []
        while at < end:
            part = fetch.FetchPartition(0, fetch_offset=at, partition_max_bytes=8 << 20)
            request = fetch.FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, topics=[fetch.FetchTopic(TOPIC, partitions=[part])]
            )
            row = self.peer.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
            assert row.error_code == 0
            for pos, header in batch_header.iterate_batches(row.records):
                assert batch_header.crc_matches(row.records, header, pos)
                out += [
                    (x.offset, x.timestamp_ms, x.key, x.value)
                    for x in records.iterate_records(row.records, header, pos)
                    if x.offset >= at
                ]
                at = max(at, header.next_offset)
        return out

    def clean_all(self) -> None:
        """Alter the settings so that new records are cleaned."""
        change = incremental_alter_configs.AlterConfigsResource(
            2, TOPIC, [incremental_alter_configs.AlterableConfig("min.compaction.lag.ms", 0, "0")]
        )
        answer = self.peer.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs.IncrementalAlterConfigsRequest([change])
        )
        assert answer.responses[0].error_code == 0

    def cleaned(self) -> CompactedRecords:
        """Return the records once all segments but the active one are clean, when no pass has work left."""
        wait_until(
            lambda: self._clean_below() == max(int(x.stem) for x in (self._data_dir / f"{TOPIC}-0").glob("*.log"))
        )
        return self.read()

    def _clean_below(self) -> int:
        """Return the first dirty offset of the cleaner's checkpoint."""
        points = self._data_dir / "cleaner-offset-checkpoint"
        rows = [line.split() for line in points.read_text().splitlines()] if points.exists() else []
        return next((int(row[2]) for row in rows if row[:2] == [TOPIC, "0"]), -1)


@pytest.mark.xdist_group(__name__)
def test_compaction_keeps_the_same_records_as_kafka(tmp_path: Path) -> None:
    first, second = batches(1, 900), batches(2, 500)
    quick = {"log_cleaner_backoff_ms": "300"}
    results: dict[str, list[CompactedRecords]] = {}
    nodes: dict[str, Any] = {
        "kafka": KafkaProcess(tmp_path / "kafka", **quick),
        "ottla": OttlaProcess(tmp_path / "ottla", **quick),
    }
    for name, process in nodes.items():
        with process:
            node = CompactionBroker(process)
            node.create()
            for raw in first:
                node.produce(raw)
            written = len(node.read())
            node.clean_all()
            results[name] = [node.cleaned()]
            assert len(results[name][0]) < written == node.end(-1)
            for raw in second:
                node.produce(raw)
            time.sleep(2)  # the tombstones of the first pass are due now
            for raw in batches(3, 150):
                node.produce(raw)
            results[name].append(node.cleaned())
    for ours, theirs in zip(results["ottla"], results["kafka"], strict=True):
        assert last(ours) == last(theirs)
    first_pass = results["ottla"][0]
    assert [(o, k) for o, _, k, _ in first_pass] == [(o, k) for o, _, k, _ in results["kafka"][0]]
    with KafkaProcess(tmp_path / "ottla") as kafka:
        assert CompactionBroker(kafka).read() == results["ottla"][1]


def last(seen: CompactedRecords) -> dict[bytes | None, tuple[int, bytes | None]]:
    """Return the last value of each key; a deleted key has none, with or without tombstone."""
    found = {key: (offset, value) for offset, _, key, value in seen}
    return {key: row for key, row in found.items() if row[1] is not None}
