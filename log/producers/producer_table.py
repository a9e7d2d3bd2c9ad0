"""Table of producers in compact form: one entry of bytes for each, in the format of a ``.snapshot`` file.

100,000 producers as objects take 40 MB, and serializing them blocks the event loop for 300 ms. The table therefore is
the snapshot's body: entries are changed in place, and the body is written as it is. Up to four older batches of each
producer are stored in a second array, so that retries are recognised.

Source: ``ProducerStateEntry.java``, ``BatchMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

from ottla.wire.record_batch.batch_header import NO_PRODUCER_EPOCH, NO_SEQUENCE

BATCHES_TO_RETAIN = 5
ENTRY = struct.Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first txn offset."""
ENTRY_BYTES = ENTRY.size
_OLDER = struct.Struct(">iiIq")
"""Older batch: last sequence, offset delta, lower 32 bits of the last offset, timestamp."""
_OLDER_BYTES = _OLDER.size
_OLDER_ROW_BYTES = _OLDER_BYTES * (BATCHES_TO_RETAIN - 1)
_MAX_OFFSET_DISTANCE = 1 << 31
"""Distance in offsets at which older batches are dropped: only the lower 32 bits of their offsets are stored."""
_TIMESTAMP = struct.Struct(">q")
_TIMESTAMP_AT = 26
_TXN_FIRST_AT = 38
_COUNT_BITS, _TOUCHED = 0x07, 0x08


class BatchMetadata(NamedTuple):
    """Batch among the last five of a producer, by which a retry is recognised; offsets and sequences are inclusive.

    ``timestamp_ms``: largest timestamp of the batch, or that of a transaction marker directly after it.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & 0x7FFFFFFF

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class ProducerStateEntry(NamedTuple):
    """Copy of the state of a producer id; -1 in a field: none.

    ``timestamp_ms``: of the last batch or marker. ``coordinator_epoch``: of the last marker. ``txn_first_offset``: of
    the open transaction.
    """

    epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    """Last five batches, the newest last."""
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = -1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the producer's last record; -1 if unknown."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerTable(MutableMapping[int, ProducerStateEntry]):
    """Map of producer id to `ProducerStateEntry`, stored as bytes in the format of a producer snapshot."""

    __slots__ = ("_flags", "_older", "_row_of", "snapshot_body")

    def __init__(self, rows: bytes = b"") -> None:
        self.snapshot_body = bytearray(rows)
        """Current body of a ``.snapshot`` file: one `ENTRY` for each producer, unordered."""
        count = len(rows) // ENTRY_BYTES
        self._older = bytearray(count * _OLDER_ROW_BYTES)
        self._flags = bytearray([_TOUCHED]) * count
        self._row_of = {entry[0]: number for number, entry in enumerate(ENTRY.iter_unpack(rows))}
        if len(self._row_of) != count:
            raise ValueError("a producer is named twice")

    def __len__(self) -> int:
        return len(self._row_of)

    def __iter__(self) -> Iterator[int]:
        return iter(self._row_of)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._row_of

    def __getitem__(self, producer_id: int) -> ProducerStateEntry:
        number = self._row_of[producer_id]
        _, epoch, sequence, offset, delta, timestamp, coordinator, first = ENTRY.unpack_from(
            self.snapshot_body, number * ENTRY_BYTES
        )
        batches = (*self._older_batches(number, offset), BatchMetadata(sequence, offset, delta, timestamp))
        return ProducerStateEntry(epoch, batches if offset >= 0 else (), timestamp, coordinator, first)

    def __setitem__(self, producer_id: int, producer: ProducerStateEntry) -> None:
        number = self._row_of.get(producer_id)
        if number is None:
            number = self._add(producer_id)
        self._flags[number] = _TOUCHED
        newest = producer.batches[-1] if producer.batches else BatchMetadata(NO_SEQUENCE, -1, 0, producer.timestamp_ms)
        for batch in producer.batches[-BATCHES_TO_RETAIN:-1]:
            self._add_older_batch(
                number, batch.last_sequence, batch.offset_delta, batch.last_offset, batch.timestamp_ms
            )
        entry = (newest.last_sequence, newest.last_offset, newest.offset_delta, producer.timestamp_ms)
        more = (producer.coordinator_epoch, producer.txn_first_offset)
        ENTRY.pack_into(self.snapshot_body, number * ENTRY_BYTES, producer_id, producer.epoch, *entry, *more)

    def __delitem__(self, producer_id: int) -> None:
        """Remove a producer; the table's last entry is moved to its position."""
        number, last = self._row_of.pop(producer_id), len(self._flags) - 1
        if number != last:
            for table, size in ((self.snapshot_body, ENTRY_BYTES), (self._older, _OLDER_ROW_BYTES), (self._flags, 1)):
                table[number * size : (number + 1) * size] = table[last * size :]
            moved: int = ENTRY.unpack_from(self.snapshot_body, number * ENTRY_BYTES)[0]
            self._row_of[moved] = number
        del self.snapshot_body[last * ENTRY_BYTES :], self._older[last * _OLDER_ROW_BYTES :], self._flags[last:]

    def _add(self, producer_id: int) -> int:
        number = self._row_of[producer_id] = len(self._flags)
        self.snapshot_body += bytes(ENTRY_BYTES)
        self._older += bytes(_OLDER_ROW_BYTES)
        self._flags.append(_TOUCHED)
        return number

    def entry(self, producer_id: int) -> tuple[int, ...] | None:
        """Return a producer's fields as integers, in the order of `ENTRY`; None if the producer id is unknown."""
        number = self._row_of.get(producer_id)
        return None if number is None else ENTRY.unpack_from(self.snapshot_body, number * ENTRY_BYTES)

    def open_transactions(self) -> Iterator[tuple[int, int]]:
        """Yield (producer id, first offset) of each open transaction."""
        for entry in ENTRY.iter_unpack(self.snapshot_body):
            if entry[7] >= 0:
                yield entry[0], entry[7]

    def find_duplicate_batch(self, producer_id: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return a known producer's batch with exactly these sequence numbers, which a retry duplicates, or None."""
        for batch in self[producer_id].batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None

    def add_batch(self, producer_id: int, epoch: int, batch: BatchMetadata, txn_first_offset: int) -> None:
        """Record a data batch as the producer's newest; batches of another producer epoch are dropped.

        ``txn_first_offset``: first offset of the producer's open transaction; -1 for none.
        """
        coordinator = -1
        number = self._row_of.get(producer_id)
        if number is None:
            number = self._add(producer_id)
        else:
            _, known, sequence, offset, delta, timestamp, coordinator, _ = ENTRY.unpack_from(
                self.snapshot_body, number * ENTRY_BYTES
            )
            if known != epoch or not 0 <= offset <= batch.last_offset < offset + _MAX_OFFSET_DISTANCE:
                self._flags[number] = _TOUCHED
            else:
                # the timestamp is a later marker's, if there is one: it is only used in the response to a retry
                self._add_older_batch(number, sequence, delta, offset, timestamp)
        sequence, offset, delta, timestamp = batch
        ENTRY.pack_into(
            *(self.snapshot_body, number * ENTRY_BYTES, producer_id, epoch, sequence, offset, delta, timestamp),
            *(coordinator, txn_first_offset),
        )

    def add_end_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp_ms: int) -> None:
        """Record a transaction marker: the producer has no open transaction afterwards.

        ``epoch``: of the producer, which is added if unknown; with another epoch than before, its batches are dropped.
        """
        sequence, offset, delta = NO_SEQUENCE, -1, 0
        number = self._row_of.get(producer_id)
        if number is None:
            number = self._add(producer_id)
        else:
            _, known, sequence, offset, delta, _, _, _ = ENTRY.unpack_from(self.snapshot_body, number * ENTRY_BYTES)
            if known != epoch:
                sequence, offset, delta = NO_SEQUENCE, -1, 0
                self._flags[number] &= ~_COUNT_BITS
        ENTRY.pack_into(
            *(self.snapshot_body, number * ENTRY_BYTES, producer_id, epoch, sequence, offset, delta, timestamp_ms),
            *(coordinator_epoch, -1),
        )

    def _add_older_batch(self, number: int, sequence: int, delta: int, offset: int, timestamp_ms: int) -> None:
        """Append a batch to the older batches of the producer in row ``number``; drop the oldest of four."""
        flags, older, at = self._flags[number], self._older, number * _OLDER_ROW_BYTES
        count = flags & _COUNT_BITS
        if count == BATCHES_TO_RETAIN - 1:
            older[at : at + _OLDER_ROW_BYTES - _OLDER_BYTES] = older[at + _OLDER_BYTES : at + _OLDER_ROW_BYTES]
            count -= 1
        _OLDER.pack_into(older, at + count * _OLDER_BYTES, sequence, delta, offset & 0xFFFFFFFF, timestamp_ms)
        self._flags[number] = _TOUCHED | (count + 1)

    def _older_batches(self, number: int, newest_offset: int) -> list[BatchMetadata]:
        out: list[BatchMetadata] = []
        at = number * _OLDER_ROW_BYTES
        offset = newest_offset
        for index in reversed(range(self._flags[number] & _COUNT_BITS)):
            sequence, delta, low, timestamp = _OLDER.unpack_from(self._older, at + index * _OLDER_BYTES)
            offset -= (offset - low) & 0xFFFFFFFF
            out.append(BatchMetadata(sequence, offset, delta, timestamp))
        out.reverse()
        return out

    def expire_job(self, now_ms: int, expiration_ms: int, at_once: int) -> Iterator[None]:
        """Remove producers without an open transaction that were inactive for ``expiration_ms``, as a job.

        It yields every ``at_once`` producers. Producers that wrote since the previous run are kept: their timestamps
        are the client's and may be old. ``now_ms``: wall clock.
        """
        seen = 0
        for number in range(len(self._flags) - 1, -1, -1):  # backwards: the entry moved by a removal was checked before
            seen += 1
            if seen % at_once == 0:
                yield
            if number >= len(self._flags):
                continue
            if self._flags[number] & _TOUCHED:
                self._flags[number] &= ~_TOUCHED
                continue
            at = number * ENTRY_BYTES
            silent_ms = now_ms - _TIMESTAMP.unpack_from(self.snapshot_body, at + _TIMESTAMP_AT)[0]
            if silent_ms >= expiration_ms and self.snapshot_body[at + _TXN_FIRST_AT] & 0x80:
                del self[_TIMESTAMP.unpack_from(self.snapshot_body, at)[0]]
