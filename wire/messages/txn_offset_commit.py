"""TxnOffsetCommit (api 28): commit a group's offsets inside a transaction.

Version 2 brings leader epochs (KIP-320), 3 the group's generation (KIP-447), 5 commits that enlist their group
(KIP-890).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: A[int, wire_field("int32", "2+", ignorable=True)] = -1
    committed_metadata: A[str | None, wire_field("string", nullable="0+")] = ""


class TxnOffsetCommitRequestTopic(Message):
    name: String = ""
    partitions: A[list[TxnOffsetCommitRequestPartition], wire_field("[]struct")] = field(default_factory=list)


class TxnOffsetCommitRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(28, "0-5", "3+", "broker")
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: A[int, wire_field("int32", "3+")] = -1
    member_id: A[str, wire_field("string", "3+")] = ""
    group_instance_id: A[str | None, wire_field("string", "3+", nullable="3+")] = None
    topics: A[list[TxnOffsetCommitRequestTopic], wire_field("[]struct")] = field(default_factory=list)


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message):
    name: String = ""
    partitions: A[list[TxnOffsetCommitResponsePartition], wire_field("[]struct")] = field(default_factory=list)


class TxnOffsetCommitResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(28, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    topics: A[list[TxnOffsetCommitResponseTopic], wire_field("[]struct")] = field(default_factory=list)
