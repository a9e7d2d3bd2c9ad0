"""What a partition's log is made of: its segments, its offsets, its epochs, its producers.

Offsets: ``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`` (first that is kept, first a
read_committed reader may not see yet, first that is not yet committed, next to be written). Nobody outside ``log/``
assigns any attribute: whoever wants a change calls a method of `PartitionLog`.

Source: ``UnifiedLog.java``, ``LocalLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter

from ottla.env.disk import Disk
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.file_names import DELETED_FILE_SUFFIX, FUTURE_DIR_SUFFIX
from ottla.log.log_config import LogConfig
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.producers.transaction_verification import VerificationStates
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import LogSegment
from ottla.wire.codec.primitives import Buffer
from ottla.wire.record_batch.batch_header import BatchHeader
from ottla.wire.record_batch.control_record import EndTransactionMarker, parse_end_transaction_marker
from ottla.wire.record_batch.records import iterate_records

SEGMENT_FILE_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_abort_marker_offset = attrgetter("last_offset")


class LogState:
    """The attributes of a log, and what only counts segments."""

    def __init__(self, disk: Disk, directory: str, topic: str, partition: int, settings: LogConfig) -> None:
        self.disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.label = f"{topic}-{partition}"
        self.config = settings
        self.topic_id = bytes(16)
        self.segments: list[LogSegment] = []
        self.base_offsets: list[int] = []
        self._older_bytes = -1
        """Bytes of all segments but the newest; -1 where they must be counted anew."""
        self.epochs = LeaderEpochFileCache(disk, directory)
        self.producers = ProducerStateManager()
        self.verification_states: VerificationStates = {}
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        """Everything below is on the disk for sure."""
        self.unflushed_records = 0
        """Records appended since a sync was last begun."""
        self.closed = False
        self.closed_cleanly = False
        """Whether it was closed as a clean stop leaves it."""
        self.sealed_end_offset = -1
        """The log end whose index and snapshot files are on disk already; -1 for none."""
        self.cleaner_offset = 0
        """Everything below has been compacted."""
        self.retired_files: list[tuple[int, str]] = []
        """Files of segments that are no longer part of the log: when they may go, and their paths."""
        self.recovery_notes: list[str] = []
        """What recovery found and did, in words."""
        self.warned_of_future_timestamp = False
        """Whether the log was told that some timestamp lies far ahead."""
        self.truncations = 0
        """How often the log was cut: a sync begun before a cut says nothing of what was written behind it."""
        self.directory_changes = 0
        """How often a file was made or renamed: what a power cut could take back until the directory is synced."""
        self.synced_directory_changes = 0
        """Up to which of these the directory was synced."""
        self.is_directory_unsynced = False
        """Whether the name of the partition's own directory may still be unsynced."""
        self.has_future_log = False
        """Whether a copy is being made in another directory that is to take its place: it is not compacted then."""
        self.is_being_replaced = False
        """Whether that is about to happen: no sync of it is begun, which would put it ahead of the copy."""

    @property
    def active_segment(self) -> LogSegment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def is_future(self) -> bool:
        """Whether it is a copy on its way into another directory: nobody is served from it yet."""
        return self.directory.endswith(FUTURE_DIR_SUFFIX)

    def set_has_future_log(self, *, begins: bool) -> None:
        """A copy that is to take its place is begun, or given up."""
        self.has_future_log = begins

    def set_being_replaced(self, *, begins: bool) -> None:
        """The copy is about to take its place, or is not after all."""
        self.is_being_replaced = begins

    def set_directory(self, directory: str) -> None:
        """Its directory has another name now. Whoever reads from it goes on."""
        self.directory = directory
        self.epochs.set_directory(directory)
        for segment in self.segments:
            segment.set_directory(directory)
        self.retired_files = [(due_ms, f"{directory}/{path.rpartition('/')[2]}") for due_ms, path in self.retired_files]

    @property
    def last_stable_offset(self) -> int:
        """What a read_committed consumer may read up to; never below the log start (``UnifiedLog``: records of an open
        transaction may be deleted).
        """
        producers = self.producers
        if not (producers.ongoing_txns or producers.completed_txns):
            return self.high_watermark
        unstable = producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments: those of the older ones are counted once, when they have become others."""
        if self._older_bytes < 0:
            self._older_bytes = sum(segment.size_bytes for segment in self.segments[:-1])
        return self._older_bytes + (self.segments[-1].size_bytes if self.segments else 0)

    def check_offset_order(self) -> None:
        """Hold the offsets against their order; what is wrong here is our own bug. Called after each change."""
        end = self.log_end_offset
        assert self.log_start_offset <= self.high_watermark <= end, self.describe()
        producers = self.producers
        if producers.ongoing_txns or producers.completed_txns:
            assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark, self.describe()

    def describe(self) -> str:
        """Where the log is, for messages."""
        return (
            f"{self.topic}-{self.partition}: start {self.log_start_offset}, "
            f"high watermark {self.high_watermark}, end {self.log_end_offset}"
        )

    def segment_for(self, offset: int) -> LogSegment:
        """The segment an offset belongs to."""
        return self.segments[max(bisect_right(self.base_offsets, offset) - 1, 0)]

    def add_segment(self, segment: LogSegment) -> None:
        """Take a segment at the end."""
        self._older_bytes = -1
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)

    def record_directory_change(self) -> None:
        """Files were made or renamed: the next sync takes their names along."""
        self.directory_changes += 1

    def replace_segments(self, at: int, count: int, segments: list[LogSegment]) -> None:
        """Exchange ``count`` segments from the ``at``-th on."""
        self._older_bytes = -1
        self.segments[at : at + count] = segments
        self.base_offsets[at : at + count] = [segment.base_offset for segment in segments]

    def delete_segments_below_start(self, now_ms: int) -> None:
        """Retire segments that end below the log start."""
        for _ in self.delete_segments_below_start_job(now_ms):
            pass

    def delete_segments_below_start_job(self, now_ms: int) -> Iterator[None]:
        """The same in steps; it ends where the log is closed in between."""
        while not self.closed and len(self.segments) > 1 and self.base_offsets[1] <= self.log_start_offset:
            self._older_bytes = -1
            del self.base_offsets[0]
            self.retire_segment(self.segments.pop(0), now_ms)
            yield

    def retire_segment(self, segment: LogSegment, now_ms: int) -> None:
        """Rename a segment's files to ``.deleted``; they go after ``file.delete.delay.ms``, or at the next start."""
        segment.detach_file()
        for suffix in SEGMENT_FILE_SUFFIXES:
            path = segment.path + suffix
            if self.disk.exists(path):
                self.disk.rename(path, path + DELETED_FILE_SUFFIX)
                self.retired_files.append((now_ms + self.config.file_delete_delay_ms, path + DELETED_FILE_SUFFIX))

    def pop_deletable_files(self, now_ms: int) -> list[str]:
        """Files whose time has come, for `remove_files`."""
        due = 0
        while due < len(self.retired_files) and self.retired_files[due][0] <= now_ms:
            due += 1
        paths = [path for _, path in self.retired_files[:due]]
        del self.retired_files[:due]
        return paths

    def remove_segments(self, at: int) -> None:
        """Remove the segments from the ``at``-th on with all their files, the newest first."""
        self._older_bytes = -1
        while len(self.segments) > at:
            segment = self.segments.pop()
            self.base_offsets.pop()
            self.directory_changes += 1
            remove_segment(self.disk, segment)

    def create_first_segment(self, offset: int, now_ms: int) -> None:
        """Put an empty segment into a log that has none: it starts and ends at ``offset``."""
        assert not self.segments
        self.directory_changes += 1
        self.add_segment(LogSegment.create(self.disk, self.directory, offset, self.config, now_ms))
        self.log_end_offset = offset

    def update_producer_state(self, header: BatchHeader, base_offset: int, data: Buffer) -> None:
        """Take a batch that lies in the log into the producer state; an abort marker into the transaction index too."""
        for aborted in apply_batch(self.producers, header, base_offset, data):
            segment = self.segment_for(base_offset)
            if not _has_abort_marker(segment.aborted_txns, base_offset):
                segment.add_aborted_txn(aborted)


def _has_abort_marker(aborted: list[AbortedTxn], marker: int) -> bool:
    """Whether a transaction index has an entry of this marker. It may name a first offset that is gone from the log:
    what is read anew begins later, and is no other transaction.
    """
    at = bisect_left(aborted, marker, key=_abort_marker_offset)
    return at < len(aborted) and aborted[at].last_offset == marker


def apply_batch(states: ProducerStateManager, header: BatchHeader, base_offset: int, data: Buffer) -> list[AbortedTxn]:
    """Take a batch that lies in a log into a producer state; gives the transactions that it aborts."""
    if header.producer_id < 0:
        return []
    if not header.is_control:
        states.update(header, base_offset)
        return []
    ends = iterate_end_markers(header, data)
    told = (states.end_transaction(header, base_offset, end.control_type, end.coordinator_epoch) for end in ends)
    return [aborted for aborted in told if aborted is not None]


def iterate_end_markers(header: BatchHeader, data: Buffer) -> Iterator[EndTransactionMarker]:
    """The markers of a control batch; other control records are passed over."""
    for record in iterate_records(data, header):
        end = parse_end_transaction_marker(record)
        if end is not None:
            yield end


def remove_files(disk: Disk, paths: list[str]) -> None:
    """Remove files, those that are there; what waits for the disk is for a thread."""
    for path in paths:
        with suppress(FileNotFoundError):  # its directory was just renamed for deletion
            disk.unlink(path)


def remove_segment(disk: Disk, segment: LogSegment) -> None:
    """Remove a segment with all its files."""
    segment.detach_file()
    for suffix in SEGMENT_FILE_SUFFIXES:
        if disk.exists(segment.path + suffix):
            disk.unlink(segment.path + suffix)
