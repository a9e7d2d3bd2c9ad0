"""`__consumer_offsets`, record types 0 to 2: offset commits and classic groups."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Bytes, Int32, Int64, Message, MessageSpec, String, data, wire_field


class GroupMetadataKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 2)
    group: A[str, wire_field("string", "0")] = ""


class MemberMetadata(Message):
    member_id: String = ""
    group_instance_id: A[str | None, wire_field("string", "3+", nullable="3+", ignorable=True)] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: A[int, wire_field("int32", "1+", ignorable=True)] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0-4", "4+", 2)
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: A[str | None, wire_field("string", nullable="0+")] = ""
    leader: A[str | None, wire_field("string", nullable="0+")] = ""
    current_state_timestamp: A[int, wire_field("int64", "2+", ignorable=True)] = -1
    members: A[list[MemberMetadata], wire_field("[]struct")] = field(default_factory=list)


class LegacyOffsetCommitKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 0)
    group: A[str, wire_field("string", "0")] = ""
    topic: A[str, wire_field("string", "0")] = ""
    partition: A[int, wire_field("int32", "0")] = 0


class LegacyOffsetCommitValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "none", 0)
    offset: A[int, wire_field("int64", "0")] = 0
    metadata: A[str, wire_field("string", "0")] = ""
    commit_timestamp: A[int, wire_field("int64", "0")] = 0


class OffsetCommitKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 1)
    group: A[str, wire_field("string", "0")] = ""
    topic: A[str, wire_field("string", "0")] = ""
    partition: A[int, wire_field("int32", "0")] = 0


class OffsetCommitValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0-4", "4+", 1)
    offset: Int64 = 0
    leader_epoch: A[int, wire_field("int32", "3+", ignorable=True)] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: A[int, wire_field("int64", "1", ignorable=True)] = -1
    topic_id: A[bytes, wire_field("uuid", "4+", tagged="4+", tag=0, ignorable=True)] = ZERO_UUID
