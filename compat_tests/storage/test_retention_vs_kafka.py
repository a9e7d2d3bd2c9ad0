"""Retention compared with Kafka after the same batches and settings: both logs start at the same offsets."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import KafkaProcess, OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, delete_records, incremental_alter_configs, list_offsets
from ottla.wire.record_batch import records

HOUR_MS = 3_600_000
BATCHES = 900
TOPICS = {
    "by-size": {"retention.bytes": "3000000", "retention.ms": "-1"},
    "by-time": {"retention.ms": str(HOUR_MS)},
    "by-both": {"retention.ms": str(3 * HOUR_MS // 2), "retention.bytes": "4500000"},
    "by-start": {"retention.ms": "-1"},
    "of-old": {"retention.ms": "1000"},
}
WAIT_S = 180
QUIET_S = 3


def batches() -> list[bytes]:
    """Yield about 9 MB, from two hours old to new; some records have a timestamp out of order."""
    rng, now = random.Random(5), time.time_ns() // 10**6
    out = []
    for number in range(BATCHES):
        age = 2 * HOUR_MS - number * (2 * HOUR_MS - 30_000) // BATCHES
        items = [
            records.NewRecord(b"k", rng.randbytes(1000), now - age - rng.choice((0, 0, 0, 600_000))) for _ in range(10)
        ]
        out.append(records.build_batch(items))
    return out


class RetentionBroker:
    """Broker of either kind."""

    def __init__(self, port: int) -> None:
        self.peer = RawClient(port)

    def fill(self, topic: str, raw: list[bytes]) -> None:
        """Fill a topic without retention: the segments deleted meanwhile would depend on the moment."""
        settings = {"segment.bytes": "1048576", "retention.ms": "-1"}
        configs = [create_topics.CreatableTopicConfig(k, v) for k, v in settings.items()]
        request = create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(topic, 1, 1, configs=configs)], 10_000
        )
        assert self.peer.call(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code == 0
        for one in raw:
            while self.peer.produce(topic, 0, one).error_code:
                time.sleep(0.05)

    def ends(self, topic: str) -> tuple[int, int]:
        """Return log start and log end offset."""
        found = []
        for when in (-2, -1):
            ask = list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(0, -1, when)])
            request = list_offsets.ListOffsetsRequest(-1, 0, [ask])
            deadline = time.monotonic() + WAIT_S
            while True:  # a node that has just started may not be leader yet
                row = self.peer.call(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0]
                if row.error_code == 0 or time.monotonic() > deadline:
                    break
                time.sleep(0.1)
            assert row.error_code == 0
            found.append(int(row.offset))
        return found[0], found[1]

    def wait_for_start_offsets(self, beyond: dict[str, int]) -> dict[str, tuple[int, int]]:
        """Return the log start offsets once the expected ones have passed an offset and all are stable."""
        deadline = time.monotonic() + WAIT_S
        before: dict[str, tuple[int, int]] = {}
        since = time.monotonic()
        while time.monotonic() < deadline:
            now = {topic: self.ends(topic) for topic in TOPICS}
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > QUIET_S and all(now[topic][0] > at for topic, at in beyond.items()):
                return now
            time.sleep(0.2)
        raise AssertionError(f"not settled: {before}")

    def delete_below(self, topic: str, offset: int) -> int:
        part = delete_records.DeleteRecordsPartition(0, offset)
        request = delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsTopic(topic, [part])], 10_000)
        row = self.peer.call(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
        assert row.error_code == 0
        return int(row.low_watermark)

    def set(self, topic: str, name: str, value: str) -> None:
        change = incremental_alter_configs.AlterConfigsResource(
            2, topic, [incremental_alter_configs.AlterableConfig(name, 0, value)]
        )
        answer = self.peer.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, incremental_alter_configs.IncrementalAlterConfigsRequest([change])
        )
        assert answer.responses[0].error_code == 0


def play(process: Any) -> list[Any]:
    """Run the scenario, the same for each broker; return the observed offsets."""
    with process:
        node = RetentionBroker(process.port)
        raw = batches()
        for topic in TOPICS:
            node.fill(topic, raw)
        for topic, settings in TOPICS.items():
            for name, value in settings.items():
                node.set(topic, name, value)
        first = node.wait_for_start_offsets(dict.fromkeys(("by-size", "by-time", "by-both", "of-old"), 0))
        seen: list[Any] = [first]
        seen.append(node.delete_below("by-start", 4321))
        node.set("by-size", "retention.bytes", "1048576")
        node.set("by-start", "retention.bytes", "2000000")
        seen.append(node.wait_for_start_offsets({"by-start": 4321, "by-size": first["by-size"][0]}))
    with process:
        seen.append(RetentionBroker(process.port).wait_for_start_offsets({}))
    return seen


@pytest.mark.xdist_group(__name__)
def test_retention_by_time_size_and_start_offset_equals_kafka(tmp_path: Path) -> None:
    quick = {"log_retention_check_interval_ms": "500"}
    kafka = play(KafkaProcess(tmp_path / "kafka", log_initial_task_delay_ms="500", **quick))
    ottla = play(OttlaProcess(tmp_path / "ottla", **quick))
    assert ottla == kafka
    first, low, second, after = ottla
    assert low == 4321
    assert first["by-time"][0] > 0
    assert second["by-size"][0] > first["by-size"][0]
    assert second["by-start"][0] > 4321
    assert first["of-old"][0] > 0
    assert after == second
