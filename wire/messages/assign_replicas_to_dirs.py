"""AssignReplicasToDirs (API 73): report the log directories of replicas to the controller (KIP-858)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    Uuid,
    request,
    response,
    wire_field,
)


class AssignReplicasToDirsRequestPartitionData(Message):
    """Partition with a replica of the sending broker in the log directory."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""


class AssignReplicasToDirsRequestTopicData(Message):
    """Topic in an AssignReplicasToDirs request, with the partitions in the log directory."""

    topic_id: Uuid = ZERO_UUID
    """UUID of the topic. An unknown one yields UNKNOWN_TOPIC_ID for each partition."""
    partitions: Annotated[list[AssignReplicasToDirsRequestPartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Partitions with a replica in the directory."""


class AssignReplicasToDirsRequestDirectoryData(Message):
    """Id of a log directory of the sending broker, with the replicas that it contains."""

    id: Uuid = ZERO_UUID
    """Directory id. If the directory is not among the online directories of the broker, its replicas leave the ISR and
    lose their leadership.
    """
    topics: Annotated[list[AssignReplicasToDirsRequestTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Replicas in the directory."""


class AssignReplicasToDirsRequest(Message):
    """Report of a broker to the controller: replicas that are in another log directory than registered."""

    SPEC: ClassVar[MessageSpec] = request(73, "0", "0+", "controller")
    """Flow: A broker with several log directories sends it to the active controller when it has created a replica in a
    directory, or moved it. The controller needs it to elect new leaders when a directory fails.
    """
    broker_id: Int32 = 0
    """Node id of the sender."""
    broker_epoch: Int64 = -1
    """Broker epoch from the registration of the sender. Another one than the current epoch is rejected with
    STALE_BROKER_EPOCH.
    """
    directories: Annotated[list[AssignReplicasToDirsRequestDirectoryData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Directories with the replicas in them."""


class AssignReplicasToDirsResponsePartitionData(Message):
    """Error code of a replica; 0 if the controller has recorded its log directory."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0, or UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the sender has no replica of the
    partition).
    """


class AssignReplicasToDirsResponseTopicData(Message):
    """Topic in an AssignReplicasToDirs response, with an error code for each partition."""

    topic_id: Uuid = ZERO_UUID
    """Topic id from the request."""
    partitions: Annotated[list[AssignReplicasToDirsResponsePartitionData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results of the replicas."""


class AssignReplicasToDirsResponseDirectoryData(Message):
    """Id of a log directory from the request, with an error code for each replica."""

    id: Uuid = ZERO_UUID
    """Directory id from the request."""
    topics: Annotated[list[AssignReplicasToDirsResponseTopicData], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""


class AssignReplicasToDirsResponse(Message):
    """Response to AssignReplicasToDirs: an error code for each replica, by log directory and topic."""

    SPEC: ClassVar[MessageSpec] = response(73, "0", "0+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the controller reads no further request from this connection, because a quota is exceeded; 0
    if none is.
    """
    error_code: Int16 = 0
    """Error of the whole request: STALE_BROKER_EPOCH, NOT_CONTROLLER or CLUSTER_AUTHORIZATION_FAILED. 0 if the replicas
    have their own.
    """
    directories: Annotated[list[AssignReplicasToDirsResponseDirectoryData], wire_field("[]struct")] = field(
        default_factory=list
    )
    """Results by directory."""
