"""ElectLeaders (API 43): elect preferred or unclean leaders (KIP-183)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class TopicPartitions(Message):
    """Topic in an ElectLeaders request, with the partitions to elect leaders for."""

    topic: String = ""
    """Topic name."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions to elect leaders in."""


class ElectLeadersRequest(Message):
    """Request to elect the preferred leader of partitions, or an unclean leader."""

    SPEC: ClassVar[MessageSpec] = request(43, "0-2", "2+", "broker controller")
    """Version 1 adds unclean elections and an error of the whole request (KIP-460), version 2 is flexible.

    Flow: An admin client sends it to any broker, which forwards it to the active controller. A preferred election makes
    the first replica the leader if it is in the ISR. An unclean election takes any replica that is online, with loss of
    records, if the partition has no leader.
    """
    election_type: Annotated[int, wire_field("int8", "1+")] = 0
    """0 preferred: the first replica, if it is in the ISR. 1 unclean: any live replica of a partition without leader,
    which may lose records. Other values are rejected with INVALID_REQUEST.
    """
    topic_partitions: Annotated[list[TopicPartitions] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    """Partitions to elect leaders in; null for all, empty for none."""
    timeout_ms: Int32 = 60000
    """Time in ms that the client waits. Ottla ignores it: the response follows once the new leaders are committed."""


class PartitionResult(Message):
    """Error code of a partition; 0 if a leader was elected."""

    partition_id: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, or ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    error_message: Annotated[str | None, wire_field("string", nullable="0+")] = ""
    """Text for the error, null if there is none."""


class ReplicaElectionResult(Message):
    """Topic in an ElectLeaders response, with an error code for each partition."""

    topic: String = ""
    """Topic name."""
    partition_result: Annotated[list[PartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions. If all partitions were requested, those that need no election are left out."""


class ElectLeadersResponse(Message):
    """Response to ElectLeaders: an error code for each partition, 0 if a leader was elected."""

    SPEC: ClassVar[MessageSpec] = response(43, "0-2", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Annotated[int, wire_field("int16", "1+")] = 0
    """Error of the whole request: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST or POLICY_VIOLATION (too many
    elections), which named partitions have as well. 0 if the partitions have their own.
    """
    replica_election_results: Annotated[list[ReplicaElectionResult], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results by topic."""
