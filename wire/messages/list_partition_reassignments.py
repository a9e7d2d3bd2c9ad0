"""ListPartitionReassignments (API 46): list reassignments in progress (KIP-455)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ListPartitionReassignmentsTopics(Message):
    """Topic in a ListPartitionReassignments request, with the partitions to list."""

    name: String = ""
    """Topic name. A topic that does not exist is left out of the response."""
    partition_indexes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions to list."""


class ListPartitionReassignmentsRequest(Message):
    """Request for the reassignments of replicas that are in progress."""

    SPEC: ClassVar[MessageSpec] = request(46, "0", "0+", "broker controller")
    """Flow: An admin client sends it to any broker, which forwards it to the active controller."""
    timeout_ms: Int32 = 60000
    """Time in ms that the client waits. Ottla ignores it and responds at once."""
    topics: Annotated[list[ListPartitionReassignmentsTopics] | None, wire_field("[]struct", nullable="0+")] = None
    """Partitions to list; null for all."""


class OngoingPartitionReassignment(Message):
    """Partition with a reassignment in progress: its replicas, and those being added and removed."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    replicas: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of all replicas, those to add and to remove among them."""
    adding_replicas: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the replicas that are being added. The reassignment ends when they are in the ISR."""
    removing_replicas: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the replicas that are removed at the end."""


class OngoingTopicReassignment(Message):
    """Topic in a ListPartitionReassignments response, with its reassignments in progress."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[OngoingPartitionReassignment], wire_field("[]struct")] = field(default_factory=list)
    """Partitions that are moving."""


class ListPartitionReassignmentsResponse(Message):
    """Reassignments of replicas in progress, by topic and partition; or an error code."""

    SPEC: ClassVar[MessageSpec] = response(46, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Int16 = 0
    """0, or NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED."""
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""
    topics: Annotated[list[OngoingTopicReassignment], wire_field("[]struct")] = field(default_factory=list)
    """Topics with reassignments in progress."""
