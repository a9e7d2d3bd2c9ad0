"""Metadata (API 3): brokers of the cluster, topics, and the leaders and replicas of partitions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class MetadataRequestTopic(Message):
    """Topic in a Metadata request, by name or by id (version 10 on)."""

    topic_id: Annotated[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    """UUID of the topic, from version 12 on; zero to use the name. If a topic of the request has an id, all are looked
    up by id. In versions 10 and 11 any id but zero is rejected with INVALID_REQUEST.
    """
    name: Annotated[str | None, wire_field("string", nullable="10+")] = ""
    """Topic name; null to use the id, from version 12 on. In versions 10 and 11 null is rejected with INVALID_REQUEST.
    """


class MetadataRequest(Message):
    """Request of a client for brokers and topics, sent at its start and then every `metadata.max.age.ms`."""

    SPEC: ClassVar[MessageSpec] = request(3, "0-13", "9+", "broker")
    """Version 1 distinguishes all topics (null) from none (empty) and adds racks, the controller and internal topics, 2
    the cluster id (KIP-78), 4 the choice to create topics, 5 offline replicas (KIP-112), 7 leader epochs (KIP-320), 8
    authorized operations (KIP-430). Version 9 is flexible, 10 adds topic ids to the response (KIP-516), 11 leaves
    operations on the cluster to DescribeCluster (KIP-700), 12 finds topics by id, 13 adds an error of the whole request
    (KIP-1102).

    Flow: The second request of most clients, sent to any broker, and again after `metadata.max.age.ms` or an error of
    leadership. The broker responds from its copy of the cluster metadata. A topic that does not exist is created first
    if both sides permit it (`allow.auto.create.topics`, `auto.create.topics.enable`).
    """
    topics: Annotated[list[MetadataRequestTopic] | None, wire_field("[]struct", nullable="1+")] = field(
        default_factory=list
    )
    """Topics to describe. Null for all that the principal may describe, empty for none; in version 0 empty for all. A
    topic that occurs twice has one result.
    """
    allow_auto_topic_creation: Annotated[bool, wire_field("bool", "4+")] = True
    """True to create a missing topic, if `auto.create.topics.enable` of the broker is set and the principal has the
    right to create it (`allow.auto.create.topics` of consumers). The response reports UNKNOWN_TOPIC_OR_PARTITION until
    the topic exists.
    """
    include_cluster_authorized_operations: Annotated[bool, wire_field("bool", "8-10")] = False
    """True to return the operations on the cluster that the principal is authorized for."""
    include_topic_authorized_operations: Annotated[bool, wire_field("bool", "8+")] = False
    """True to return the operations on each topic that the principal is authorized for."""


class MetadataResponseBroker(Message):
    """Broker of the cluster in a Metadata response: node id, address and rack."""

    node_id: Int32 = 0
    """Node id of the broker."""
    host: String = ""
    """Host name or address of the listener that the request came in on."""
    port: Int32 = 0
    """Port of that listener."""
    rack: Annotated[str | None, wire_field("string", "1+", nullable="1+", ignorable=True)] = None
    """`broker.rack`, null if not set."""


class MetadataResponsePartition(Message):
    """Partition in a Metadata response: leader, leader epoch, replicas, ISR and offline replicas."""

    error_code: Int16 = 0
    """0, or LEADER_NOT_AVAILABLE if the partition has no leader."""
    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    leader_id: Int32 = 0
    """Node id of the leader, -1 if there is none."""
    leader_epoch: Annotated[int, wire_field("int32", "7+", ignorable=True)] = -1
    """Current leader epoch, raised by each change of the leader. Clients ignore metadata with an older one than they
    have, and send it as `current_leader_epoch`.
    """
    replica_nodes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of all replicas, the preferred leader first."""
    isr_nodes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the in-sync replicas."""
    offline_replicas: Annotated[list[int], wire_field("[]int32", "5+", ignorable=True)] = field(default_factory=list)
    """Node ids of replicas on fenced brokers or in failed log directories."""


class MetadataResponseTopic(Message):
    """Topic in a Metadata response: id and partitions, or its error code."""

    error_code: Int16 = 0
    """0. UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID: retry if the topic is just being created. Else
    INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED; INVALID_REQUEST for all topics if ids or null names came in
    version 10 or 11.
    """
    name: Annotated[str | None, wire_field("string", nullable="12+")] = ""
    """Topic name. From version 12 on null, if an id of the request is unknown or the topic may not be described."""
    topic_id: Annotated[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    """UUID of the topic; zero if it was requested by name and does not exist or may not be described. Clients detect by
    it that a topic was deleted and created again.
    """
    is_internal: Annotated[bool, wire_field("bool", "1+", ignorable=True)] = False
    """True for `__consumer_offsets`, `__transaction_state` and `__share_group_state`."""
    partitions: Annotated[list[MetadataResponsePartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions of the topic, sorted by index; empty with an error."""
    topic_authorized_operations: Annotated[int, wire_field("int32", "8+")] = -2147483648
    """Bits of the authorized operations; -2147483648 if they were not requested."""


class MetadataResponse(Message):
    """Brokers, controller, topics and partitions of the cluster, as far as the responding broker knows."""

    SPEC: ClassVar[MessageSpec] = response(3, "0-13", "9+")
    throttle_time_ms: Annotated[int, wire_field("int32", "3+", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    brokers: Annotated[list[MetadataResponseBroker], wire_field("[]struct")] = field(default_factory=list)
    """Brokers that are not fenced and do not shut down, with an endpoint on the listener of this connection."""
    cluster_id: Annotated[str | None, wire_field("string", "2+", nullable="2+", ignorable=True)] = None
    """Id that the cluster was formatted with, the same on all nodes."""
    controller_id: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Node id of any broker that is not fenced: it forwards the requests that are for the controller. -1 if there is
    none.
    """
    topics: Annotated[list[MetadataResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics of the request, each with its own error code."""
    cluster_authorized_operations: Annotated[int, wire_field("int32", "8-10")] = -2147483648
    """Bits of the authorized operations; 0 if the principal may not describe the cluster, -2147483648 if they were not
    requested.
    """
    error_code: Annotated[int, wire_field("int16", "13+", ignorable=True)] = 0
    """0. REBOOTSTRAP_REQUIRED makes a client start again with its `bootstrap.servers` (KIP-1102); Ottla does not send
    it.
    """
