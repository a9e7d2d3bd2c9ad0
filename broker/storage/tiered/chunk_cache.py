"""Cache on disk of chunks of remote segments: bounded, least recently used first out, verified when they are read.

The chunks are ranges of a segment's records, each verified once, and its stored indexes, each as a whole and verified
at each use.

It survives a restart: the files of the directory are used again, in the order in which they were written. A file that a
crash left incomplete, or that was damaged, has a wrong checksum and is fetched again. Nothing is synced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from ottla.broker.storage.tiered.chunk_directory import (
    INDEX_CHUNKS,
    ChunkCacheOptions,
    ChunkCacheStats,
    ChunkDirectory,
    ChunkKey,
    OpenChunk,
)
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteStorage,
    RemoteStorageError,
    SegmentFiles,
)
from ottla.env.disk import Disk, File, FileSlice
from ottla.wire.codec.primitives import uuid_to_string

MAX_READS_AHEAD = 8
"""Chunks that are fetched ahead at a time; beyond, none is fetched ahead."""

ReadAhead = Callable[[Callable[[], None]], None]
"""Function that runs another one in a thread, soon; it may drop it."""
HeldChunks = dict[ChunkKey, OpenChunk | None]
"""Chunks of one read, which passes over some of them twice; None for one that was read and released."""


class ChunkNotOpenError(Exception):
    """Raised if a read must be made in a thread: a chunk is not cached, not verified or not in the page cache."""


class _Fetch:
    """Fetch of a chunk in progress, with its result for the readers that wait for it."""

    __slots__ = ("data", "done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.data: bytes | None = None
        self.error: RemoteStorageError | None = None


def _wait(event: threading.Event) -> None:
    event.wait()


class CachedRemoteStorage:
    """`RemoteStorage` that caches chunks of another one on disk. Its methods may be called in several threads.

    Only `read_open` and `open_slices` do not block: they may be called on the event loop. The errors of the other
    storage are passed on.
    """

    def __init__(
        self,
        store: RemoteStorage,
        disk: Disk,
        options: ChunkCacheOptions,
        read_ahead: ReadAhead | None = None,
        wait: Callable[[threading.Event], None] = _wait,
    ) -> None:
        """Open the cache with the chunks that an earlier process left.

        Args:
            store: the store behind the cache.
            disk: disk with the directory.
            options: directory and sizes.
            read_ahead: runs a function in another thread, for chunks that are fetched ahead; None for none.
            wait: waits in a thread for an event.

        Raises:
            OSError: the directory cannot be read or created.
        """
        self.store = store
        self.stats = ChunkCacheStats()
        self._options = options
        self._read_ahead = read_ahead
        self._wait = wait
        self._lock = threading.Lock()  # never held during a call of the store or the disk
        self._fetches: dict[ChunkKey, _Fetch] = {}
        self._reads_ahead = 0
        self._pending_ahead: WeakValueDictionary[ChunkKey, partial[None]] = WeakValueDictionary()
        """Reads ahead that were started and have not ended; one that `read_ahead` drops disappears."""
        self._files = ChunkDirectory(disk, options, self.stats)

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk of records."""
        return self._options.chunk_bytes

    @property
    def cached_bytes(self) -> int:
        """Length of all files of the cache."""
        return self._files.cached_bytes

    # ------------------------------------------------------------------ RemoteStorage

    def copy_segment(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        """Store a segment and return its custom metadata, None if the store has none for it.

        Its records are cached only when they are read.
        """
        return self.store.copy_segment(metadata, files)

    def fetch_segment(
        self, metadata: RemoteLogSegmentMetadata, start: int, end: int, chunks: HeldChunks | None = None
    ) -> bytes:
        """Return bytes [start, end) of the segment's records, fewer at its end; chunks not in the cache are fetched.

        Then the reads of the following chunks ahead are started. ``chunks``: those that the caller has read from
        before, to which those of this range are added: none is fetched again, though the cache may not keep it.
        """
        pieces, chunks = [], {} if chunks is None else chunks
        for key, first, last in self._chunks_of(metadata, start, end):
            data = self._files.read(self._load_records(metadata, key, chunks), first, last)
            if data is None:
                chunks.pop(key, None)
                begin = key[1] * self._options.chunk_bytes
                data = self.store.fetch_segment(metadata, begin + first, begin + last)
            pieces.append(data)
        self._start_reads_ahead(metadata, end)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        """Return a stored index, whole, verified each time; it is fetched and cached if it is not in the cache."""
        key = (uuid_to_string(metadata.segment_id.id), INDEX_CHUNKS[index])
        return self._load(key, partial(self.store.fetch_index, metadata, index)).data

    def delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment from the store, then its chunks from the cache."""
        self.store.delete_segment(metadata)
        self._files.remove_segment(uuid_to_string(metadata.segment_id.id))

    # ------------------------------------------------------------------ ranges of files

    def is_crowded(self) -> bool:
        """Return whether slow responses keep so many files open that further reads must be small and in memory."""
        return self._files.is_crowded()

    def fetch_slices(
        self, metadata: RemoteLogSegmentMetadata, start: int, end: int, chunks: HeldChunks | None = None
    ) -> list[FileSlice | memoryview]:
        """Return bytes [start, end) of the segment's records as ranges of the chunks' files, which are not read.

        A chunk that has no file is in memory. ``chunks``: as for `fetch_segment`.
        """
        chunks = {} if chunks is None else chunks
        slices = [
            self._load_records(metadata, key, chunks).slice(first, last)
            for key, first, last in self._chunks_of(metadata, start, end)
        ]
        self._start_reads_ahead(metadata, end)
        return slices

    def read_open(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        """Return bytes [start, end) of the segment's records without blocking.

        Raises:
            ChunkNotOpenError: that is not possible.
        """
        pieces = []
        for key, first, last in self._chunks_of(metadata, start, end):
            chunk = self._files.opened(key)
            data = None
            if chunk is not None and chunk.file is not None:
                data = chunk.file.pread_cached(last - first, first)
            if data is None:
                raise ChunkNotOpenError
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def open_slices(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> list[FileSlice | memoryview]:
        """Return what `fetch_slices` does, without blocking.

        Raises:
            ChunkNotOpenError: that is not possible, or the cache is crowded.
        """
        if self.is_crowded():
            raise ChunkNotOpenError
        slices = []
        for key, first, last in self._chunks_of(metadata, start, end):
            chunk = self._files.opened(key)
            if chunk is None or not chunk.is_complete():
                raise ChunkNotOpenError
            slices.append(chunk.slice(first, last))
        self.stats.hits += len(slices)
        self._start_reads_ahead(metadata, end)
        return slices

    def drop_damaged(self, chunks: HeldChunks) -> bool:
        """Verify chunks of a read with malformed records again; drop the damaged ones; return True if any was.

        False also if the process lacks the descriptors to verify them all; damaged ones may have been dropped then.
        """
        with suppress(OSError):  # no descriptors
            return sum(map(self._files.is_damaged, chunks)) > 0
        return False

    def discard(self, file: File) -> None:
        """Drop the chunk of a file from which a response could not be sent; another file is ignored."""
        self._files.discard(file)

    def _chunks_of(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> list[tuple[ChunkKey, int, int]]:
        """Return the chunks of a range, each with start and end within the chunk."""
        if not 0 <= start <= end:
            raise ValueError(f"invalid range: {start} to {end}")
        end = min(end, metadata.segment_size_bytes)
        if start >= end:
            return []
        size, segment = self._options.chunk_bytes, uuid_to_string(metadata.segment_id.id)
        return [
            ((segment, index), max(start - index * size, 0), min(end - index * size, size))
            for index in range(start // size, -(-end // size))
        ]

    # ------------------------------------------------------------------ chunks

    def _load_records(self, metadata: RemoteLogSegmentMetadata, key: ChunkKey, held: HeldChunks) -> OpenChunk:
        chunk = held.get(key)
        if chunk is None:
            begin = key[1] * self._options.chunk_bytes
            fetch = partial(self.store.fetch_segment, metadata, begin, begin + self._options.chunk_bytes)
            chunk = held[key] = self._load(key, fetch)
        return chunk

    def _load(self, key: ChunkKey, fetch_chunk: Callable[[], bytes]) -> OpenChunk:
        """Return a chunk from its file, from a fetch in progress, or fetched."""
        while True:
            with self._lock:
                fetch, own = self._fetches.get(key), None
                if fetch is None and key not in self._files:
                    own = self._fetches[key] = _Fetch()
            if own is not None:
                self.stats.misses += 1
                return self._fetch(key, fetch_chunk, own)
            if fetch is not None:
                self._wait(fetch.done)
                if fetch.error is not None:
                    raise fetch.error
                if fetch.data is not None:
                    self.stats.shared += 1
                    return OpenChunk(len(fetch.data), None, fetch.data)
                continue
            try:
                chunk = self._files.open(key)
            except OSError:  # out of descriptors: the file may be used later
                data = fetch_chunk()
                return OpenChunk(len(data), None, data)
            if chunk is not None:
                self.stats.hits += 1
                return chunk

    def _fetch(self, key: ChunkKey, fetch_chunk: Callable[[], bytes], fetch: _Fetch) -> OpenChunk:
        """Fetch a chunk from the store, pass it to the readers that wait for ``fetch``, cache it and return it."""
        try:
            try:
                fetch.data = fetch_chunk()
            except RemoteStorageError as error:
                fetch.error = error
                raise
            finally:
                fetch.done.set()
            return self._files.write(key, fetch.data)
        finally:
            with self._lock:
                self._fetches.pop(key, None)

    def _start_reads_ahead(self, metadata: RemoteLogSegmentMetadata, end: int) -> None:
        """Start to fetch the chunks after the one with byte ``end`` - 1, unless they are cached."""
        if self._read_ahead is None or end <= 0:
            return
        size = self._options.chunk_bytes
        first, count = -(-end // size), -(-metadata.segment_size_bytes // size)
        for index in range(first, min(first + self._options.read_ahead_chunks, count)):
            key = (uuid_to_string(metadata.segment_id.id), index)
            if key in self._files or key in self._fetches or self._reads_ahead >= MAX_READS_AHEAD:
                continue
            work = partial(self._fetch_ahead, metadata, key)
            with self._lock:
                is_pending = self._pending_ahead.setdefault(key, work) is not work
            if not is_pending:
                self._read_ahead(work)

    def _fetch_ahead(self, metadata: RemoteLogSegmentMetadata, key: ChunkKey) -> None:
        """Fetch a chunk that no reader waits for yet; it blocks, and is called in a thread.

        Do nothing if it is cached or being fetched, or if `MAX_READS_AHEAD` chunks are being fetched ahead. A failure
        is raised only by readers that have begun to wait for this fetch; later ones fetch the chunk again.
        """
        with self._lock:
            if key in self._files or key in self._fetches or self._reads_ahead >= MAX_READS_AHEAD:
                return
            own = self._fetches[key] = _Fetch()
            self._reads_ahead += 1
        try:
            with suppress(RemoteStorageError):
                begin = key[1] * self._options.chunk_bytes
                end = begin + self._options.chunk_bytes
                self._fetch(key, partial(self.store.fetch_segment, metadata, begin, end), own)
                self.stats.fetched_ahead += 1
        finally:
            with self._lock:
                self._reads_ahead -= 1
