"""Decoding of fetched batches into records, with the filter for read_committed.

Source: ``CompletedFetch.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.batch_header import BatchHeader
from ottla.wire.record_batch.control_record import ControlRecordType, parse_end_transaction_marker
from ottla.wire.record_batch.records import Record, iterate_records


class DecodedRecords(NamedTuple):
    """Decoded records, and the next fetch offset, which skips control batches and aborted records.

    ``append_time_offsets``: offsets of the records whose timestamps are those of the log append.
    """

    records: list[Record]
    next_offset: int
    append_time_offsets: frozenset[int] = frozenset()


def _batches(raw: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    for pos, header in legacy_records.iterate_any_batches(raw):
        if not legacy_records.any_crc_matches(raw, header, pos):
            raise WireError(f"bad CRC in the batch at offset {header.base_offset}")
        yield pos, header


def decode_records(raw: Buffer, from_offset: int) -> Iterator[Record]:
    """Yield the data records in fetched bytes with offsets from ``from_offset`` on, but no control records.

    An incomplete batch at the end is ignored. Records of aborted transactions are included: see `decode_committed`.

    Raises:
        WireError: a batch has a bad checksum or malformed records.
    """
    for pos, header in _batches(raw):
        if not header.is_control:
            yield from (x for x in iterate_records(raw, header, pos) if x.offset >= from_offset)


def decode_committed(raw: Buffer, from_offset: int, aborted: Iterable[tuple[int, int]] = ()) -> DecodedRecords:
    """Return the data records in fetched bytes from ``from_offset`` on without those of aborted transactions.

    ``aborted``: (producer id, first offset) of each aborted transaction in the Fetch response; without them all
    records are returned, as for read_uncommitted. An incomplete batch at the end is ignored.

    Raises:
        WireError: a batch has a bad checksum or malformed records.
    """
    begun = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    skipped: set[int] = set()
    out: list[Record] = []
    appended: set[int] = set()
    end = from_offset
    for pos, header in _batches(raw):
        end = max(end, header.next_offset)
        while begun and begun[-1][0] <= header.last_offset:
            skipped.add(begun.pop()[1])
        if header.is_control:
            ends = (parse_end_transaction_marker(record) for record in iterate_records(raw, header, pos))
            if any(end_of is not None and end_of.control_type == ControlRecordType.ABORT for end_of in ends):
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            first = len(out)
            out += (x for x in iterate_records(raw, header, pos) if x.offset >= from_offset)
            if header.has_log_append_time:
                appended.update(x.offset for x in out[first:])
    return DecodedRecords(out, end, frozenset(appended))
