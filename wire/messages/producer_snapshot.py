"""File `.snapshot` of a partition: last state of its idempotent and transactional producers.

The offset in the file name is the end of the log at that time.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field

from ottla.wire.codec.schema import Message, MessageSpec, data, wire_field


class ProducerEntry(Message):
    """State of an idempotent or transactional producer in a partition, as of the snapshot."""

    producer_id: Annotated[int, wire_field("int64", "1")] = 0
    """Id of the producer, from InitProducerId."""
    epoch: Annotated[int, wire_field("int16", "1")] = 0
    """Last epoch of the producer. Batches with an older one are rejected with INVALID_PRODUCER_EPOCH."""
    last_sequence: Annotated[int, wire_field("int32", "1")] = 0
    """Sequence number of its last record; -1 after a transaction marker without records. The next batch has to continue
    it, else OUT_OF_ORDER_SEQUENCE_NUMBER.
    """
    last_offset: Annotated[int, wire_field("int64", "1")] = 0
    """Offset of the last record of its last batch; -1 if there is none."""
    offset_delta: Annotated[int, wire_field("int32", "1")] = 0
    """Number of records in its last batch minus 1: the last offset minus the first one. 0 if there is no batch."""
    timestamp: Annotated[int, wire_field("int64", "1")] = 0
    """Timestamp of its last batch or marker, in ms since the epoch; -1 if unknown. The state is deleted after
    `producer.id.expiration.ms` without a batch.
    """
    coordinator_epoch: Annotated[int, wire_field("int32", "1")] = 0
    """Epoch of the transaction coordinator in the last transaction marker of the producer; -1 if there is none. A
    marker with a lower one is rejected with TRANSACTION_COORDINATOR_FENCED.
    """
    current_txn_first_offset: Annotated[int, wire_field("int64", "1")] = 0
    """Offset of the first record of its open transaction; -1 if none is open. The lowest one of all producers limits
    the last stable offset.
    """


class ProducerSnapshot(Message):
    """Content of a `.snapshot` file: the state of all producers in a partition at an offset."""

    SPEC: ClassVar[MessageSpec] = data("data", "1", "none")
    crc: Annotated[int, wire_field("uint32", "1")] = 0
    """CRC-32C of the bytes after this field. A file with another checksum is not used: the state is read from an older
    file or from the log.
    """
    producer_entries: Annotated[list[ProducerEntry], wire_field("[]struct", "1")] = field(default_factory=list)
    """Producers with state in the partition, each with its last batch only."""
