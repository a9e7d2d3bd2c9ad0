"""Reads of one remote segment: the bytes of a fetch, and the batch with a timestamp. Only batch headers are parsed.

The methods of `RemoteSegmentReader` but `read_open` block in the store: they run in threads. Reads for a fetch through
the chunk cache return ranges of its files.

Source: ``RemoteLogManager.read``, ``lookupTimestamp``, ``RemoteLogInputStream.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, TypeVar

from ottla.broker.config.limits import CROWDED_READ_BYTES
from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage, ChunkNotOpenError, HeldChunks
from ottla.broker.storage.tiered.remote_index_cache import RemoteIndexCache
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata, RemoteStorage
from ottla.env.disk import FileSlice
from ottla.log.segment.indexes import AbortedTxn, OffsetIndex
from ottla.wire.codec.chunk_sequence import ChunkSequence, flatten_chunks
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, MAGIC_OFFSET, BatchHeader
from ottla.wire.record_batch.legacy_records import MAGIC_PREFIX_BYTES, iterate_any_batches, parse_any_header

WINDOW_BYTES = 64 * 1024
"""Bytes that a search for a batch reads at a time; a fetch without chunk cache reads as many before its first batch."""
OPEN_WINDOW_BYTES = 16 * 1024
"""Bytes that a search for a batch reads at a time from an open file of the chunk cache, on the event loop."""
MAX_OPEN_WINDOWS = 8
"""Reads of a search on the event loop: more are made in a thread."""

T = TypeVar("T")
FetchSegment = Callable[[RemoteLogSegmentMetadata, int, int], bytes]
"""Function that returns a range of a segment's records: `RemoteStorage.fetch_segment`."""
RemoteRecords = bytes | memoryview | FileSlice | ChunkSequence
"""Records for a response: in memory, a range of a file of the chunk cache, or several of these."""
_abort_marker_offset = attrgetter("last_offset")


class SegmentRecords(NamedTuple):
    """Records of a remote segment for a fetch: their bytes, first offset and exclusive upper offset."""

    records: RemoteRecords
    """Batches, the last of which may be cut off; empty if the first one exceeds the limit."""
    base_offset: int
    """Base offset of the first batch."""
    upper_offset: int
    """Exclusive upper bound of the offsets in `records`, for the search of aborted transactions."""


class _FoundBatch(NamedTuple):
    """Batch that a search has found, and the bytes that it read last."""

    position: int
    header: BatchHeader
    window: bytes
    start: int
    """Position of the batch in `window`."""


class BatchBytes(NamedTuple):
    """Whole batch of a remote segment: its bytes, header, the position after it, and the chunks it was read from."""

    raw: bytes
    header: BatchHeader
    next_position: int
    """Position behind the batch."""
    chunks: HeldChunks
    """Chunks of the cache that were read, for `RemoteSegmentReader.drop_damaged`."""


class RemoteSegmentReader:
    """Reader of remote segments through their offset indexes; several threads may call its methods at the same time.

    All methods but `read_open` block in the store.
    """

    def __init__(self, storage: Callable[[], RemoteStorage], indexes: RemoteIndexCache) -> None:
        self._storage = storage
        self._indexes = indexes

    def read(
        self,
        metadata: RemoteLogSegmentMetadata,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool,
        in_memory: bool = False,
    ) -> SegmentRecords | None:
        """Return records of a segment from the first batch that ends at or above ``offset`` on, up to ``max_bytes``.

        The last batch may be cut off. A first batch larger than ``max_bytes`` is returned whole with ``at_least_one``;
        without it the records are empty. None if the segment has no whole batch from ``offset`` on. ``in_memory``: they
        are returned in memory, also through a chunk cache, which reads from the store what its disk cannot read. So are
        those of a crowded cache, which are at most `CROWDED_READ_BYTES`.

        Raises:
            RemoteStorageError: the store failed. WireError: a batch header is damaged, in the store, too.
        """
        read = partial(self._read, self._storage(), metadata, offset, max_bytes)
        return self._retry_undamaged(partial(read, at_least_one=at_least_one, in_memory=in_memory))

    def drop_damaged(self, chunks: HeldChunks) -> bool:
        """Verify chunks again of a read with malformed records; drop the damaged ones from the cache.

        Return True if any was, so that a second read returns what the store has.
        """
        storage = self._storage()
        return isinstance(storage, CachedRemoteStorage) and storage.drop_damaged(chunks)

    def _retry_undamaged(self, read: Callable[[HeldChunks], T]) -> T:
        """Call ``read``, and once more after a WireError if chunks that it held were damaged in the cache."""
        held = HeldChunks()
        try:
            return read(held)
        except WireError:
            if not self.drop_damaged(held):
                raise
        return read(HeldChunks())

    def _read(
        self,
        storage: RemoteStorage,
        metadata: RemoteLogSegmentMetadata,
        offset: int,
        max_bytes: int,
        held: HeldChunks,
        *,
        at_least_one: bool,
        in_memory: bool,
    ) -> SegmentRecords | None:
        """Return what `read` does, without its second attempt: a damaged chunk of the cache is a WireError here.

        The chunks of the cache that are read are added to ``held``, and those in it are not loaded again. `read`
        verifies them after a WireError.
        """
        index = self._indexes.offset_index(metadata)
        if isinstance(storage, CachedRemoteStorage) and storage.is_crowded():
            in_memory, max_bytes = True, min(max_bytes, CROWDED_READ_BYTES)
        fetch, window_bytes = storage.fetch_segment, max_bytes + WINDOW_BYTES
        if isinstance(storage, CachedRemoteStorage):
            fetch = partial(storage.fetch_segment, chunks=held)
            window_bytes = window_bytes if in_memory else WINDOW_BYTES
        found = self._find_batch(fetch, metadata, index.lookup(offset), offset, window_bytes)
        if found is None:
            return None
        size = _size_to_read(metadata, found, max_bytes, at_least_one=at_least_one)
        if isinstance(storage, CachedRemoteStorage) and not in_memory:
            slices = storage.fetch_slices(metadata, found.position, found.position + size, held)
            return _segment_records(metadata, index, found, slices)
        slices = [memoryview(found.window)[found.start : found.start + size]]
        if len(slices[0]) < size:
            slices.append(memoryview(fetch(metadata, found.position + len(slices[0]), found.position + size)))
        return _segment_records(metadata, index, found, slices)

    def read_open(
        self, metadata: RemoteLogSegmentMetadata, offset: int, max_bytes: int, *, at_least_one: bool
    ) -> SegmentRecords | None:
        """Return what `read` does, without blocking: from open files of the chunk cache and the page cache.

        Raises:
            ChunkNotOpenError: that is not possible. WireError: a batch header is damaged.
        """
        storage, index = self._storage(), self._indexes.cached_offset_index(metadata)
        if index is None or not isinstance(storage, CachedRemoteStorage):
            raise ChunkNotOpenError
        position = index.lookup(offset)
        found = self._find_batch(
            storage.read_open, metadata, position, offset, OPEN_WINDOW_BYTES, max_windows=MAX_OPEN_WINDOWS
        )
        if found is None:
            return None
        size = _size_to_read(metadata, found, max_bytes, at_least_one=at_least_one)
        slices = storage.open_slices(metadata, found.position, found.position + size)
        return _segment_records(metadata, index, found, slices)

    def find_batch_by_timestamp(
        self, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, from_offset: int, position: int | None = None
    ) -> BatchBytes | None:
        """Return the first batch from ``from_offset`` on with a record of ``timestamp_ms`` or later; None without one.

        The largest timestamp in the header decides. ``position`` is where to continue an earlier search; None: where
        the indexes point to.

        Raises:
            RemoteStorageError: the store failed. WireError: a batch header is damaged, in the store, too.
        """
        if position is None:
            least = max(self._indexes.time_index(metadata).lookup(timestamp_ms), from_offset)
            position = self._indexes.offset_index(metadata).lookup(least)
        return self._retry_undamaged(
            partial(self._read_batch_by_timestamp, metadata, timestamp_ms, from_offset, position)
        )

    def _read_batch_by_timestamp(
        self, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, from_offset: int, position: int, held: HeldChunks
    ) -> BatchBytes | None:
        storage = self._storage()
        fetch = storage.fetch_segment
        if isinstance(storage, CachedRemoteStorage):
            fetch = partial(_fetch_holding_newest, storage, held)
        found = self._find_batch(fetch, metadata, position, from_offset, WINDOW_BYTES, timestamp_ms)
        if found is None:
            return None
        end = found.position + found.header.size_bytes
        raw = found.window[found.start : found.start + found.header.size_bytes]
        if len(raw) < found.header.size_bytes:
            raw += fetch(metadata, found.position + len(raw), end)
        return BatchBytes(raw, found.header, end, held)

    @staticmethod
    def _find_batch(
        fetch: FetchSegment,
        metadata: RemoteLogSegmentMetadata,
        position: int,
        offset: int,
        window_bytes: int,
        timestamp_ms: int | None = None,
        max_windows: int | None = None,
    ) -> _FoundBatch | None:
        """Find the first batch that ends at or above ``offset`` and has a timestamp from ``timestamp_ms`` on, if given.

        The search reads ``window_bytes`` at a time from ``position`` on; more than ``max_windows`` reads raise
        ChunkNotOpenError. None if no batch qualifies, or if it is not whole.
        """
        size, windows = metadata.segment_size_bytes, 0
        while position < size:
            windows += 1
            if max_windows is not None and windows > max_windows:
                raise ChunkNotOpenError
            window = fetch(metadata, position, min(position + window_bytes, size))
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
                    is_whole = position + at + header.size_bytes <= size
                    return _FoundBatch(position + at, header, window, at) if is_whole else None
                at += header.size_bytes
            if at == 0:
                return None
            position += at
        return None


def _fetch_holding_newest(
    storage: CachedRemoteStorage, held: HeldChunks, metadata: RemoteLogSegmentMetadata, start: int, end: int
) -> bytes:
    """Return bytes [start, end) of a segment; release the chunks in ``held``, but not those of the last window.

    A search passes over a whole segment, so its memory is bounded. The keys of released chunks stay: a damaged length
    may have led the search to a header in a later chunk.
    """
    for key in list(held)[: -(WINDOW_BYTES // storage.chunk_bytes + 2)]:
        held[key] = None
    return storage.fetch_segment(metadata, start, end, held)


def _size_to_read(metadata: RemoteLogSegmentMetadata, found: _FoundBatch, max_bytes: int, *, at_least_one: bool) -> int:
    """Return the bytes to read from the first batch on; 0 if it exceeds the limit."""
    limit = max(max_bytes, found.header.size_bytes) if at_least_one else max_bytes
    return 0 if found.header.size_bytes > limit else min(limit, metadata.segment_size_bytes - found.position)


def _segment_records(
    metadata: RemoteLogSegmentMetadata,
    index: OffsetIndex,
    found: _FoundBatch,
    slices: Sequence[FileSlice | memoryview],
) -> SegmentRecords:
    """Return the records of a fetch, without slices if the first batch exceeds the limit."""
    base = found.header.base_offset
    size = sum(map(len, slices))
    if not size:
        return SegmentRecords(b"", base, base)
    upper = index.upper_bound_offset(found.position + size)
    records = slices[0] if len(slices) == 1 else ChunkSequence(slices)
    return SegmentRecords(records, base, metadata.end_offset + 1 if upper is None else upper)


def read_records(records: RemoteRecords) -> bytes | memoryview:
    """Return records in memory; those in files are read.

    Raises:
        FileReadError, FileTruncatedError: a file cannot be read.
    """
    if isinstance(records, FileSlice):
        return records.read_all()
    if isinstance(records, ChunkSequence):
        return b"".join(map(read_records, records.chunks))
    return records


def is_in_page_cache(records: RemoteRecords) -> bool:
    """Return whether records can be read without waiting for the disk: first and last byte of each range are cached."""
    for part in flatten_chunks([records]):
        if isinstance(part, FileSlice):
            last = part.offset + part.size_bytes - 1
            if part.file.pread_cached(1, part.offset) is None or part.file.pread_cached(1, last) is None:
                return False
    return True


def records_below(raw: bytes | memoryview, offset: int) -> bytes | memoryview:
    """Return the batches in ``raw`` before the first whole one whose base offset is at or above ``offset``.

    Without such a batch ``raw`` itself is returned, with a cut-off batch at its end, of any offsets.

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
