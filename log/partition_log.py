"""One partition's log: appending to it, rolling its segments and letting go of old ones.

What it is made of is `log_state`, reading it `readable_log`, cutting it `truncatable_log`, syncing and closing it
`flushable_log`; opening one that exists is `recovery`'s business.

Source: ``UnifiedLog.java``, ``LocalLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.jobs.state_machine import VerificationGuard
from ottla.log.flushable_log import FlushableLog
from ottla.log.log_config import LogConfig
from ottla.log.log_state import iterate_end_markers
from ottla.log.log_validator import (
    AppendOrigin,
    ValidatedBatch,
    check_client_batch,
    check_crc,
    check_size,
    needs_record_validation,
    parse_single_batch,
    run_validation,
    validate_records,
)
from ottla.log.producers.producer_table import BatchMetadata
from ottla.log.producers.transaction_verification import (
    NO_TXN_CONTEXT,
    TxnAppendContext,
    clear_verification,
    expire_verifications,
    start_verification,
)
from ottla.log.segment.log_segment import LogSegment, segment_file_name
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_matches,
    iterate_batches,
    set_max_timestamp,
    set_offset_and_epoch,
)
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker

_CLIENT = AppendOrigin.CLIENT
_TXN_BITS = TRANSACTIONAL_BIT | CONTROL_BIT


class LogAppendInfo(NamedTuple):
    """What became of a batch. ``duplicate``: it was there already, at these offsets."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class FollowerAppendInfo(NamedTuple):
    """What became of a leader's batches."""

    first_offset: int
    last_offset: int


class PartitionLog(FlushableLog):
    """The log of one partition on one disk. Not thread-safe: all but running a `LogFlush` is for the node's loop."""

    def update_config(self, settings: LogConfig) -> None:
        """New topic settings; they hold from the next batch on."""
        self.config = settings
        for segment in self.segments:
            segment.config = settings

    # ------------------------------------------------------------------ writing

    def append_as_leader(
        self,
        data: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        header: BatchHeader | None = None,
        checked: ValidatedBatch | None = None,
        *,
        at_once: bool = True,
        txn: TxnAppendContext = NO_TXN_CONTEXT,
    ) -> LogAppendInfo:
        """Append one batch as leader: check, stamp in place, write.

        ``header`` is what `parse_single_batch` gave for ``data``, where the caller had to look at it already.
        ``checked`` is what `validate_records` gave for it: then records are not looked at again, unless the settings
        have changed since. Who can wait says ``at_once=False``. ``txn``: what is known of the transaction it belongs
        to, or ends.

        Raises:
            ValidationPending: not ``at_once``, and a rule must see many records; nothing was written.
            ProtocolError: the batch is refused; nothing was written.
            OSError: the disk failed; nothing of the batch is left in the segment.
        """
        if header is None:
            header = parse_single_batch(data)
        settings = self.config
        append_time = -1
        if origin is _CLIENT:
            data, header = self._validate_client_batch(data, header, now_ms, checked, at_once=at_once)
            if settings.log_append_time:
                append_time = now_ms
        else:
            if origin is not AppendOrigin.RAFT_LEADER:
                check_size(header.size_bytes, settings, self.label)
            check_crc(data, header)
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        if size_bytes > settings.segment_bytes:
            text = f"a batch of {size_bytes} bytes in segments of {settings.segment_bytes}"
            raise ProtocolError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{self.topic}-{self.partition}: {text}")
        if header.producer_id >= 0:
            if header.attributes & _TXN_BITS:
                known = self._check_transactional_batch(data, header, origin, txn)
            else:
                known = self.producers.check_batch(header)
            if known is not None:
                return LogAppendInfo(known.first_offset, known.last_offset, known.timestamp_ms, duplicate=True)
        base = self.log_end_offset
        set_offset_and_epoch(data, 0, base, leader_epoch)
        self._append_batch(data, header, base, leader_epoch, now_ms)
        return LogAppendInfo(base, base + header.last_offset_delta, append_time)

    def _check_transactional_batch(
        self, data: Buffer, header: BatchHeader, origin: AppendOrigin, txn: TxnAppendContext
    ) -> BatchMetadata | None:
        """Hold a batch of a transaction, or its end, against what is known of its producer.

        Raises:
            ProtocolError: as `ProducerStateManager.check_transactional`, `ProducerStateManager.check_marker`.
        """
        if header.is_control:
            for end in iterate_end_markers(header, data):
                self.producers.check_marker(header, end, txn.transaction_version)
            return None
        verifying = self.verification_states.get(header.producer_id)
        return self.producers.check_transactional(header, txn.guard, verifying, client=origin is AppendOrigin.CLIENT)

    def maybe_start_transaction_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps: bool
    ) -> VerificationGuard | None:
        """Before a transaction's coordinator is asked: the guard its first batch needs; None where one is open here.

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH.
        """
        if self.producers.check_epoch(producer_id, epoch):
            return None
        return start_verification(self.verification_states, producer_id, epoch, sequence, now_ms, bumps=bumps)

    def _validate_client_batch(
        self,
        data: bytearray | memoryview,
        header: BatchHeader,
        now_ms: int,
        checked: ValidatedBatch | None,
        *,
        at_once: bool,
    ) -> tuple[bytearray | memoryview, BatchHeader]:
        """A client's batch, checked, as it goes into the log: the kind of time its records have is the topic's."""
        settings = self.config
        if checked is not None and checked.config is settings:
            data, header, _ = checked
        else:
            check_client_batch(data, header, settings, self.label)
            if needs_record_validation(header, settings, now_ms):
                data, header, _ = run_validation(
                    validate_records(data, header, settings, now_ms, self.label), at_once=at_once
                )
        if len(data) > header.size_bytes:
            data = memoryview(data)[: header.size_bytes]
        if settings.log_append_time:
            attributes = header.attributes | TIMESTAMP_TYPE_BIT
            header = set_max_timestamp(data, 0, header._replace(attributes=attributes, max_timestamp=now_ms))
        elif header.has_log_append_time:
            header = set_max_timestamp(data, 0, header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_BIT))
        return data, header

    def append_as_follower(self, raw: Buffer, now_ms: int) -> FollowerAppendInfo | None:
        """Append the leader's batches as they are: offsets and epochs kept. A batch cut off at the end is left out.

        The first batch must begin at the log end, or behind it where the leader's log has a hole (compaction), and each
        further one behind the one before. None where there was no whole batch. The high watermark stays.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE: nothing was written.
            OSError: the disk failed; of that batch nothing was written, those before it are in the log.
        """
        view = memoryview(raw)
        batches = self._check_leader_batches(view)
        for at, header in batches:
            base = header.base_offset
            if base > self.log_end_offset and not self.config.compact:
                self.raise_cleaner_offset(base)
            self._append_batch(view[at : at + header.size_bytes], header, base, header.partition_leader_epoch, now_ms)
        return FollowerAppendInfo(batches[0][1].base_offset, self.log_end_offset - 1) if batches else None

    def _check_leader_batches(self, view: memoryview) -> list[tuple[int, BatchHeader]]:
        """The whole batches of a leader's answer with their positions, all of them checked."""
        end = self.log_end_offset
        batches = []
        try:
            for at, header in iterate_batches(view):
                if header.base_offset < end or header.last_offset_delta < 0:
                    text = f"{self.describe()}: offsets {header.base_offset} to {header.last_offset} from the leader"
                    raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
                if not crc_matches(view, header, at):
                    raise WireError(f"bad CRC at offset {header.base_offset}")
                batches.append((at, header))
                end = header.next_offset
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{self.describe()}: {error}") from None
        return batches

    def _append_batch(self, data: Buffer, header: BatchHeader, base: int, leader_epoch: int, now_ms: int) -> None:
        """Write a batch at the log end, whichever way it came. What else must be written comes first, so that a reader
        never finds a batch without its epoch, or an abort marker that is missing in the transaction index.

        Raises:
            OSError: nothing of the batch is in the log. One that says the disk failed is final.
        """
        last = base + header.last_offset_delta
        active = self.segments[-1]
        if active.should_roll(now_ms, len(data), header.max_timestamp, last):
            active = self.roll(now_ms, base if active.exceeds_offset_range(last) else None)
        self.epochs.assign(leader_epoch, base)
        if header.producer_id >= 0 and header.is_control:
            self._write_marker(active, data, header, base)
        else:
            active.append(data, last, header.max_timestamp)
            if header.producer_id >= 0:
                self.producers.update(header, base)
        if self.verification_states and header.is_transactional:
            clear_verification(
                self.verification_states, header.producer_id, header.producer_epoch, is_marker=header.is_control
            )
        self.log_end_offset = last + 1
        self.unflushed_records += header.records_count
        assert self.high_watermark <= base, self.describe()

    def _write_marker(self, active: LogSegment, data: Buffer, header: BatchHeader, base: int) -> None:
        ends = list(iterate_end_markers(header, data))
        indexed = self._add_to_txn_index(active, ends, header, base)
        try:
            active.append(data, base + header.last_offset_delta, header.max_timestamp)
        except OSError as error:
            if indexed:  # an entry without its marker: only a recovery puts that right
                self.set_offline()
                raise OSError(errno.EIO, f"{self.describe()}: no marker could be written: {error}") from error
            raise
        for end in ends:
            self.producers.end_transaction(header, base, end.control_type, end.coordinator_epoch)

    def _add_to_txn_index(
        self, active: LogSegment, ends: list[EndTransactionMarker], header: BatchHeader, base: int
    ) -> bool:
        """Enter what a marker aborts into the transaction index; says whether there was anything."""
        aborted = self.producers.aborted_txn(header.producer_id, base)
        if aborted is None or not any(end.control_type == ControlRecordType.ABORT for end in ends):
            return False
        _ = active.file  # opened now: after the entry is written only the disk itself may fail
        if not active.aborted_txns:
            self.directory_changes += 1
        active.add_aborted_txn(aborted)
        return True

    def assign_epoch_start_offset(self, epoch: int) -> None:
        """Take the lead from the log end on, under ``epoch``. Its first batch writes it down."""
        self.epochs.assign(epoch, self.log_end_offset, save=False)

    def roll(self, now_ms: int, base_offset: int | None = None) -> LogSegment:
        """Begin a new segment at the log end, or behind it where the first batch does; the old one's indexes and a
        producer snapshot are written.

        Raises:
            OSError: the old segment goes on.
        """
        base = self.log_end_offset if base_offset is None else base_offset
        old = self.active_segment
        old.write_index_files()
        self.write_producer_snapshot(base)
        self.directory_changes += 1
        try:
            segment = LogSegment.create(self.disk, self.directory, base, self.config, now_ms)
        except OSError:
            for suffix in (".log", ".index", ".timeindex"):  # what the old one goes on with would reach behind it
                with suppress(OSError):
                    self.disk.unlink(f"{self.directory}/{segment_file_name(base, suffix)}")
            raise
        self.recovery_point = min(self.recovery_point, old.base_offset)  # its indexes are not synced as its batches are
        self.add_segment(segment)
        return segment

    def roll_past_gap(self, offset: int, now_ms: int) -> None:
        """End in an empty segment behind a hole, as a log of which the last records were compacted away: up to there.

        Raises:
            OSError: the log ends where it did.
        """
        assert offset > self.log_end_offset, self.describe()
        self.raise_cleaner_offset(offset)
        self.roll(now_ms, offset)
        self.log_end_offset = offset

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward; says whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.ongoing_txns:
            self.check_offset_order()
        return True

    def follow_high_watermark(self, offset: int) -> bool:
        """Take the leader's high watermark as far as this log reaches, downwards too; says whether it is another now.

        A new leader may know of less than the one before it; what was committed is there all the same (R319).
        """
        offset = max(min(offset, self.log_end_offset), self.log_start_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.check_offset_order()
        return True

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Move the log start forward, never above the high watermark; says whether it moved.

        The caller writes the checkpoint, then drops segments.

        Raises:
            OSError: the epoch file could not be written; the log start stays.
        """
        offset = min(offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.check_offset_order()
        return True

    def expire_producers_job(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Forget producers that have been silent for ``producer.id.expiration.ms``, pausing among very many."""
        expire_verifications(self.verification_states, now_ms, expiration_ms)
        return self.producers.expire_job(now_ms, expiration_ms)

    def raise_cleaner_offset(self, offset: int) -> None:
        """Everything below ``offset`` was compacted, here or at the leader it came from: offsets may be missing."""
        self.cleaner_offset = max(self.cleaner_offset, offset)
