"""OffsetDelete (API 47): delete committed offsets of a group (KIP-496)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class OffsetDeleteRequestPartition(Message):
    """Partition of which to delete the committed offset of the group."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""


class OffsetDeleteRequestTopic(Message):
    """Topic in an OffsetDelete request, with the partitions of which to delete the committed offsets."""

    name: String = ""
    """Topic name. Needs the right to read the topic."""
    partitions: Annotated[list[OffsetDeleteRequestPartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions with offsets to delete."""


class OffsetDeleteRequest(Message):
    """Request of an admin client to the group coordinator to delete committed offsets of a group."""

    SPEC: ClassVar[MessageSpec] = request(47, "0", "none", "broker")
    """Flow: An admin client sends it to the group coordinator. The coordinator appends tombstones for the offsets."""
    group_id: String = ""
    """Id of the group. An empty one is rejected with INVALID_GROUP_ID."""
    topics: Annotated[list[OffsetDeleteRequestTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the offsets to delete."""


class OffsetDeleteResponsePartition(Message):
    """Error code of a partition; 0 if its committed offset was deleted."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, also if there was no offset. GROUP_SUBSCRIBED_TO_TOPIC: a member subscribes to the topic. Else
    UNKNOWN_TOPIC_OR_PARTITION or TOPIC_AUTHORIZATION_FAILED.
    """


class OffsetDeleteResponseTopic(Message):
    """Topic in an OffsetDelete response, with an error code for each partition."""

    name: String = ""
    """Topic name from the request."""
    partitions: Annotated[list[OffsetDeleteResponsePartition], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class OffsetDeleteResponse(Message):
    """Error code of each partition, 0 if its committed offset was deleted."""

    SPEC: ClassVar[MessageSpec] = response(47, "0", "none")
    error_code: Int16 = 0
    """Error of the whole request: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members of another protocol
    type than `consumer`), GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS. 0 if the
    partitions have their own.
    """
    throttle_time_ms: Annotated[int, wire_field("int32", ignorable=True)] = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    topics: Annotated[list[OffsetDeleteResponseTopic], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic; empty with an error of the whole request."""
