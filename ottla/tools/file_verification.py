"""Verification of the files of a data directory, for ``ottla dump --verify``.

A segment is checked for its CRCs, the order of its offsets and the record counts of its batch headers; an index is
compared with its segment. Other files are read as by ``ottla dump``: the checksums of snapshots are checked, but not
the counts of offset and leader epoch checkpoints.

Source: ``DumpLogSegments.java`` (apache/kafka 4.3.1), for the indexes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ottla.env.disk import Disk, read_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.segment.indexes import OffsetIndex, TimeIndex, read_txn_index
from ottla.tools.dump import dump_file
from ottla.tools.segment_file_reader import SegmentFileReader
from ottla.wire.errors import WireError
from ottla.wire.record_batch import batch_header, legacy_records, records


def find_problems(disk: Disk, path: str) -> Iterator[str]:
    """Yield the problems of the file at ``path``, one line each; none for a valid file.

    An index is compared with the segment beside it.

    Raises:
        ValueError: the name is not that of a file of a data directory.
        OSError: the file cannot be read.
    """
    stem, _, suffix = path.rpartition(".")
    digits = stem.rpartition("/")[2]
    try:
        if suffix == "log" and digits.isdigit():
            with SegmentFileReader(disk, path) as segment:
                yield from _segment(segment, int(digits))
        elif suffix in ("index", "timeindex", "txnindex"):
            if not disk.exists(f"{stem}.log"):
                yield "its segment is missing"
                return
            check = {"index": _offsets, "timeindex": _times, "txnindex": _aborted}[suffix]
            with SegmentFileReader(disk, f"{stem}.log") as segment:
                yield from check(disk, path, int(digits), segment)
        else:
            for row in dump_file(disk, path):
                if row["kind"] == "damage" or row.get("valid") is False:
                    yield f"{row}"
    except (CorruptFile, WireError) as error:
        yield str(error)


def _segment(segment: SegmentFileReader, base_offset: int) -> Iterator[str]:
    end, next_offset = 0, base_offset
    for position, header, raw in segment.batches():
        where = f"batch of offset {header.base_offset} at {position}"
        if not legacy_records.any_crc_matches(raw, header):
            yield f"{where}: bad CRC"
        else:
            try:
                found = [x.offset for x in records.iterate_records(raw, header)]
            except WireError as error:
                yield f"{where}: {error}"
            else:
                beyond = [x for x in found if x > header.last_offset]
                if beyond or found != sorted(set(found)):
                    yield f"{where}: its records have offsets {found}"
        if header.base_offset < next_offset:
            yield f"{where}: offset {next_offset} was reached before"
        end, next_offset = position + header.size_bytes, header.next_offset
    if end != segment.size_bytes:
        yield f"{segment.size_bytes - end} bytes at {end} are no batch"


def _headers(segment: SegmentFileReader) -> Iterator[tuple[int, batch_header.BatchHeader]]:
    """Yield (position, header) of each batch up to the first malformed one, which is reported for the segment."""
    with contextlib.suppress(WireError):
        for position, header, _ in segment.batches():
            yield position, header


def _offsets(disk: Disk, path: str, base: int, segment: SegmentFileReader) -> Iterator[str]:
    index = OffsetIndex.unpack(base, read_file(disk, path), path)
    indexed = set(index.positions)
    last_offsets = {position: header.last_offset for position, header in _headers(segment) if position in indexed}
    for relative, position in zip(index.offsets, index.positions, strict=True):
        last_offset = last_offsets.get(position)
        if last_offset is None:
            yield f"offset {base + relative} points to {position}, where no batch begins"
        elif last_offset != base + relative:
            yield f"offset {base + relative} points to the batch that ends at {last_offset}"


def _times(disk: Disk, path: str, base: int, segment: SegmentFileReader) -> Iterator[str]:
    index = TimeIndex.unpack(base, read_file(disk, path), path)
    indexed = {base + relative for relative in index.offsets}
    largest = -1
    known = {}
    for _, header in _headers(segment):
        if header.max_timestamp > largest:
            largest = header.max_timestamp
            if header.last_offset in indexed:
                known[header.last_offset] = largest
    for timestamp, relative in zip(index.timestamps, index.offsets, strict=True):
        if known.get(base + relative) != timestamp:
            found = known.get(base + relative)
            yield f"offset {base + relative} is indexed with time {timestamp}; the segment has {found}"
    if index.timestamps and index.timestamps[-1] != largest:
        yield f"it ends at time {index.timestamps[-1]}, the segment at {largest}"


def _aborted(disk: Disk, path: str, base: int, segment: SegmentFileReader) -> Iterator[str]:
    entries = read_txn_index(disk, path)
    indexed = {entry.last_offset for entry in entries}
    producers = {
        x.base_offset: x.producer_id for _, x in _headers(segment) if x.is_control and x.base_offset in indexed
    }
    for entry in entries:
        if producers.get(entry.last_offset) != entry.producer_id:
            yield f"no marker of producer {entry.producer_id} at offset {entry.last_offset} (segment {base})"
