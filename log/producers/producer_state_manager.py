"""State of the idempotent and transactional producers of one partition.

Per producer id: its epoch, its last five batches (a retry of one is acknowledged, not appended), and the first offset
of its open transaction (`producer_table`). Restored from the newest ``.snapshot`` by replaying the later batches.

Sources: ``ProducerStateManager.java``, ``ProducerStateEntry.java``, ``ProducerAppendInfo.java`` (apache/kafka 4.3.1).

From KIP-98, KIP-360.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ottla.env.disk import Disk, write_file
from ottla.jobs.state_machine import VerificationGuard
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.producers.producer_table import (
    BATCHES_TO_RETAIN,
    ENTRY_BYTES,
    BatchMetadata,
    ProducerStateEntry,
    ProducerTable,
)
from ottla.log.producers.transaction_verification import (
    VERIFICATION_DISABLED,
    TxnAppendContext,
    VerificationStates,
    clear_verification,
    expire_verifications,
    start_verification,
)
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import segment_file_name
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, iterate_end_markers
from ottla.wire.record_batch.crc import crc32c

__all__ = ["BATCHES_TO_RETAIN", "BatchMetadata", "ProducerStateEntry", "ProducerStateManager"]

SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_PRODUCERS_PER_YIELD = 5000
_MIN_COMPACTED_HEAP = 64
NO_PRODUCER = -1
_MAX_EPOCH = 32767
_TRANSACTION_V2 = 2
"""``transaction.version`` from which on the producer epoch is incremented with each transaction (KIP-890)."""


class ProducerStateManager:
    """Idempotent and transactional producers of one partition: epochs, sequences, open and completed transactions.

    ``check_...`` methods decide on a batch before the append and change nothing; `update`, `end_transaction` and
    `replay` record a batch that is in the log.
    """

    __slots__ = (
        "_ongoing_heap",
        "completed_txns",
        "last_txn_end_offset",
        "ongoing_txns",
        "producers",
        "verification_states",
    )

    def __init__(self, producers: ProducerTable | None = None) -> None:
        self.producers = ProducerTable() if producers is None else producers
        self.ongoing_txns: dict[int, int] = dict(self.producers.open_transactions())
        """Producer id -> first offset of its open transaction."""
        self._ongoing_heap = [(first, pid) for pid, first in self.ongoing_txns.items()]
        """Heap of (first offset, producer id); ended transactions are removed at its top, or when there are many."""
        heapify(self._ongoing_heap)
        self.completed_txns: list[tuple[int, int]] = []
        """(first offset, marker offset) of ended transactions whose marker may be at or above the high watermark, both
        ascending. A transaction that spans an earlier one replaces its entry.
        """
        self.last_txn_end_offset = -1
        """Offset of the last marker that ended a transaction, -1: none; a truncation to or below it reopens that one.

        After the load of a snapshot it is the offset before the snapshot's, as the marker's is unknown.
        """
        self.verification_states: VerificationStates = {}
        """Pending verifications of transactions with their coordinator, by producer id."""

    def check_batch(self, header: BatchHeader) -> BatchMetadata | None:
        """Check producer epoch and sequence of a client's batch; return the earlier batch that it duplicates, or None.

        A batch of an unknown producer id is valid with any sequence.

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER; INVALID_TXN_STATE: the producer has an
            open transaction in this log, and the batch is not transactional.
        """
        entry = self.producers.entry(header.producer_id)
        if entry is None:
            return None  # unknown or expired: any sequence is accepted (KAFKA-5793, KIP-360)
        _, epoch, last_sequence, last_offset, _, _, _, txn_first = entry
        if header.producer_epoch == epoch:
            if last_offset < 0:
                last_sequence = NO_SEQUENCE
            if header.base_sequence == (last_sequence + 1) & 0x7FFFFFFF:
                if txn_first >= 0 and not header.is_transactional:
                    raise _not_in_transaction_error(header)
                return None
            known = self.producers.find_duplicate_batch(header.producer_id, header.base_sequence, header.last_sequence)
            if known is not None:
                return known
        elif header.producer_epoch < epoch:
            raise _invalid_epoch_error(header, epoch)
        elif header.base_sequence == 0 or epoch == NO_PRODUCER_EPOCH:
            if txn_first >= 0 and not header.is_transactional:
                raise _not_in_transaction_error(header)
            return None
        raise _out_of_order_error(header, f"{last_sequence} (current end sequence number)")

    def check_epoch(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction with producer epoch ``epoch`` in this log.

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH: the producer has a newer epoch in this log.
        """
        entry = self.producers.entry(producer_id)
        if entry is None:
            return False
        if epoch < entry[1]:
            text = f"producer {producer_id} has epoch {entry[1]}, not {epoch}"
            raise ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
        return entry[7] >= 0 and entry[1] == epoch

    def check_transactional_batch(
        self, data: Buffer, header: BatchHeader, txn: TxnAppendContext, *, client: bool
    ) -> BatchMetadata | None:
        """Check a transactional batch (`check_transactional`) or the markers of a control batch (`check_marker`).

        Return the earlier batch that a data batch duplicates, or None. ``client``: the batch is a client's.

        Raises:
            ProtocolError: the batch is rejected.
        """
        if header.is_control:
            for end in iterate_end_markers(header, data):
                self.check_marker(header, end, txn.transaction_version)
            return None
        return self.check_transactional(header, txn.guard, client=client)

    def check_transactional(
        self,
        header: BatchHeader,
        guard: VerificationGuard | None,
        *,
        client: bool,
    ) -> BatchMetadata | None:
        """Check a transactional data batch; the first one of a transaction must have a valid verification guard.

        Return the earlier batch that it duplicates, or None. Batches of a coordinator (``client`` False) have no
        sequence numbers to check.

        Raises:
            ProtocolError: as `check_batch`; INVALID_TXN_STATE: the transaction was not verified, or the guard is
            outdated.
        """
        entry = self.producers.entry(header.producer_id)
        verifying = self.verification_states.get(header.producer_id)
        if client and entry is not None and header.producer_epoch == entry[1]:
            known = self.producers.find_duplicate_batch(header.producer_id, header.base_sequence, header.last_sequence)
            if known is not None:
                return known
        is_open = self.check_epoch(header.producer_id, header.producer_epoch)
        if not is_open and guard is not VERIFICATION_DISABLED and (verifying is None or verifying.guard is not guard):
            raise ProtocolError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if not client:
            return None
        if verifying is not None:
            lowest = verifying.lowest_sequence
            if verifying.supports_epoch_bump and (entry is None or entry[3] < 0):
                lowest = min(lowest, 0)
            if header.base_sequence > lowest:
                raise _out_of_order_error(header, f"{lowest} (earliest seen sequence)")
        return self.check_batch(header)

    def check_marker(self, header: BatchHeader, end: EndTransactionMarker, version: int) -> None:
        """Check producer epoch and coordinator epoch of a transaction marker before the leader appends it.

        ``version`` is its ``transaction.version``: from 2 on the marker's epoch is one more than the transaction's. A
        marker with the current epoch while no transaction is open is a retry, and is appended again.

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.entry(header.producer_id)
        if entry is None:
            return
        _, epoch, _, _, _, _, coordinator_epoch, txn_first = entry
        is_again = header.producer_epoch == epoch and (txn_first < 0 or epoch == _MAX_EPOCH)
        newer = header.producer_epoch > epoch or (version < _TRANSACTION_V2 and header.producer_epoch == epoch)
        if not newer and not is_again:
            raise _invalid_epoch_error(header, epoch)
        if end.coordinator_epoch < coordinator_epoch:
            text = f"a coordinator of epoch {end.coordinator_epoch}, after one of {coordinator_epoch}"
            raise ProtocolError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, text)

    def maybe_start_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps: bool
    ) -> VerificationGuard | None:
        """Return the guard for the first batch of a transaction in this log; None if the transaction is open here.

        Called before the verification request (AddPartitionsToTxn) is sent to the transaction coordinator; the
        verification is pending from then on. ``epoch``: of the producer. ``sequence``: base sequence of the batch.
        ``bumps``: the epoch is incremented with each transaction. ``now_ms``: wall clock.

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH.
        """
        if self.check_epoch(producer_id, epoch):
            return None
        return start_verification(self.verification_states, producer_id, epoch, sequence, now_ms, bumps=bumps)

    def clear_verification(self, header: BatchHeader) -> None:
        """Remove the pending verification of a batch's producer after the batch or marker was appended."""
        clear_verification(
            self.verification_states, header.producer_id, header.producer_epoch, is_marker=header.is_control
        )

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Record a data batch that was appended at ``base_offset``, which its header need not have yet.

        A transactional one opens a transaction if its producer has none open.
        """
        pid, delta = header.producer_id, header.last_offset_delta
        first = self.ongoing_txns.get(pid, -1)
        if first < 0 and header.is_transactional:
            first = self.ongoing_txns[pid] = base_offset
            heappush(self._ongoing_heap, (base_offset, pid))
        batch = BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        self.producers.add_batch(pid, header.producer_epoch, batch, first)

    def replay(self, header: BatchHeader, base_offset: int, data: Buffer) -> list[AbortedTxn]:
        """Record a data or control batch read from the log; return index entries of the transactions that it aborts."""
        if header.producer_id < 0:
            return []
        if not header.is_control:
            self.update(header, base_offset)
            return []
        ends = iterate_end_markers(header, data)
        aborted = (self.end_transaction(header, base_offset, end.control_type, end.coordinator_epoch) for end in ends)
        return [txn for txn in aborted if txn is not None]

    def aborted_txn(self, producer_id: int, offset: int) -> AbortedTxn | None:
        """Return the transaction index entry for an abort marker at ``offset``; None without an open transaction."""
        first = self.ongoing_txns.get(producer_id)
        if first is None:
            return None
        return AbortedTxn(producer_id, first, offset, self._oldest_first_offset(producer_id, offset + 1))

    def _oldest_first_offset(self, but: int, default: int) -> int:
        """Return the lowest first offset of open transactions other than producer ``but``'s; ``default`` for none."""
        begun = self._ongoing_heap
        self._drop_completed()
        if not begun or begun[0][1] != but:
            return begun[0][0] if begun else default
        its = heappop(begun)
        self._drop_completed()
        first = begun[0][0] if begun else default
        heappush(begun, its)
        return first

    def _drop_completed(self) -> None:
        """Remove ended transactions from the top of the heap of ongoing transactions."""
        begun, ongoing = self._ongoing_heap, self.ongoing_txns
        while begun and ongoing.get(begun[0][1]) != begun[0][0]:
            heappop(begun)

    def end_transaction(
        self, header: BatchHeader, offset: int, marker: int, coordinator_epoch: int
    ) -> AbortedTxn | None:
        """Record a marker at ``offset``, which ends a transaction; return the index entry if it is aborted.

        ``marker``: `ControlRecordType`. None without an open transaction.
        """
        pid = header.producer_id
        aborted = self.aborted_txn(pid, offset) if marker == ControlRecordType.ABORT else None
        self.producers.add_end_marker(pid, header.producer_epoch, coordinator_epoch, header.max_timestamp)
        first = self.ongoing_txns.pop(pid, -1)
        if first < 0:
            return None
        self.last_txn_end_offset = offset
        # one transaction that stays open keeps all later ones in the heap
        if len(self._ongoing_heap) > max(_MIN_COMPACTED_HEAP, 4 * len(self.ongoing_txns)):
            self._ongoing_heap = [(its_first, its_pid) for its_pid, its_first in self.ongoing_txns.items()]
            heapify(self._ongoing_heap)
        while self.completed_txns and self.completed_txns[-1][0] >= first:
            self.completed_txns.pop()
        self.completed_txns.append((first, offset))
        return aborted

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is open or ended at or above the high watermark.

        None if there is none. Completed transactions whose marker is below the high watermark are removed from memory.
        """
        done = 0
        for _, last in self.completed_txns:
            if last >= high_watermark:
                break
            done += 1
        if done:
            del self.completed_txns[:done]
        first = self._oldest_first_offset(NO_PRODUCER, -1)
        if self.completed_txns and (first < 0 or self.completed_txns[0][0] < first):
            first = self.completed_txns[0][0]
        return None if first < 0 else first

    def expire_job(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Return a job that removes producers without an open transaction that were inactive for ``expiration_ms``.

        Verifications that have been pending for so long are removed at once. ``now_ms``: wall clock.
        """
        expire_verifications(self.verification_states, now_ms, expiration_ms)
        return self.producers.expire_job(now_ms, expiration_ms, _PRODUCERS_PER_YIELD)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Run `expire_job` to its end without yielding to other tasks."""
        for _ in self.expire_job(now_ms, expiration_ms):
            pass

    def write_snapshot(self, disk: Disk, directory: str, offset: int) -> str:
        """Write the state, as of ``offset``, as an unsynced snapshot in the partition's directory; return its path."""
        path = f"{directory}/{segment_file_name(offset, '.snapshot')}"
        write_file(disk, path, self.pack(), sync=False)
        return path

    def pack(self) -> bytes:
        """Return the contents of a ``.snapshot`` file; it has only the last batch of each producer."""
        rows = self.producers.snapshot_body
        count = _COUNT.pack(len(self.producers))
        return _HEAD.pack(SNAPSHOT_VERSION, crc32c(rows, crc32c(count)), len(self.producers)) + rows

    @classmethod
    def unpack(cls, raw: bytes, path: str = "", offset: int = 0) -> ProducerStateManager:
        """Return the producer state in the contents ``raw`` of the ``.snapshot`` file as of ``offset``.

        The file has no offset of the last marker: a transaction may have ended just before ``offset``.

        Raises:
            CorruptFile: wrong version, checksum or size.
        """
        if len(raw) < _HEAD.size:
            raise CorruptFile(f"Corrupt producer snapshot {path}: {len(raw)} bytes")
        version, crc, count = _HEAD.unpack_from(raw)
        if version != SNAPSHOT_VERSION or crc32c(raw[6:]) != crc or len(raw) != _HEAD.size + count * ENTRY_BYTES:
            raise CorruptFile(f"Corrupt producer snapshot {path}: version {version}, {count} entries, or a wrong CRC")
        try:
            states = cls(ProducerTable(raw[_HEAD.size :]))
        except ValueError as error:
            raise CorruptFile(f"{path}: {error}") from None
        states.last_txn_end_offset = offset - 1
        return states


def _out_of_order_error(header: BatchHeader, expected: str) -> ProtocolError:
    """Return OUT_OF_ORDER_SEQUENCE_NUMBER for a batch; ``expected`` is the text with the current last sequence."""
    text = (
        f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} (incoming seq. number)"
    )
    return ProtocolError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{text}, {expected}")


def _invalid_epoch_error(header: BatchHeader, epoch: int) -> ProtocolError:
    text = f"Epoch of producer {header.producer_id} is {header.producer_epoch}, "
    text += f"which is smaller than the last seen epoch {epoch}"
    return ProtocolError(ErrorCode.INVALID_PRODUCER_EPOCH, text)


def _not_in_transaction_error(header: BatchHeader) -> ProtocolError:
    text = f"Expected transactional write from producer {header.producer_id}: it has an open transaction"
    return ProtocolError(ErrorCode.INVALID_TXN_STATE, text)
