"""WriteTxnMarkers (api 27): coordinator to leaders: write the marker that ends a transaction.

Transactions are KIP-98; version 2 tells which kind of transaction ends (KIP-1228).
"""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

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
    name: String = ""
    partition_indexes: A[list[int], wire_field("[]int32")] = field(default_factory=list)


class WritableTxnMarker(Message):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: A[list[WritableTxnMarkerTopic], wire_field("[]struct")] = field(default_factory=list)
    coordinator_epoch: Int32 = 0
    transaction_version: A[int, wire_field("int8", "2+", ignorable=True)] = 0


class WriteTxnMarkersRequest(Message):
    SPEC: ClassVar[MessageSpec] = request(27, "1-2", "1+", "broker")
    markers: A[list[WritableTxnMarker], wire_field("[]struct")] = field(default_factory=list)


class WritableTxnMarkerPartitionResult(Message):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Message):
    name: String = ""
    partitions: A[list[WritableTxnMarkerPartitionResult], wire_field("[]struct")] = field(default_factory=list)


class WritableTxnMarkerResult(Message):
    producer_id: Int64 = 0
    topics: A[list[WritableTxnMarkerTopicResult], wire_field("[]struct")] = field(default_factory=list)


class WriteTxnMarkersResponse(Message):
    SPEC: ClassVar[MessageSpec] = response(27, "1-2", "1+")
    markers: A[list[WritableTxnMarkerResult], wire_field("[]struct")] = field(default_factory=list)
