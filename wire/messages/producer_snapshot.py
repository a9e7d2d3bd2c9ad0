"""The `.snapshot` file of a partition: what is known of its idempotent producers."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.codec.schema import Message, MessageSpec, data, wire_field


class ProducerEntry(Message):
    producer_id: A[int, wire_field("int64", "1")] = 0
    epoch: A[int, wire_field("int16", "1")] = 0
    last_sequence: A[int, wire_field("int32", "1")] = 0
    last_offset: A[int, wire_field("int64", "1")] = 0
    offset_delta: A[int, wire_field("int32", "1")] = 0
    timestamp: A[int, wire_field("int64", "1")] = 0
    coordinator_epoch: A[int, wire_field("int32", "1")] = 0
    current_txn_first_offset: A[int, wire_field("int64", "1")] = 0


class ProducerSnapshot(Message):
    SPEC: ClassVar[MessageSpec] = data("data", "1", "none")
    crc: A[int, wire_field("uint32", "1")] = 0
    producer_entries: A[list[ProducerEntry], wire_field("[]struct", "1")] = field(default_factory=list)
