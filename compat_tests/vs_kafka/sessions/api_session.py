"""Scripted session that uses every advertised (API, version), for a node alone or for a comparison with Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from compat_tests.support.raw_client import RawClient, wait_until
from compat_tests.vs_kafka.sessions import admin_session as admin
from compat_tests.vs_kafka.sessions.token_session import TOKENS, tokens
from compat_tests.vs_kafka.sessions.transaction_session import TRANSACTIONS, transactions
from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.messages import (
    api_versions,
    create_topics,
    delete_groups,
    describe_cluster,
    describe_groups,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    unregister_broker,
)
from ottla.wire.record_batch import records

TOPIC, GROUP = admin.TOPIC, "talkers"
MISSING_ID = bytes(15) + b"\x63"


def session_topic_id(peer: RawClient) -> bytes:
    """Return the id of the session's topic."""
    found = peer.call(ApiKey.METADATA, 12, metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)]))
    raw: bytes = found.topics[0].topic_id
    return raw


def batch() -> bytes:
    """Return two records."""
    return records.build_batch(
        [records.NewRecord(b"k", b"v", 1_700_000_000_000), records.NewRecord(None, b"w", 1_700_000_000_500)]
    )


def _produce(version: int, own: bytes) -> Iterator[Message]:
    def one(name: str, ident: bytes, index: int, raw: bytes | None, acks: int = -1) -> Message:
        part = produce.PartitionProduceData(index, raw)
        topic = produce.TopicProduceData(name, ident if version >= 13 else ZERO_UUID, [part])
        return produce.ProduceRequest(None, acks, 5000, [topic])

    bad = bytearray(batch())
    bad[-1] ^= 1
    yield one(TOPIC, own, 0, batch())
    yield one(TOPIC, own, 0, batch(), acks=1)
    yield one(TOPIC, own, 0, bytes(bad))
    yield one(TOPIC, own, 99, batch())
    yield one("nowhere", MISSING_ID, 0, batch())
    yield one(TOPIC, own, 0, batch(), acks=2)
    yield one(TOPIC, own, 0, b"")


def _fetch(version: int, own: bytes) -> Iterator[Message]:
    def one(name: str, ident: bytes, part: fetch.FetchPartition, **more: Any) -> Message:
        topic = fetch.FetchTopic(name, ident if version >= 13 else ZERO_UUID, [part])
        return fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic], **more)

    yield one(TOPIC, own, fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20))
    yield one(TOPIC, own, fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1))
    yield one(TOPIC, own, fetch.FetchPartition(0, fetch_offset=1, partition_max_bytes=1 << 20), isolation_level=1)
    yield one(TOPIC, own, fetch.FetchPartition(0, fetch_offset=10**9, partition_max_bytes=1 << 20))
    yield one(TOPIC, own, fetch.FetchPartition(77, fetch_offset=0, partition_max_bytes=1 << 20))
    yield one("nowhere", MISSING_ID, fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20))
    if version >= 7:
        yield one(
            TOPIC,
            own,
            fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20),
            session_id=12345,
            session_epoch=3,
        )
    if version >= 9:
        yield one(TOPIC, own, fetch.FetchPartition(0, 55, fetch_offset=0, partition_max_bytes=1 << 20))


def _list_offsets(version: int, own: bytes) -> Iterator[Message]:
    for timestamp in (-1, -2, -3, -4, -5, -6, 0, 1_700_000_000_400, 10**15):
        part = list_offsets.ListOffsetsPartition(0, -1, timestamp)
        yield list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(TOPIC, [part])])
    part = list_offsets.ListOffsetsPartition(55, -1, -1)
    yield list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(TOPIC, [part])])


def _metadata(version: int, own: bytes) -> Iterator[Message]:
    def one(*topics: metadata.MetadataRequestTopic, **more: Any) -> Message:
        return metadata.MetadataRequest(list(topics), version < 4, **more)

    named = metadata.MetadataRequestTopic
    yield one(named(name=TOPIC))
    yield one(named(name="nowhere")) if version >= 4 else one(named(name=TOPIC))
    yield one(named(name="what?"))
    if version >= 8:
        yield one(named(name=TOPIC), include_topic_authorized_operations=True)
    if version >= 12:
        yield one(named(own, None))
        yield one(named(MISSING_ID, None))
    if version >= 1:
        yield one()


def _offset_commit(version: int, own: bytes) -> Iterator[Message]:
    def one(group: str, name: str, ident: bytes, generation: int = -1, metadata_text: str = "m") -> Message:
        part = offset_commit.OffsetCommitRequestPartition(0, 1, -1, metadata_text)
        topic = offset_commit.OffsetCommitRequestTopic(name, ident if version >= 10 else ZERO_UUID, [part])
        return offset_commit.OffsetCommitRequest(group, generation, "", topics=[topic])

    yield one(GROUP, TOPIC, own)
    yield one(GROUP, "nowhere", MISSING_ID)
    yield one(GROUP, TOPIC, own, metadata_text="x" * 5000)
    yield one("unheard-of", TOPIC, own, generation=5)
    yield one("", TOPIC, own)


def _offset_fetch(version: int, own: bytes) -> Iterator[Message]:
    if version < 8:
        topic = offset_fetch.OffsetFetchRequestTopic(TOPIC, [0, 1])
        yield offset_fetch.OffsetFetchRequest(GROUP, [topic])
        yield offset_fetch.OffsetFetchRequest("unheard-of", [topic])
        yield offset_fetch.OffsetFetchRequest(GROUP, [offset_fetch.OffsetFetchRequestTopic("nowhere", [0])])
        if version >= 2:
            yield offset_fetch.OffsetFetchRequest(GROUP, None)
        return
    new = offset_fetch.OffsetFetchRequestTopics(TOPIC, own if version >= 10 else ZERO_UUID, [0, 1])
    gone = offset_fetch.OffsetFetchRequestTopics("nowhere", MISSING_ID if version >= 10 else ZERO_UUID, [0])
    for group, topics in ((GROUP, [new]), ("unheard-of", [new]), (GROUP, [gone]), (GROUP, None)):
        yield offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=topics)])


def _find_coordinator(version: int, own: bytes) -> Iterator[Message]:
    if version >= 4:
        yield find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP, "other"])
    else:
        yield find_coordinator.FindCoordinatorRequest(GROUP)


def _groups(key: ApiKey, version: int) -> Iterator[Message]:
    """Return requests of an unknown member."""
    match key:
        case ApiKey.JOIN_GROUP:
            protocols = [join_group.JoinGroupRequestProtocol("range", b"m")]
            yield join_group.JoinGroupRequest("jg", 1000, 1000, "", None, "consumer", protocols)
            yield join_group.JoinGroupRequest("jg", 10_000, 1000, "nobody", None, "consumer", protocols)
            yield join_group.JoinGroupRequest("", 10_000, 1000, "", None, "consumer", protocols)
            if version >= 4:
                yield join_group.JoinGroupRequest("jg", 10_000, 1000, "", None, "consumer", protocols)
        case ApiKey.HEARTBEAT:
            yield heartbeat.HeartbeatRequest(GROUP, 1, "nobody")
            yield heartbeat.HeartbeatRequest("unheard-of", 1, "nobody")
            yield heartbeat.HeartbeatRequest("", 1, "nobody")
        case ApiKey.SYNC_GROUP:
            yield sync_group.SyncGroupRequest(GROUP, 1, "nobody")
            yield sync_group.SyncGroupRequest("", 1, "nobody")
        case _:
            members = [leave_group.MemberIdentity("nobody")] if version >= 3 else []
            yield leave_group.LeaveGroupRequest(GROUP, "" if version >= 3 else "nobody", members)
            yield leave_group.LeaveGroupRequest("unheard-of", "" if version >= 3 else "nobody", members)


def _small(key: ApiKey, version: int) -> Iterator[Message]:
    """Return requests of APIs with few fields."""
    match key:
        case ApiKey.DELETE_GROUPS:
            yield delete_groups.DeleteGroupsRequest([f"delete-{version}", "unheard-of", ""])
        case ApiKey.OFFSET_DELETE:
            for group in ("off-delete", "unheard-of"):
                topic = offset_delete.OffsetDeleteRequestTopic(
                    TOPIC, [offset_delete.OffsetDeleteRequestPartition(n) for n in (0, 1, 77)]
                )
                yield offset_delete.OffsetDeleteRequest(group, [topic])
        case ApiKey.LIST_CONFIG_RESOURCES:
            for kinds in ([], [2], [4, 8], [16, 32], [99]) if version >= 1 else ([],):
                yield list_config_resources.ListConfigResourcesRequest(list(kinds))
        case ApiKey.DESCRIBE_GROUPS:
            yield describe_groups.DescribeGroupsRequest([GROUP, "unheard-of", ""])
        case ApiKey.LIST_GROUPS:
            yield list_groups.ListGroupsRequest(*([["Stable"]] if version >= 4 else []))
        case ApiKey.API_VERSIONS:
            yield api_versions.ApiVersionsRequest(*(["peer", "1.0"] if version >= 3 else []))
            if version >= 3:
                yield api_versions.ApiVersionsRequest("-bad", "")
        case ApiKey.INIT_PRODUCER_ID:
            yield init_producer_id.InitProducerIdRequest(None, 60_000)
            yield init_producer_id.InitProducerIdRequest("", 60_000)
            yield init_producer_id.InitProducerIdRequest("x", 0)
        case ApiKey.OFFSET_FOR_LEADER_EPOCH:
            for epoch in (0, 1, 99):
                part = offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, epoch)
                topic = offset_for_leader_epoch.OffsetForLeaderTopic(TOPIC, [part])
                yield offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, [topic])
        case ApiKey.DESCRIBE_CLUSTER:
            yield describe_cluster.DescribeClusterRequest()
            if version >= 1:
                yield describe_cluster.DescribeClusterRequest(endpoint_type=2)
        case ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            wanted = [describe_topic_partitions.TopicRequest(name) for name in (TOPIC, "nowhere")]
            yield describe_topic_partitions.DescribeTopicPartitionsRequest(wanted)
        case _:
            raise AssertionError(f"nothing is asked of {key.name}")


def requests(key: ApiKey, version: int, own: bytes) -> Iterator[Message]:
    """Return the requests of an API in a version."""
    match key:
        case ApiKey.PRODUCE:
            yield from _produce(version, own)
        case ApiKey.FETCH:
            yield from _fetch(version, own)
        case ApiKey.LIST_OFFSETS:
            yield from _list_offsets(version, own)
        case ApiKey.METADATA:
            yield from _metadata(version, own)
        case ApiKey.OFFSET_COMMIT:
            yield from _offset_commit(version, own)
        case ApiKey.OFFSET_FETCH:
            yield from _offset_fetch(version, own)
        case ApiKey.FIND_COORDINATOR:
            yield from _find_coordinator(version, own)
        case ApiKey.JOIN_GROUP | ApiKey.HEARTBEAT | ApiKey.SYNC_GROUP | ApiKey.LEAVE_GROUP:
            yield from _groups(key, version)
        case ApiKey.CREATE_TOPICS | ApiKey.DELETE_TOPICS | ApiKey.CREATE_PARTITIONS:
            yield from admin.topics(key, version)
        case ApiKey.DESCRIBE_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS | ApiKey.ALTER_CONFIGS:
            yield from admin.configs(key, version)
        case ApiKey.DELETE_RECORDS | ApiKey.DESCRIBE_PRODUCERS:
            yield from admin.logs(key)
        case ApiKey.DESCRIBE_LOG_DIRS | ApiKey.ALTER_REPLICA_LOG_DIRS:
            yield from admin.logs(key)
        case ApiKey.ELECT_LEADERS:
            yield from admin.leaders(version)
        case ApiKey.ALTER_PARTITION_REASSIGNMENTS | ApiKey.LIST_PARTITION_REASSIGNMENTS:
            yield from admin.reassignments(key, version)
        case ApiKey.DESCRIBE_QUORUM:
            yield from admin.quorum()
        case ApiKey.ADD_RAFT_VOTER | ApiKey.REMOVE_RAFT_VOTER:
            yield from admin.voters(key)
        case ApiKey.UPDATE_FEATURES:
            yield from admin.features(version)
        case ApiKey.UNREGISTER_BROKER:
            for broker in (7, -1):
                yield unregister_broker.UnregisterBrokerRequest(broker)
        case _ if key in TOKENS:
            yield from tokens(key, version)
        case _ if key in TRANSACTIONS:
            yield from transactions(key, version)
        case _:
            yield from _small(key, version)


def prepare(port: int) -> bytes:
    """Create the topic and the coordinator of the group; return the topic's id."""
    peer = RawClient(port)
    topic = create_topics.CreatableTopic(TOPIC, 2, 1)
    peer.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([topic], 10_000))

    def ready() -> bool:
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
        found = peer.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code
        listed = peer.call(ApiKey.LIST_GROUPS, 4, list_groups.ListGroupsRequest()).error_code
        committed = peer.call(ApiKey.OFFSET_COMMIT, 8, next(_offset_commit(8, ZERO_UUID)))
        return not found and not listed and not committed.topics[0].partitions[0].error_code

    def has_position(group: str) -> bool:
        part = offset_commit.OffsetCommitRequestPartition(0, 1)
        row = offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[part])
        done = peer.call(ApiKey.OFFSET_COMMIT, 8, offset_commit.OffsetCommitRequest(group, topics=[row]))
        return not done.topics[0].partitions[0].error_code

    def has_producer_ids() -> bool:
        request = init_producer_id.InitProducerIdRequest(None, 60_000)
        return not peer.call(ApiKey.INIT_PRODUCER_ID, 4, request).error_code

    wait_until(ready)
    for group in ("delete-0", "delete-1", "delete-2", "off-delete"):
        wait_until(partial(has_position, group))
    wait_until(has_producer_ids)  # Kafka fetches its first block of them in the background
    ident = session_topic_id(peer)
    peer.close()
    return ident


APIS_TESTED_ELSEWHERE = frozenset(
    {
        *(ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),  # only where a listener authenticates
        *(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS),
        *(ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_ACLS),  # only with an authorizer
        *(ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
        *(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY),
        *(ApiKey.TXN_OFFSET_COMMIT, ApiKey.WRITE_TXN_MARKERS),
        *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
        *(ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE),
        *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
        *(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE),
        *(ApiKey.DELETE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY),
        *(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    }
)
"""APIs that are used only within scenarios: stock clients call those, on both."""


def run_session(port: int) -> Iterator[tuple[ApiKey, int, Message, Any]]:
    """Send all requests; yield (api, version, request, response) in order."""
    own = prepare(port)
    peer = RawClient(port)
    for key, route in sorted(BROKER_APIS.items()):
        if key in APIS_TESTED_ELSEWHERE:
            continue
        low = route.min_version if route.oldest_supported is None else route.oldest_supported
        for version in range(low, route.max_version + 1):
            for request in requests(key, version, own):
                yield key, version, request, peer.call(key, version, request)
    peer.close()
