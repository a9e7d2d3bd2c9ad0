"""DescribeLogDirs (API 35): log directories of a broker with their replicas (KIP-113)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    MessageSpec,
    String,
    request,
    response,
    wire_field,
)


class DescribableLogDirTopic(Message):
    """Topic in a DescribeLogDirs request, with the partitions to describe."""

    topic: String = ""
    """Topic name."""
    partitions: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions to describe."""


class DescribeLogDirsRequest(Message):
    """Request to a broker for its log directories, and the size of the replicas in them."""

    SPEC: ClassVar[MessageSpec] = request(35, "1-5", "2+", "broker")
    """Version 2 is flexible, 3 adds an error of the whole request, 4 the size of the volume (KIP-827), 5 cordoned
    directories (KIP-1066). Version 0 was removed in Apache Kafka 4.0.

    Flow: An admin client sends it to each broker, since a broker knows only its own directories.
    """
    topics: Annotated[list[DescribableLogDirTopic] | None, wire_field("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    """Partitions to describe; null for all, empty for none. Partitions that are not on this broker are left out."""


class DescribeLogDirsPartition(Message):
    """Replica in a log directory of the broker: size in bytes and lag."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    partition_size: Int64 = 0
    """Size of the log segments in bytes."""
    offset_lag: Int64 = 0
    """For a future replica, number of offsets that it is behind the current one, -1 if that is offline. In Ottla 0 for
    a current replica.
    """
    is_future_key: Bool = False
    """True for the copy that AlterReplicaLogDirs makes and that will replace the current replica."""


class DescribeLogDirsTopic(Message):
    """Topic in a DescribeLogDirs response, with its replicas in the log directory."""

    name: String = ""
    """Topic name."""
    partitions: Annotated[list[DescribeLogDirsPartition], wire_field("[]struct")] = field(default_factory=list)
    """Replicas in the directory, by partition index."""


class DescribeLogDirsResult(Message):
    """Log directory of the broker with its replicas and disk space, or its error code."""

    error_code: Int16 = 0
    """0, or KAFKA_STORAGE_ERROR if the directory is offline."""
    log_dir: String = ""
    """Absolute path of the log directory."""
    topics: Annotated[list[DescribeLogDirsTopic], wire_field("[]struct")] = field(default_factory=list)
    """Replicas in the directory, by topic."""
    total_bytes: Annotated[int, wire_field("int64", "4+", ignorable=True)] = -1
    """Size in bytes of the volume that the directory is on; -1 if unknown."""
    usable_bytes: Annotated[int, wire_field("int64", "4+", ignorable=True)] = -1
    """Free bytes of this volume that the broker may use; -1 if unknown."""
    is_cordoned: Annotated[bool, wire_field("bool", "5+", ignorable=True)] = False
    """True if new partitions are not placed in this directory (`cordoned.log.dirs`)."""


class DescribeLogDirsResponse(Message):
    """Log directories of the responding broker, with the replicas in each."""

    SPEC: ClassVar[MessageSpec] = response(35, "1-5", "2+")
    throttle_time_ms: Int32 = 0
    """Time in ms for which the broker reads no further request from this connection, because a quota is exceeded; 0 if
    none is.
    """
    error_code: Annotated[int, wire_field("int16", "3+", ignorable=True)] = 0
    """Error of the whole request: CLUSTER_AUTHORIZATION_FAILED. 0 if the directories have their own."""
    results: Annotated[list[DescribeLogDirsResult], wire_field("[]struct")] = field(default_factory=list)
    """Log directories of the broker."""
