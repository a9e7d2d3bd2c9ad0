"""OffsetForLeaderEpoch (api 23): where a leader epoch ended, so that a reader knows where logs diverge.

Made by KIP-101; version 2 brings the asker's own epoch (KIP-320).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Int64, Message, MessageSpec, String, request, response, wire_field


class OffsetForLeaderPartition(Message):
    partition: Int32 = 0
    current_leader_epoch: A[int, wire_field("int32", "2+", ignorable=True)] = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Message):
    topic: String = ""
    partitions: A[list[OffsetForLeaderPartition], wire_field("[]struct")] = field(default_factory=list)


class OffsetForLeaderEpochRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(23, "2-4", "4+", "broker")
    replica_id: A[int, wire_field("int32", "3+", ignorable=True)] = -2
    topics: A[list[OffsetForLeaderTopic], wire_field("[]struct")] = field(default_factory=list)


class EpochEndOffset(Message):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Message):
    topic: String = ""
    partitions: A[list[EpochEndOffset], wire_field("[]struct")] = field(default_factory=list)


class OffsetForLeaderEpochResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(23, "2-4", "4+")
    throttle_time_ms: A[int, wire_field("int32", "2+", ignorable=True)] = 0
    topics: A[list[OffsetForLeaderTopicResult], wire_field("[]struct")] = field(default_factory=list)
