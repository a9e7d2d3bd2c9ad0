"""ShareAcknowledge (api 79): accept, release or reject acquired records.

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


class AcknowledgePartition(Message):
    partition_index: Int32 = 0
    acknowledgement_batches: A[list[AcknowledgementBatch], wire_field("[]struct")] = field(default_factory=list)


class AcknowledgeTopic(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[AcknowledgePartition], wire_field("[]struct")] = field(default_factory=list)


class ShareAcknowledgeRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(79, "1-2", "0+", "broker")
    group_id: A[str | None, wire_field("string", nullable="0+")] = None
    member_id: A[str | None, wire_field("string", nullable="0+")] = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: A[bool, wire_field("bool", "2+")] = False
    topics: A[list[AcknowledgeTopic], wire_field("[]struct")] = field(default_factory=list)


class LeaderIdAndEpoch(Message):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionData(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    current_leader: A[LeaderIdAndEpoch, wire_field("struct")] = field(default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Message):
    topic_id: Uuid = ZERO_UUID
    partitions: A[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)


class NodeEndpoint(Message):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: A[str | None, wire_field("string", nullable="0+")] = None


class ShareAcknowledgeResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(79, "1-2", "0+")
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: A[str | None, wire_field("string", nullable="0+")] = None
    acquisition_lock_timeout_ms: A[int, wire_field("int32", "2+", ignorable=True)] = 0
    responses: A[list[ShareAcknowledgeTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    node_endpoints: A[list[NodeEndpoint], wire_field("[]struct")] = field(default_factory=list)
