"""Produce (api 0): append record batches to partitions.

Version 3 brings batches of magic 2 and transactions (KIP-98), 7 zstd (KIP-110), 8 errors of single records (KIP-467),
10 the new leader in an answer (KIP-951), 12 writes that enlist their partition (KIP-890), 13 topic ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    Opaque,
    request,
    response,
    wire_field,
)


class PartitionProduceData(Message):
    index: Int32 = 0
    records: A[Opaque, wire_field("records", nullable="0+")] = None


class TopicProduceData(Message):
    name: A[str, wire_field("string", "0-12", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    partition_data: A[list[PartitionProduceData], wire_field("[]struct")] = field(default_factory=list)


class ProduceRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(0, "3-13", "9+", "broker")
    transactional_id: A[str | None, wire_field("string", "3+", nullable="3+")] = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: A[list[TopicProduceData], wire_field("[]struct")] = field(default_factory=list)


class BatchIndexAndErrorMessage(Message):
    batch_index: A[int, wire_field("int32", "8+")] = 0
    batch_index_error_message: A[str | None, wire_field("string", "8+", nullable="8+")] = None


class LeaderIdAndEpoch(Message):
    leader_id: A[int, wire_field("int32", "10+")] = -1
    leader_epoch: A[int, wire_field("int32", "10+")] = -1


class PartitionProduceResponse(Message):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: A[int, wire_field("int64", "2+", ignorable=True)] = -1
    log_start_offset: A[int, wire_field("int64", "5+", ignorable=True)] = -1
    record_errors: A[list[BatchIndexAndErrorMessage], wire_field("[]struct", "8+", ignorable=True)] = field(
        default_factory=list
    )
    error_message: A[str | None, wire_field("string", "8+", nullable="8+", ignorable=True)] = None
    current_leader: A[LeaderIdAndEpoch, wire_field("struct", "10+", tagged="10+", tag=0)] = field(
        default_factory=LeaderIdAndEpoch
    )


class TopicProduceResponse(Message):
    name: A[str, wire_field("string", "0-12", ignorable=True)] = ""
    topic_id: A[bytes, wire_field("uuid", "13+", ignorable=True)] = ZERO_UUID
    partition_responses: A[list[PartitionProduceResponse], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: A[int, wire_field("int32", "10+")] = 0
    host: A[str, wire_field("string", "10+")] = ""
    port: A[int, wire_field("int32", "10+")] = 0
    rack: A[str | None, wire_field("string", "10+", nullable="10+")] = None


class ProduceResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(0, "3-13", "9+")
    responses: A[list[TopicProduceResponse], wire_field("[]struct")] = field(default_factory=list)
    throttle_time_ms: A[int, wire_field("int32", "1+", ignorable=True)] = 0
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct", "10+", tagged="10+", tag=0)] = field(
        default_factory=list
    )
