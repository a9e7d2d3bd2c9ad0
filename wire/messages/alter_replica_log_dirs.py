"""AlterReplicaLogDirs (API 34): move replicas between the log directories of a broker (KIP-113)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Int16, Int32, Message, MessageSpec, String, request, response, wire_field


class AlterReplicaLogDirTopic(Message):
    """Topic in an AlterReplicaLogDirs request, with the partitions to move to the log directory."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions to move."""


class AlterReplicaLogDir(Message):
    """Target log directory in an AlterReplicaLogDirs request, with the partitions to move there."""

    path: String = ""
    """Absolute path of a log directory, as `log.dirs` names it."""
    topics: Annotated[list[AlterReplicaLogDirTopic], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to move into this directory."""


class AlterReplicaLogDirsRequest(Message):
    """Request to a broker to move its replicas between its log directories."""

    SPEC: ClassVar[MessageSpec] = request(34, "1-2", "2+", "broker")
    """Version 2 is flexible. Version 0 was removed in Apache Kafka 4.0.

    Flow: An admin client sends it to the broker that has the replicas. The broker copies the log to a future replica in
    the other directory, and replaces the old one when it has caught up. A replica that does not exist yet will be
    created in the named directory.
    """
    dirs: Annotated[list[AlterReplicaLogDir], wire_field("[]struct")] = field(default_factory=list)
    """Target directories. If a partition occurs twice, the last directory counts."""


class AlterReplicaLogDirPartitionResult(Message):
    """Error code of a replica; 0 if it is in the directory already or its copy there has started."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if the replica is there or the copy has started. REPLICA_NOT_AVAILABLE: not hosted here; a replica created
    later is placed in this directory. LOG_DIR_NOT_FOUND: no such directory. KAFKA_STORAGE_ERROR: a directory is
    offline.
    """


class AlterReplicaLogDirTopicResult(Message):
    """Topic in an AlterReplicaLogDirs response, with an error code for each partition."""

    topic_name: String = ""
    """Topic name from the request."""
    partitions: Annotated[list[AlterReplicaLogDirPartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class AlterReplicaLogDirsResponse(Message):
    """Error code of each replica, sent when the moves have started; DescribeLogDirs shows their progress."""

    SPEC: ClassVar[MessageSpec] = response(34, "1-2", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    results: Annotated[list[AlterReplicaLogDirTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""
