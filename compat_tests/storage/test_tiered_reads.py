"""Stock clients and Kafka's tools on a topic whose older segments are only in the remote store of one node.

The store is a directory, and an S3-compatible server (moto) in another process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from compat_tests.support.object_stores import object_store
from compat_tests.support.processes import java_tool
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import delete_records, list_offsets

TOPIC = "events"
RECORDS = 4000
ABORTED = range(1000, 1500)
"""Records of an aborted transaction."""
SEGMENT_BYTES = 30_000
LOCAL, TIERED, PENDING = -4, -5, -6


class TieredBroker:
    """Node with the topic, of which only the newest segments are local."""

    def __init__(self, directory: Path, store: dict[str, str]) -> None:
        """Start the node and write the topic.

        Args:
            directory: directory of the chunk cache.
            store: broker settings that name the remote store.
        """
        self.broker = ottla.Broker(
            settings={
                "remote.log.storage.system.enable": True,
                **store,
                "rsm.config.chunk.cache.path": f"{directory}/cache",
                "remote.log.manager.task.interval.ms": 200,
                "log.retention.check.interval.ms": 300,
                "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
                "transaction.state.log.num.partitions": 1,
                "offsets.topic.num.partitions": 1,
            }
        ).start()
        self.client = RawClient(self.broker.port)
        settings = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "local.retention.bytes": str(2 * SEGMENT_BYTES),
            "retention.ms": "-1",
        }
        self.broker.client.create_topic(TOPIC, 1, settings=settings)
        self.first_ms = time.time_ns() // 10**6 + 1_800_000
        """Time of the first record, later than that of the transaction marker, which a search by time finds, too."""
        self._write()
        wait_until(lambda: self.list_offset(LOCAL) > RECORDS // 2)

    def _write(self) -> None:
        """Write the records in batches of 50, each with its number as value and time."""
        common = {"bootstrap.servers": self.broker.bootstrap_servers, "linger.ms": 1000, "batch.num.messages": 50}
        plain, transactional = Producer(common), Producer({**common, "transactional.id": "t"})
        transactional.init_transactions()
        for number in range(RECORDS):
            producer = transactional if number in ABORTED else plain
            if number in (ABORTED.start, ABORTED.stop):
                plain.flush()
                if number == ABORTED.start:
                    transactional.begin_transaction()
                else:
                    transactional.abort_transaction()
            producer.produce(TOPIC, b"%08d" % number * 10, timestamp=self.first_ms + number)
            if number % 50 == 49:
                producer.flush()

    def list_offset(self, timestamp: int) -> int:
        wanted = [list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0, -1, timestamp)])]
        answer = self.client.call(ApiKey.LIST_OFFSETS, 11, list_offsets.ListOffsetsRequest(topics=wanted))
        (row,) = answer.topics[0].partitions
        assert row.error_code == 0
        offset: int = row.offset
        return offset

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": "readers",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                **settings,
            }
        )

    def read(self, offset: int, **settings: Any) -> list[tuple[int, int]]:
        """Return (offset, number) of each record from an offset to the end."""
        consumer, out = self.consumer(**settings), []
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        while True:
            message = consumer.poll(20.0)
            assert message is not None, "the consumer got nothing for 20 s"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                break
            number = int(message.value()[:8])
            assert message.value() == b"%08d" % number * 10
            out.append((message.offset(), number))
        consumer.close()
        return out


@pytest.fixture(scope="module", params=["directory", "S3"])
def tiered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredBroker]:
    """Yield a node whose topic has about 27 segments, two or three of which are local."""
    directory = tmp_path_factory.mktemp("tiered")
    with object_store(directory, s3=request.param == "S3") as (_, settings):
        made = TieredBroker(directory, settings)
        yield made
        made.broker.stop()


COMMITTED = [number for number in range(RECORDS) if number not in ABORTED]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"fetch.message.max.bytes": 3000, "check.crcs": True}, id="few bytes a fetch"),
        pytest.param({"isolation.level": "read_uncommitted"}, id="read_uncommitted"),
    ],
)
def test_consumer_reads_the_whole_topic_from_both_tiers(tiered: TieredBroker, settings: dict[str, Any]) -> None:
    expected = list(range(RECORDS)) if "isolation.level" in settings else COMMITTED
    found = tiered.read(0, **settings)
    assert [number for _, number in found] == expected
    assert found == sorted(found)
    assert found[-1] == (RECORDS, RECORDS - 1), "there is one marker, which is written when the transaction has ended"


def test_consumer_finds_offsets_by_time_in_both_tiers(tiered: TieredBroker) -> None:
    consumer = tiered.consumer()
    offsets = {number: offset for offset, number in tiered.read(0)}
    for number in (0, 1, 700, 1700, RECORDS // 2, RECORDS - 1):
        (found,) = consumer.offsets_for_times([TopicPartition(TOPIC, 0, tiered.first_ms + number)], timeout=20)
        assert found.offset == offsets[number]
    consumer.close()


def test_ends_of_the_tiers_are_listed(tiered: TieredBroker) -> None:
    wait_until(lambda: tiered.list_offset(PENDING) == tiered.list_offset(TIERED) + 1 > tiered.list_offset(LOCAL) > 0)
    assert tiered.list_offset(-2) < tiered.list_offset(LOCAL)
    assert tiered.list_offset(-1) == RECORDS + 1


def test_tools_of_kafka_work_on_a_tiered_topic(tiered: TieredBroker, tmp_path: Path) -> None:
    at = ("--bootstrap-server", tiered.broker.bootstrap_servers)
    described = java_tool("TopicCommand", *at, "--describe", "--topic", TOPIC)
    assert "remote.storage.enable=true" in described, described
    wait_until(lambda: tiered.list_offset(PENDING) == tiered.list_offset(TIERED) + 1)
    for name, timestamp in (("-2", -2), ("-4", LOCAL), ("-5", TIERED), ("-1", -1)):
        found = java_tool("GetOffsetShell", *at, "--topic", TOPIC, "--time", name).strip()
        assert found == f"{TOPIC}:0:{tiered.list_offset(timestamp)}"
    arguments = ("--topic", TOPIC, "--from-beginning", "--max-messages", str(len(COMMITTED)))
    arguments += ("--isolation-level", "read_committed", "--timeout-ms", "60000")
    lines = java_tool("consumer.ConsoleConsumer", *at, *arguments).splitlines()
    assert [int(line[:8]) for line in lines] == COMMITTED
    plan = tmp_path / "delete.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 200}]}))
    assert "low_watermark: 200" in java_tool("DeleteRecordsCommand", *at, "--offset-json-file", str(plan))
    assert tiered.list_offset(-2) == 200


def test_deleted_records_of_the_remote_tier_are_not_read(tiered: TieredBroker) -> None:
    wanted = delete_records.DeleteRecordsTopic(TOPIC, [delete_records.DeleteRecordsPartition(0, 300)])
    answer = tiered.client.call(ApiKey.DELETE_RECORDS, 2, delete_records.DeleteRecordsRequest([wanted], 20_000))
    (row,) = answer.topics[0].partitions
    assert (row.error_code, row.low_watermark) == (0, 300)
    assert tiered.read(0, **{"auto.offset.reset": "earliest"})[0] == (300, 300)
    assert [number for _, number in tiered.read(300)] == COMMITTED[300:]
