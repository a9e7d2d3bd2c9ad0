"""Header of a record batch (magic 2, 61 bytes): parsing, building a batch, iteration, and changes in place.

Batches have the same bytes on the wire and in files. The checksum does not cover ``base_offset`` and
``partition_leader_epoch``, so a leader can set them without recomputing it.

Source: ``DefaultRecordBatch.java`` (apache/kafka 4.3.1); the format is KIP-98's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.record_batch.crc import crc32c

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
MAX_TIMESTAMP_OFFSET = 35

TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = struct.Struct(">qi")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_ATTRIBUTES = struct.Struct(">h")
_CRC = struct.Struct(">I")
_new_tuple = tuple.__new__  # takes a third of the time of `BatchHeader._make`


class BatchHeader(NamedTuple):
    """Fields of a batch header in their order on disk."""

    base_offset: int
    """Offset of the first record. A producer writes 0; the leader sets it. Not covered by the CRC."""
    batch_length: int
    """Length of the batch in bytes, counted from the field after this one."""
    partition_leader_epoch: int
    """Epoch of the leader that appended the batch, -1 from a producer. Not covered by the CRC."""
    magic: int
    """Format version: 2, or 0 and 1 of messages of Kafka before 0.11 (`legacy_records.parse_any_header`)."""
    crc: int
    """CRC-32C of all bytes from the attributes to the end of the batch; of magic 0 and 1: CRC-32 from the magic on."""
    attributes: int
    """Bits 0 to 2: compression codec; 3: append time instead of create time; 4: transactional; 5: control batch; 6: the
    base timestamp is a delete horizon (KIP-534).
    """
    last_offset_delta: int
    """Offset of the last record minus the base offset. Compaction may remove the record, but keeps the number."""
    base_timestamp: int
    """Timestamp of the first record in ms since the epoch, or the delete horizon if bit 6 of the attributes is set."""
    max_timestamp: int
    """Largest timestamp of the records in ms since the epoch; the append time if bit 3 of the attributes is set."""
    producer_id: int
    """Id of an idempotent or transactional producer (KIP-98), -1 for any other."""
    producer_epoch: int
    """Epoch of the producer id; the leader rejects batches of an older epoch. -1 without a producer id."""
    base_sequence: int
    """Sequence number of the first record for its producer and partition; detects duplicates and gaps. -1 without."""
    records_count: int
    """Number of records in the batch."""

    @property
    def size_bytes(self) -> int:
        """Size in bytes of the whole batch, including base offset and length."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record in the batch as appended; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record: ``last_offset`` + 1."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; wraps from 2^31-1 to 0. -1 without a producer id."""
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_control(self) -> bool:
        """True for a control batch, such as transaction markers."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def has_log_append_time(self) -> bool:
        """True if all records have the log append time, which is ``max_timestamp``."""
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)


def increment_sequence(base: int, increment: int) -> int:
    """Return sequence number ``base`` plus ``increment``, wrapping from 2^31-1 to 0; -1 stays -1."""
    if base == NO_SEQUENCE:
        return NO_SEQUENCE
    return (base + increment) & 0x7FFFFFFF


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Return the header of the batch at ``pos``; the bytes after it need not be in ``buf``, the CRC is not checked.

    Raises:
        WireError: fewer bytes than a header, a magic other than 2, or a length below that of a header.
    """
    if len(buf) - pos < HEADER_BYTES:
        raise WireError(f"{len(buf) - pos} bytes are no batch header")
    header: BatchHeader = _new_tuple(BatchHeader, _HEADER.unpack_from(buf, pos))
    if header.magic != 2:
        raise WireError(f"batch of magic {header.magic}, not 2")
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise WireError(f"batch length {header.batch_length} is less than its header")
    return header


def read_offset_and_size(buf: Buffer, pos: int = 0) -> tuple[int, int]:
    """Return base offset and total size in bytes of the batch at ``pos``, of any magic; reads twelve bytes.

    The size is not checked.

    Raises:
        struct.error: fewer than twelve bytes are left.
    """
    base_offset, length = _OVERHEAD.unpack_from(buf, pos)
    return base_offset, length + LOG_OVERHEAD_BYTES


def offset_range(buf: Buffer) -> tuple[int, int]:
    """Return first and last offset of the batch at the start of ``buf``; (0, -1) if there is no valid header."""
    try:
        header = parse_header(buf)
    except WireError:
        return 0, -1
    return header.base_offset, header.last_offset


def crc_matches(buf: Buffer, header: BatchHeader, pos: int = 0) -> bool:
    """Return whether the CRC-32C of the batch at ``pos`` equals that in its header."""
    view = memoryview(buf)[pos + ATTRIBUTES_OFFSET : pos + header.size_bytes]
    return bool(crc32c(view) == header.crc)


def set_offset_and_epoch(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at ``pos``; the checksum does not cover them."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + LOG_OVERHEAD_BYTES, leader_epoch)


def set_max_timestamp(buf: bytearray | memoryview, pos: int, header: BatchHeader) -> BatchHeader:
    """Write attributes and max timestamp of ``header`` into the batch at ``pos`` and recompute its checksum.

    Returns:
        ``header`` with the new checksum.
    """
    _ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_OFFSET, header.attributes)
    _OFFSET.pack_into(buf, pos + MAX_TIMESTAMP_OFFSET, header.max_timestamp)
    crc = crc32c(memoryview(buf)[pos + ATTRIBUTES_OFFSET : pos + header.size_bytes])
    _CRC.pack_into(buf, pos + CRC_OFFSET, crc)
    return header._replace(crc=crc)


def pack_batch(header: BatchHeader, body: Buffer) -> bytes:
    """Return a batch of ``header`` and encoded records ``body``, with computed length and checksum."""
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    raw = bytearray(_HEADER.pack(*header._replace(batch_length=length, crc=0)))
    raw += body
    _CRC.pack_into(raw, CRC_OFFSET, crc32c(memoryview(raw)[ATTRIBUTES_OFFSET:]))
    return bytes(raw)


def iterate_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each consecutive batch in ``buf``; stop before an incomplete batch.

    Raises:
        WireError: a batch header is malformed, or its magic is not 2.
    """
    end = len(buf)
    while end - pos >= LOG_OVERHEAD_BYTES:
        size = read_offset_and_size(buf, pos)[1]
        if size < HEADER_BYTES:
            raise WireError(f"batch of {size} bytes at {pos}")
        if end - pos < size:
            return
        yield pos, parse_header(buf, pos)
        pos += size
