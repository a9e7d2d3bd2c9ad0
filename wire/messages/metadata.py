"""Metadata (api 3): who the brokers are and who leads which partition.

Version 7 brings leader epochs (KIP-320), 8 authorized operations (KIP-430), 10 topic ids (KIP-516; asking by id from
12 on), 11 leaves the cluster's operations to DescribeCluster (KIP-700), 13 may send a client back to its bootstrap
servers (KIP-1102).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class MetadataRequestTopic(Message):
    topic_id: A[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    name: A[str | None, wire_field("string", nullable="10+")] = ""


class MetadataRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(3, "0-13", "9+", "broker")
    topics: A[list[MetadataRequestTopic] | None, wire_field("[]struct", nullable="1+")] = field(default_factory=list)
    allow_auto_topic_creation: A[bool, wire_field("bool", "4+")] = True
    include_cluster_authorized_operations: A[bool, wire_field("bool", "8-10")] = False
    include_topic_authorized_operations: A[bool, wire_field("bool", "8+")] = False


class MetadataResponseBroker(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: A[str | None, wire_field("string", "1+", nullable="1+", ignorable=True)] = None


class MetadataResponsePartition(Message):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: A[int, wire_field("int32", "7+", ignorable=True)] = -1
    replica_nodes: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    isr_nodes: A[list[int], wire_field("[]int32")] = field(default_factory=list)
    offline_replicas: A[list[int], wire_field("[]int32", "5+", ignorable=True)] = field(default_factory=list)


class MetadataResponseTopic(Message):
    error_code: Int16 = 0
    name: A[str | None, wire_field("string", nullable="12+")] = ""
    topic_id: A[bytes, wire_field("uuid", "10+", ignorable=True)] = ZERO_UUID
    is_internal: A[bool, wire_field("bool", "1+", ignorable=True)] = False
    partitions: A[list[MetadataResponsePartition], wire_field("[]struct")] = field(default_factory=list)
    topic_authorized_operations: A[int, wire_field("int32", "8+")] = -2147483648


class MetadataResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(3, "0-13", "9+")
    throttle_time_ms: A[int, wire_field("int32", "3+", ignorable=True)] = 0
    brokers: A[list[MetadataResponseBroker], wire_field("[]struct")] = field(default_factory=list)
    cluster_id: A[str | None, wire_field("string", "2+", nullable="2+", ignorable=True)] = None
    controller_id: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    topics: A[list[MetadataResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    cluster_authorized_operations: A[int, wire_field("int32", "8-10")] = -2147483648
    error_code: A[int, wire_field("int16", "13+", ignorable=True)] = 0
