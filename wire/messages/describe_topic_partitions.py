"""DescribeTopicPartitions (API 75): describe topics and their partitions, in pages (KIP-966)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class TopicRequest(Message):
    """Name of a topic to describe with DescribeTopicPartitions."""

    name: String = ""
    """Topic name."""


class DescribeTopicPartitionsRequestCursor(Message):
    """First topic and partition of the requested page, in the order of topic names."""

    topic_name: String = ""
    """Name of the first topic of the page. Must be among the requested topics if any are named."""
    partition_index: Int32 = 0
    """Index of the first partition of that topic. A negative one is rejected with INVALID_REQUEST."""


class DescribeTopicPartitionsRequest(Message):
    """Request for a page of topics, sorted by name."""

    SPEC: ClassVar[MessageSpec] = request(75, "0", "0+", "broker")
    """Flow: An admin client sends it to any broker. The response has at most `response_partition_limit` partitions
    (never more than 2,000) and a cursor; the client repeats the request with that cursor.
    """
    topics: Annotated[list[TopicRequest], wire_field("[]struct")] = field(default_factory=list)
    """Topics to describe; empty for all that the principal may describe."""
    response_partition_limit: Int32 = 2000
    """Most partitions in a page; the broker limits it to 2,000."""
    cursor: Annotated[DescribeTopicPartitionsRequestCursor | None, wire_field("struct", nullable="0+")] = None
    """Begin of the page: `next_cursor` of the page before, null for the first page."""


class DescribeTopicPartitionsResponsePartition(Message):
    """Partition of a page: leader, replicas, ISR, eligible leader replicas and offline replicas."""

    error_code: Int16 = 0
    """0, or LEADER_NOT_AVAILABLE if the partition has no leader."""
    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    leader_id: Int32 = 0
    """Node id of the leader, -1 if there is none."""
    leader_epoch: Annotated[int, wire_field("int32", ignorable=True)] = -1
    """Current leader epoch, raised by each change of the leader."""
    replica_nodes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of all replicas, the preferred leader first."""
    isr_nodes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the in-sync replicas."""
    eligible_leader_replicas: Annotated[list[int] | None, wire_field("[]int32", nullable="0+")] = None
    """Node ids of replicas outside the ISR that have all committed records and may become leader. Always empty with
    level 0 of `eligible.leader.replicas.version`.
    """
    last_known_elr: Annotated[list[int] | None, wire_field("[]int32", nullable="0+")] = None
    """Node id of the last leader; empty unless the partition has no leader and this one is still a replica."""
    offline_replicas: Annotated[list[int], wire_field("[]int32", ignorable=True)] = field(default_factory=list)
    """Node ids of replicas on fenced brokers or in failed log directories."""


class DescribeTopicPartitionsResponseTopic(Message):
    """Topic with those of its partitions that are in this page, or its error code."""

    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED; INVALID_REQUEST for all
    topics that the request names if the cursor is wrong.
    """
    name: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Topic name."""
    topic_id: Annotated[bytes, wire_field("uuid", ignorable=True)] = ZERO_UUID
    """UUID of the topic; zero with an error."""
    is_internal: Annotated[bool, wire_field("bool", ignorable=True)] = False
    """True for `__consumer_offsets`, `__transaction_state` and `__share_group_state`."""
    partitions: Annotated[list[DescribeTopicPartitionsResponsePartition], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partitions of this page."""
    topic_authorized_operations: Int32 = -2147483648
    """Bits of the operations that the principal is authorized for."""


class DescribeTopicPartitionsResponseCursor(Message):
    """First topic and partition of the next page, for the cursor of the next request."""

    topic_name: String = ""
    """Name of the first topic of the next page."""
    partition_index: Int32 = 0
    """Index of the first partition of that topic."""


class DescribeTopicPartitionsResponse(Message):
    """Page of described topics and partitions, with a cursor if more follow."""

    SPEC: ClassVar[MessageSpec] = response(75, "0", "0+")
    throttle_time_ms: Annotated[int, wire_field("int32", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[DescribeTopicPartitionsResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics of this page; those that may not be described are at the end."""
    next_cursor: Annotated[DescribeTopicPartitionsResponseCursor | None, wire_field("struct", nullable="0+")] = None
    """Cursor for the next page; null after the last one."""
