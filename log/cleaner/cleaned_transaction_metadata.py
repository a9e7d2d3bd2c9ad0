"""Transactions in the batches of a compaction pass: which markers and transaction index entries must be retained.

Source: ``CleanedTransactionMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from ottla.log.segment.indexes import AbortedTxn
from ottla.wire.codec.primitives import Buffer
from ottla.wire.record_batch.batch_header import BatchHeader
from ottla.wire.record_batch.control_record import ControlRecordType, read_control_type
from ottla.wire.record_batch.records import iterate_records


class CleanedTransactionMetadata:
    """Ongoing transactions at the current batch, committed or aborted, while a compaction pass reads batches in order.

    ``aborted``: transaction index entries of the log.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._pending_aborted = [(entry.first_offset, entry) for entry in aborted]
        heapify(self._pending_aborted)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producer id -> its aborted transaction, and whether a data batch of it was read."""
        self._committed: set[int] = set()
        self.retained_txns: list[AbortedTxn] = []
        """Transaction index entries to write for the new segment: of aborted transactions with data batches."""

    def _advance_to(self, offset: int) -> None:
        while self._pending_aborted and self._pending_aborted[0][0] <= offset:
            _, entry = heappop(self._pending_aborted)
            self._aborted[entry.producer_id] = (entry, False)

    def on_batch_read(self, header: BatchHeader) -> bool:
        """Record that a data batch was read; return True if it belongs to an aborted transaction (to be removed)."""
        self._advance_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def on_control_batch_read(self, header: BatchHeader, kind: int) -> bool:
        """Record that a transaction marker was read; return True if the log has no data batch of its transaction.

        ``kind``: its `ControlRecordType`; False for types that end no transaction.
        """
        self._advance_to(header.last_offset)
        if kind == ControlRecordType.ABORT:
            entry, seen = self._aborted.pop(header.producer_id, (None, False))
            if entry is not None and seen:
                self.retained_txns.append(entry)
            return not seen
        if kind == ControlRecordType.COMMIT:
            empty = header.producer_id not in self._committed
            self._committed.discard(header.producer_id)
            return empty
        return False


def control_batch_type(header: BatchHeader, raw: Buffer) -> int:
    """Return the `ControlRecordType` of a control batch's first record; -1 if it has no record or no type in the key.

    Raises:
        WireError: the records are malformed.
    """
    first = next(iter(iterate_records(raw, header)), None)
    kind = None if first is None else read_control_type(first)
    return -1 if kind is None else kind
