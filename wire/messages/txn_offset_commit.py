"""TxnOffsetCommit (api 28): commit a group's offsets inside a transaction.

Version 2 brings leader epochs (KIP-320), 3 the group's generation (KIP-447), 5 commits that enlist their group
(KIP-890).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Int16, Int32, Int64, Message, Spec, String, request, response, w


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: A[int, w("int32", "2+", ignorable=True)] = -1
    committed_metadata: A[str | None, w("string", nullable="0+")] = ""


class TxnOffsetCommitRequestTopic(Message):
    name: String = ""
    partitions: A[list[TxnOffsetCommitRequestPartition], w("[]struct")] = field(default_factory=list)


class TxnOffsetCommitRequest(Message):
    SPEC: ClassVar[Spec] = request(28, "0-5", "3+", "broker")
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: A[int, w("int32", "3+")] = -1
    member_id: A[str, w("string", "3+")] = ""
    group_instance_id: A[str | None, w("string", "3+", nullable="3+")] = None
    topics: A[list[TxnOffsetCommitRequestTopic], w("[]struct")] = field(default_factory=list)


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Message):
    name: String = ""
    partitions: A[list[TxnOffsetCommitResponsePartition], w("[]struct")] = field(default_factory=list)


class TxnOffsetCommitResponse(Message):
    SPEC: ClassVar[Spec] = response(28, "0-5", "3+")
    throttle_time_ms: Int32 = 0
    topics: A[list[TxnOffsetCommitResponseTopic], w("[]struct")] = field(default_factory=list)
