"""Records of `__consumer_offsets`, types 0 to 2: committed offsets and classic groups, each a key and a value."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import ZERO_UUID, Bytes, Int32, Int64, Message, MessageSpec, String, data, wire_field


class GroupMetadataKey(Message):
    """Key, type 2: group id of a classic group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 2)
    group: Annotated[str, wire_field("string", "0")] = ""
    """Id of the classic group."""


class MemberMetadata(Message):
    """Member of a classic group in a value of type 2: ids, timeouts, subscription and assignment."""

    member_id: String = ""
    """Id of the member in its group."""
    group_instance_id: Annotated[str | None, wire_field("string", "3+", nullable="3+", ignorable=True)] = None
    """`group.instance.id` of a static member, null for a dynamic one."""
    client_id: String = ""
    """`client.id` of the member."""
    client_host: String = ""
    """Address that the member connects from."""
    rebalance_timeout: Annotated[int, wire_field("int32", "1+", ignorable=True)] = -1
    """Time in ms that the member may take to join again in a rebalance (`max.poll.interval.ms`). In version 0 the
    session timeout.
    """
    session_timeout: Int32 = 0
    """Session timeout of the member in ms."""
    subscription: Bytes = b""
    """Data of the member for the chosen protocol, for consumers a `ConsumerProtocolSubscription`."""
    assignment: Bytes = b""
    """Assignment of the member, for consumers a `ConsumerProtocolAssignment`."""


class GroupMetadataValue(Message):
    """Value, type 2: generation and members of a classic group. A tombstone deletes the group."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0-4", "4+", 2)
    """Version 1 adds the rebalance timeout (KIP-62), 2 the time of the last change of state (KIP-211), 3 static members
    (KIP-345), 4 is flexible (KIP-915). Version 3 is written.
    """
    protocol_type: String = ""
    """`consumer` for consumers, `connect` for Kafka Connect; empty if the group has never had a member."""
    generation: Int32 = 0
    """Number of the generation, raised by each rebalance."""
    protocol: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Name of the chosen protocol, for consumers the client-side assignor; null or empty if the group has no members.
    """
    leader: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Member id of the leader of the group; null if the group has no members."""
    current_state_timestamp: Annotated[int, wire_field("int64", "2+", ignorable=True)] = -1
    """Time in ms since the epoch when the group got its present state; -1 if unknown. The offsets of an empty group
    expire `offsets.retention.minutes` later.
    """
    members: Annotated[list[MemberMetadata], wire_field("[]struct")] = field(default_factory=list)
    """Members with their assignments; empty if the last member has left."""


class LegacyOffsetCommitKey(Message):
    """Key, type 0, of a committed offset: group, topic and partition. Only read; type 1 is written."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 0)
    group: Annotated[str, wire_field("string", "0")] = ""
    """Id of the group."""
    topic: Annotated[str, wire_field("string", "0")] = ""
    """Topic name."""
    partition: Annotated[int, wire_field("int32", "0")] = 0
    """Index of the partition in its topic."""


class LegacyOffsetCommitValue(Message):
    """Value, type 0: committed offset of a group in a partition. A tombstone deletes it."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0", "none", 0)
    offset: Annotated[int, wire_field("int64", "0")] = 0
    """Offset of the next record to process."""
    metadata: Annotated[str, wire_field("string", "0")] = ""
    """Text of the application, empty if there is none."""
    commit_timestamp: Annotated[int, wire_field("int64", "0")] = 0
    """Time of the commit in ms since the epoch."""


class OffsetCommitKey(Message):
    """Key, type 1, of a committed offset: group id, topic name and partition."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-key", "0", "none", 1)
    group: Annotated[str, wire_field("string", "0")] = ""
    """Id of the group, of any type."""
    topic: Annotated[str, wire_field("string", "0")] = ""
    """Topic name."""
    partition: Annotated[int, wire_field("int32", "0")] = 0
    """Index of the partition in its topic."""


class OffsetCommitValue(Message):
    """Value, type 1: committed offset of a group in a partition. A tombstone deletes it."""

    SPEC: ClassVar[MessageSpec] = data("coordinator-value", "0-4", "4+", 1)
    """Version 1 has an expiry time, version 2 has none (KIP-211). Version 3 adds leader epochs (KIP-320), 4 is flexible
    (KIP-915) and adds the topic id. Version 4 is written; version 1 if the client sets a retention time, which
    OffsetCommit permits up to its version 4.
    """
    offset: Int64 = 0
    """Offset of the next record to process."""
    leader_epoch: Annotated[int, wire_field("int32", "3+", ignorable=True)] = -1
    """Leader epoch of the last processed record, -1 if unknown."""
    metadata: String = ""
    """Text of the application, empty if there is none."""
    commit_timestamp: Int64 = 0
    """Time of the commit in ms since the epoch. The offset expires `offsets.retention.minutes` later, unless a member
    subscribes to the topic. In an empty classic group the time begins when it became empty.
    """
    expire_timestamp: Annotated[int, wire_field("int64", "1", ignorable=True)] = -1
    """Time in ms since the epoch when the offset expires, set by the client; -1 for `offsets.retention.minutes`."""
    topic_id: Annotated[bytes, wire_field("uuid", "4+", tagged="4+", tag=0, ignorable=True)] = ZERO_UUID
    """UUID of the topic; zero if unknown, and for offsets that were committed in a transaction. After the topic was
    created again, the offset of the old one is not returned.
    """
