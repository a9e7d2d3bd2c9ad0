"""ShareFetch (api 78): acquire records of share partitions.

Made by KIP-932.
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
    String,
    Uuid,
    request,
    response,
    wire_field,
)


class AcknowledgementBatch(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: A[list[int], wire_field("[]int8")] = field(default_factory=list)


class FetchPartition(Message):
    partition_index: Int32 = 0
    partition_max_bytes: A[int, wire_field("int32", "0")] = 0
    acknowledgement_batches: A[list[AcknowledgementBatch], wire_field("[]struct")] = field(default_factory=list)


class FetchTopic(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[FetchPartition], wire_field("[]struct")] = field(default_factory=list)


class ForgottenTopic(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class ShareFetchRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(78, "1-2", "0+", "broker")
    group_id: A[str | None, wire_field("string", nullable="0+")] = None
    member_id: A[str | None, wire_field("string", nullable="0+")] = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    max_records: A[int, wire_field("int32", "1+")] = 0
    batch_size: A[int, wire_field("int32", "1+")] = 0
    share_acquire_mode: A[int, wire_field("int8", "2+", ignorable=True)] = 0
    is_renew_ack: A[bool, wire_field("bool", "2+")] = False
    topics: A[list[FetchTopic], wire_field("[]struct")] = field(default_factory=list)
    forgotten_topics_data: A[list[ForgottenTopic], wire_field("[]struct")] = field(default_factory=list)


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: A[str | None, wire_field("string", nullable="0+")] = None
    current_leader: A[LeaderIdAndEpoch, wire_field("struct")] = field(default_factory=LeaderIdAndEpoch)
    records: A[Opaque, wire_field("records", nullable="0")] = None
    acquired_records: A[list[AcquiredRecords], wire_field("[]struct")] = field(default_factory=list)


class ShareFetchableTopicResponse(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: A[str | None, wire_field("string", nullable="0+")] = None


class ShareFetchResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(78, "1-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    acquisition_lock_timeout_ms: A[int, wire_field("int32", "1+")] = 0
    responses: A[list[ShareFetchableTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct")] = field(default_factory=list)
