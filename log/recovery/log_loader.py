"""Opening a partition's log: what to believe after a clean stop, and what to look at after any other end.

After a clean stop the files are believed. Otherwise every batch from the recovery point on is read: the log ends
before the first one that is damaged, later segments go, indexes and producer state are made anew.

Source: ``LogLoader.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import CorruptFile, read_partition_metadata, write_partition_metadata
from ottla.log.file_names import (
    CLEANED_FILE_SUFFIX,
    DELETED_FILE_SUFFIX,
    INDEX_SUFFIXES,
    SWAP_FILE_SUFFIX,
    base_offsets_of,
    is_log_file,
    is_temporary_file,
    parse_segment_file,
)
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.producer_state_rebuild import RecoveryScan, rebuild_producer_state
from ottla.log.segment.indexes import rewrite_txn_index
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment, SegmentOffsetOverflow
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES
from ottla.wire.record_batch.legacy_records import MIN_MESSAGE_BYTES, parse_any_header

MAX_UNSYNCED_RECORDS = MAX_RELATIVE_OFFSET // 2
"""No segment holds so many records that are not synced. So wide a hole came from a leader, and made a new segment."""


def create_log(
    disk: Disk, directory: str, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int
) -> PartitionLog:
    """A new partition with its first, empty segment; what an earlier try left of it is taken over.

    Raises:
        FileExistsError: records lie there already, of whomever, and stay; OSError: the disk failed.
    """
    disk.makedirs(directory)
    for name in disk.list_files(directory):
        if is_log_file(name) and disk.stat(f"{directory}/{name}").size_bytes:
            raise FileExistsError(errno.EEXIST, "records lie where a new log was to be", f"{directory}/{name}")
    write_partition_metadata(disk, directory, topic_id, sync=True)
    log = PartitionLog(disk, directory, topic, partition, settings)
    log.topic_id = topic_id
    log.is_directory_unsynced = True
    log.create_first_segment(0, now_ms)
    log.epochs.save()
    log.sealed_end_offset = 0
    return log


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
    adjoin: bool = False,
    on_swaps: Callable[[int], None] = lambda below: None,
) -> PartitionLog:
    """A partition that was there before; ``compacted_below`` an offset its segments may have holes, None: nobody knows.

    With ``adjoin`` each segment begins where the one before ends all the same: in a copy, which is not compacted.
    ``on_swaps`` is told where there may be holes because an exchange of compacted segments is gone on with, before they
    take their names: another crash, and nothing else would tell.

    Raises:
        CorruptFile: ``partition.metadata`` is not readable; OSError: the disk failed.
    """
    log = PartitionLog(disk, directory, topic, partition, settings)
    log.topic_id = read_partition_metadata(disk, directory) or bytes(16)
    names, below = _finish_interrupted_changes(disk, directory, on_swaps)
    for base in base_offsets_of(names, ".log"):
        log.add_segment(LogSegment.load(disk, directory, base, settings))
    if not log.segments:
        log.create_first_segment(log_start_offset, now_ms)
    log.log_start_offset = max(log_start_offset, log.segments[0].base_offset)
    believed = recovery_point
    if log.epochs.is_corrupt and log.size_bytes:
        log.recovery_notes.append(f"{log.epochs.path} is damaged: every batch is read")
        clean, recovery_point = False, 0
    unreadable = _first_unreadable_txn_index(log, names)
    if unreadable is not None:
        recovery_point = unreadable if clean else min(recovery_point, unreadable)
        clean = False
    known = CheckpointState(believed, None if compacted_below is None else max(compacted_below, below), adjoin)
    seen = _load_cleanly_closed(log, known) if clean else _recover_segments(log, recovery_point, known)
    _reset_to_log_start(log, now_ms)
    log.recovery_point = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
    log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
    log.epochs.truncate_from_end(log.log_end_offset, save=False)  # the leader's epoch comes next: one write for both
    rebuild_producer_state(log, seen)
    for segment in log.segments:
        if seen is not None and segment.base_offset >= seen.first_base_offset:  # what else an older file says goes
            rewrite_txn_index(disk, f"{segment.path}.txnindex", segment.aborted_txns)
    log.sealed_end_offset = log.log_end_offset if clean else -1
    log.close_files()  # opened again when they are needed: most partitions of a large node are not
    if clean:
        log.epochs.is_file_unsynced = False
    else:
        log.directory_changes += 1
        log.is_directory_unsynced = True
    log.check_offset_order()
    return log


def _reset_to_log_start(log: PartitionLog, now_ms: int) -> None:
    """Where everything that was left lies below the log start the log begins anew there, as Kafka's does."""
    if log.log_end_offset < log.log_start_offset:
        log.remove_segments(0)
        log.create_first_segment(log.log_start_offset, now_ms)


def _finish_interrupted_changes(disk: Disk, directory: str, on_swaps: Callable[[int], None]) -> tuple[list[str], int]:
    """Finish what a crash left half done: the names that remain, and where the last segment begins before which offsets
    may be missing because of it.

    ``.deleted`` and ``.cleaned`` files go. A ``.swap`` segment is complete and stands for every segment within its
    range, some of which may be removed already: it takes their place. While there are ``.cleaned`` files of the same
    range the exchange had not begun, and its ``.swap`` files go too. (``LogLoader.removeTempFilesAndCollectSwapFiles``)
    """
    names = disk.list_files(directory)
    files = {name: file for name in names if (file := parse_segment_file(name)) is not None}
    unfinished = min((file.base_offset for file in files.values() if file.state == CLEANED_FILE_SUFFIX), default=None)
    swaps, ends = {}, [0]
    gone = False
    for name in names:
        file = files.get(name)
        is_swap = file is not None and file.state == SWAP_FILE_SUFFIX
        invalid = file is not None and is_swap and unfinished is not None and file.base_offset >= unfinished
        if (
            is_temporary_file(name)
            or invalid
            or (file is not None and file.state in (DELETED_FILE_SUFFIX, CLEANED_FILE_SUFFIX))
        ):
            disk.unlink(f"{directory}/{name}")
        elif file is not None and is_swap:
            swaps[name] = file
    for name, file in swaps.items():
        if file.kind == ".log":
            end = _segment_end_offset(disk, f"{directory}/{name}", file.base_offset)
            ends.append(end)
            for other in disk.list_files(directory):
                own = parse_segment_file(other)
                if own is not None and own.state != SWAP_FILE_SUFFIX and file.base_offset <= own.base_offset < end:
                    disk.unlink(f"{directory}/{other}")
                    gone = True
    if gone:
        disk.fsync_dir(directory)  # else one of them could come back behind the segment that stands for it
    below = _first_base_offset_from(disk.list_files(directory), max(ends)) if swaps else 0
    if below:
        on_swaps(below)
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix('.swap')}")
    if swaps:
        disk.fsync_dir(directory)  # else its old name could come back beside what the next compaction leaves half done
    names = disk.list_files(directory)
    logs = set(base_offsets_of(names, ".log"))
    for name in names:
        file = parse_segment_file(name)
        if file is not None and file.kind in INDEX_SUFFIXES and file.state == "" and file.base_offset not in logs:
            disk.unlink(f"{directory}/{name}")
    return disk.list_files(directory), below


def _first_base_offset_from(names: list[str], end: int) -> int:
    """Where the first segment at or behind an offset begins; 0 where there is none."""
    bases = [*base_offsets_of(names, ".log"), *base_offsets_of(names, ".log", SWAP_FILE_SUFFIX)]
    return min((base for base in bases if base >= end), default=0)


def _segment_end_offset(disk: Disk, path: str, base_offset: int) -> int:
    """The offset behind the last batch of a segment file; at least one, for the segment's own place."""
    file = disk.open(path, readonly=True)
    try:
        end, position, size = base_offset + 1, 0, file.size()
        while position + MIN_MESSAGE_BYTES <= size:
            header = parse_any_header(file.pread(HEADER_BYTES, position))
            end, position = max(end, header.next_offset), position + header.size_bytes
    except WireError:
        pass
    finally:
        file.close()
    return end


def _first_unreadable_txn_index(log: PartitionLog, names: list[str]) -> int | None:
    """Where the first transaction index lies that cannot be read: from there on the batches must tell it again."""
    for base in base_offsets_of(names, ".txnindex"):
        try:
            _ = log.segment_for(base).aborted_txns
        except CorruptFile as error:
            log.recovery_notes.append(str(error))
            return base
    return None


class CheckpointState(NamedTuple):
    """What is known of a log before it is read."""

    recovery_point: int
    """The one the next start finds, until the checkpoint is written anew."""
    compacted_below: int | None
    is_contiguous: bool

    def may_have_gap(self, log: PartitionLog, end: int, following: int) -> bool:
        """Whether the offsets between the end of a whole segment and the next one were compacted away.

        That is known before a compacted segment loses its ``.swap`` name, and a log begins a segment where it ends: so
        above it they are lost, also where a log is compacted. (Kafka's recovery does not look.)
        """
        if self.is_contiguous:
            return False
        if self.compacted_below is None:
            return log.config.compact
        return end < self.compacted_below or (log.config.compact and following - end > MAX_UNSYNCED_RECORDS)


def _load_cleanly_closed(log: PartitionLog, known: CheckpointState) -> RecoveryScan | None:
    """After a clean stop only the last batch of the last segment must be found; damage there means a scan after all."""
    segment = log.active_segment
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
        segment.bytes_since_index_entry = size
        log.log_end_offset = end
    except WireError:
        return _recover_segments(log, segment.base_offset, known)
    return None


def _recover_segments(log: PartitionLog, recovery_point: int, known: CheckpointState) -> RecoveryScan:
    """Read every batch of every segment that reaches above the recovery point; end the log before the first bad one."""
    at, first, producers = -1, None, False
    epoch = EpochProgress(-1, 0, -1, frozenset(e for e, _ in log.epochs.entries))
    while (at := at + 1) < len(log.segments):
        following = log.base_offsets[at + 1] if at + 1 < len(log.base_offsets) else None
        if following is not None and following <= recovery_point:
            if at + 2 == len(log.base_offsets) or log.base_offsets[at + 2] > recovery_point:
                _truncate_behind(log, log.segments[at], following)
            continue
        first = log.base_offsets[at] if first is None else first
        try:
            whole, with_producers, epoch = _recover_segment(log, log.segments[at], following, known, epoch)
            producers |= with_producers
            if not whole and log.log_end_offset <= known.recovery_point:
                log.segments[at].file.fsync()  # nobody looks here again, and a power cut may take an unsynced cut back
            if following is not None:
                log.segments[at].write_index_files()  # synced with its batches, and believed from then on
            log.segments[at].close()  # there may be more of them than descriptors
        except SegmentOffsetOverflow:
            from ottla.log.recovery.segment_split import split_overflowed_segment  # next to no log has such a segment

            log.recovery_notes.append(f"{log.segments[at].path}.log: split: its offsets reach too far to be indexed")
            log.replace_segments(at, 1, split_overflowed_segment(log.disk, log.directory, log.segments[at]))
            at -= 1  # the first part is looked at in its place
            continue
        # A power cut may take the end of one segment and leave the next: then what follows would stand behind a hole.
        end = log.log_end_offset
        if following not in (None, end) and not (whole and known.may_have_gap(log, end, following)):
            for later in log.segments[at + 1 :]:
                log.recovery_notes.append(
                    f"{later.path}.log: removed: the log ends at {log.log_end_offset}, before it begins"
                )
            log.remove_segments(at + 1)
            break
    if log.epochs.has_unsaved_entries:  # replacing a file takes milliseconds, and a broker has thousands of logs
        log.epochs.save()
    return RecoveryScan(log.log_end_offset if first is None else first, producers)


def _truncate_behind(log: PartitionLog, segment: LogSegment, following: int) -> None:
    """Cut what lies in a believed segment behind the batch the next one follows on: it was cut once, and not synced.

    Only batches behind its last index entry are looked at, and damage below the recovery point is none of our business.
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
        log.recovery_notes.append(
            f"{segment.path}.log: cut at {end}, {segment.size_bytes - end} bytes go: they were cut before"
        )
        segment.truncate(end)
        segment.file.fsync()
        segment.rebuild_indexes()
        segment.write_index_files()
    segment.close()


class EpochProgress(NamedTuple):
    """The leader epoch a scan has come to."""

    epoch: int
    batch_count: int
    """How many of it there were so far."""
    previous_epoch: int
    checkpointed_epochs: frozenset[int]
    """What the checkpoint said."""


def _advance_epoch(now: EpochProgress, found: int) -> EpochProgress:
    """Take a batch's leader epoch in. Epochs never go back.

    A batch of an older one was cut away once, and a power cut before a sync brought its bytes back behind what was
    written since. But the epoch lies outside the checksum: one batch alone, with an epoch the checkpoint does not know,
    between batches of the one before, is the one that lies.

    Raises:
        WireError: an epoch that is over.
    """
    if found < 0 or found == now.epoch:
        return now._replace(batch_count=now.batch_count + 1)
    if found > now.epoch:
        return now._replace(epoch=found, batch_count=1, previous_epoch=now.epoch)
    if now.batch_count > 1 or found != now.previous_epoch or now.epoch in now.checkpointed_epochs:
        raise WireError(f"leader epoch {found} after {now.epoch}")
    return now._replace(epoch=found, batch_count=1, previous_epoch=-1)


def _recover_segment(
    log: PartitionLog, segment: LogSegment, following: int | None, known: CheckpointState, epoch: EpochProgress
) -> tuple[bool, bool, EpochProgress]:
    """Rebuild one segment's indexes, cutting it at the first damage: (whether later segments stay, any producers, the
    leader epoch it ends in; ``epoch`` is the one before).

    A batch's base offset lies outside its checksum, so damage to it shows only in the order of offsets. The last
    segment was never compacted: above where compaction was its offsets must count up without a gap. In an older one a
    gap is suspect only if an offset from within it follows later, or damage follows at once: then the batch behind the
    gap is the one that lies.
    """
    segment.reset_indexes()
    segment.reset_txn_index()
    good, next_offset, last_at = 0, segment.base_offset, -1
    gap_at: tuple[int, int, int] | None = None
    """Where the last gap is: position of the batch behind it, the offset before, that batch's own."""
    whole, producers = True, False
    try:
        for position, header, _ in segment.scan():
            # An old compressed message says only its last offset; a compacted log may have holes anywhere.
            gap = header.base_offset > next_offset and header.magic >= 2
            beyond = following is not None and header.last_offset >= following
            may_have_holes = log.config.compact or header.base_offset <= (known.compacted_below or 0)
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
            log.epochs.assign_from_batch(header.partition_leader_epoch, header.base_offset)
            good, next_offset = position + header.size_bytes, header.next_offset
    except SegmentOffsetOverflow:
        raise
    except WireError as error:
        if gap_at is not None and last_at == gap_at[0] and good > last_at:
            good, next_offset, _ = gap_at
        log.recovery_notes.append(f"{segment.path}.log: cut at {good}, {segment.size_bytes - good} bytes go: {error}")
        segment.truncate(good)
        if gap_at is not None:
            segment.rebuild_indexes()
        whole = False
    log.log_end_offset = next_offset
    return whole, producers, epoch
