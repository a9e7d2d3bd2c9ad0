"""Cache of decoded indexes of remote segments, least recently used first out.

Kafka keeps their files on disk, up to ``remote.log.index.file.cache.total.size.bytes``. Here the decoded indexes are in
memory, up to that size and `MAX_CACHED_INDEX_BYTES`, and their bytes in the chunk cache, if there is one.

Source: ``RemoteIndexCache.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
)
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.segment.indexes import AbortedTxn, OffsetIndex, TimeIndex, unpack_txn_index

T = TypeVar("T")
MAX_CACHED_INDEX_BYTES = 16 * 1024 * 1024
"""Bytes of all indexes in the cache, as they are stored: a segment of 1 GiB has an offset index of up to 2 MiB."""

FetchIndex = Callable[[RemoteLogSegmentMetadata, IndexType], bytes]
"""Function that returns a stored index: `RemoteStorage.fetch_index`."""


class RemoteIndexCache:
    """Indexes of remote segments by segment id and type. Its methods may be called in several threads.

    Only `cached_offset_index` and `cached_aborted_txns` do not block.
    """

    def __init__(self, fetch: FetchIndex, max_bytes: int = MAX_CACHED_INDEX_BYTES) -> None:
        """Create an empty cache.

        Args:
            fetch: returns a stored index.
            max_bytes: maximum size of all cached indexes; a single larger one is not cached.
        """
        self._fetch = fetch
        self.max_bytes = 0
        self._lock = threading.Lock()  # never held during a call of the store
        self._entries: OrderedDict[tuple[bytes, IndexType], tuple[Any, int]] = OrderedDict()
        """Decoded index and its stored size in bytes."""
        self.cached_bytes = 0
        """Stored size of all cached indexes."""
        self.resize(max_bytes)

    def resize(self, max_bytes: int) -> None:
        """Set the maximum size of all cached indexes, at most `MAX_CACHED_INDEX_BYTES`, and evict those beyond it."""
        with self._lock:
            self.max_bytes = min(max_bytes, MAX_CACHED_INDEX_BYTES)
            self._evict()

    def offset_index(self, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
        """Return the decoded offset index of a segment, from the cache or the remote store.

        Raises:
            RemoteStorageError: it cannot be fetched, or is malformed.
        """
        base = metadata.start_offset
        return self._get(metadata, IndexType.OFFSET, lambda raw: OffsetIndex.unpack(base, raw, _path(metadata)))

    def cached_offset_index(self, metadata: RemoteLogSegmentMetadata) -> OffsetIndex | None:
        """Return the offset index of a segment without blocking; None if it is not in memory."""
        return cast("OffsetIndex | None", self._cached((metadata.segment_id.id, IndexType.OFFSET)))

    def cached_aborted_txns(self, metadata: RemoteLogSegmentMetadata) -> list[AbortedTxn] | None:
        """Return what `aborted_txns` does without blocking; None if the index is not in memory."""
        return [] if metadata.txn_index_empty else self._cached((metadata.segment_id.id, IndexType.TRANSACTION))

    def time_index(self, metadata: RemoteLogSegmentMetadata) -> TimeIndex:
        """Return the decoded time index of a segment, from the cache or the remote store.

        Raises:
            RemoteStorageError: it cannot be fetched, or is malformed.
        """
        base = metadata.start_offset
        return self._get(metadata, IndexType.TIMESTAMP, lambda raw: TimeIndex.unpack(base, raw, _path(metadata)))

    def aborted_txns(self, metadata: RemoteLogSegmentMetadata) -> list[AbortedTxn]:
        """Return the aborted transactions whose markers are in a segment; empty without a transaction index.

        They are in the order of the markers' offsets. The list belongs to the cache and must not be changed. The call
        may block in the store.

        Raises:
            RemoteStorageError: the index cannot be fetched, or is malformed.
        """
        if metadata.txn_index_empty:
            return []
        try:
            return self._get(metadata, IndexType.TRANSACTION, lambda raw: unpack_txn_index(raw, _path(metadata)))
        except RemoteResourceNotFoundError:
            return []  # as in Kafka: records of the metadata topic may lack the information that there is none

    def _get(self, metadata: RemoteLogSegmentMetadata, index: IndexType, decode: Callable[[bytes], T]) -> T:
        key = (metadata.segment_id.id, index)
        cached = self._cached(key)
        if cached is not None:
            return cast("T", cached)
        raw = self._fetch(metadata, index)
        try:
            decoded = decode(raw)
        except CorruptFile as error:
            raise CorruptRemoteSegmentError(f"{index.value} index: {error}") from None
        with self._lock:
            if key not in self._entries and len(raw) <= self.max_bytes:
                self._entries[key] = decoded, len(raw)
                self.cached_bytes += len(raw)
                self._evict()
        return decoded

    def _cached(self, key: tuple[bytes, IndexType]) -> Any:
        """Return the decoded index of a key; None if it is not in memory."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def _evict(self) -> None:
        while self.cached_bytes > self.max_bytes:
            self.cached_bytes -= self._entries.popitem(last=False)[1][1]


def _path(metadata: RemoteLogSegmentMetadata) -> str:
    """Return a name of a remote segment for error messages."""
    segment = metadata.segment_id
    return f"{segment.topic}-{segment.partition} remote segment {segment.id.hex()}"
