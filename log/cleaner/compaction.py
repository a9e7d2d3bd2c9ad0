"""Log compaction: retains the last record of each key, at its offset.

A pass has two phases. The first reads the dirty section of a log into an offset map (key -> last offset). The second
copies the segments up to the end of that section, batch by batch, without records that have a later offset in the map.
Offsets, sequences and epochs are unchanged: a batch that loses records keeps its base and last offset, and the last
batch of a producer is retained even when it is empty. A batch whose decompressed size exceeds the limit is copied
unchanged.

Tombstones (null values) are retained for ``delete.retention.ms`` after the first pass that read them: that pass writes
the delete horizon into their batch. Records of aborted transactions are removed at once; a marker is removed when no
data of its transaction is left and its delete horizon has passed. After a batch that was copied unchanged all
tombstones are retained: it may contain the records that they delete.

A pass runs in a separate process if there is one: it reads sealed segments and writes ``.cleaned`` files. The node
replaces the segments afterwards (`segment_swap`).

Source: ``Cleaner.java``, ``CleanedTransactionMetadata.java``, ``MemoryRecords.filterTo`` (apache/kafka 4.3.1).

Delete horizon of tombstones and markers: KIP-534.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata, control_batch_type
from ottla.log.cleaner.offset_map import OffsetMap
from ottla.log.file_names import CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX, parse_segment_file
from ottla.log.log_config import LogConfig
from ottla.log.producers.producer_table import ENTRY
from ottla.log.segment.indexes import AbortedTxn, write_txn_index
from ottla.log.segment.log_segment import MAX_RELATIVE_OFFSET, LogSegment
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import DELETE_HORIZON_BIT, BatchHeader, pack_batch, parse_header
from ottla.wire.record_batch.compression import DecompressedSizeExceeded, compress, compression_type_of
from ottla.wire.record_batch.record_scan import (
    RECORDS_AT_ONCE,
    RecordRange,
    iterate_keys,
    read_timestamp_delta,
    record_last_offsets,
    record_ranges,
    retained_records,
    shift_timestamp_delta,
)
from ottla.wire.record_batch.records import decompress_records


@dataclass(slots=True)
class CleanerStats:
    """Statistics of a compaction pass: bytes and records read and written, keys in the offset map."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0
    oversized_batches: int = 0
    """Number of batches whose decompressed size exceeds the limit, copied unchanged."""
    last_oversized_offset: int = -1
    """Base offset of the last oversized batch; -1 if there is none."""


@dataclass(slots=True)
class CompactionPlan:
    """Input of one compaction pass over a log: segments, offset range, settings, producers and aborted transactions.

    ``first_dirty_offset``: offset below which the log is compacted already. ``now_ms``: wall clock. ``map_bytes``:
    memory limit of the offset map.
    """

    directory: str
    base_offsets: list[int]
    """Base offsets of all sealed segments below ``first_uncleanable_offset``."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Offset from which on no batch is read or rewritten."""
    config: LogConfig
    now_ms: int
    producer_snapshot: bytes
    """Entries of all producers of the log, in the format of a ``.snapshot`` file's body."""
    aborted_txns: list[AbortedTxn]
    map_bytes: int


class CleanedSegment(NamedTuple):
    """New segment, complete and synced in ``.cleaned`` files, that is to replace segments of the log.

    ``sources``: base offsets of the segments that it replaces.
    """

    base_offset: int
    size_bytes: int
    sources: list[int]


class CompactionResult(NamedTuple):
    """Result of a compaction pass: new segments in offset order, statistics; ``end``: first offset not cleaned."""

    end: int
    cleaned: list[CleanedSegment]
    stats: CleanerStats


def run_compaction(disk: Disk, plan: CompactionPlan) -> CompactionResult:
    """Run one compaction pass to its end: write the new segments as ``.cleaned`` files; the log itself is unchanged.

    Blocks for as long as the disk and the records need; called in a separate process if there is one.

    Raises:
        WireError: records on disk cannot be read; OSError: the disk failed.
    """
    stats = CleanerStats()
    sources = [LogSegment.load(disk, plan.directory, base, plan.config) for base in plan.base_offsets]
    try:
        keys = build_offset_map(plan, sources, stats)
        copier = SegmentRewriter(disk, plan, sources, keys, stats)
        return CompactionResult(copier.end, list(copier.rewrite()), stats)
    except (struct.error, IndexError, OverflowError) as error:  # numbers in a record that exceed the range of a field
        raise WireError(f"{plan.directory}: records cannot be read: {error}") from error


def build_offset_map(plan: CompactionPlan, sources: list[LogSegment], stats: CleanerStats) -> OffsetMap:
    """Return the map of each key in the dirty section of a log to its last offset there.

    The clean segments before are read too, for the transactions open in them. If the map becomes full it covers the
    beginning of the section only, up to its ``latest_offset``. The number of keys is set in ``stats``; the files of
    ``sources`` that were read are closed.

    Raises:
        WireError: a batch is damaged, or has an old message format.
    """
    found = OffsetMap(plan.map_bytes)
    transactions = CleanedTransactionMetadata(plan.aborted_txns)
    found.latest_offset = plan.first_dirty_offset - 1
    ends = [*plan.base_offsets[1:], plan.first_uncleanable_offset]
    for segment, end in zip(sources, ends, strict=True):
        for _, header, raw in segment.scan():
            if header.magic < 2:
                raise WireError(f"message format {header.magic} at offset {header.base_offset} is only read")
            aborted = False
            if header.is_control:
                transactions.on_control_batch_read(header, control_batch_type(header, raw))
            else:
                aborted = transactions.on_batch_read(header)
            if header.last_offset < plan.first_dirty_offset:
                continue
            if not (header.is_control or aborted or _note_keys(plan, found, header, raw)):
                stats.keys = len(found)
                segment.close()
                return found
            found.latest_offset = header.last_offset
        segment.close()
        # The last offsets of a segment may have been compacted away: they count as read.
        found.latest_offset = max(found.latest_offset, end - 1)
    stats.keys = len(found)
    return found


def _decompress(header: BatchHeader, raw: memoryview) -> bytes | None:
    """Return the decompressed records of a batch; None if they exceed the size limit of decompression."""
    try:
        return bytes(decompress_records(raw, header))
    except DecompressedSizeExceeded:
        return None


def _note_keys(plan: CompactionPlan, found: OffsetMap, header: BatchHeader, raw: memoryview) -> bool:
    data, base_offset = _decompress(header, raw), header.base_offset
    if data is None:
        return True
    if found.has_capacity_for(header.records_count):
        record_last_offsets(data, header.records_count, base_offset, plan.first_dirty_offset, found.offsets)
        return True
    for delta, key in iterate_keys(data, header.records_count):
        if (
            key is not None
            and base_offset + delta >= plan.first_dirty_offset
            and not found.put(key, base_offset + delta)
        ):
            found.latest_offset = base_offset + delta - 1
            return False
    return True


def group_segments_by_size(
    segments: list[LogSegment], settings: LogConfig, next_base: int
) -> Iterator[list[LogSegment]]:
    """Yield groups of adjacent segments whose batches fit into one segment by size and offset range, as ``Cleaner``.

    ``next_base`` is the base offset of the segment after the last one.
    """
    at = 0
    while at < len(segments):
        group = [segments[at]]
        size = segments[at].size_bytes
        at += 1
        while at < len(segments):
            following = segments[at + 1].base_offset if at + 1 < len(segments) else next_base
            fits = size + segments[at].size_bytes <= settings.segment_bytes
            if not fits or following - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET:
                break
            size += segments[at].size_bytes
            group.append(segments[at])
            at += 1
        yield group


class SegmentRewriter:
    """Second phase of a compaction pass: writes new segments without the records that the offset map supersedes.

    ``end``: first offset that the pass does not clean.
    """

    def __init__(
        self, disk: Disk, plan: CompactionPlan, sources: list[LogSegment], keys: OffsetMap, stats: CleanerStats
    ) -> None:
        self._disk = disk
        self._sources = sources
        self._plan = plan
        self._keys = keys
        self._stats = stats
        self._transactions = CleanedTransactionMetadata(plan.aborted_txns)
        self._last_of_producers = {row[0]: (row[3], row[1]) for row in ENTRY.iter_unpack(plan.producer_snapshot)}
        """Producer id -> (offset of its last data record, or -1; producer epoch)."""
        self.end = keys.latest_offset + 1

    def rewrite(self) -> Iterator[CleanedSegment]:
        """Write the new segment of each group of segments as synced ``.cleaned`` files, and yield it."""
        reach = [s for s in self._sources if s.base_offset < self.end]
        following = next(
            (s.base_offset for s in self._sources if s.base_offset >= self.end), self._plan.first_uncleanable_offset
        )
        for group in group_segments_by_size(reach, self._plan.config, following):
            size_bytes = self._rewrite_group(group)
            yield CleanedSegment(group[0].base_offset, size_bytes, [s.base_offset for s in group])

    def _rewrite_group(self, group: list[LogSegment]) -> int:
        """Write the new segment that replaces a group of adjacent segments, and sync it; return its size in bytes."""
        created = max(s.created_ms for s in group)
        target = LogSegment.create_without_indexes(
            self._disk, self._plan.directory, group[0].base_offset, self._plan.config, created, CLEANED_FILE_SUFFIX
        )
        self._transactions.retained_txns = []
        gone: BatchHeader | None = None
        for source in group:
            for _, header, raw in source.scan():
                self._stats.bytes_read += header.size_bytes
                kept = self._filter_batch(header, raw)
                gone = header if kept is None else None
                if kept is not None:
                    self._append(target, kept)
            source.close()
        if gone is not None and len(group) > 1:
            self._append(target, _empty_batch(gone))  # so that it ends where its sources end
        target.fsync()
        target.write_index_files(sync=True, suffix=CLEANED_FILE_SUFFIX)
        if self._transactions.retained_txns:
            write_txn_index(
                self._disk, f"{target.path}.txnindex{CLEANED_FILE_SUFFIX}", self._transactions.retained_txns, sync=True
            )
        target.close()
        return target.size_bytes

    def _append(self, target: LogSegment, batch: Buffer) -> None:
        header = parse_header(batch)
        self._stats.bytes_written += len(batch)
        target.append(batch, header.last_offset, header.max_timestamp)

    def _filter_batch(self, header: BatchHeader, raw: memoryview) -> Buffer | None:
        """Return the bytes to write for a batch: itself, reduced to retained records, or empty; None to remove it."""
        self._stats.records_read += header.records_count
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        if header.is_control:
            return self._filter_control_batch(header, raw, horizon)
        if self._transactions.on_batch_read(header):
            return self._retain_empty_batch(header)
        return self._filter_data_batch(header, raw, horizon)

    def _filter_control_batch(self, header: BatchHeader, raw: memoryview, horizon: int | None) -> Buffer | None:
        alone = self._transactions.on_control_batch_read(header, control_batch_type(header, raw))
        if alone and horizon is not None and horizon <= self._plan.now_ms:
            return self._retain_empty_batch(header)
        self._stats.records_kept += header.records_count
        if not alone or horizon is not None:
            return raw
        data = bytes(decompress_records(raw, header))
        return self._rebuild_batch(header, data, [record_ranges(data, header.records_count)], stamp=True)

    def _filter_data_batch(self, header: BatchHeader, raw: memoryview, horizon: int | None) -> Buffer | None:
        data = _decompress(header, raw)
        if data is None:
            self._stats.oversized_batches += 1
            self._stats.last_oversized_offset = header.base_offset
            self._stats.records_kept += header.records_count
            return raw
        keep_deletes = horizon is None or self._plan.now_ms < horizon or self._stats.oversized_batches > 0
        offsets, latest, total = self._keys.offsets, self._keys.latest_offset, header.records_count
        found = partial(retained_records, data, total, header.base_offset, offsets, latest, keep_deletes=keep_deletes)
        slices: Iterable[list[RecordRange]] = ()
        count, tombstones = 0, False
        for kept, some in found():
            slices, count, tombstones = (kept,), count + len(kept), tombstones or some
        self._stats.records_kept += count
        if not count:
            return self._retain_empty_batch(header)
        if count == total and not (tombstones and horizon is None):
            return raw
        if total > RECORDS_AT_ONCE:  # read a second time: all ranges at once would take gigabytes
            slices = (kept for kept, _ in found())
        return self._rebuild_batch(header, data, slices, stamp=tombstones and horizon is None)

    def _retain_empty_batch(self, header: BatchHeader) -> bytes | None:
        """Return the batch without records if its last offset or sequence must stay in the log; None if it is removed.

        That is the case for the last batch of the pass and the last batch of a producer.
        """
        last, epoch = self._last_of_producers.get(header.producer_id, (-1, -1))
        of_producer = header.producer_id >= 0 and (
            last == header.last_offset if last >= 0 else header.is_control and epoch == header.producer_epoch
        )
        if not of_producer and header.next_offset != self.end:
            return None
        return _empty_batch(header)

    def _rebuild_batch(
        self, header: BatchHeader, data: bytes, slices: Iterable[list[RecordRange]], *, stamp: bool
    ) -> bytes:
        """Return the batch reduced to the records in ``slices``, compressed with its codec.

        With ``stamp``, attribute bit 6 is set and the base timestamp becomes the delete horizon: the time from which
        the tombstones or the marker of the batch may be deleted. The timestamp deltas are then relative to that time.
        """
        base, attributes = header.base_timestamp, header.attributes
        if stamp:
            base = self._plan.now_ms + self._plan.config.delete_retention_ms
            attributes |= DELETE_HORIZON_BIT
        parts, times, count = [], [], 0
        for kept in slices:
            if stamp:
                parts.append(
                    b"".join([shift_timestamp_delta(data, place, header.base_timestamp - base) for place in kept])
                )
            else:
                parts.append(b"".join([data[place[0] : place[1]] for place in kept]))
            if kept and not header.has_log_append_time:
                times.append(max(read_timestamp_delta(data, place)[0] for place in kept))
            count += len(kept)
        newest = header.base_timestamp + max(times) if times else header.max_timestamp
        new = header._replace(attributes=attributes, base_timestamp=base, max_timestamp=newest, records_count=count)
        return pack_batch(new, compress(compression_type_of(attributes), b"".join(parts), None))


def _empty_batch(header: BatchHeader) -> bytes:
    """Return the bytes of a batch with this header and no records, uncompressed and without a delete horizon."""
    attributes = header.attributes & ~(0x07 | DELETE_HORIZON_BIT)
    return pack_batch(header._replace(attributes=attributes, base_timestamp=-1, records_count=0), b"")


def delete_unfinished_files(disk: Disk, directory: str) -> None:
    """Delete the ``.cleaned`` and ``.swap`` files in a partition's directory: the result of a pass is discarded.

    Called by the running node: after a crash, recovery completes the swap instead. No effect without the directory.
    """
    if disk.exists(directory):
        for name in disk.list_files(directory):
            file = parse_segment_file(name)
            if file is not None and file.state in (CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX):
                disk.unlink(f"{directory}/{name}")
