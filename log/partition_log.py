"""Log of one partition: appends, reads, truncation, flushes, log start offset, high watermark and log end offset.

`PartitionLog` is composed of objects that each own a part of its state: segments and their files (`LogSegments`),
leader epochs (`LeaderEpochFileCache`), producers (`ProducerStateManager`) and durability (`FlushState`).
`recovery.log_loader` opens and creates logs.

Source: ``UnifiedLog.java``, ``LocalLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ottla.env.disk import FileSlice
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.file_names import FUTURE_DIR_SUFFIX, SWAP_FILE_SUFFIX, parse_segment_file
from ottla.log.log_append import FollowerAppendInfo, LogAppendInfo, check_leader_batches, validate_client_batch
from ottla.log.log_config import LogConfig
from ottla.log.log_flush import FlushState, LogFlush
from ottla.log.log_validator import (
    AppendOrigin,
    ValidatedBatch,
    check_crc,
    check_size,
    parse_single_batch,
)
from ottla.log.producer_state_rebuild import list_snapshot_files, producer_state_below_job, rebuild_producer_state
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.producers.transaction_verification import NO_TXN_CONTEXT, TxnAppendContext
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.log.segment.log_segments import LogSegments
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import (
    CONTROL_BIT,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    set_offset_and_epoch,
)
from ottla.wire.record_batch.control_record import ControlRecordType, iterate_end_markers

_CLIENT = AppendOrigin.CLIENT
_TXN_BITS = TRANSACTIONAL_BIT | CONTROL_BIT
MAX_UNSYNCED_SNAPSHOT_LOG_BYTES = 1 << 20
"""Size of a log up to which replaying its batches at the next start takes less time than a sync of its snapshot."""


class LoadedLogOffsets(NamedTuple):
    """Initial offsets of a log that is opened: those found by the load of its files, or those of a new log."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    local_log_start_offset: int


class RemoteLogAuxState(NamedTuple):
    """State below the first local segment of a log that begins in the remote store (KIP-405), for a new follower."""

    log_start_offset: int
    epochs: list[tuple[int, int]]
    """Leader epochs with their start offsets, ascending."""
    producers: ProducerStateManager


class PartitionLog:
    """Log of a partition. Not thread-safe: an open log is used on the event loop; a thread runs `LogFlush` or `close`.

    ``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset``: first retained offset, first offset
    hidden from read_committed readers, first uncommitted offset, next offset to write. ``local_log_start_offset`` is
    the first offset of the local segments; it is above the log start offset only with tiered storage (KIP-405).
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        segments: LogSegments,
        epochs: LeaderEpochFileCache,
        producers: ProducerStateManager,
        flush_state: FlushState,
        offsets: LoadedLogOffsets,
        recovery_notes: Iterable[str] = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.label = f"{topic}-{partition}"
        self.topic_id = topic_id
        self.disk = segments.disk
        self.config = segments.config
        self.segments = segments
        self.epochs = epochs
        self.producers = producers
        self.flush_state = flush_state
        self.log_start_offset, self.log_end_offset, self.high_watermark, self.local_log_start_offset = offsets
        epochs.declare_only_copy(is_only_copy=self.has_remote_start)
        if self.has_remote_start and epochs.write_count:  # an earlier process synced what recovery has not written
            epochs.set_only_copy()
        self.highest_remote_offset = -1
        """Last offset (inclusive) up to which all records are in the remote store, as far as is known; -1: none."""
        self.cleaner_offset = 0
        """Offset below which the log has been compacted."""
        self.truncations = 0
        """Number of truncations; jobs and flushes compare it to detect that their results are outdated."""
        self.closed = False
        self.closed_cleanly = False
        """True if the log was closed without an error, so that the clean shutdown file may be written."""
        self.recovery_notes = list(recovery_notes)
        """Messages about damage and removals found by recovery and truncation."""
        self.has_future_log = False
        """True while a future log copies this log (AlterReplicaLogDirs): this log is not compacted meanwhile."""
        self.is_being_replaced = False
        """True shortly before the future log replaces this log: no flush of this log is started any more."""
        self._warned_of_future_timestamp = False
        self._lower_checkpoints: Callable[[int], None] | None = None

    @property
    def directory(self) -> str:
        """Path of the partition's directory, without a trailing slash."""
        return self.segments.directory

    @property
    def is_future(self) -> bool:
        """True if this is a future log (AlterReplicaLogDirs), which serves no reads yet."""
        return self.segments.directory.endswith(FUTURE_DIR_SUFFIX)

    @property
    def has_remote_start(self) -> bool:
        """True if the log starts below its local segments, in the remote store."""
        return self.log_start_offset < self.local_log_start_offset

    @property
    def recovery_point(self) -> int:
        """Offset below which all records are durable."""
        return self.flush_state.recovery_point

    @property
    def unflushed_records(self) -> int:
        """Number of offsets appended since the last flush of the whole log started (``LocalLog.unflushedMessages``)."""
        return self.log_end_offset - self.flush_state.flush_start_offset

    @property
    def size_bytes(self) -> int:
        """Size in bytes of all segments."""
        return self.segments.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """Offset below which read_committed consumers may read: start of the oldest open transaction or high watermark.

        Never below the log start offset, since records of an open transaction may be deleted.
        """
        producers = self.producers
        if not (producers.ongoing_txns or producers.completed_txns):
            return self.high_watermark
        unstable = producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def check_offset_order(self) -> None:
        """Assert log start <= last stable offset <= high watermark <= log end, log start <= local start <= log end."""
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset, self.describe()
        assert self.log_start_offset <= self.local_log_start_offset <= self.log_end_offset, self.describe()
        producers = self.producers
        if producers.ongoing_txns or producers.completed_txns:
            assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark, self.describe()

    def describe(self) -> str:
        """Return the name and the offsets of the log, for messages."""
        return (
            f"{self.topic}-{self.partition}: start {self.log_start_offset}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}"
        )

    # ------------------------------------------------------------------ state that others set

    def update_config(self, settings: LogConfig) -> None:
        """Apply changed topic settings from the next append on."""
        self.config = settings
        self.segments.update_config(settings)

    def set_directory(self, directory: str) -> None:
        """Set the path of the partition's directory after it was renamed; open files stay open."""
        self.segments.set_directory(directory)
        self.epochs.set_directory(directory)

    def set_checkpoints(self, lower_checkpoints: Callable[[int], None]) -> None:
        """Set the callback that each truncation calls with its offset, before files are removed.

        It lowers the log's entries in the checkpoint files of the log directory.
        """
        self._lower_checkpoints = lower_checkpoints

    def set_has_future_log(self, *, begins: bool) -> None:
        """Record that a future log (AlterReplicaLogDirs) of this log was created (``begins``) or removed."""
        self.has_future_log = begins

    def set_being_replaced(self, *, begins: bool) -> None:
        """Record that the future log is about to replace this log (``begins``), or that this was cancelled."""
        self.is_being_replaced = begins

    def set_offline(self) -> None:
        """Mark the log closed, not cleanly: no append, flush or clean close follows.

        Its files stay open and unchanged.
        """
        self.closed = True
        self._lower_checkpoints = None  # breaks a reference cycle: full garbage collections are rare

    def warns_of_future_timestamp(self) -> bool:
        """Return True on the first call only, so that timestamps in the future are logged once for each log."""
        is_first, self._warned_of_future_timestamp = not self._warned_of_future_timestamp, True
        return is_first

    def inherit_from(self, current: PartitionLog) -> None:
        """Take over the producer state of ``current``, which this caught-up future log replaces as the partition's log.

        Both share it: ``current`` must not be used any more. This log's own state would not do: batches may be deleted
        from the log already, and transaction verifications may be pending in ``current``.
        """
        self.producers = current.producers
        self._warned_of_future_timestamp = current._warned_of_future_timestamp
        self.check_offset_order()

    def raise_cleaner_offset(self, offset: int) -> None:
        """Record that the log is compacted below ``offset``, by this node or by the leader it was fetched from."""
        self.cleaner_offset = max(self.cleaner_offset, offset)

    def assign_epoch_start_offset(self, epoch: int) -> None:
        """Assign the log end offset as start offset of leader epoch ``epoch``, in memory.

        The first append of the epoch writes the checkpoint file.
        """
        self.epochs.assign(epoch, self.log_end_offset, save=False)

    # ------------------------------------------------------------------ appends

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
        """Append one batch as leader: check it, set its base offset and leader epoch in place, and write it.

        It is neither flushed, nor is the high watermark advanced. A batch that a producer sent before is not written
        again (``duplicate`` in the result).

        Args:
            data: Batch, which is changed in place.
            leader_epoch: Leader epoch of this broker.
            now_ms: Wall clock.
            origin: CLIENT for full validation.
            header: Result of `parse_single_batch`; None to parse it here.
            checked: Result of `validate_records`: the records are not validated again unless the settings changed.
            at_once: False if the caller handles ValidationPending.
            txn: Transaction to which the batch belongs or which it ends.

        Raises:
            ValidationPending: ``at_once`` is False, and many records need validation; the log is unchanged.
            ProtocolError: the batch is rejected; the log is unchanged.
            OSError: the disk failed; no byte of the batch is left in the segment.
        """
        if header is None:
            header = parse_single_batch(data)
        settings = self.config
        append_time = -1
        if origin is _CLIENT:
            data, header = validate_client_batch(data, header, settings, now_ms, self.label, checked, at_once=at_once)
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
                known = self.producers.check_transactional_batch(data, header, txn, client=origin is _CLIENT)
            else:
                known = self.producers.check_batch(header)
            if known is not None:
                return LogAppendInfo(known.first_offset, known.last_offset, known.timestamp_ms, duplicate=True)
        base = self.log_end_offset
        set_offset_and_epoch(data, 0, base, leader_epoch)
        self._append_batch(data, header, base, leader_epoch, now_ms)
        return LogAppendInfo(base, base + header.last_offset_delta, append_time)

    def append_as_follower(self, raw: Buffer, now_ms: int) -> FollowerAppendInfo | None:
        """Append batches fetched from the leader with their offsets and epochs; skip an incomplete batch at the end.

        The first batch must begin at or above the log end offset (above: the leader's log is compacted), and each
        further batch above the previous one. The high watermark is unchanged. ``now_ms``: wall clock, for rolls.

        Returns:
            First and last offset; None if there is no complete batch.

        Raises:
            ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE: the log is unchanged.
            OSError: the disk failed; the batches before the failed one are in the log.
        """
        view = memoryview(raw)
        batches = check_leader_batches(view, self.log_end_offset, self.describe())
        for at, header in batches:
            base = header.base_offset
            if base > self.log_end_offset and not self.config.compact:
                self.raise_cleaner_offset(base)
            self._append_batch(view[at : at + header.size_bytes], header, base, header.partition_leader_epoch, now_ms)
        return FollowerAppendInfo(batches[0][1].base_offset, self.log_end_offset - 1) if batches else None

    def _append_batch(self, data: Buffer, header: BatchHeader, base: int, leader_epoch: int, now_ms: int) -> None:
        """Write a checked batch at offset ``base`` and advance the log end offset; update epochs and producers.

        The log is rolled before, if required. The leader epoch and an entry of the transaction index precede the batch.
        ``now_ms``: wall clock.

        Raises:
            OSError: the batch is not in the log. An error of the disk is final.
        """
        last = base + header.last_offset_delta
        active = self.segments.active
        if active.should_roll(now_ms, len(data), header.max_timestamp, last):
            active = self.roll(now_ms, base if last - active.base_offset > MAX_RELATIVE_OFFSET else None)
        self.epochs.assign(leader_epoch, base)
        producers = self.producers
        if header.producer_id >= 0 and header.is_control:
            self._write_marker(active, data, header, base)
        else:
            active.append(data, last, header.max_timestamp)
            if header.producer_id >= 0:
                producers.update(header, base)
        if producers.verification_states and header.is_transactional:
            producers.clear_verification(header)
        self.log_end_offset = last + 1
        assert self.high_watermark <= base, self.describe()

    def _write_marker(self, active: LogSegment, data: Buffer, header: BatchHeader, base: int) -> None:
        ends = list(iterate_end_markers(header, data))
        aborted = self.producers.aborted_txn(header.producer_id, base)
        is_indexed = aborted is not None and any(end.control_type == ControlRecordType.ABORT for end in ends)
        if aborted is not None and is_indexed:
            _ = active.file  # opened now: after the index entry is written, opening must not fail
            self.segments.add_aborted_txn(aborted, is_new=True)
        try:
            active.append(data, base + header.last_offset_delta, header.max_timestamp)
        except OSError as error:
            if is_indexed:  # index entry without its marker: only recovery can repair it
                self.set_offline()
                raise OSError(errno.EIO, f"{self.describe()}: writing a transaction marker failed: {error}") from error
            raise
        for end in ends:
            self.producers.end_transaction(header, base, end.control_type, end.coordinator_epoch)

    def roll(self, now_ms: int, base_offset: int | None = None) -> LogSegment:
        """Roll to a new active segment at the log end offset, or at ``base_offset`` above it; return it.

        Writes the index files of the old segment and a producer snapshot, unsynced, so the recovery point is lowered to
        the old segment's base offset. ``now_ms``: wall clock.

        Raises:
            OSError: the old segment stays active.
        """
        base = self.log_end_offset if base_offset is None else base_offset
        old = self.segments.active
        old.write_index_files()
        self.producers.write_snapshot(self.disk, self.directory, base)
        segment = self.segments.roll(base, now_ms)
        self.flush_state.lower(old.base_offset)  # its index files are not synced
        return segment

    def roll_past_gap(self, offset: int, now_ms: int) -> None:
        """Advance the log end offset to ``offset`` by rolling an empty segment: the records below were compacted away.

        ``now_ms``: wall clock.

        Raises:
            OSError: the log end offset is unchanged.
        """
        assert offset > self.log_end_offset, self.describe()
        self.raise_cleaner_offset(offset)
        self.roll(now_ms, offset)
        self.log_end_offset = offset

    # ------------------------------------------------------------------ offsets

    def set_high_watermark(self, offset: int) -> bool:
        """Advance the high watermark to ``offset``, at most to the log end offset; return True if it advanced."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.ongoing_txns:
            self.check_offset_order()
        return True

    def follow_high_watermark(self, offset: int) -> bool:
        """Set the high watermark to the leader's, within this log's offsets, also downwards; return True if it changed.

        A new leader may have a lower high watermark than the previous leader; all committed records are in its log.
        """
        offset = max(min(offset, self.log_end_offset), self.log_start_offset)
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.check_offset_order()
        return True

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Advance the log start offset to ``offset``, at most to the high watermark; return True if it advanced.

        Leader epochs below are removed, segments are not: the caller writes the checkpoint, then deletes segments.

        Raises:
            OSError: the epoch file could not be written; the log start offset is unchanged.
        """
        offset = min(offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.check_offset_order()
        return True

    def maybe_increment_local_log_start_offset(self, offset: int) -> bool:
        """Advance only the local log start offset, as the records below are in the remote store; return True if it did.

        The caller deletes the segments.

        Raises:
            OSError: the epoch file could not be written; the local log start offset is unchanged.
        """
        if offset <= self.local_log_start_offset:
            return False
        assert self.config.tiering.is_enabled, self.describe()
        assert offset <= self.highest_remote_offset + 1, self.describe()
        assert offset <= self.high_watermark, self.describe()
        self.epochs.set_only_copy()
        self.local_log_start_offset = offset
        return True

    def raise_highest_remote_offset(self, offset: int) -> None:
        """Record that all records up to ``offset`` (inclusive) are in the remote store, with committed metadata."""
        self.highest_remote_offset = max(self.highest_remote_offset, offset)

    def forget_remote_records(self) -> None:
        """Record that no records are in the remote store: tiered storage of the topic ended, or begins again."""
        self.highest_remote_offset = -1

    def delete_segments_below_start(self, now_ms: int) -> None:
        """Remove the segments that end at or below the local log start offset; rename their files to ``.deleted``.

        The active segment stays. The files are unlinked later. ``now_ms``: wall clock.
        """
        for _ in self.delete_segments_below_start_job(now_ms):
            pass

    def delete_segments_below_start_job(self, now_ms: int) -> Iterator[None]:
        """Remove the segments that end at or below the local log start offset, as a job that ends if the log is closed.

        It yields after each segment; its files are renamed to ``.deleted``. ``now_ms``: wall clock.
        """
        while not self.closed and self.segments.retire_oldest_below(self.local_log_start_offset, now_ms):
            yield

    # ------------------------------------------------------------------ reads

    def check_readable(self, offset: int) -> None:
        """Check that the record of ``offset`` is in the local segments, or the next one to be written.

        Raises:
            ProtocolError: OFFSET_MOVED_TO_TIERED_STORAGE from the log start to the local log start offset, else
            OFFSET_OUT_OF_RANGE.
        """
        if self.log_start_offset <= offset < self.local_log_start_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"offset {offset} is below the local log start offset {self.local_log_start_offset}",
            )
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool) -> FileSlice | None:
        """Return the range of a segment's file from the batch that contains ``offset`` up to ``upper_offset``.

        The batch of ``upper_offset`` is not in it. The range begins with a whole batch; a later batch may be cut off at
        ``max_bytes``. A first batch larger than ``max_bytes`` is returned whole with ``at_least_one``, and without it
        the result is None: consumers fail on a response that contains no complete batch. None as well if
        there are no batches below ``upper_offset``.

        Source: ``LogSegment.read``, ``ReplicaManager.readFromLog`` (``minOneMessage``, ``firstEntryIncomplete``).

        Raises:
            ProtocolError: as `check_readable`; CORRUPT_MESSAGE for a damaged batch; UNKNOWN_SERVER_ERROR for a negative
            ``max_bytes``, as in Kafka.
        """
        if not self.local_log_start_offset <= offset <= self.log_end_offset:
            self.check_readable(offset)
        if offset >= upper_offset:
            return None
        is_bounded = upper_offset < self.log_end_offset
        return self.segments.read(offset, max_bytes, upper_offset, is_bounded=is_bounded, at_least_one=at_least_one)

    def bytes_between(self, offset: int, upper_offset: int) -> int | None:
        """Return the size in bytes from the batch that contains ``offset`` up to ``upper_offset``, for a delayed fetch.

        0 if there are none, or if ``offset`` is below the local log start offset. None if ``upper_offset`` lies in a
        later segment, or if a batch cannot be read: the fetch is completed then.

        Source: ``LogOffsetMetadata.onOlderSegment``, ``LogOffsetMetadata.positionDiff``.
        """
        if offset >= upper_offset or offset < self.local_log_start_offset:
            return 0
        return self.segments.bytes_between(offset, None if upper_offset >= self.log_end_offset else upper_offset)

    def aborted_txns_in_slice(self, part: FileSlice, offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions in ``part``, the result of `read` at ``offset``, for a Fetch response."""
        return self.segments.aborted_txns_in_slice(part, offset, self.log_end_offset)

    def producer_state_below_job(self, offset: int) -> Generator[None, None, ProducerStateManager | None]:
        """Return the producer state as of ``offset`` for a later `truncate_to`, as a job that yields between batches.

        None if the log cannot be read or has changed meanwhile: the truncation then replays the batches itself.
        """
        before = [self.truncations, self.log_end_offset, self.local_log_start_offset, *self.segments]
        states = yield from producer_state_below_job(
            self.segments, self.local_log_start_offset, offset, has_remote_start=self.has_remote_start
        )
        after = [self.truncations, self.log_end_offset, self.local_log_start_offset, *self.segments]
        return states if after == before else None

    # ------------------------------------------------------------------ truncation

    def truncate_to(self, offset: int, now_ms: int, producers: ProducerStateManager | None = None) -> int:
        """Remove every batch whose last offset is at or above ``offset``; return the log end offset.

        High watermark, log start offset and the other offsets are lowered with it. ``offset`` below the first segment
        empties the log, which starts there. A crash at any point leaves a log that recovery reads correctly: first the
        recovery point is lowered, in its file too; then files are removed, the newest first. A batch that contains
        ``offset`` is removed as a whole. ``producers`` is the result of `producer_state_below_job`; None replays all
        batches since the last roll, if there may be producers. Pending verifications are cleared. ``now_ms``: wall
        clock.

        Raises:
            OSError: the log is either unchanged or offline (`set_offline`).
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(offset)
            return self.log_end_offset
        if offset < self.segments.base_offsets[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return offset
        self._prepare_truncation(offset)
        with self.offline_on_error("truncation failed"):
            self.log_end_offset, damage = self.segments.truncate_to(offset)
            if damage is not None:
                self.recovery_notes.append(damage)
            end = self.log_end_offset
            self.flush_state.on_truncated(end)
            self.high_watermark = min(self.high_watermark, end)
            self.log_start_offset = min(self.log_start_offset, end)
            self.local_log_start_offset = min(self.local_log_start_offset, end)
            self.highest_remote_offset = min(self.highest_remote_offset, end - 1)
            self.cleaner_offset = min(self.cleaner_offset, end)
            self.epochs.truncate_from_end(end)
            if producers is None and not self.producers.producers and self.producers.last_txn_end_offset < end:
                producers = self.producers
            self.producers = rebuild_producer_state(
                self.segments,
                self.local_log_start_offset,
                end,
                self.recovery_notes,
                restored=producers,
                has_remote_start=self.has_remote_start,
            )
            self.producers.verification_states.clear()
        self.check_offset_order()
        return end

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, aux: RemoteLogAuxState | None = None) -> None:
        """Remove all batches; log start offset, high watermark and log end offset become ``offset``.

        With ``aux`` the records below ``offset`` are in the remote store: the log start offset is the given one, and
        leader epochs and producers are restored. The epochs are synced before the new segment exists, as no batch has
        them, and remote records cannot be found without them. ``now_ms``: wall clock.

        Raises:
            OSError: the log is either unchanged or offline (`set_offline`).
        """
        assert offset >= 0
        assert aux is None or aux.log_start_offset <= offset, self.describe()
        self._prepare_truncation(offset)
        with self.offline_on_error("truncation failed"):
            self.segments.remove_from(0)
            for name in list_snapshot_files(self.disk, self.directory):
                self.disk.unlink(f"{self.directory}/{name}")
            self.producers = ProducerStateManager() if aux is None else aux.producers
            if aux is not None:
                self.producers.write_snapshot(self.disk, self.directory, offset)
            self.epochs.declare_only_copy(is_only_copy=aux is not None)
            self.epochs.replace([] if aux is None else aux.epochs, sync=aux is not None)
            self.segments.create(offset, now_ms)
            self.log_end_offset = self.log_start_offset = self.high_watermark = self.cleaner_offset = offset
            self.local_log_start_offset, self.highest_remote_offset = offset, -1
            if aux is not None:
                self.log_start_offset, self.highest_remote_offset = aux.log_start_offset, offset - 1
        self.check_offset_order()

    def _prepare_truncation(self, offset: int) -> None:
        """Lower recovery point, log start and checkpoints to ``offset``, else recovery would trust later appends.

        The truncation is counted, and files of an interrupted segment swap are removed.
        """
        self.flush_state.lower(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.local_log_start_offset = min(self.local_log_start_offset, offset)
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)
        self.cleaner_offset = min(self.cleaner_offset, offset)
        if self._lower_checkpoints is not None:
            self._lower_checkpoints(offset)
        self.flush_state.on_truncated(offset)
        self.truncations += 1
        # A segment swap may be in progress: recovery after a crash would restore the batches removed now.
        for name in self.disk.list_files(self.directory):
            file = parse_segment_file(name)
            if file is not None and file.state == SWAP_FILE_SUFFIX:
                self.disk.unlink(f"{self.directory}/{name}")

    @contextmanager
    def offline_on_error(self, problem: str) -> Iterator[None]:
        """Context manager: take the log offline if the body raises OSError or CorruptFile, in the midst of a change.

        Raises:
            OSError: EIO, with ``problem`` in the message.
        """
        try:
            yield
        except (OSError, CorruptFile) as error:
            self.set_offline()
            raise OSError(errno.EIO, f"{self.describe()}: {problem}: {error}") from error

    # ------------------------------------------------------------------ flush and close

    @property
    def is_idle(self) -> bool:
        """True if the log has unflushed records and was not used since the last `close_idle_files`."""
        return self.log_end_offset > self.recovery_point and not self.segments.active.used_since_idle_check

    def close_idle_files(self) -> None:
        """Close segment files not used since the previous call, without unsynced records; the next use opens them."""
        self.segments.close_idle_files(self.recovery_point, self.log_end_offset)

    def start_flush(self, end: int, more: Iterable[str] = ()) -> LogFlush:
        """Return the flush of all records below ``end``, not started: run it in a thread, then call `complete_flush`.

        ``more`` are paths of other files to sync.

        Raises:
            OSError: a file cannot be opened.
        """
        flush = LogFlush(self.segments, self.epochs, self.flush_state, end, self.truncations, lambda: self.closed, more)
        if end >= self.log_end_offset:
            self.flush_state.on_flush_started(self.log_end_offset)
        return flush

    def complete_flush(self, flush: LogFlush) -> int:
        """Apply the result of a flush that a thread has run: raise the recovery point, which is returned."""
        self.epochs.on_synced(flush.epoch_file_writes)
        return self.flush_state.on_flushed(flush, self.truncations, self.segments.active.base_offset)

    def flush(self, more: Iterable[str] = ()) -> None:
        """Flush all appended batches, waiting for the disk; no effect if all is durable.

        ``more``: further files to sync with it; not synced if all is durable.

        Raises:
            OSError: the log directory must go offline.
        """
        is_epoch_file_needed = self.epochs.is_file_unsynced and self.log_end_offset > self.log_start_offset
        if is_epoch_file_needed or self.flush_state.is_flush_needed(self.log_end_offset, self.segments):
            flush = self.start_flush(self.log_end_offset, more)
            flush()
            self.complete_flush(flush)

    def close(self) -> None:
        """Write the state of a clean shutdown, flush the log (waiting for the disk), and close its files.

        An unchanged log needs no write, and a log that never had a record no sync: the next start creates it again.

        Raises:
            OSError: the log is closed, but not cleanly.
        """
        if self.closed:
            return
        self.closed = True
        if self.log_end_offset > 0:
            self._write_closing_files()
        self.flush_state.on_sealed(self.log_end_offset)
        self.closed_cleanly = True
        self.segments.close()

    def _write_closing_files(self) -> None:
        paths: list[str] = []
        is_changed = self.flush_state.sealed_end_offset != self.log_end_offset
        if is_changed:
            path = self.producers.write_snapshot(self.disk, self.directory, self.log_end_offset)
            if self.producers.producers or self.size_bytes > MAX_UNSYNCED_SNAPSHOT_LOG_BYTES:
                paths.append(path)  # if unsynced it may be torn, which its checksum shows: cheap for a small log
        if is_changed and self.truncations:
            paths.append(f"{self.segments.active.path}.log")  # all of its batches may be synced, but not the truncation
        paths += self.segments.write_stale_indexes(is_active_changed=is_changed)
        if is_changed or paths:
            self.segments.record_directory_change()
        self.flush(paths)

    def close_files(self) -> None:
        """Close the segment files without a flush; for a log that is offline or deleted."""
        self.segments.close()
