"""OffsetCommit (api 8): store a group's positions.

Version 5 leaves retention to the broker (KIP-211); 6 brings leader epochs (KIP-320), 7 static members (KIP-345), 9
members of the new protocol and 10 topic ids (KIP-848).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import ZERO_UUID, Int16, Int32, Int64, Message, Spec, String, request, response, w


class OffsetCommitRequestPartition(Message):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: A[int, w("int32", "6+", ignorable=True)] = -1
    committed_metadata: A[str | None, w("string", nullable="0+")] = ""


class OffsetCommitRequestTopic(Message):
    name: A[str, w("string", "0-9", ignorable=True)] = ""
    topic_id: A[bytes, w("uuid", "10+", ignorable=True)] = ZERO_UUID
    partitions: A[list[OffsetCommitRequestPartition], w("[]struct")] = field(default_factory=list)


class OffsetCommitRequest(Message):
    SPEC: ClassVar[Spec] = request(8, "2-10", "8+", "broker")
    group_id: String = ""
    generation_id_or_member_epoch: A[int, w("int32", "1+", ignorable=True)] = -1
    member_id: A[str, w("string", "1+", ignorable=True)] = ""
    group_instance_id: A[str | None, w("string", "7+", nullable="7+")] = None
    retention_time_ms: A[int, w("int64", "2-4", ignorable=True)] = -1
    topics: A[list[OffsetCommitRequestTopic], w("[]struct")] = field(default_factory=list)


class OffsetCommitResponsePartition(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Message):
    name: A[str, w("string", "0-9", ignorable=True)] = ""
    topic_id: A[bytes, w("uuid", "10+", ignorable=True)] = ZERO_UUID
    partitions: A[list[OffsetCommitResponsePartition], w("[]struct")] = field(default_factory=list)


class OffsetCommitResponse(Message):
    SPEC: ClassVar[Spec] = response(8, "2-10", "8+")
    throttle_time_ms: A[int, w("int32", "3+", ignorable=True)] = 0
    topics: A[list[OffsetCommitResponseTopic], w("[]struct")] = field(default_factory=list)
