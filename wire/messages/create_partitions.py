"""CreatePartitions (API 37): add partitions to topics (KIP-195)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Bool, Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class CreatePartitionsAssignment(Message):
    """Brokers for the replicas of a new partition, in a CreatePartitions request."""

    broker_ids: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Node ids of the replicas, the preferred leader first. Their number must be that of the existing partitions."""


class CreatePartitionsTopic(Message):
    """Topic in a CreatePartitions request, with the number of partitions that it has afterwards."""

    name: String = ""
    """Topic name."""
    count: Int32 = 0
    """Total number of partitions afterwards. A number that is no increase is rejected with INVALID_PARTITIONS."""
    assignments: Annotated[list[CreatePartitionsAssignment] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    """Replicas of the new partitions in the order of their indexes; null to let the controller choose them."""


class CreatePartitionsRequest(Message):
    """Request to add partitions to topics. New records of a key may then go to another partition."""

    SPEC: ClassVar[MessageSpec] = request(37, "0-3", "2+", "broker controller")
    """Version 2 is flexible, version 3 brings THROTTLING_QUOTA_EXCEEDED (KIP-599).

    Flow: An admin client sends it to any broker, which forwards it to the active controller. The controller appends one
    record for each new partition. Records with keys may go to other partitions afterwards, because the default
    partitioner uses the number of partitions.
    """
    topics: Annotated[list[CreatePartitionsTopic], wire_field("[]struct")] = field(default_factory=list)
    """Topics to enlarge, each with its own result."""
    timeout_ms: Int32 = 0
    """Time in ms that the client waits. Ottla ignores it: the response follows once the new partitions are committed.
    """
    validate_only: Bool = False
    """True to check the request and add no partition."""


class CreatePartitionsTopicResult(Message):
    """Error code of a topic; 0 if the partitions were added."""

    name: String = ""
    """Topic name."""
    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
    THROTTLING_QUOTA_EXCEEDED (retry after the throttle time), INVALID_REQUEST (topic twice), POLICY_VIOLATION (too many
    partitions), TOPIC_AUTHORIZATION_FAILED.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = None
    """Text for the error, null if there is none."""


class CreatePartitionsResponse(Message):
    """Response to CreatePartitions: an error code for each topic, 0 if the partitions were added."""

    SPEC: ClassVar[MessageSpec] = response(37, "0-3", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    results: Annotated[list[CreatePartitionsTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each topic."""
