"""What a partition remembers of its idempotent and transactional producers.

Per producer id: its epoch, its last five batches (so a retry is answered, not appended), and the first offset of
its open transaction. Restored from the newest ``.snapshot`` and the batches behind it.

Sources: ``ProducerStateManager.java``, ``ProducerStateEntry.java``, ``ProducerAppendInfo.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from ottla.log.checkpoints import CorruptFile
from ottla.log.index import AbortedTxn
from ottla.wire.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from ottla.wire.control import ControlType
from ottla.wire.errors import ErrorCode, ProtocolError

BATCHES_REMEMBERED = 5
SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")


class BatchInfo(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class Producer:
    """What is known of one producer id."""

    epoch: int = NO_PRODUCER_EPOCH
    batches: list[BatchInfo] = field(default_factory=list)
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = -1
    touched: bool = True
    """Whether it wrote since the last sweep. Its timestamps are the client's, and may be of long ago."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 where none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("completed", "ongoing", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.ongoing: dict[int, int] = {}
        """Producer id -> first offset of its open transaction, in the order they began."""
        self.completed: list[tuple[int, int]] = []
        """(first, last) of ended transactions whose marker may still lie above the high watermark."""

    def check(self, header: BatchHeader) -> BatchInfo | None:
        """Hold a client's batch against what is known: a remembered batch means "already appended, answer success".

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None  # unknown, or expired: any sequence is taken (KAFKA-5793, KIP-360)
        if header.producer_epoch == producer.epoch:
            for batch in producer.batches:
                if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
                    return batch
        if header.producer_epoch < producer.epoch:
            raise ProtocolError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {producer.epoch}, the batch {header.producer_epoch}",
            )
        if header.producer_epoch > producer.epoch:
            in_order = header.base_sequence == 0 or producer.epoch == NO_PRODUCER_EPOCH
        else:
            in_order = header.base_sequence == (producer.last_sequence + 1) & 0x7FFFFFFF
        if not in_order:
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: sequence {header.base_sequence} after {producer.last_sequence}",
            )
        return None

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Remember an appended data batch (its header may still carry the client's base offset)."""
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer()
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        last_offset = base_offset + header.last_offset_delta
        producer.batches.append(
            BatchInfo(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        if len(producer.batches) > BATCHES_REMEMBERED:
            del producer.batches[0]
        producer.timestamp_ms = header.max_timestamp
        producer.touched = True
        if header.is_transactional and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            self.ongoing[header.producer_id] = base_offset

    def aborted_by(self, producer_id: int, offset: int) -> AbortedTxn | None:
        """What an abort marker at ``offset`` puts into the transaction index; None where nothing is open."""
        first = self.ongoing.get(producer_id)
        if first is None:
            return None
        others = [start for pid, start in self.ongoing.items() if pid != producer_id]
        return AbortedTxn(producer_id, first, offset, min(others, default=offset + 1))

    def end_transaction(
        self, header: BatchHeader, offset: int, marker: int, coordinator_epoch: int
    ) -> AbortedTxn | None:
        """Take a marker into account; gives what belongs into the transaction index if it was an abort."""
        producer = self.producers.setdefault(header.producer_id, Producer())
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = coordinator_epoch
        producer.timestamp_ms = header.max_timestamp
        first = producer.txn_first_offset
        if first < 0:
            return None
        aborted = self.aborted_by(header.producer_id, offset)
        producer.txn_first_offset = -1
        self.ongoing.pop(header.producer_id, None)
        self.completed.append((first, offset))
        return aborted if marker == ControlType.ABORT else None

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the oldest transaction that is open, or whose marker is not yet below the high watermark."""
        if self.completed:
            self.completed = [c for c in self.completed if c[1] >= high_watermark]
        firsts = [*self.ongoing.values(), *(first for first, _ in self.completed)]
        return min(firsts, default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for ``producer.id.expiration.ms`` and have nothing open."""
        old = [
            pid
            for pid, p in self.producers.items()
            if p.txn_first_offset < 0 and not p.touched and now_ms - p.timestamp_ms >= expiration_ms
        ]
        for producer in self.producers.values():
            producer.touched = False
        for pid in old:
            del self.producers[pid]

    def pack(self) -> bytes:
        """The bytes of a ``.snapshot``: only the last batch of each producer is kept."""
        body = bytearray()
        for pid, p in self.producers.items():
            last = p.batches[-1] if p.batches else BatchInfo(NO_SEQUENCE, -1, 0, -1)
            body += _ENTRY.pack(
                pid,
                p.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                p.timestamp_ms,
                p.coordinator_epoch,
                p.txn_first_offset,
            )
        counted = struct.pack(">i", len(self.producers)) + body
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(counted)) + counted

    @classmethod
    def unpack(cls, raw: bytes, path: str = "") -> ProducerStates:
        """Read a ``.snapshot``.

        Raises:
            CorruptFile: wrong version, checksum or size.
        """
        if len(raw) < _HEAD.size:
            raise CorruptFile(f"{path}: {len(raw)} bytes are no producer snapshot")
        version, crc, count = _HEAD.unpack_from(raw)
        if version != SNAPSHOT_VERSION or crc32c(raw[6:]) != crc or len(raw) != _HEAD.size + count * _ENTRY.size:
            raise CorruptFile(f"{path}: version {version}, {count} entries, or a bad checksum")
        states = cls()
        for pid, epoch, sequence, offset, delta, timestamp, coordinator, first in _ENTRY.iter_unpack(raw[_HEAD.size :]):
            batches = [BatchInfo(sequence, offset, delta, timestamp)] if offset >= 0 else []
            states.producers[pid] = Producer(epoch, batches, timestamp, coordinator, first)
            if first >= 0:
                states.ongoing[pid] = first
        return states
