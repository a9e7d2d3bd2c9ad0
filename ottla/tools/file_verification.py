"""Verification of the files of a data directory, for ``ottla dump --verify``.

A segment is checked for its CRCs, the order of its offsets and the record counts of its batch headers; an index is
compared with its segment. Snapshots and checkpoints contain checksums and counts that are checked when they are read.

Source: ``DumpLogSegments.java`` (apache/kafka 4.3.1), for the indexes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ottla.env.disk import Disk, read_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.segment.indexes import OffsetIndex, TimeIndex, read_txn_index
from ottla.tools.dump import dump_file
from ottla.wire.errors import WireError
from ottla.wire.record_batch import batch_header as b
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch import records as r

Batches = dict[int, b.BatchHeader]
"""Batch headers of a segment by position in bytes."""


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
            yield from _segment(read_file(disk, path), int(digits))
        elif suffix in ("index", "timeindex", "txnindex"):
            raw = read_file(disk, f"{stem}.log") if disk.exists(f"{stem}.log") else None
            if raw is None:
                yield "its segment is missing"
                return
            check = {"index": _offsets, "timeindex": _times, "txnindex": _aborted}[suffix]
            yield from check(disk, path, int(digits), raw)
        else:
            for row in dump_file(disk, path):
                if row["kind"] == "damage" or row.get("valid") is False:
                    yield f"{row}"
    except (CorruptFile, WireError) as error:
        yield str(error)


def _segment(raw: bytes, base_offset: int) -> Iterator[str]:
    end, next_offset = 0, base_offset
    for position, header in legacy_records.iterate_any_batches(raw):
        where = f"batch of offset {header.base_offset} at {position}"
        if not legacy_records.any_crc_matches(raw, header, position):
            yield f"{where}: bad CRC"
        else:
            try:
                found = [x.offset for x in r.iterate_records(raw, header, position)]
            except WireError as error:
                yield f"{where}: {error}"
            else:
                beyond = [x for x in found if x > header.last_offset]
                if beyond or found != sorted(set(found)):
                    yield f"{where}: its records have offsets {found}"
        if header.base_offset < next_offset:
            yield f"{where}: offset {next_offset} was reached before"
        end, next_offset = position + header.size_bytes, header.next_offset
    if end != len(raw):
        yield f"{len(raw) - end} bytes at {end} are no batch"


def _batches(raw: bytes) -> Batches:
    """Return the batches of a segment up to the first malformed one, which is reported for the segment itself."""
    out: Batches = {}
    with contextlib.suppress(WireError):
        out.update(legacy_records.iterate_any_batches(raw))
    return out


def _offsets(disk: Disk, path: str, base: int, raw: bytes) -> Iterator[str]:
    index = OffsetIndex.unpack(base, read_file(disk, path), path)
    batches = _batches(raw)
    for relative, position in zip(index.offsets, index.positions, strict=True):
        header = batches.get(position)
        if header is None:
            yield f"offset {base + relative} points to {position}, where no batch begins"
        elif header.last_offset != base + relative:
            yield f"offset {base + relative} points to the batch that ends at {header.last_offset}"


def _times(disk: Disk, path: str, base: int, raw: bytes) -> Iterator[str]:
    index = TimeIndex.unpack(base, read_file(disk, path), path)
    largest, at = -1, base
    known = {}
    for header in _batches(raw).values():
        if header.max_timestamp > largest:
            largest, at = header.max_timestamp, header.last_offset
            known[at] = largest
    for timestamp, relative in zip(index.timestamps, index.offsets, strict=True):
        if known.get(base + relative) != timestamp:
            found = known.get(base + relative)
            yield f"offset {base + relative} is indexed with time {timestamp}; the segment has {found}"
    if index.timestamps and index.timestamps[-1] != largest:
        yield f"it ends at time {index.timestamps[-1]}, the segment at {largest}"


def _aborted(disk: Disk, path: str, base: int, raw: bytes) -> Iterator[str]:
    markers = {x.base_offset: x for x in _batches(raw).values() if x.is_control}
    for entry in read_txn_index(disk, path):
        header = markers.get(entry.last_offset)
        if header is None or header.producer_id != entry.producer_id:
            yield f"no marker of producer {entry.producer_id} at offset {entry.last_offset} (segment {base})"
