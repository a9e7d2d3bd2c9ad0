"""One partition's log: segments end to end, where it starts, where it ends, and what may be read of it.

Offsets: ``log_start_offset <= high_watermark <= log_end_offset`` (first that is kept, first that is not yet
committed, next to be written). Opening one that exists is `recovery`'s business.

Source: ``UnifiedLog.java``, ``LocalLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.checkpoints import CorruptFile
from ottla.log.damage import whole_until
from ottla.log.durable import sync_job
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import AbortedTxn
from ottla.log.producers import ProducerStates
from ottla.log.segment import Located, Segment, file_name
from ottla.log.settings import LogSettings
from ottla.log.validate import Origin, check_client_batch, check_crc, parse_single, recompress
from ottla.wire import records as r
from ottla.wire.batch import BatchHeader, parse_header, stamp, stamp_append_time
from ottla.wire.compression import codec_of
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.primitives import Buffer
from ottla.world.disk import Disk, FileSlice, read_file, write_file

SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


class Appended(NamedTuple):
    """What became of a batch. ``duplicate``: it was there already, at these offsets."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


class PartitionLog:
    """The log of one partition on one disk. Not thread-safe: all but `flush_files` runs on the node's loop."""

    def __init__(self, disk: Disk, directory: str, topic: str, partition: int, settings: LogSettings) -> None:
        self.disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.settings = settings
        self.topic_id = bytes(16)
        self.segments: list[Segment] = []
        self.bases: list[int] = []
        self.epochs = LeaderEpochs(disk, directory)
        self.producers = ProducerStates()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.recovery_point = 0
        self.unflushed_records = 0
        """Records appended since a sync was last begun."""
        self.closed = False
        self.sealed_at = -1
        """The log end whose index and snapshot files are on disk already; -1 for none."""
        self.cleaner_point = 0
        """Everything below has been compacted."""
        self.retired: list[tuple[int, str]] = []
        """Files of segments that are no longer part of the log: when they may go, and their paths."""
        self.notes: list[str] = []
        """What recovery found and did, in words."""
        self.warned_of_future = False
        """Whether the log was told that some timestamp lies far ahead."""
        self.names_unsynced = False
        """Whether a file was made whose name a power cut could still take."""

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    @property
    def last_stable_offset(self) -> int:
        """What a read_committed consumer may read up to."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def add_segment(self, segment: Segment) -> None:
        """Take a segment at the end."""
        self.segments.append(segment)
        self.bases.append(segment.base_offset)

    def update_settings(self, settings: LogSettings) -> None:
        """New topic settings; they hold from the next batch on."""
        self.settings = settings
        for segment in self.segments:
            segment.settings = settings

    # ------------------------------------------------------------------ writing

    def append(
        self,
        data: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        header: BatchHeader | None = None,
    ) -> Appended:
        """Append one batch as leader: check, stamp in place, write.

        ``header`` is what `parse_single` gave for ``data``, where the caller had to look at it already.

        Raises:
            ProtocolError: the batch is refused; nothing was written.
            OSError: the disk failed; nothing of the batch is left in the segment.
        """
        if header is None:
            header = parse_single(data)
        settings = self.settings
        if header.size_bytes > settings.max_message_bytes and origin is Origin.CLIENT:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {self.topic}-{self.partition} is {header.size_bytes} bytes "
                f"which exceeds the maximum configured value of {settings.max_message_bytes}.",
            )
        check_crc(data, header)
        append_time = -1
        if origin is Origin.CLIENT:
            check_client_batch(data, header, settings, now_ms, f"{self.topic}-{self.partition}")
            if settings.codec is not None and codec_of(header.attributes) is not settings.codec:
                data = bytearray(recompress(data, header, settings.codec, settings.codec_level))
                header = parse_header(data)
        if header.producer_id >= 0 and not header.is_control:
            known = self.producers.check(header)
            if known is not None:
                return Appended(known.first_offset, known.last_offset, known.timestamp_ms, duplicate=True)
        base = self.log_end_offset
        stamp(data, 0, base, leader_epoch)
        if settings.log_append_time and origin is Origin.CLIENT:
            stamp_append_time(data, 0, header, now_ms)
            header = parse_header(data)
            append_time = now_ms
        last = base + header.last_offset_delta
        active = self.segments[-1]
        if active.must_roll(now_ms, len(data), header.max_timestamp, last):
            active = self.roll(now_ms)
        active.append(data, last, header.max_timestamp)
        self.epochs.assign(leader_epoch, base)
        self.log_end_offset = last + 1
        self.unflushed_records += header.records_count
        self.remember_producer(header, base, data)
        return Appended(base, last, append_time)

    def remember_producer(self, header: BatchHeader, base_offset: int, data: Buffer) -> None:
        """Take an appended batch into the producer state; an abort marker into the transaction index too."""
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.update(header, base_offset)
            return
        for record in r.iterate(data, header):
            if record.key is None or record.value is None or len(record.key) < 4 or len(record.value) < 6:
                continue
            (kind,) = struct.unpack_from(">h", record.key, 2)
            (coordinator_epoch,) = struct.unpack_from(">i", record.value, 2)
            if kind in (0, 1):
                aborted = self.producers.end_transaction(header, base_offset, kind, coordinator_epoch)
                segment = self.segment_of(base_offset)
                if aborted is not None and aborted not in segment.aborted:
                    segment.add_aborted(aborted)

    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the log end; the old one's indexes and a producer snapshot are written."""
        self.active.seal()
        self.write_snapshot()
        self.names_unsynced = True
        segment = Segment.create(self.disk, self.directory, self.log_end_offset, self.settings, now_ms)
        self.add_segment(segment)
        return segment

    def write_snapshot(self, *, sync: bool = False) -> None:
        """Write the producer state as of the log end."""
        path = f"{self.directory}/{file_name(self.log_end_offset, '.snapshot')}"
        write_file(self.disk, path, self.producers.pack(), sync=sync, sync_dir=False)

    def set_high_watermark(self, offset: int) -> bool:
        """Move the high watermark forward; says whether it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def raise_start(self, offset: int) -> bool:
        """Move the log start forward; says whether it moved. The caller writes the checkpoint, then drops segments."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)
        return True

    def drop_below_start(self, now_ms: int) -> None:
        """Retire segments that end below the log start."""
        while len(self.segments) > 1 and self.bases[1] <= self.log_start_offset:
            self.retire(self.segments.pop(0), now_ms)
            del self.bases[0]

    def retire(self, segment: Segment, now_ms: int) -> None:
        """Rename a segment's files to ``.deleted``; they go after ``file.delete.delay.ms``, or at the next start."""
        segment.let_go()
        for suffix in SEGMENT_FILES:
            path = segment.path + suffix
            if self.disk.exists(path):
                self.disk.rename(path, path + ".deleted")
                self.retired.append((now_ms + self.settings.file_delete_delay_ms, path + ".deleted"))

    def remove_retired(self, now_ms: int) -> None:
        """Remove files whose time has come."""
        while self.retired and self.retired[0][0] <= now_ms:
            path = self.retired.pop(0)[1]
            if self.disk.exists(path):
                self.disk.unlink(path)

    def unflushed(self) -> list[Segment]:
        """Segments with bytes above the recovery point, oldest first."""
        start = max(bisect_right(self.bases, self.recovery_point) - 1, 0)
        return self.segments[start:]

    @property
    def rests(self) -> bool:
        """Whether something awaits its sync, and nobody has touched the log since the last `park`."""
        return self.log_end_offset > self.recovery_point and not self.active.used

    def park(self) -> None:
        """Close the files nobody used since the last call. One that awaits its sync stays open: the sync may fail."""
        for segment in self.segments[: -len(self.unflushed())]:
            segment.park(sealed=True)
        if self.recovery_point >= self.log_end_offset:
            self.active.park(sealed=False)
        else:
            self.active.used = False

    def flush(self) -> None:
        """Make everything appended so far survive a power cut.

        Raises:
            OSError: final; the directory must go offline.
        """
        end = self.log_end_offset
        if end > self.recovery_point:
            sync_job(self, end)()
            self.recovery_point = max(self.recovery_point, end)

    def sync_names(self) -> None:
        """Make the names of new files survive a power cut, the partition's own directory included."""
        if self.names_unsynced:
            self.disk.fsync_dir(self.directory)
            self.disk.fsync_dir(self.directory.rpartition("/")[0])
            self.names_unsynced = False

    def close(self) -> None:
        """Flush, seal the active segment, write the snapshot: the state of a clean stop."""
        if self.closed:
            return
        self.closed = True
        self.flush()
        if self.sealed_at != self.log_end_offset:
            self.write_snapshot(sync=True)
        for segment in self.segments:
            if segment.stale or (segment is self.active and self.sealed_at != self.log_end_offset):
                segment.seal(sync=True)  # the next start will believe what is written now
        if self.log_end_offset > self.log_start_offset:
            self.epochs.save(sync=True)
        self.close_files()

    def close_files(self) -> None:
        """Give the descriptors back, nothing else."""
        for segment in self.segments:
            segment.close()

    # ------------------------------------------------------------------ reading

    def segment_of(self, offset: int) -> Segment:
        """The segment an offset belongs to."""
        return self.segments[max(bisect_right(self.bases, offset) - 1, 0)]

    def _locate(self, offset: int) -> tuple[Segment, Located] | None:
        """The first batch that ends at or behind ``offset``; a hole left by compaction is skipped."""
        for segment in self.segments[max(bisect_right(self.bases, offset) - 1, 0) :]:
            found = segment.locate(offset)
            if found is not None:
                return segment, found
        return None

    def check_readable(self, offset: int) -> None:
        """Raise OFFSET_OUT_OF_RANGE unless ``log start <= offset <= log end``."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.log_start_offset} to {self.log_end_offset}",
            )

    def read(self, offset: int, max_bytes: int, upper_offset: int, *, at_least_one: bool) -> FileSlice | None:
        """A range of one segment: from the batch that holds ``offset``, at most ``max_bytes``, below ``upper_offset``.

        With ``at_least_one`` the first batch comes whole even when it is larger. None: nothing to read there.

        Raises:
            ProtocolError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE for what is known to be damaged.
        """
        self.check_readable(offset)
        if offset >= upper_offset:
            return None
        found = self._locate(offset)
        if found is None:
            return None
        segment, batch = found
        if batch.base_offset >= upper_offset:
            return None
        end = segment.size_bytes
        if upper_offset < self.log_end_offset:
            limit = segment.locate(upper_offset)
            if limit is not None:
                end = limit.position
        if segment.damage:
            end = whole_until(segment.damage, batch.position, end)
            if end <= batch.position:
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}.log is damaged at {batch.position}")
        size = min(max_bytes, end - batch.position)
        if at_least_one:
            size = max(size, batch.size_bytes)
        if size <= 0:
            return None
        return FileSlice(segment.file, batch.position, size)

    def bytes_between(self, offset: int, upper_offset: int, at_most: int) -> int:
        """How many bytes a fetch at ``offset`` could get now, counted up to ``at_most``: what a long poll waits on."""
        if offset >= upper_offset or offset < self.log_start_offset:
            return 0
        found = self._locate(offset)
        if found is None:
            return 0
        segment, batch = found
        return min(segment.size_bytes - batch.position, at_most) if segment is self.active else at_most

    def aborted_between(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Aborted transactions a read_committed reader of that range must skip.

        Raises:
            ProtocolError: CORRUPT_MESSAGE: a transaction index went bad since the log was opened.
        """
        out: list[AbortedTxn] = []
        for segment in self.segments[max(bisect_right(self.bases, offset) - 1, 0) :]:
            try:
                entries = segment.aborted
            except CorruptFile as error:
                raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
            for entry in entries:
                if entry.last_offset >= offset and entry.first_offset < upper_offset:
                    out.append(entry)
                if entry.last_stable_offset >= upper_offset:
                    return out
        return out

    def batches(self, offset: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one that holds ``offset``, with its bytes.

        Raises:
            WireError: a batch on disk is damaged.
        """
        found = self._locate(offset)
        if found is None:
            return
        first, located = found
        for segment in list(self.segments[self.segments.index(first) :]):
            for _, header, raw in segment.scan(located.position if segment is first else 0):
                yield header, raw

    def load_snapshot(self, path: str) -> bool:
        """Take the producer state from a snapshot file; says whether it could be read."""
        try:
            self.producers = ProducerStates.unpack(read_file(self.disk, path), path)
        except (CorruptFile, OSError):
            return False
        return True


def remove_segment(disk: Disk, segment: Segment) -> None:
    """Remove a segment with all its files."""
    segment.let_go()
    for suffix in SEGMENT_FILES:
        if disk.exists(segment.path + suffix):
            disk.unlink(segment.path + suffix)
