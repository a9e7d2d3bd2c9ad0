"""`__share_group_state`: delivery state of share partitions."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, MessageSpec, data, wire_field


class ShareSnapshotKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 0)
    group_id: A[str, wire_field("string", "0")] = ""
    topic_id: A[bytes, wire_field("uuid", "0")] = ZERO_UUID
    partition: A[int, wire_field("int32", "0")] = 0


class ShareSnapshotValueStateBatch(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareSnapshotValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 0)
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: A[int, wire_field("int32", tagged="0+", tag=0)] = -1
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: A[list[ShareSnapshotValueStateBatch], wire_field("[]struct")] = field(default_factory=list)


class ShareUpdateKey(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 1)
    group_id: A[str, wire_field("string", "0")] = ""
    topic_id: A[bytes, wire_field("uuid", "0")] = ZERO_UUID
    partition: A[int, wire_field("int32", "0")] = 0


class ShareUpdateValueStateBatch(Message):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareUpdateValue(Message):
    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 1)
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: A[int, wire_field("int32", tagged="0+", tag=0)] = -1
    state_batches: A[list[ShareUpdateValueStateBatch], wire_field("[]struct")] = field(default_factory=list)
