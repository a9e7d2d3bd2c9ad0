"""WriteShareGroupState (API 85): store delivery state of share-partitions at the share coordinator (KIP-932)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int8,
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


class StateBatch(Message):
    """Range of offsets with the delivery state and delivery count to store."""

    first_offset: Int64 = 0
    """Offset of the first record."""
    last_offset: Int64 = 0
    """Offset of the last record, inclusive."""
    delivery_state: Int8 = 0
    """0 available for delivery, 2 acknowledged, 4 archived (rejected, or delivered too often). 1 (acquired) is a state
    of the leader only and is never stored; 3 does not exist.
    """
    delivery_count: Int16 = 0
    """Number of deliveries of these records so far. Where a range overlaps a stored one, the higher delivery count
    wins, and at equal counts the higher delivery state.
    """


class PartitionData(Message):
    """Share-partition with the changes of its delivery state, and the sender's epochs."""

    partition: Int32 = 0
    """Index of the partition in its topic. A negative one is rejected with INVALID_REQUEST."""
    state_epoch: Int32 = 0
    """State epoch that the leader read, -1 for no check. A lower one than the stored one is rejected with
    FENCED_STATE_EPOCH: the state was created again, for example by AlterShareGroupOffsets.
    """
    leader_epoch: Int32 = 0
    """Leader epoch of the sender, -1 for no check. A lower one than the stored one is rejected with
    FENCED_LEADER_EPOCH: another leader has read the state.
    """
    start_offset: Int64 = 0
    """New share-partition start offset, -1 to keep the stored one. State below it is removed."""
    delivery_complete_count: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Number of records from the start offset on that are acknowledged or archived, for the lag of the group. -1 if
    unknown.
    """
    state_batches: Annotated[list[StateBatch], wire_field("[]struct")] = field(default_factory=list)
    """Ranges of records that changed. Ottla rejects more than 10,000 with INVALID_REQUEST; Kafka has no limit."""


class WriteStateData(Message):
    """Topic id in a WriteShareGroupState request, with the state to store for each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionData], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with their changed state."""


class WriteShareGroupStateRequest(Message):
    """Request of a share-partition leader to the share coordinator to store changed delivery state."""

    SPEC: ClassVar[MessageSpec] = request(85, "0-1", "0+", "broker")
    """Version 1 adds `delivery_complete_count` (KIP-1226).

    Flow: The leader of a share-partition sends it to the share coordinator when acknowledgements or a new start offset
    change the state. The share coordinator appends a ShareUpdate or ShareSnapshot record to `__share_group_state`.
    """
    group_id: String = ""
    """Id of the share group."""
    topics: Annotated[list[WriteStateData], wire_field("[]struct")] = field(default_factory=list)
    """Topics with partitions and the state to store for each."""


class PartitionResult(Message):
    """Error code of a share-partition; 0 if its state was stored."""

    partition: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if stored. FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH: the sender is not leader any more, or has old state.
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and COORDINATOR_LOAD_IN_PROGRESS: retry. Else UNKNOWN_TOPIC_OR_PARTITION,
    or INVALID_REQUEST if there is no state.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class WriteStateResult(Message):
    """Topic id in a WriteShareGroupState response, with an error code for each partition."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic."""
    partitions: Annotated[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class WriteShareGroupStateResponse(Message):
    """Response to WriteShareGroupState: an error code for each share-partition."""

    SPEC: ClassVar[MessageSpec] = response(85, "0-1", "0+")
    results: Annotated[list[WriteStateResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
