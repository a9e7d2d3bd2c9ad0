"""Reads of the metadata topic from its local leaders: in small steps, and through batches that cannot be decoded."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.broker.remote_log.metadata_topic_client import MAX_BATCH_BYTES, RECORDS_PER_YIELD, MetadataTopicClient
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.storage.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC as TOPIC
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.records import NewRecord, build_batch


class ClientFixture(BrokerStorageFixture):
    """Broker that leads all partitions of the metadata topic, and its client."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.client = MetadataTopicClient(
            self.env,
            NODE_ID,
            self.replica_manager,
            Purgatory(self.env),
            self.failure_handler.handle_failure,
            lambda client_id: cast("Any", None),
            1000,
        )
        self.positions = dict.fromkeys(range(partitions), 0)

    async def host(self) -> None:
        self.commit_topics(led_topic(TOPIC, len(self.positions)))
        await self.publisher.wait_applied_and_created()

    def append(self, partition: int, *values: bytes, codec: CompressionType = CompressionType.NONE) -> None:
        """Append a batch, as any producer may."""
        records = [NewRecord(None, value, timestamp_ms=1) for value in values]
        replica = self.replica_manager.leader(TOPIC, partition)
        replica.append(bytearray(build_batch(records, codec=codec)), self.env.now_ms())


def test_local_read_of_many_partitions_and_large_batches_yields_between_them() -> None:
    fixture = ClientFixture(partitions=5)

    async def scenario() -> None:
        await fixture.host()
        assert list(fixture.client._read_all_job(fixture.positions)) == [], "no yield before the wait for records"
        values = [b"value"] * (4 * RECORDS_PER_YIELD)
        for partition in fixture.positions:
            fixture.append(partition, *values)
        assert len(list(fixture.client._read_all_job(fixture.positions))) >= 5 * 4
        found = await fixture.client.fetch(NODE_ID, fixture.positions)
        expected = list(enumerate(values))
        assert {partition: read.records for partition, read in found.items()} == dict.fromkeys(range(5), expected)

    fixture.run(scenario)


def test_batch_that_expands_beyond_the_limit_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    fixture = ClientFixture(partitions=1)

    async def scenario() -> None:
        await fixture.host()
        fixture.append(0, bytes(MAX_BATCH_BYTES), codec=CompressionType.GZIP)
        fixture.append(0, b"value")
        found = await fixture.client.fetch(NODE_ID, fixture.positions)
        assert (found[0].records, found[0].next_offset) == ([(1, b"value")], 2)
        assert [record.getMessage()[:42] for record in caplog.records] == ["Skipped the batch at offset 0 of __remote_"]

    fixture.run(scenario)
