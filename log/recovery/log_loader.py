"""Creation and loading of a partition's log, with recovery after an unclean shutdown.

After a clean shutdown the files are trusted. Otherwise every batch from the recovery point on is read: the log is
truncated before the first damaged one, later segments are removed, indexes and producer state are rebuilt.

Source: ``LogLoader.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import CorruptFile, read_partition_metadata, write_partition_metadata
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.file_names import base_offsets_of, is_log_file
from ottla.log.log_config import LogConfig
from ottla.log.log_flush import FlushState
from ottla.log.partition_log import LoadedLogOffsets, PartitionLog
from ottla.log.producer_state_rebuild import RecoveryScan, rebuild_producer_state
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery.interrupted_changes import finish_interrupted_changes
from ottla.log.segment.indexes import rewrite_txn_index
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment, SegmentOffsetOverflow
from ottla.log.segment.log_segments import LogSegments
from ottla.wire.errors import WireError

MAX_UNSYNCED_RECORDS = MAX_RELATIVE_OFFSET // 2
"""Upper bound of unsynced records in a segment: a wider offset gap is a compacted one fetched from the leader."""


def create_log(
    disk: Disk, directory: str, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int
) -> PartitionLog:
    """Create a partition's directory, files and empty first segment at offset 0; return its log.

    Files without records that an earlier attempt left are reused. Only ``partition.metadata`` is synced. ``now_ms``:
    wall clock.

    Raises:
        FileExistsError: a segment with records exists in the directory, and is unchanged; OSError: the disk failed.
    """
    disk.makedirs(directory)
    for name in disk.list_files(directory):
        if is_log_file(name) and disk.stat(f"{directory}/{name}").size_bytes:
            raise FileExistsError(errno.EEXIST, "the directory of a new log already has records", f"{directory}/{name}")
    write_partition_metadata(disk, directory, topic_id, sync=True)
    epochs, segments = LeaderEpochFileCache(disk, directory), LogSegments(disk, directory, settings)
    segments.create(0, now_ms)
    epochs.save()
    flush_state = FlushState(0, 0, is_sealed=True, is_directory_unsynced=True)
    offsets = LoadedLogOffsets(0, 0, 0, 0)
    return PartitionLog(topic, partition, topic_id, segments, epochs, ProducerStateManager(), flush_state, offsets)


def open_log(
    disk: Disk,
    directory: str,
    topic: str,
    partition: int,
    settings: LogConfig,
    now_ms: int,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    compacted_below: int | None = None,
    is_contiguous: bool = False,
    on_swaps: Callable[[int], None] = lambda below: None,
) -> PartitionLog:
    """Load an existing partition's log from its files and return it; it is recovered unless ``clean`` and readable.

    Recovery reads every batch from the recovery point on and truncates the log before a damaged one.

    Args:
        disk: Disk with the files.
        directory: Path of the partition's directory.
        topic: Topic of the log.
        partition: Partition number.
        settings: Settings of the topic.
        now_ms: Wall clock.
        clean: True if the last shutdown was clean.
        recovery_point: Checkpointed recovery point.
        log_start_offset: Checkpointed log start offset.
        high_watermark: Checkpointed high watermark.
        compacted_below: Offset below which there may be gaps; None if unknown.
        is_contiguous: True if there are no gaps between segments (future logs, which are not compacted).
        on_swaps: Called with the offset below which there may be gaps, before an interrupted swap of compacted segments
            is completed, since it could not be determined after another crash.

    Raises:
        CorruptFile: ``partition.metadata`` is not readable; OSError: the disk failed.
    """
    epochs, segments = LeaderEpochFileCache(disk, directory), LogSegments(disk, directory, settings)
    topic_id = read_partition_metadata(disk, directory) or bytes(16)
    names, below = finish_interrupted_changes(disk, directory, on_swaps)
    known = CheckpointState(
        recovery_point, None if compacted_below is None else max(compacted_below, below), is_contiguous
    )
    loader = LogLoader(segments, epochs, known, names)
    offsets, point, producers = loader.load(now_ms, log_start_offset, high_watermark, clean=clean)
    clean = loader.is_clean
    segments.close()  # reopened on first use: most partitions of a large node are idle
    if clean:
        epochs.on_synced(epochs.write_count)
    else:
        segments.record_directory_change()
    flush_state = FlushState(point, offsets.log_end_offset, is_sealed=clean, is_directory_unsynced=not clean)
    log = PartitionLog(topic, partition, topic_id, segments, epochs, producers, flush_state, offsets, loader.notes)
    log.check_offset_order()
    return log


class CheckpointState(NamedTuple):
    """Checkpointed state of a log, by which recovery decides which batches to read and which gaps to accept."""

    recovery_point: int
    """Recovery point in the checkpoint file."""
    compacted_below: int | None
    """Offset below which there may be gaps, 0: none; None if unknown, without a readable cleaner checkpoint."""
    is_contiguous: bool

    def may_have_gap(self, end: int, following: int, *, is_compacted: bool) -> bool:
        """Return True if the offsets from a segment's ``end`` to the next one, ``following``, may be compacted away.

        ``is_compacted``: the topic is compacted. False: the gap is a loss. The cleaner offset is durable before a
        compacted segment loses its ``.swap`` suffix, and a new segment begins at the log end offset: so a gap above the
        cleaner offset is a loss, also in a compacted log. (Kafka does not check this.)
        """
        if self.is_contiguous:
            return False
        if self.compacted_below is None:
            return is_compacted
        return end < self.compacted_below or (is_compacted and following - end > MAX_UNSYNCED_RECORDS)


class EpochProgress(NamedTuple):
    """Leader epoch of the batches at the current position of a recovery scan; -1: none so far."""

    epoch: int
    batch_count: int
    """Number of consecutive batches with this epoch so far."""
    previous_epoch: int
    checkpointed_epochs: frozenset[int]
    """Epochs in ``leader-epoch-checkpoint``."""


def _advance_epoch(now: EpochProgress, found: int) -> EpochProgress:
    """Return the progress after a batch with leader epoch ``found``. Epochs never decrease within a log.

    A batch with an older epoch was truncated, and a power failure before a sync restored its bytes after newer batches.
    But the epoch is not covered by the checksum: if a single batch has an epoch that is not in the checkpoint, between
    batches of the previous epoch, then that batch's epoch is the damaged one, and the scan continues.

    Raises:
        WireError: the batch has an outdated epoch.
    """
    if found < 0 or found == now.epoch:
        return now._replace(batch_count=now.batch_count + 1)
    if found > now.epoch:
        return now._replace(epoch=found, batch_count=1, previous_epoch=now.epoch)
    if now.batch_count > 1 or found != now.previous_epoch or now.epoch in now.checkpointed_epochs:
        raise WireError(f"leader epoch {found} after {now.epoch}")
    return now._replace(epoch=found, batch_count=1, previous_epoch=-1)


class LogLoader:
    """Loader of one log: loads or recovers segments and leader epochs, and determines offsets and producer state."""

    def __init__(
        self, segments: LogSegments, epochs: LeaderEpochFileCache, checkpoint_state: CheckpointState, names: list[str]
    ) -> None:
        self.segments = segments
        self.epochs = epochs
        self._known = checkpoint_state
        self._names = names
        self.log_end_offset = 0
        self.is_clean = False
        """True if the files were trusted: at most a malformed last segment was recovered."""
        self.notes: list[str] = []
        """Messages of recovery about damage and removals."""

    def load(
        self, now_ms: int, log_start_offset: int, high_watermark: int, *, clean: bool
    ) -> tuple[LoadedLogOffsets, int, ProducerStateManager]:
        """Load the log, recovering it unless ``clean`` (the last shutdown was clean) and readable.

        ``now_ms``: wall clock.

        Returns:
            Offsets, recovery point and producer state.

        Raises:
            OSError: the disk failed.
        """
        segments, point = self.segments, self._known.recovery_point
        for base in base_offsets_of(self._names, ".log"):
            segments.add(LogSegment.load(segments.disk, segments.directory, base, segments.config))
        if not segments:
            segments.create(log_start_offset, now_ms)
            self.log_end_offset = log_start_offset
        start = max(log_start_offset, segments[0].base_offset)  # the local log start offset
        if self.epochs.is_corrupt and segments.size_bytes:
            self.notes.append(f"Corrupt leader epoch checkpoint {self.epochs.path}: recovering all segments")
            clean, point = False, 0
        unreadable = self._first_unreadable_txn_index()
        if unreadable is not None:
            point = unreadable if clean else min(point, unreadable)
            clean = False
        self.is_clean = clean
        seen = self._load_cleanly_closed(start) if clean else self._recover_segments(point, start)
        if self.log_end_offset < start:  # all remaining records are below the log start: restart there, as Kafka does
            segments.remove_from(0)
            segments.create(start, now_ms)
            self.log_end_offset = start
        end = self.log_end_offset
        # The records before the first segment are in the remote store, also without an entry in the checkpoint.
        log_start = min(log_start_offset, start) if segments.config.tiering.is_enabled else start
        offsets = LoadedLogOffsets(log_start, end, min(max(high_watermark, start), end), start)
        self.epochs.truncate_from_end(end, save=False)  # written with the next leader epoch
        producers = rebuild_producer_state(segments, start, end, self.notes, seen, has_remote_start=log_start < start)
        for segment in segments:
            if seen is not None and segment.base_offset >= seen.first_base_offset:  # removes outdated entries
                rewrite_txn_index(segments.disk, f"{segment.path}.txnindex", segment.aborted_txns)
        return offsets, end if clean else min(point, end), producers

    def _first_unreadable_txn_index(self) -> int | None:
        """Return the base offset of the first segment with a malformed transaction index, or None.

        Recovery must read from that offset on; a message is added to `notes`.
        """
        for base in base_offsets_of(self._names, ".txnindex"):
            try:
                _ = self.segments.segment_for(base).aborted_txns
            except CorruptFile as error:
                self.notes.append(
                    f"Found a corrupted index file, recovering its segment and rebuilding index files: {error}"
                )
                return base
        return None

    def _load_cleanly_closed(self, log_start: int) -> RecoveryScan | None:
        """Set the log end offset from the last segment's last batch, trusting the files; return None.

        If that segment is malformed it is recovered, and the scan is returned.
        """
        segment = self.segments.active
        try:
            start = segment.offset_index.positions[-1] if segment.offset_index.positions else 0
            end = segment.base_offset
            entries = segment.offset_index.offsets
            if entries:
                end = segment.base_offset + entries[-1] + 1
            size = 0
            for position, header, _ in segment.scan(start, check=False):
                end = header.next_offset
                size = size + header.size_bytes if position > start else header.size_bytes
            segment.resume_index(size)
            self.log_end_offset = end
        except WireError:
            return self._recover_segments(segment.base_offset, log_start)
        return None

    def _recover_segments(self, recovery_point: int, log_start: int) -> RecoveryScan:
        """Scan every segment that ends above the recovery point; truncate the log before the first damaged batch.

        Sets the log end offset and the leader epochs. Segments after the damage or after a gap that was not compacted
        are deleted. Segments below the log start need not be contiguous: a power cut may restore some deleted segments
        and not their neighbours.
        """
        at, first, producers = -1, None, False
        epoch = no_epoch = EpochProgress(-1, 0, -1, frozenset(e for e, _ in self.epochs.entries))
        while (at := at + 1) < len(self.segments):
            following = self.segments.base_offsets[at + 1] if at + 1 < len(self.segments.base_offsets) else None
            if following is not None and following <= recovery_point:
                if at + 2 == len(self.segments.base_offsets) or self.segments.base_offsets[at + 2] > recovery_point:
                    self._truncate_behind(self.segments[at], following)
                continue
            first = self.segments.base_offsets[at] if first is None else first
            try:
                whole, with_producers, epoch = self._recover_segment(self.segments[at], following, epoch)
                producers |= with_producers
                if not whole and self.log_end_offset <= self._known.recovery_point:
                    # A later start does not scan this segment, and a power failure could undo an unsynced truncation.
                    self.segments[at].file.fsync()
                if following is not None:
                    self.segments[at].write_index_files()  # synced with its batches, and trusted by later starts
                self.segments[at].close()  # there may be more segments than descriptors
            except SegmentOffsetOverflow:
                # lazy: 4.3 ms, 142 kB: hardly any log has such a segment
                from ottla.log.recovery.segment_split import split_overflowed_segment

                self.notes.append(f"Split segment {self.segments[at].path}.log: segment overflow of its offsets")
                self.segments.replace(
                    at, 1, split_overflowed_segment(self.segments.disk, self.segments.directory, self.segments[at])
                )
                at -= 1  # continue with the first part
                continue
            if following is not None and following <= log_start:
                epoch = no_epoch
                continue
            # A power failure may lose the end of one segment but not the next, which then begins after a gap.
            end = self.log_end_offset
            if following not in (None, end) and not (
                whole and self._known.may_have_gap(end, following, is_compacted=self.segments.config.compact)
            ):
                for later in self.segments[at + 1 :]:
                    self.notes.append(
                        f"Deleting segment as part of log recovery: {later.path}.log, gap at {self.log_end_offset}"
                    )
                self.segments.remove_from(at + 1)
                break
        if self.epochs.has_unsaved_entries:  # replacing a file takes milliseconds, and a broker has thousands of logs
            self.epochs.save()
        return RecoveryScan(self.log_end_offset if first is None else first, producers)

    def _truncate_behind(self, segment: LogSegment, following: int) -> None:
        """Truncate a segment below the recovery point where the next one begins: an earlier truncation was not synced.

        Only batches after its last index entry are read; damage below the recovery point is ignored.
        """
        end = segment.size_bytes
        try:
            for position, header, _ in segment.scan(segment.offset_index.lookup(following - 1), check=False):
                if header.next_offset >= following:
                    end = position + header.size_bytes if header.next_offset == following else end
                    break
        except WireError:
            pass
        if end < segment.size_bytes:
            self.notes.append(
                f"Truncating segment {segment.path}.log at byte {end} again: {segment.size_bytes - end} bytes removed"
            )
            segment.truncate(end)
            segment.file.fsync()
            segment.rebuild_indexes()
            segment.write_index_files()
        segment.close()

    def _recover_segment(
        self, segment: LogSegment, following: int | None, epoch: EpochProgress
    ) -> tuple[bool, bool, EpochProgress]:
        """Rebuild one segment's indexes from its batches and truncate it at the first damaged batch.

        ``following`` is the next segment's base offset, None for the last segment; ``epoch`` the progress at its start.

        Returns:
            True if the segment is undamaged, True if a batch has a producer id, and the epoch progress at its end.

        The checksum does not cover the base offset, so damage to it shows only in the order of offsets. The last
        segment was never compacted: above the cleaner offset it must have no gap. In an older segment a gap is suspect
        only if an offset within it follows later, or damage follows at once: then the batch after the gap is the
        damaged one.
        """
        segment.reset_indexes()
        segment.reset_txn_index()
        good, next_offset, last_at = 0, segment.base_offset, -1
        gap_at: tuple[int, int, int] | None = None
        """Last gap: position of the batch after it, first missing offset, base offset of that batch."""
        whole, producers = True, False
        try:
            for position, header, _ in segment.scan():
                # a legacy compressed message has only its last offset; a compacted log may have gaps anywhere
                gap = header.base_offset > next_offset and header.magic >= 2
                beyond = following is not None and header.last_offset >= following
                may_have_holes = self.segments.config.compact or header.base_offset <= (
                    self._known.compacted_below or 0
                )
                suspect = gap and following is None and not may_have_holes
                if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET and not (beyond or suspect):
                    raise SegmentOffsetOverflow(f"{segment.path}.log: offset {header.last_offset}")
                if header.base_offset < next_offset or beyond or suspect:
                    if gap_at is not None and gap_at[1] <= header.base_offset < gap_at[2]:
                        good, next_offset, _ = gap_at
                    raise WireError(f"offset {header.base_offset} after {next_offset}")
                epoch = _advance_epoch(epoch, header.partition_leader_epoch)
                if gap:
                    gap_at = (position, next_offset, header.base_offset)
                last_at = position
                segment.index_batch(header, position)
                producers |= header.producer_id >= 0
                self.epochs.assign_from_batch(header.partition_leader_epoch, header.base_offset)
                good, next_offset = position + header.size_bytes, header.next_offset
        except SegmentOffsetOverflow:
            raise
        except WireError as error:
            if gap_at is not None and last_at == gap_at[0] and good > last_at:
                good, next_offset, _ = gap_at
            removed = segment.size_bytes - good
            found = f"Corruption found in segment {segment.path}.log, truncating to offset {next_offset}"
            self.notes.append(f"{found}, byte {good} ({removed} bytes removed): {error}")
            segment.truncate(good)
            if gap_at is not None:
                segment.rebuild_indexes()
            whole = False
        self.log_end_offset = next_offset
        return whole, producers, epoch
