"""Byte rate quotas by Kafka's tool: a client above its quota is throttled by Kafka's formula, and muted meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from compat_tests.support.processes import OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, produce
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.record_batch import records

RATE = 10_000


def test_produce_and_fetch_above_byte_rate_quota_are_throttled(data_dir: Path) -> None:
    with OttlaProcess(data_dir) as node:
        at = ("--bootstrap-server", node.bootstrap, "--entity-type", "clients", "--entity-name", "peer")
        rates = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
        java_tool("kafka.admin.ConfigCommand", *at, "--alter", "--add-config", rates)
        output = java_tool("kafka.admin.ConfigCommand", *at, "--describe")
        assert f"producer_byte_rate={RATE}.0" in output
        client = RawClient(node.port)
        client.call(
            ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 1, 1)], 9_000)
        )
        raw = records.build_batch([records.NewRecord(None, bytes(120_000), int(time.time() * 1000))])
        data = produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, bytes(raw))])
        requested_s = time.monotonic()  # before the request: the node counts from its response, which may arrive later
        answer = client.call(ApiKey.PRODUCE, 9, produce.ProduceRequest(None, -1, 10_000, [data]))
        expected_ms = (120_000 / 10 / RATE - 1) * 10_000
        assert answer.throttle_time_ms == pytest.approx(expected_ms, rel=0.05)
        part = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = [FetchTopic("t", partitions=[part])]
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=wanted)
        fetched = client.call(ApiKey.FETCH, 12, fetch)
        assert time.monotonic() - requested_s >= (answer.throttle_time_ms - 1) / 1000
        assert (fetched.throttle_time_ms > 0, fetched.responses) == (True, [])
        java_tool("kafka.admin.ConfigCommand", *at, "--alter", "--delete-config", "consumer_byte_rate")
        other = RawClient(node.port)
        assert len(other.call(ApiKey.FETCH, 12, fetch).responses[0].partitions[0].records) > 120_000
    assert "Traceback" not in node.log.read_text()
