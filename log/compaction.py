"""Compaction: of each key only the last record stays, and nothing else moves.

A pass has two halves. The first reads the new part of a log and notes where each key was seen last. The second copies
the segments up to there, batch by batch, leaving out records whose key was seen again. Offsets, sequences and epochs
stay as they were: a batch that loses records keeps its base and last offset, and the last batch of a producer stays
even when it is empty. A batch that unpacks to more than anybody looks into stays as it lies.

Tombstones (no value) stay for ``delete.retention.ms`` after the first pass that saw them: that pass stamps their batch
with the time they may go. Records of aborted transactions go at once; a marker goes when nothing of its
transaction is left and its time has come. Behind a batch that was not looked into all tombstones stay: what they
delete may lie in it.

A pass runs beside the node, in a process of its own where there is one: it reads sealed segments and writes files under
names of its own. Only then does the node exchange them (`log.exchange`).

Source: ``Cleaner.java``, ``CleanedTransactionMetadata.java``, ``MemoryRecords.filterTo`` (apache/kafka 4.3.1).

How long a tombstone and a marker stay: KIP-534.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop
from typing import NamedTuple

from ottla.log.index import AbortedTxn, write_aborted
from ottla.log.key_scan import RECORDS_AT_ONCE, Place, keys, note_keys, places, survivors
from ottla.log.names import CLEANED, SWAP, parse_segment_file
from ottla.log.offset_map import OffsetMap
from ottla.log.producer_table import ENTRY
from ottla.log.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.log.settings import LogSettings
from ottla.wire import batch as b
from ottla.wire import records as r
from ottla.wire.compression import UnpacksTooLarge, codec_of, compress
from ottla.wire.control import ControlType, control_type
from ottla.wire.errors import WireError
from ottla.wire.primitives import Buffer, read_varlong, write_varlong
from ottla.world.disk import Disk


class Transactions:
    """Which transactions are aborted, and whether anything of each is still there, as the batches go by."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._waiting = [(entry.first_offset, entry) for entry in aborted]
        heapify(self._waiting)
        self._aborted: dict[int, tuple[AbortedTxn, bool]] = {}
        """Producer id -> its aborted transaction, and whether a batch of it was seen."""
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Entries of the transaction index that readers still need."""

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, entry = heappop(self._waiting)
            self._aborted[entry.producer_id] = (entry, False)

    def data(self, header: b.BatchHeader) -> bool:
        """A data batch goes by; says whether it was aborted."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def marker(self, header: b.BatchHeader, kind: int) -> bool:
        """A marker goes by; says whether nothing of its transaction is left."""
        self._reach(header.last_offset)
        if kind == ControlType.ABORT:
            entry, seen = self._aborted.pop(header.producer_id, (None, False))
            if entry is not None and seen:
                self.kept.append(entry)
            return not seen
        if kind == ControlType.COMMIT:
            empty = header.producer_id not in self._committed
            self._committed.discard(header.producer_id)
            return empty
        return False


def marker_kind(header: b.BatchHeader, raw: Buffer) -> int:
    """ABORT, COMMIT, or another control record's type; -1 where it cannot be told."""
    first = next(iter(r.iterate(raw, header)), None)
    kind = None if first is None else control_type(first)
    return -1 if kind is None else kind


@dataclass(slots=True)
class Stats:
    """What a pass did."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0
    whole: int = 0
    """Batches that unpack to more than is looked into."""
    whole_offset: int = -1
    """The base offset of the last of them."""


@dataclass(slots=True)
class Plan:
    """One pass over a log, decided on the node's loop."""

    directory: str
    bases: list[int]
    """Base offsets of the sealed segments, from the first on, up to the last one the pass may reach."""
    first_dirty: int
    end: int
    """No batch at or behind this offset is touched."""
    settings: LogSettings
    now_ms: int
    producers: bytes
    """The body of a producer snapshot: what a table of very many is copied as while nothing moves."""
    aborted: list[AbortedTxn]
    map_bytes: int


class Cleaned(NamedTuple):
    """A new segment, complete and synced under its ``.cleaned`` names, and those it stands for."""

    base_offset: int
    size_bytes: int
    sources: list[int]


class Outcome(NamedTuple):
    """What a pass made: up to which offset, the new segments in order, and what it saw."""

    end: int
    cleaned: list[Cleaned]
    stats: Stats


def run(disk: Disk, plan: Plan) -> Outcome:
    """One pass.

    Raises:
        WireError: records on disk cannot be read; OSError: the disk failed.
    """
    stats = Stats()
    sources = [Segment.load(disk, plan.directory, base, plan.settings) for base in plan.bases]
    try:
        keys = build_map(plan, sources, stats)
        copier = Copier(disk, plan, sources, keys, stats)
        return Outcome(copier.end, list(copier.run()), stats)
    except (struct.error, IndexError, OverflowError) as error:  # numbers that a record claims and no field can hold
        raise WireError(f"{plan.directory}: records cannot be read: {error}") from error


def build_map(plan: Plan, sources: list[Segment], stats: Stats) -> OffsetMap:
    """Note where each key of the new part was seen last, as far as memory goes."""
    found = OffsetMap(plan.map_bytes)
    transactions = Transactions(plan.aborted)
    found.latest_offset = plan.first_dirty - 1
    ends = [*plan.bases[1:], plan.end]
    for segment, end in zip(sources, ends, strict=True):
        for _, header, raw in segment.scan():
            if header.magic < 2:
                raise WireError(f"message format {header.magic} at offset {header.base_offset} is only read")
            aborted = False
            if header.is_control:
                transactions.marker(header, marker_kind(header, raw))
            else:
                aborted = transactions.data(header)
            if header.last_offset < plan.first_dirty:
                continue
            if not (header.is_control or aborted or _note_keys(plan, found, header, raw)):
                stats.keys = len(found)
                segment.close()
                return found
            found.latest_offset = header.last_offset
        segment.close()
        # The last offsets of a segment may have been compacted away: they are done with too.
        found.latest_offset = max(found.latest_offset, end - 1)
    stats.keys = len(found)
    return found


def _unpacked(header: b.BatchHeader, raw: memoryview) -> bytes | None:
    """A batch's records; None where they are more than is looked into."""
    try:
        return bytes(r.body(raw, header))
    except UnpacksTooLarge:
        return None


def _note_keys(plan: Plan, found: OffsetMap, header: b.BatchHeader, raw: memoryview) -> bool:
    data, base_offset = _unpacked(header, raw), header.base_offset
    if data is None:
        return True
    if found.has_room_for(header.records_count):
        note_keys(data, header.records_count, base_offset, plan.first_dirty, found.offsets)
        return True
    for delta, key in keys(data, header.records_count):
        if key is not None and base_offset + delta >= plan.first_dirty and not found.put(key, base_offset + delta):
            found.latest_offset = base_offset + delta - 1
            return False
    return True


def groups(segments: list[Segment], settings: LogSettings, next_base: int) -> Iterator[list[Segment]]:
    """Neighbours that fit one segment together, so that what shrank does not stay in many small files."""
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


class Copier:
    """The second half of a pass."""

    def __init__(self, disk: Disk, plan: Plan, sources: list[Segment], keys: OffsetMap, stats: Stats) -> None:
        self._disk = disk
        self._sources = sources
        self._plan = plan
        self._keys = keys
        self._stats = stats
        self._transactions = Transactions(plan.aborted)
        self._last_of_producers = {row[0]: (row[3], row[1]) for row in ENTRY.iter_unpack(plan.producers)}
        """Producer id -> (its last data offset or -1, its epoch)."""
        self.end = keys.latest_offset + 1

    def run(self) -> Iterator[Cleaned]:
        """Each group of segments anew, synced and ready to take its place."""
        reach = [s for s in self._sources if s.base_offset < self.end]
        following = next((s.base_offset for s in self._sources if s.base_offset >= self.end), self._plan.end)
        for group in groups(reach, self._plan.settings, following):
            size_bytes = self._copy(group)
            yield Cleaned(group[0].base_offset, size_bytes, [s.base_offset for s in group])

    def _copy(self, group: list[Segment]) -> int:
        """Write a group's new segment; gives its size."""
        created = max(s.created_ms for s in group)
        target = Segment.begin(
            self._disk, self._plan.directory, group[0].base_offset, self._plan.settings, created, CLEANED
        )
        self._transactions.kept = []
        gone: b.BatchHeader | None = None
        for source in group:
            for _, header, raw in source.scan():
                self._stats.bytes_read += header.size_bytes
                kept = self._batch(header, raw)
                gone = header if kept is None else None
                if kept is not None:
                    self._put(target, kept)
            source.close()
        if gone is not None and len(group) > 1:
            self._put(target, _emptied(gone))  # so that the new segment reaches over all that it stands for
        target.fsync()
        target.seal(sync=True, suffix=CLEANED)
        if self._transactions.kept:
            write_aborted(self._disk, f"{target.path}.txnindex{CLEANED}", self._transactions.kept, sync=True)
        target.close()
        return target.size_bytes

    def _put(self, target: Segment, batch: Buffer) -> None:
        header = b.parse_header(batch)
        self._stats.bytes_written += len(batch)
        target.append(batch, header.last_offset, header.max_timestamp)

    def _batch(self, header: b.BatchHeader, raw: memoryview) -> Buffer | None:
        """A batch as it shall be kept; None where nothing of it stays."""
        self._stats.records_read += header.records_count
        horizon = header.base_timestamp if header.attributes & b.DELETE_HORIZON_BIT else None
        if header.is_control:
            return self._control(header, raw, horizon)
        if self._transactions.data(header):
            return self._nothing_left(header)
        return self._data(header, raw, horizon)

    def _control(self, header: b.BatchHeader, raw: memoryview, horizon: int | None) -> Buffer | None:
        alone = self._transactions.marker(header, marker_kind(header, raw))
        if alone and horizon is not None and horizon <= self._plan.now_ms:
            return self._nothing_left(header)
        self._stats.records_kept += header.records_count
        if not alone or horizon is not None:
            return raw
        data = bytes(r.body(raw, header))
        return self._rebuild(header, data, [places(data, header.records_count)], stamp=True)

    def _data(self, header: b.BatchHeader, raw: memoryview, horizon: int | None) -> Buffer | None:
        data = _unpacked(header, raw)
        if data is None:
            self._stats.whole += 1
            self._stats.whole_offset = header.base_offset
            self._stats.records_kept += header.records_count
            return raw
        keep_deletes = horizon is None or self._plan.now_ms < horizon or self._stats.whole > 0
        offsets, latest, total = self._keys.offsets, self._keys.latest_offset, header.records_count
        found = partial(survivors, data, total, header.base_offset, offsets, latest, keep_deletes=keep_deletes)
        slices: Iterable[list[Place]] = ()
        count, tombstones = 0, False
        for kept, some in found():
            slices, count, tombstones = (kept,), count + len(kept), tombstones or some
        self._stats.records_kept += count
        if not count:
            return self._nothing_left(header)
        if count == total and not (tombstones and horizon is None):
            return raw
        if total > RECORDS_AT_ONCE:  # gone through once more: all their places together take gigabytes
            slices = (kept for kept, _ in found())
        return self._rebuild(header, data, slices, stamp=tombstones and horizon is None)

    def _nothing_left(self, header: b.BatchHeader) -> bytes | None:
        """An empty batch where offsets or a producer's sequence hang on it, else nothing."""
        last, epoch = self._last_of_producers.get(header.producer_id, (-1, -1))
        of_producer = header.producer_id >= 0 and (
            last == header.last_offset if last >= 0 else header.is_control and epoch == header.producer_epoch
        )
        if not of_producer and header.next_offset != self.end:
            return None
        return _emptied(header)

    def _rebuild(self, header: b.BatchHeader, data: bytes, slices: Iterable[list[Place]], *, stamp: bool) -> bytes:
        """A batch with fewer records, or with the time stamped into it at which its tombstones or marker may go.

        Bit 6 says that the base timestamp is that time; then every record's delta counts from it.
        """
        base, attributes = header.base_timestamp, header.attributes
        if stamp:
            base = self._plan.now_ms + self._plan.settings.delete_retention_ms
            attributes |= b.DELETE_HORIZON_BIT
        parts, times, count = [], [], 0
        for kept in slices:
            if stamp:
                parts.append(b"".join([_rebased(data, place, header.base_timestamp - base) for place in kept]))
            else:
                parts.append(b"".join([data[place[0] : place[1]] for place in kept]))
            if kept and not header.has_log_append_time:
                times.append(max(_time_delta(data, place)[0] for place in kept))
            count += len(kept)
        newest = header.base_timestamp + max(times) if times else header.max_timestamp
        new = header._replace(attributes=attributes, base_timestamp=base, max_timestamp=newest, records_count=count)
        return b.pack_header(new, compress(codec_of(attributes), b"".join(parts), None))


def _emptied(header: b.BatchHeader) -> bytes:
    """A batch without its records."""
    attributes = header.attributes & ~(0x07 | b.DELETE_HORIZON_BIT)
    return b.pack_header(header._replace(attributes=attributes, base_timestamp=-1, records_count=0), b"")


def _time_delta(data: bytes, place: Place) -> tuple[int, int, int]:
    """A record's timestamp delta, with the positions of its attributes and behind the delta."""
    _, head = read_varlong(data, place[0])
    delta, after = read_varlong(data, head + 1)
    return delta, head, after


def _rebased(data: bytes, place: Place, shift: int) -> bytes:
    """A record whose timestamp delta counts from elsewhere: ``shift`` is added to it."""
    delta, head, after = _time_delta(data, place)
    inner = data[head : head + 1] + write_varlong(delta + shift) + data[after : place[1]]
    return write_varlong(len(inner)) + inner


def discard(disk: Disk, directory: str) -> None:
    """Throw new segments away that never took their place."""
    if disk.exists(directory):
        for name in disk.list_files(directory):
            file = parse_segment_file(name)
            if file is not None and file.state in (CLEANED, SWAP):
                disk.unlink(f"{directory}/{name}")
