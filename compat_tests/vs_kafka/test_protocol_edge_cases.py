"""Edge cases of Kafka's protocol on a raw connection, by the numbers of the list of behaviours.

Others of the list are tested beside their code: log, groups, controller, wire. Rules of quotas (8, 9, 100),
authorization (14) and several nodes (38, 43, 46-56) are not covered here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.framing import encode_request
from ottla.wire.messages import (
    api_versions,
    create_topics,
    describe_groups,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    unregister_broker,
)
from ottla.wire.messages import describe_cluster as dcl
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch import records

NOT_REQUESTED = -2147483648
MISSING_ID = bytes(15) + b"\x63"
BASE_MS = time.time_ns() // 10**9 * 1000 - 60_000  # recent enough to survive retention


@pytest.fixture
def peer(node: OttlaProcess) -> Iterator[RawClient]:
    one = RawClient(node.port)
    yield one
    one.close()


def create(peer: RawClient, name: str, partitions: int = 1, **settings: str) -> bytes:
    configs = [create_topics.CreatableTopicConfig(k.replace("_", "."), v) for k, v in settings.items()]
    topic = create_topics.CreatableTopic(name, partitions, 1, configs=configs)
    row = peer.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([topic], 10_000)).topics[0]
    assert row.error_code == 0
    ident: bytes = row.topic_id
    return ident


def batch(count: int = 1, size: int = 1, **more: Any) -> bytes:
    return records.build_batch([records.NewRecord(b"k", b"v" * size, BASE_MS + i) for i in range(count)], **more)


def produce(
    peer: RawClient, topic: str, raw: bytes, acks: int = -1, version: int = 11, ident: bytes = ZERO_UUID
) -> Any:
    data = TopicProduceData(topic, ident, [PartitionProduceData(0, raw)])
    answer = peer.call(ApiKey.PRODUCE, version, ProduceRequest(None, acks, 5000, [data]))
    return answer.responses[0].partition_responses[0]


def wanted(topic: str, *parts: fetch.FetchPartition, ident: bytes = ZERO_UUID, **more: Any) -> fetch.FetchRequest:
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **more}
    return fetch.FetchRequest(topics=[fetch.FetchTopic(topic, ident, list(parts))], **limits)


def at(offset: int, number: int = 0, max_bytes: int = 1 << 20, **more: Any) -> fetch.FetchPartition:
    return fetch.FetchPartition(number, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def names(peer: RawClient, version: int, topics: list[metadata.MetadataRequestTopic] | None, **more: Any) -> Any:
    return peer.call(ApiKey.METADATA, version, metadata.MetadataRequest(topics, **more))


@pytest.mark.behaviour("P-4")
def test_api_versions_with_invalid_software_name_returns_invalid_request(peer: RawClient) -> None:
    for name, version in (("-x", "1"), ("x", ""), ("a b", "1"), ("x", "1.")):
        assert peer.call(ApiKey.API_VERSIONS, 3, api_versions.ApiVersionsRequest(name, version)).error_code == 42
    assert peer.call(ApiKey.API_VERSIONS, 3, api_versions.ApiVersionsRequest("a-b.c", "1")).error_code == 0


@pytest.mark.behaviour("P-5")
def test_api_versions_below_v4_omits_features_with_minimum_0(peer: RawClient) -> None:
    old = peer.call(ApiKey.API_VERSIONS, 3, api_versions.ApiVersionsRequest("x", "1"))
    new = peer.call(ApiKey.API_VERSIONS, 4, api_versions.ApiVersionsRequest("x", "1"))
    assert [feature.name for feature in old.supported_features] == ["metadata.version"]
    assert len(new.supported_features) == 7


@pytest.mark.behaviour("P-10")
def test_metadata_with_empty_topics_returns_all_in_v0_and_none_from_v1(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    assert topic in [t.name for t in names(peer, 0, []).topics]
    assert names(peer, 1, []).topics == []
    assert topic in [t.name for t in names(peer, 1, None).topics]


@pytest.mark.behaviour("P-11")
def test_metadata_with_unknown_or_invalid_topic_returns_distinct_errors(peer: RawClient) -> None:
    one = names(peer, 12, [metadata.MetadataRequestTopic(name="nowhere")], allow_auto_topic_creation=False).topics[0]
    assert (one.error_code, one.topic_id) == (3, ZERO_UUID)
    assert names(peer, 12, [metadata.MetadataRequestTopic(MISSING_ID, None)]).topics[0].error_code == 100
    assert names(peer, 12, [metadata.MetadataRequestTopic(name="what?")]).topics[0].error_code == 17


@pytest.mark.behaviour("P-12")
def test_metadata_that_creates_topic_returns_unknown_topic_at_first(peer: RawClient, topic: str) -> None:
    assert names(peer, 12, [metadata.MetadataRequestTopic(name=topic)]).topics[0].error_code == 3
    deadline = time.monotonic() + 120
    while names(peer, 12, [metadata.MetadataRequestTopic(name=topic)]).topics[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.behaviour("P-13")
def test_metadata_controller_id_is_id_of_a_broker(peer: RawClient) -> None:
    answer = names(peer, 12, [])
    assert answer.controller_id in [b.node_id for b in answer.brokers]
    assert peer.call(ApiKey.DESCRIBE_CLUSTER, 0, dcl.DescribeClusterRequest()).controller_id == answer.controller_id


@pytest.mark.behaviour("P-15")
def test_metadata_authorized_operations_not_requested_are_int32_min(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    named = [metadata.MetadataRequestTopic(name=topic)]
    assert names(peer, 8, named).topics[0].topic_authorized_operations == NOT_REQUESTED
    assert names(peer, 8, named, include_topic_authorized_operations=True).topics[0].topic_authorized_operations > 0


@pytest.mark.behaviour("P-16")
def test_describe_cluster_of_controllers_at_broker_returns_error(peer: RawClient) -> None:
    assert peer.call(ApiKey.DESCRIBE_CLUSTER, 1, dcl.DescribeClusterRequest(endpoint_type=2)).error_code == 114


@pytest.mark.behaviour("P-17")
def test_describe_groups_of_missing_group_is_dead_before_v6_then_error(peer: RawClient) -> None:
    old = peer.call(ApiKey.DESCRIBE_GROUPS, 5, describe_groups.DescribeGroupsRequest(["nobody"])).groups[0]
    new = peer.call(ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest(["nobody"])).groups[0]
    while 15 in (old.error_code, new.error_code) or 16 in (old.error_code, new.error_code):  # no coordinator yet
        peer.call(ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=["nobody"]))
        time.sleep(0.05)
        old = peer.call(ApiKey.DESCRIBE_GROUPS, 5, describe_groups.DescribeGroupsRequest(["nobody"])).groups[0]
        new = peer.call(ApiKey.DESCRIBE_GROUPS, 6, describe_groups.DescribeGroupsRequest(["nobody"])).groups[0]
    assert (old.error_code, old.group_state) == (0, "Dead")
    assert (new.error_code, new.error_message) == (69, "Group nobody not found.")


@pytest.mark.behaviour("P-18")
def test_describe_cluster_v2_returns_fenced_flag_of_brokers(peer: RawClient) -> None:
    everyone = peer.call(ApiKey.DESCRIBE_CLUSTER, 2, dcl.DescribeClusterRequest(include_fenced_brokers=True))
    assert [(b.broker_id, b.is_fenced) for b in everyone.brokers] == [(1, False)]
    assert [b.node_id for b in names(peer, 12, []).brokers] == [1]


@pytest.mark.behaviour("P-19")
def test_produce_checks_batch_size_then_topic_then_acks(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    assert produce(peer, "nowhere", b"\x00" * 8 + b"\x00\x00\x00\x05" + b"xxxxx", acks=2).error_code == 2
    assert produce(peer, "nowhere", batch(), acks=2).error_code == 3
    assert produce(peer, topic, batch(), acks=2).error_code == 21


@pytest.mark.behaviour("P-20")
def test_produce_with_acks_0_sends_no_response_and_closes_on_error(node: OttlaProcess, topic: str) -> None:
    peer = RawClient(node.port)
    create(peer, topic)

    def send(name: str) -> None:
        data = TopicProduceData(name, partition_data=[PartitionProduceData(0, batch())])
        peer.sock.sendall(encode_request(ApiKey.PRODUCE, 9, 1, "c", ProduceRequest(None, 0, 1000, [data])))

    send(topic)
    answer = peer.call(ApiKey.LIST_OFFSETS, 7, list_offsets.ListOffsetsRequest(-1, 0, [_latest(topic)]))
    assert answer.topics[0].partitions[0].offset == 1, "the answer to the request behind it"
    send("nowhere")
    assert peer.sock.recv(1) == b""


def _latest(topic: str, when: int = -1) -> list_offsets.ListOffsetsTopic:
    return list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(0, -1, when)])


@pytest.mark.behaviour("P-21")
def test_produce_with_two_batches_old_magic_or_early_zstd_returns_error(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    assert produce(peer, topic, batch() + batch()).error_code == 87
    old = bytearray(batch())
    old[16] = 1
    assert produce(peer, topic, bytes(old)).error_code == 87
    zstd = records.build_batch([records.NewRecord(b"k", b"v", BASE_MS)], codec=records.CompressionType.ZSTD)
    assert produce(peer, topic, zstd, version=6).error_code == 76
    assert produce(peer, topic, zstd, version=7).error_code == 0


@pytest.mark.behaviour("P-22")
def test_produce_with_min_insync_replicas_above_replicas_succeeds(peer: RawClient, topic: str) -> None:
    create(peer, topic, min_insync_replicas="3")
    assert produce(peer, topic, batch(), acks=-1).error_code == 0


@pytest.mark.behaviour("P-23")
def test_produce_with_acks_all_responds_once_high_watermark_includes_batch(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    assert produce(peer, topic, batch(3)).base_offset == 0
    got = peer.call(ApiKey.FETCH, 12, wanted(topic, at(0))).responses[0].partitions[0]
    assert got.high_watermark == 3


@pytest.mark.behaviour("P-27")
def test_produce_v13_identifies_topics_by_id(peer: RawClient, topic: str) -> None:
    ident = create(peer, topic)
    assert produce(peer, "", batch(), version=13, ident=ident).error_code == 0
    assert produce(peer, "", batch(), version=13, ident=MISSING_ID).error_code == 100


@pytest.mark.behaviour("P-28")
def test_produce_without_append_time_or_offset_returns_minus_one(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    create(peer, f"{topic}-stamped", message_timestamp_type="LogAppendTime")
    assert produce(peer, topic, batch()).log_append_time_ms == -1
    assert produce(peer, f"{topic}-stamped", batch()).log_append_time_ms > BASE_MS
    assert produce(peer, "nowhere", batch()).base_offset == -1


@pytest.mark.behaviour("P-41")
def test_list_offsets_with_special_timestamp_checks_version(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    produce(peer, topic, batch(3))

    def ask(when: int, version: int) -> tuple[int, int, int]:
        answer = peer.call(ApiKey.LIST_OFFSETS, version, list_offsets.ListOffsetsRequest(-1, 0, [_latest(topic, when)]))
        row = answer.topics[0].partitions[0]
        return row.error_code, row.timestamp, row.offset

    assert ask(-1, 6) == (0, -1, 3)
    assert ask(-2, 6) == (0, -1, 0)
    assert ask(-3, 6)[0] == 35
    assert ask(-3, 7) == (0, BASE_MS + 2, 2)
    assert ask(-4, 7)[0] == 35
    assert ask(-4, 8) == (0, -1, 0)
    assert ask(-5, 8)[0] == 35


@pytest.mark.behaviour("P-90")
def test_offset_fetch_of_uncommitted_partition_returns_minus_one(peer: RawClient, topic: str) -> None:
    create(peer, topic)
    found = find_coordinator.FindCoordinatorRequest(coordinator_keys=["nobody"])
    while peer.call(ApiKey.FIND_COORDINATOR, 4, found).coordinators[0].error_code:
        time.sleep(0.05)
    wanted_topic = offset_fetch.OffsetFetchRequestTopics(topic, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup("nobody", topics=[wanted_topic])]
    )
    group = peer.call(ApiKey.OFFSET_FETCH, 9, request).groups[0]
    row = group.topics[0].partitions[0]
    assert (group.error_code, row.committed_offset, row.metadata, row.error_code) == (0, -1, "", 0)
    part = offset_commit.OffsetCommitRequestPartition(0, 1, -1, "x" * 4097)
    topic_row = offset_commit.OffsetCommitRequestTopic(topic, partitions=[part])
    refused = peer.call(ApiKey.OFFSET_COMMIT, 9, offset_commit.OffsetCommitRequest("nobody", topics=[topic_row]))
    assert refused.topics[0].partitions[0].error_code == 12


@pytest.mark.behaviour("P-93")
def test_find_coordinator_while_topic_is_created_returns_not_available(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "data") as node:
        peer = RawClient(node.port)
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
        assert peer.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code == 15
        deadline = time.monotonic() + 120
        while peer.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_unregistered_broker_registers_again_and_leads(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "data") as node:
        peer = RawClient(node.port)
        create(peer, "t")
        found = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"])
        while peer.call(ApiKey.FIND_COORDINATOR, 4, found).coordinators[0].error_code:
            time.sleep(0.05)
        produce(peer, "t", batch())
        topic_row = offset_commit.OffsetCommitRequestTopic(
            "t", partitions=[offset_commit.OffsetCommitRequestPartition(0, 1)]
        )
        commit = offset_commit.OffsetCommitRequest("g", topics=[topic_row])
        assert peer.call(ApiKey.OFFSET_COMMIT, 9, commit).topics[0].partitions[0].error_code == 0
        assert peer.call(ApiKey.UNREGISTER_BROKER, 0, unregister_broker.UnregisterBrokerRequest(1)).error_code == 0
        deadline = time.monotonic() + 120
        while produce(peer, "t", batch()).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        fetch_group = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=None)])
        while not (group := peer.call(ApiKey.OFFSET_FETCH, 9, fetch_group).groups[0]).topics:
            assert time.monotonic() < deadline, group
            time.sleep(0.02)
        assert group.topics[0].partitions[0].committed_offset == 1
