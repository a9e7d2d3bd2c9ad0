"""The `.snapshot` file of a partition: what is known of its idempotent producers."""

from __future__ import annotations

from typing import Annotated as A
from typing import ClassVar

from msgspec import field

from ottla.wire.schema import Message, Spec, data, w


class ProducerEntry(Message):
    producer_id: A[int, w("int64", "1")] = 0
    epoch: A[int, w("int16", "1")] = 0
    last_sequence: A[int, w("int32", "1")] = 0
    last_offset: A[int, w("int64", "1")] = 0
    offset_delta: A[int, w("int32", "1")] = 0
    timestamp: A[int, w("int64", "1")] = 0
    coordinator_epoch: A[int, w("int32", "1")] = 0
    current_txn_first_offset: A[int, w("int64", "1")] = 0


class ProducerSnapshot(Message):
    SPEC: ClassVar[Spec] = data("data", "1", "none")
    crc: A[int, w("uint32", "1")] = 0
    producer_entries: A[list[ProducerEntry], w("[]struct", "1")] = field(default_factory=list)
