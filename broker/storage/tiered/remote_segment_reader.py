"""Reads of one remote segment: the bytes of a fetch, and the batch with a timestamp. Only batch headers are parsed.

The functions block in the store: they run in threads.

Source: ``RemoteLogManager.read``, ``lookupTimestamp``, ``RemoteLogInputStream.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from ottla.broker.storage.tiered.remote_index_cache import RemoteIndexCache
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata
from ottla.log.segment.indexes import AbortedTxn
from ottla.wire.record_batch.batch_header import HEADER_BYTES, MAGIC_OFFSET, BatchHeader
from ottla.wire.record_batch.legacy_records import MAGIC_PREFIX_BYTES, iterate_any_batches, parse_any_header

WINDOW_BYTES = 64 * 1024
"""Bytes that a search for a batch reads at a time; a fetch reads as many before its first batch."""

FetchSegment = Callable[[RemoteLogSegmentMetadata, int, int], bytes]
"""Function that returns a range of a segment's records: `RemoteStorage.fetch_segment`."""
_abort_marker_offset = attrgetter("last_offset")


class SegmentRecords(NamedTuple):
    """Records of a remote segment for a fetch: their bytes, first offset and exclusive upper offset."""

    records: bytes
    """Batches, the last of which may be cut off; empty if the first one exceeds the limit."""
    base_offset: int
    """Base offset of the first batch."""
    upper_offset: int
    """Exclusive upper bound of the offsets in `records`, for the search of aborted transactions."""


class BatchBytes(NamedTuple):
    """Whole batch of a remote segment: its bytes, header, and the position after it."""

    raw: bytes
    header: BatchHeader
    next_position: int
    """Position behind the batch."""


class RemoteSegmentReader:
    """Reader of remote segments through their offset indexes. Its methods may be called in several threads."""

    def __init__(self, fetch_segment: FetchSegment, indexes: RemoteIndexCache) -> None:
        self._fetch = fetch_segment
        self._indexes = indexes

    def read(
        self, metadata: RemoteLogSegmentMetadata, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> SegmentRecords | None:
        """Return records of a segment from the batch that contains ``offset``, or ends above it, up to ``max_bytes``.

        A first batch larger than ``max_bytes`` is returned whole with ``at_least_one``; without it the records are
        empty. None if the segment has no whole batch from ``offset`` on.

        Raises:
            RemoteStorageError: the store failed. WireError: a batch header is damaged.
        """
        index = self._indexes.offset_index(metadata)
        found = self._find_batch(metadata, index.lookup(offset), offset, max_bytes + WINDOW_BYTES)
        if found is None:
            return None
        position, window, at, header = found
        limit = max(max_bytes, header.size_bytes) if at_least_one else max_bytes
        if header.size_bytes > limit:
            return SegmentRecords(b"", header.base_offset, header.base_offset)
        limit = min(limit, metadata.segment_size_bytes - position)
        records = window if at == 0 and len(window) == limit else window[at : at + limit]
        if len(records) < limit:
            records += self._fetch(metadata, position + len(records), position + limit)
        upper = index.upper_bound_offset(position + len(records))
        return SegmentRecords(records, header.base_offset, metadata.end_offset + 1 if upper is None else upper)

    def find_batch_by_timestamp(
        self, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, from_offset: int, position: int | None = None
    ) -> BatchBytes | None:
        """Return the first batch from ``from_offset`` on with a record of ``timestamp_ms`` or later; None without one.

        The largest timestamp in the header decides. ``position`` is where to continue an earlier search; None: where
        the indexes point to.

        Raises:
            RemoteStorageError: the store failed. WireError: a batch header is damaged.
        """
        if position is None:
            least = max(self._indexes.time_index(metadata).lookup(timestamp_ms), from_offset)
            position = self._indexes.offset_index(metadata).lookup(least)
        found = self._find_batch(metadata, position, from_offset, WINDOW_BYTES, timestamp_ms)
        if found is None:
            return None
        start, window, at, header = found
        raw = window[at : at + header.size_bytes]
        if len(raw) < header.size_bytes:
            raw += self._fetch(metadata, start + len(raw), start + header.size_bytes)
        return BatchBytes(raw, header, start + header.size_bytes)

    def _find_batch(
        self,
        metadata: RemoteLogSegmentMetadata,
        position: int,
        offset: int,
        window_bytes: int,
        timestamp_ms: int | None = None,
    ) -> tuple[int, bytes, int, BatchHeader] | None:
        """Find the first batch that ends at or above ``offset`` and has a timestamp from ``timestamp_ms`` on, if given.

        The search reads ``window_bytes`` at a time from ``position`` on.

        Returns:
            Position and bytes of the last read, index of the batch in these bytes, and its header; None if no batch
            qualifies, or if it is not whole.
        """
        size = metadata.segment_size_bytes
        while position < size:
            window = self._fetch(metadata, position, min(position + window_bytes, size))
            at = 0
            while at < len(window):
                rest = len(window) - at
                if rest < HEADER_BYTES:
                    if position + len(window) < size:
                        break
                    if rest < MAGIC_PREFIX_BYTES or window[at + MAGIC_OFFSET] >= 2:
                        return None
                header = parse_any_header(window, at)
                if header.last_offset >= offset and (timestamp_ms is None or header.max_timestamp >= timestamp_ms):
                    return (position + at, window, at, header) if position + at + header.size_bytes <= size else None
                at += header.size_bytes
            if at == 0:
                return None
            position += at
        return None


def records_below(raw: bytes, offset: int) -> bytes:
    """Return the batches in ``raw`` up to the first one whose base offset is at or above ``offset``.

    The last batch may be cut off; ``raw`` itself is returned if all are below.

    Raises:
        WireError: a batch header is damaged.
    """
    position = next((at for at, header in iterate_any_batches(raw) if header.base_offset >= offset), None)
    return raw if position is None else raw[:position]


def aborted_txns_in_range(entries: list[AbortedTxn], offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
    """Return the aborted transactions of an index that have records in ``offset`` to ``upper_offset``, exclusive.

    ``entries`` are those of the index of one segment. The second value is True if no index of a later segment has
    further ones.

    Source: ``TransactionIndex.collectAbortedTxns`` (apache/kafka 4.3.1).
    """
    found = []
    for entry in islice(entries, bisect_left(entries, offset, key=_abort_marker_offset), None):
        if entry.first_offset < upper_offset:
            found.append(entry)
        if entry.last_stable_offset >= upper_offset:
            return found, True
    return found, False
