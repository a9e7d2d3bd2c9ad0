"""One partition's log: appending to it, rolling its segments and letting go of old ones.

What it is made of is `state`, reading it `reading`, cutting it `truncating`, syncing and closing it `syncing`; opening
one that exists is `recovery`'s business.

Source: ``UnifiedLog.java``, ``LocalLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.log import verification as v
from ottla.log.machine import Guard
from ottla.log.producer_table import BatchInfo
from ottla.log.segment import Segment, file_name
from ottla.log.settings import LogSettings
from ottla.log.state import txn_ends
from ottla.log.syncing import SyncedLog
from ottla.log.validate import (
    Checked,
    Origin,
    check_client_batch,
    check_crc,
    check_size,
    look,
    looked,
    must_look,
    parse_single,
)
from ottla.log.verification import NO_TXN, Txn
from ottla.wire import batch as b
from ottla.wire.batch import BatchHeader, stamp
from ottla.wire.control import ControlType, TxnEnd
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.primitives import Buffer

_CLIENT = Origin.CLIENT
_OF_TXN = b.TRANSACTIONAL_BIT | b.CONTROL_BIT


class Appended(NamedTuple):
    """What became of a batch. ``duplicate``: it was there already, at these offsets."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class AppendedAsFollower(NamedTuple):
    """What became of a leader's batches."""

    first_offset: int
    last_offset: int


class PartitionLog(SyncedLog):
    """The log of one partition on one disk. Not thread-safe: all but running a `SyncJob` is done on the node's loop."""

    def update_settings(self, settings: LogSettings) -> None:
        """New topic settings; they hold from the next batch on."""
        self.settings = settings
        for segment in self.segments:
            segment.settings = settings

    # ------------------------------------------------------------------ writing

    def append_as_leader(
        self,
        data: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        header: BatchHeader | None = None,
        checked: Checked | None = None,
        *,
        at_once: bool = True,
        txn: Txn = NO_TXN,
    ) -> Appended:
        """Append one batch as leader: check, stamp in place, write.

        ``header`` is what `parse_single` gave for ``data``, where the caller had to look at it already. ``checked`` is
        what `look` gave for it: then records are not looked at again, unless the settings have changed since. Who can
        wait says ``at_once=False``. ``txn``: what is known of the transaction it belongs to, or ends.

        Raises:
            LookFirst: not ``at_once``, and a rule must see many records; nothing was written.
            ProtocolError: the batch is refused; nothing was written.
            OSError: the disk failed; nothing of the batch is left in the segment.
        """
        if header is None:
            header = parse_single(data)
        settings = self.settings
        append_time = -1
        if origin is _CLIENT:
            data, header = self._of_client(data, header, now_ms, checked, at_once=at_once)
            if settings.log_append_time:
                append_time = now_ms
        else:
            if origin is not Origin.RAFT:
                check_size(header.size_bytes, settings, self.label)
            check_crc(data, header)
        size_bytes = header.batch_length + b.LOG_OVERHEAD_BYTES
        if size_bytes > settings.segment_bytes:
            text = f"a batch of {size_bytes} bytes in segments of {settings.segment_bytes}"
            raise ProtocolError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{self.topic}-{self.partition}: {text}")
        if header.producer_id >= 0:
            if header.attributes & _OF_TXN:
                known = self._check_of_txn(data, header, origin, txn)
            else:
                known = self.producers.check(header)
            if known is not None:
                return Appended(known.first_offset, known.last_offset, known.timestamp_ms, duplicate=True)
        base = self.log_end_offset
        stamp(data, 0, base, leader_epoch)
        self._write(data, header, base, leader_epoch, now_ms)
        return Appended(base, base + header.last_offset_delta, append_time)

    def _check_of_txn(self, data: Buffer, header: BatchHeader, origin: Origin, txn: Txn) -> BatchInfo | None:
        """Hold a batch of a transaction, or its end, against what is known of its producer.

        Raises:
            ProtocolError: as `ProducerStates.check_transactional`, `ProducerStates.check_marker`.
        """
        if header.is_control:
            for end in txn_ends(header, data):
                self.producers.check_marker(header, end, txn.version)
            return None
        verifying = self.verifying.get(header.producer_id)
        return self.producers.check_transactional(header, txn.guard, verifying, client=origin is Origin.CLIENT)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps: bool
    ) -> Guard | None:
        """Before a transaction's coordinator is asked: the guard its first batch needs; None where one is open here.

        Raises:
            ProtocolError: INVALID_PRODUCER_EPOCH.
        """
        if self.producers.check_epoch(producer_id, epoch):
            return None
        return v.begin(self.verifying, producer_id, epoch, sequence, now_ms, bumps=bumps)

    def _of_client(
        self,
        data: bytearray | memoryview,
        header: BatchHeader,
        now_ms: int,
        checked: Checked | None,
        *,
        at_once: bool,
    ) -> tuple[bytearray | memoryview, BatchHeader]:
        """A client's batch, checked, as it goes into the log: the kind of time its records have is the topic's."""
        settings = self.settings
        if checked is not None and checked.settings is settings:
            data, header, _ = checked
        else:
            check_client_batch(data, header, settings, self.label)
            if must_look(header, settings, now_ms):
                data, header, _ = looked(look(data, header, settings, now_ms, self.label), at_once=at_once)
        if len(data) > header.size_bytes:
            data = memoryview(data)[: header.size_bytes]
        if settings.log_append_time:
            attributes = header.attributes | b.TIMESTAMP_TYPE_BIT
            header = b.stamp_times(data, 0, header._replace(attributes=attributes, max_timestamp=now_ms))
        elif header.has_log_append_time:
            header = b.stamp_times(data, 0, header._replace(attributes=header.attributes & ~b.TIMESTAMP_TYPE_BIT))
        return data, header

    def append_as_follower(self, raw: Buffer, now_ms: int) -> AppendedAsFollower | None:
        """Append the leader's batches as they are: offsets and epochs kept. A batch cut off at the end is left out.

        The first batch must begin at the log end, or behind it where the leader's log has a hole (compaction), and each
        further one behind the one before. None where there was no whole batch. The high watermark stays.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE: nothing was written.
            OSError: the disk failed; of that batch nothing was written, those before it are in the log.
        """
        view = memoryview(raw)
        batches = self._check_leaders(view)
        for at, header in batches:
            base = header.base_offset
            if base > self.log_end_offset and not self.settings.compact:
                self.note_compacted(base)
            self._write(view[at : at + header.size_bytes], header, base, header.partition_leader_epoch, now_ms)
        return AppendedAsFollower(batches[0][1].base_offset, self.log_end_offset - 1) if batches else None

    def _check_leaders(self, view: memoryview) -> list[tuple[int, BatchHeader]]:
        """The whole batches of a leader's answer with their positions, all of them checked."""
        end = self.log_end_offset
        batches = []
        try:
            for at, header in b.iterate(view):
                if header.base_offset < end or header.last_offset_delta < 0:
                    text = f"{self.in_words()}: offsets {header.base_offset} to {header.last_offset} from the leader"
                    raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
                if not b.crc_matches(view, header, at):
                    raise WireError(f"bad CRC at offset {header.base_offset}")
                batches.append((at, header))
                end = header.next_offset
        except WireError as error:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{self.in_words()}: {error}") from None
        return batches

    def _write(self, data: Buffer, header: BatchHeader, base: int, leader_epoch: int, now_ms: int) -> None:
        """Write a batch at the log end, whichever way it came. What else must be written comes first, so that a reader
        never finds a batch without its epoch, or an abort marker that is missing in the transaction index.

        Raises:
            OSError: nothing of the batch is in the log. One that says the disk failed is final.
        """
        last = base + header.last_offset_delta
        active = self.segments[-1]
        if active.must_roll(now_ms, len(data), header.max_timestamp, last):
            active = self.roll(now_ms, base if active.is_beyond(last) else None)
        self.epochs.assign(leader_epoch, base)
        if header.producer_id >= 0 and header.is_control:
            self._write_marker(active, data, header, base)
        else:
            active.append(data, last, header.max_timestamp)
            if header.producer_id >= 0:
                self.producers.update(header, base)
        if self.verifying and header.is_transactional:
            v.end(self.verifying, header.producer_id, header.producer_epoch, is_marker=header.is_control)
        self.log_end_offset = last + 1
        self.unflushed_records += header.records_count
        assert self.high_watermark <= base, self.in_words()

    def _write_marker(self, active: Segment, data: Buffer, header: BatchHeader, base: int) -> None:
        ends = list(txn_ends(header, data))
        indexed = self._index_aborted(active, ends, header, base)
        try:
            active.append(data, base + header.last_offset_delta, header.max_timestamp)
        except OSError as error:
            if indexed:  # an entry without its marker: only a recovery puts that right
                self.abandon()
                raise OSError(errno.EIO, f"{self.in_words()}: no marker could be written: {error}") from error
            raise
        for end in ends:
            self.producers.end_transaction(header, base, end.kind, end.coordinator_epoch)

    def _index_aborted(self, active: Segment, ends: list[TxnEnd], header: BatchHeader, base: int) -> bool:
        """Enter what a marker aborts into the transaction index; says whether there was anything."""
        aborted = self.producers.aborted_by(header.producer_id, base)
        if aborted is None or not any(end.kind == ControlType.ABORT for end in ends):
            return False
        _ = active.file  # opened now: after the entry is written only the disk itself may fail
        if not active.aborted:
            self.names_made += 1
        active.add_aborted(aborted)
        return True

    def begin_epoch(self, epoch: int) -> None:
        """Take the lead from the log end on, under ``epoch``. Its first batch writes it down."""
        self.epochs.assign(epoch, self.log_end_offset, save=False)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log end, or behind it where the first batch does; the old one's indexes and a
        producer snapshot are written.

        Raises:
            OSError: the old segment goes on.
        """
        base = self.log_end_offset if base_offset is None else base_offset
        old = self.active
        old.seal()
        self.write_snapshot(base)
        self.names_made += 1
        try:
            segment = Segment.create(self.disk, self.directory, base, self.settings, now_ms)
        except OSError:
            for suffix in (".log", ".index", ".timeindex"):  # what the old one goes on with would reach behind it
                with suppress(OSError):
                    self.disk.unlink(f"{self.directory}/{file_name(base, suffix)}")
            raise
        self.recovery_point = min(self.recovery_point, old.base_offset)  # its indexes are not synced as its batches are
        self.add_segment(segment)
        return segment

    def skip_to(self, offset: int, now_ms: int) -> None:
        """End in an empty segment behind a hole, as a log of which the last records were compacted away: up to there.

        Raises:
            OSError: the log ends where it did.
        """
        assert offset > self.log_end_offset, self.in_words()
        self.note_compacted(offset)
        self.roll(now_ms, offset)
        self.log_end_offset = offset

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward; says whether it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.ongoing:
            self.check_order()
        return True

    def follow_high_watermark(self, offset: int) -> bool:
        """Take the leader's high watermark as far as this log reaches, downwards too; says whether it is another now.

        A new leader may know of less than the one before it; what was committed is there all the same (R319).
        """
        offset = max(min(offset, self.log_end_offset), self.log_start_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.check_order()
        return True

    def raise_start(self, offset: int) -> bool:
        """Move the log start forward, never above the high watermark; says whether it moved.

        The caller writes the checkpoint, then drops segments.

        Raises:
            OSError: the epoch file could not be written; the log start stays.
        """
        offset = min(offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.epochs.truncate_start(offset)
        self.log_start_offset = offset
        self.check_order()
        return True

    def expiring_producers(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Forget producers that have been silent for ``producer.id.expiration.ms``, pausing among very many."""
        v.expire(self.verifying, now_ms, expiration_ms)
        return self.producers.expiring(now_ms, expiration_ms)

    def note_compacted(self, offset: int) -> None:
        """Everything below ``offset`` was compacted, here or at the leader it came from: offsets may be missing."""
        self.cleaner_point = max(self.cleaner_point, offset)
