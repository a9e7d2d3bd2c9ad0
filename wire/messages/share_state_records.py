"""Records of `__share_group_state` (KIP-932), type 0 (snapshot) and 1 (update).

They have the delivery state of share partitions: the last snapshot with the updates after it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, MessageSpec, data, wire_field


class ShareSnapshotKey(Message):
    """Key, type 0, of a snapshot of a share-partition: group id, topic id and partition."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 0)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""
    topic_id: Annotated[bytes, wire_field("uuid", "0")] = ZERO_UUID
    """UUID of the topic."""
    partition: Annotated[int, wire_field("int32", "0")] = 0
    """Index of the partition in its topic."""


class ShareSnapshotValueStateBatch(Message):
    """Range of offsets with the same delivery state and delivery count, in a snapshot."""

    first_offset: Int64 = 0
    """Offset of the first record."""
    last_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    delivery_state: Int8 = 0
    """0 available for delivery, 2 acknowledged, 4 archived (rejected, or delivered too often). 1, acquired, is not
    stored: after a change of leader such records are available again.
    """
    delivery_count: Int16 = 0
    """Number of deliveries of these records so far."""


class ShareSnapshotValue(Message):
    """Value, type 0: whole delivery state of a share-partition. A tombstone removes the state."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 0)
    snapshot_epoch: Int32 = 0
    """Number of the snapshot, one higher than that of the one before; 0 at first."""
    state_epoch: Int32 = 0
    """Epoch of the state, from InitializeShareGroupState; the group epoch at that time. A write with a lower one is
    rejected with FENCED_STATE_EPOCH.
    """
    leader_epoch: Int32 = 0
    """Leader epoch of the share-partition leader that last read or wrote the state; 0 at first. Requests with a lower
    one are rejected with FENCED_LEADER_EPOCH.
    """
    start_offset: Int64 = 0
    """Share-partition start offset: all records below it are acknowledged or archived. -1 until the first leader
    chooses it by `share.auto.offset.reset`.
    """
    delivery_complete_count: Annotated[int, wire_field("int32", tagged="0+", tag=0)] = -1
    """Number of records from the start offset on that are acknowledged or archived, for the lag of the group. -1 if
    unknown: before the first write, and in records of versions before 4.2 (KIP-1226).
    """
    create_timestamp: Int64 = 0
    """Time in ms since the epoch of the last snapshot that a request caused; a snapshot that the coordinator repeats
    keeps it.
    """
    write_timestamp: Int64 = 0
    """Time when the snapshot was written, in ms since the epoch. A snapshot older than 5 minutes is repeated, so that
    older records can be deleted.
    """
    state_batches: Annotated[list[ShareSnapshotValueStateBatch], wire_field("[]struct")] = field(default_factory=list)
    """Ranges of records from the start offset on, in ascending order. Records in no range are not delivered yet, or are
    acquired for the first time.
    """


class ShareUpdateKey(Message):
    """Key, type 1, of an update of a share-partition: group id, topic id and partition."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 1)
    group_id: Annotated[str, wire_field("string", "0")] = ""
    """Id of the share group."""
    topic_id: Annotated[bytes, wire_field("uuid", "0")] = ZERO_UUID
    """UUID of the topic."""
    partition: Annotated[int, wire_field("int32", "0")] = 0
    """Index of the partition in its topic."""


class ShareUpdateValueStateBatch(Message):
    """Range of offsets with the same delivery state and delivery count, in an update."""

    first_offset: Int64 = 0
    """Offset of the first record."""
    last_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    delivery_state: Int8 = 0
    """0 available for delivery, 2 acknowledged, 4 archived (rejected, or delivered too often)."""
    delivery_count: Int16 = 0
    """Number of deliveries of these records so far."""


class ShareUpdateValue(Message):
    """Value, type 1: change of the delivery state of a share-partition since its last record."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "0+", 1)
    snapshot_epoch: Int32 = 0
    """Number of the snapshot that the update belongs to. After `share.coordinator.snapshot.update.records.per.snapshot`
    updates the next write is a snapshot.
    """
    leader_epoch: Int32 = 0
    """Leader epoch of the share-partition leader, -1 to keep the stored one."""
    start_offset: Int64 = 0
    """New share-partition start offset, -1 to keep the stored one. State below it is removed."""
    delivery_complete_count: Annotated[int, wire_field("int32", tagged="0+", tag=0)] = -1
    """Number of records from the start offset on that are acknowledged or archived. -1 if unknown: in records of
    versions before 4.2 (KIP-1226).
    """
    state_batches: Annotated[list[ShareUpdateValueStateBatch], wire_field("[]struct")] = field(default_factory=list)
    """Ranges of records that changed. Where they overlap stored ones, the higher delivery count is valid, and at equal
    counts the higher delivery state.
    """
