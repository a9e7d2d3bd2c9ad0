"""AlterPartitionReassignments (API 45): move replicas to other brokers (KIP-455)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class ReassignablePartition(Message):
    """Partition with the replicas to move it to, or null replicas to cancel its reassignment."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    replicas: Annotated[list[int] | None, wire_field("[]int32", nullable="0+")] = None
    """Node ids of the new replicas, the preferred leader first; all must be registered. Null cancels the reassignment
    in progress.
    """


class ReassignableTopic(Message):
    """Topic in an AlterPartitionReassignments request, with the partitions to move or to stop moving."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[ReassignablePartition], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to move, or to stop moving."""


class AlterPartitionReassignmentsRequest(Message):
    """Request to start, change or cancel reassignments of partitions."""

    SPEC: ClassVar[MessageSpec] = request(45, "0-1", "0+", "broker controller")
    """Version 1 adds `allow_replication_factor_change` (KIP-860).

    Flow: An admin client sends it to any broker, which forwards it to the active controller. The controller adds the
    new replicas; when they are in the ISR, it removes the old ones. ListPartitionReassignments shows the progress.
    """
    timeout_ms: Int32 = 60000
    """Time in ms that the client waits. Ottla ignores it: the response follows once the start of the reassignments is
    committed. The copying goes on afterwards.
    """
    allow_replication_factor_change: Annotated[bool, wire_field("bool", "1+")] = True
    """True to accept another number of replicas than now, false to reject it with INVALID_REPLICATION_FACTOR."""
    topics: Annotated[list[ReassignableTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics with the partitions to move."""


class ReassignablePartitionResponse(Message):
    """Error code of a partition; 0 if its reassignment was started or cancelled."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if the reassignment has started or is cancelled. NO_REASSIGNMENT_IN_PROGRESS: no reassignment to cancel. Else
    INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR or UNKNOWN_TOPIC_OR_PARTITION.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""


class ReassignableTopicResponse(Message):
    """Topic in an AlterPartitionReassignments response, with an error code for each partition."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[ReassignablePartitionResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class AlterPartitionReassignmentsResponse(Message):
    """Response to AlterPartitionReassignments: an error code for each partition."""

    SPEC: ClassVar[MessageSpec] = response(45, "0-1", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    allow_replication_factor_change: Annotated[bool, wire_field("bool", "1+", ignorable=True)] = True
    """Value from the request."""
    error_code: Int16 = 0
    """Error of the whole request, such as NOT_CONTROLLER or CLUSTER_AUTHORIZATION_FAILED. 0 if the partitions have
    their own.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error of the whole request, null if there is none."""
    responses: Annotated[list[ReassignableTopicResponse], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
