"""WriteTxnMarkers (API 27): write the markers that end transactions (KIP-98).

Sent by transaction coordinators to leaders, and by tools that abort a hanging transaction.
"""

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


class WritableTxnMarkerTopic(Message):
    """Topic in a WriteTxnMarkers request, with the partitions to append the marker to."""

    name: String = ""
    """Topic name. For `__consumer_offsets`, the group coordinator writes the marker, and applies or drops the offsets
    of the transaction.
    """
    partition_indexes: Annotated[list[int], wire_field("[]int32")] = field(default_factory=list)
    """Indexes of the partitions that the receiver leads."""


class WritableTxnMarker(Message):
    """Commit or abort marker of a producer's transaction, for several partitions."""

    producer_id: Int64 = 0
    """Producer id of the transaction."""
    producer_epoch: Int16 = 0
    """Epoch of the marker. With transaction version 2 it is one higher than that of the records. A lower one than that
    of the producer in the partition is rejected with INVALID_PRODUCER_EPOCH.
    """
    transaction_result: Bool = False
    """True to commit, false to abort."""
    topics: Annotated[list[WritableTxnMarkerTopic], wire_field("[]struct")] = field(default_factory=list)
    """Partitions to write the marker to."""
    coordinator_epoch: Int32 = 0
    """Leader epoch of the coordinator in `__transaction_state`. A lower one than that of the last marker is rejected
    with TRANSACTION_COORDINATOR_FENCED.
    """
    transaction_version: Annotated[int, wire_field("int8", "2+", ignorable=True)] = 0
    """Transaction version of the transaction. With 2, a marker needs a higher epoch than the records, so that a late
    marker does not end the next transaction; with 0 and 1 an equal one is accepted.
    """


class WriteTxnMarkersRequest(Message):
    """Request of a transaction coordinator or a tool to partition leaders to append transaction markers."""

    SPEC: ClassVar[MessageSpec] = request(27, "1-2", "1+", "broker")
    """Version 1 is flexible, version 2 adds the transaction version (KIP-1228). Version 0 was removed in Apache Kafka
    4.0.

    Flow: The transaction coordinator sends it to the leaders of the partitions of a transaction. Each leader appends a
    control record; readers with `isolation.level=read_committed` go on from there. The coordinator retries until every
    partition has its marker.
    """
    markers: Annotated[list[WritableTxnMarker], wire_field("[]struct")] = field(default_factory=list)
    """Markers to write, a control batch for each partition."""


class WritableTxnMarkerPartitionResult(Message):
    """Error code of a partition; 0 if the marker is committed in it."""

    partition_index: Int32 = 0
    """Index of the partition in its topic."""
    error_code: Int16 = 0
    """0 if the marker is committed. INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: the marker is late, give
    up. UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR:
    retry. CLUSTER_AUTHORIZATION_FAILED.
    """


class WritableTxnMarkerTopicResult(Message):
    """Topic in a WriteTxnMarkers response, with an error code for each partition."""

    name: String = ""
    """Topic name from the request."""
    partitions: Annotated[list[WritableTxnMarkerPartitionResult], wire_field("[]struct")] = field(default_factory=list)
    """Results of the partitions."""


class WritableTxnMarkerResult(Message):
    """Producer id of the request, with an error code for each partition of its markers."""

    producer_id: Int64 = 0
    """Producer id from the request. Several markers of a producer have one result."""
    topics: Annotated[list[WritableTxnMarkerTopicResult], wire_field("[]struct")] = field(default_factory=list)
    """Results by topic."""


class WriteTxnMarkersResponse(Message):
    """Response to WriteTxnMarkers, sent when the marker of each partition is committed or has failed."""

    SPEC: ClassVar[MessageSpec] = response(27, "1-2", "1+")
    markers: Annotated[list[WritableTxnMarkerResult], wire_field("[]struct")] = field(default_factory=list)
    """Results, one for each producer id."""
