"""Positions of record batches in a range of a segment file, for share fetches.

Source: ``ShareFetchUtils.maybeSliceFetchRecords``, ``SharePartition.fetchAbortedTransactionRecordBatches``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.share_partitions.acquisition import AcquiredRange
from ottla.env.disk import FileSlice
from ottla.log.segment.indexes import AbortedTxn
from ottla.wire.record_batch.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.record_batch.legacy_records import MAGIC_PREFIX_BYTES, min_batch_bytes, parse_any_header

WINDOW_BYTES = 16 * 1024


class RecordBatchPosition(NamedTuple):
    """Record batch in a range of a file: position in the range (bytes) and header."""

    position: int
    header: BatchHeader

    @property
    def offsets(self) -> tuple[int, int]:
        """First and last offset of the batch, both inclusive."""
        return self.header.base_offset, self.header.last_offset

    @property
    def end(self) -> int:
        """Position (bytes) after the batch in the range."""
        return self.position + self.header.size_bytes


def find_batches(part: FileSlice, new_from: int, max_records: int) -> list[RecordBatchPosition]:
    """Return the complete batches of a file range, reading only headers.

    The list ends with the batch that contains the last of ``max_records`` records from ``new_from`` (the first offset
    never acquired) or, if that is later, from the start of the range. A batch that is truncated at the end is omitted.

    Raises:
        WireError: a batch header is invalid.
        OSError: the file cannot be read.
    """
    out: list[RecordBatchPosition] = []
    reach = 0
    window, start, position = b"", 0, 0
    while len(part) - position >= MAGIC_PREFIX_BYTES:
        if position + HEADER_BYTES > start + len(window):
            window, start = part.file.pread(min(WINDOW_BYTES, len(part) - position), part.offset + position), position
            if len(window) < min(HEADER_BYTES, len(part) - position):
                break
        if len(part) - position < min_batch_bytes(window, position - start):
            break  # the header is truncated
        batch = RecordBatchPosition(position, parse_any_header(window, position - start))
        if batch.end > len(part):
            break
        if not out:
            reach = max(new_from, batch.header.base_offset) + max_records - 1
        out.append(batch)
        if batch.header.last_offset >= reach:
            break
        position = batch.end
    return out


def aborted_batch_offsets(
    batches: Sequence[RecordBatchPosition], aborted: Sequence[AbortedTxn]
) -> list[tuple[int, int]]:
    """Return first and last offset (inclusive) of those of ``batches`` that were written by aborted transactions.

    Control batches are left out.
    """
    spans: dict[int, list[AbortedTxn]] = {}
    for entry in aborted:
        spans.setdefault(entry.producer_id, []).append(entry)
    return [
        batch.offsets
        for batch in batches
        if batch.header.is_transactional
        and not batch.header.is_control
        and any(
            entry.first_offset <= batch.header.base_offset <= entry.last_offset
            for entry in spans.get(batch.header.producer_id, ())
        )
    ]


def slice_acquired(
    part: FileSlice, batches: Sequence[RecordBatchPosition], acquired: Sequence[AcquiredRange]
) -> FileSlice:
    """Return the part of a file range from the batch with the first acquired record to the batch with the last one.

    ``batches``: the batches of ``part``; ``acquired``: ascending ranges, at least one.
    """
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    begin = max((batch.position for batch in batches if batch.header.base_offset <= first), default=0)
    end = max((batch.end for batch in batches if batch.header.base_offset <= last), default=len(part))
    return part if begin == 0 and end == len(part) else FileSlice(part.file, part.offset + begin, end - begin)
