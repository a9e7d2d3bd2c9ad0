"""Cache on disk of chunks of remote segments: bounded, least recently used first out, verified when read.

The chunks are ranges of a segment's records, and its stored indexes, each as a whole.

It survives a restart: the files of the directory are read again, in the order in which they were written. A file that a
crash left incomplete, or that was damaged, has a wrong checksum and is fetched again. Nothing is synced.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.broker.storage.tiered.chunk_file import (
    BLOCK_BYTES,
    TRAILER_BYTES,
    block_checksums,
    block_count,
    decode_trailer,
    encode_trailer,
    verify_blocks,
)
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteStorage,
    RemoteStorageError,
    SegmentFiles,
)
from ottla.env.disk import Disk
from ottla.wire.codec.primitives import uuid_to_string

MAX_READS_AHEAD = 8
"""Chunks that are fetched ahead at a time; beyond, none is fetched ahead."""
_FILE = re.compile(r"(?P<segment>[A-Za-z0-9_-]{22})-(?P<size>[0-9]{1,10})-(?P<index>[0-9]{1,10})\.chunk", re.ASCII)

ReadAhead = Callable[[Callable[[], None]], None]
"""Function that runs another one in a thread, soon; it may drop it."""
ChunkKey = tuple[str, int]
"""Id of the segment, in base64url, and index of the chunk; for a stored index its number in `_INDEX_CHUNKS`."""
_INDEX_CHUNKS = {index: 4_000_000_000 + number for number, index in enumerate(IndexType)}


class ChunkCacheOptions(NamedTuple):
    """Options of a chunk cache: directory, size limits in bytes, and number of chunks to read ahead."""

    directory: str
    """Directory for this process alone."""
    max_bytes: int = 1024**3
    chunk_bytes: int = 4 * 1024 * 1024
    read_ahead_chunks: int = 1
    """Chunks after a chunk that is read that are fetched ahead."""


class ChunkCacheStats:
    """Counters of a chunk cache since its start: hits, misses, reads ahead, evictions and errors."""

    def __init__(self) -> None:
        self.hits = 0
        """Chunks that were read from the cache."""
        self.misses = 0
        """Chunks that were fetched for a reader."""
        self.shared = 0
        """Chunks for which a reader waited while they were fetched."""
        self.fetched_ahead = 0
        self.evicted = 0
        self.corrupt = 0
        """Files with a wrong length or checksum."""
        self.disk_errors = 0


class _Chunk:
    """Entry of the cache for a chunk: length of its file in bytes, and the checksums of its blocks."""

    __slots__ = ("checksums", "file_bytes")

    def __init__(self, file_bytes: int, checksums: bytes | None) -> None:
        self.file_bytes = file_bytes
        self.checksums = checksums
        """Checksum of each block; None until they are read from the file."""


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
    """`RemoteStorage` that caches chunks of another one on disk.

    Its methods block; they may be called in several threads. The errors of the other storage are passed on.
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
        self._disk = disk
        self._options = options
        self._read_ahead = read_ahead
        self._wait = wait
        self._lock = threading.Lock()  # never held during a call of the store or the disk
        self._chunks: OrderedDict[ChunkKey, _Chunk] = OrderedDict()
        self._fetches: dict[ChunkKey, _Fetch] = {}
        self._reads_ahead = 0
        self.cached_bytes = 0
        """Length of all files of the cache."""
        self._load()

    # ------------------------------------------------------------------ RemoteStorage

    def copy_segment(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        """Store a segment and return its custom metadata; its records are cached only when they are read."""
        return self.store.copy_segment(metadata, files)

    def fetch_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        """Return bytes [start, end) of the segment's records, fewer at its end; chunks that are not cached are fetched.

        Then the reads of the following chunks ahead are started.
        """
        if not 0 <= start <= end:
            raise ValueError(f"invalid range: {start} to {end}")
        end = min(end, metadata.segment_size_bytes)
        if start >= end:
            return b""
        size = self._options.chunk_bytes
        first, last = start // size, (end - 1) // size
        pieces = []
        segment = uuid_to_string(metadata.segment_id.id)
        for index in range(first, last + 1):
            begin = index * size
            fetch = partial(self.store.fetch_segment, metadata, begin, begin + size)
            pieces.append(self._read((segment, index), fetch, max(start - begin, 0), min(end - begin, size)))
        self._start_reads_ahead(metadata, last)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        """Return a stored index, whole; it is fetched and cached if it is not in the cache."""
        key = (uuid_to_string(metadata.segment_id.id), _INDEX_CHUNKS[index])
        return self._read(key, partial(self.store.fetch_index, metadata, index), 0, None)

    def delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete a segment from the store, then its chunks from the cache."""
        self.store.delete_segment(metadata)
        segment = uuid_to_string(metadata.segment_id.id)
        with self._lock:
            removed = [key for key in self._chunks if key[0] == segment]
            for key in removed:
                self._forget(key)
        self._unlink(removed)

    # ------------------------------------------------------------------ reading

    def _read(self, key: ChunkKey, fetch_chunk: Callable[[], bytes], start: int, end: int | None) -> bytes:
        """Return bytes [start, end) of a chunk, to its end if ``end`` is None; wait for a fetch if it is not cached.

        The chunk is read from its file; if another reader fetches it, that fetch is awaited; otherwise it is fetched.
        """
        while True:
            with self._lock:
                chunk = self._chunks.get(key)
                fetch = self._fetches.get(key)
                if chunk is not None:
                    self._chunks.move_to_end(key)
                elif fetch is None:
                    own = self._fetches[key] = _Fetch()
            if chunk is not None:
                data = self._read_file(key, chunk, start, end)
                if data is not None:
                    self.stats.hits += 1
                    return data
            elif fetch is not None:
                self._wait(fetch.done)
                if fetch.error is not None:
                    raise fetch.error
                if fetch.data is not None:
                    self.stats.shared += 1
                    return fetch.data[start:end]
            else:
                self.stats.misses += 1
                return self._fetch(key, fetch_chunk, own)[start:end]

    def _fetch(self, key: ChunkKey, fetch_chunk: Callable[[], bytes], fetch: _Fetch) -> bytes:
        """Fetch a chunk from the store, pass it to the readers that wait for ``fetch``, cache it and return it."""
        try:
            try:
                fetch.data = fetch_chunk()
            except RemoteStorageError as error:
                fetch.error = error
                raise
            finally:
                fetch.done.set()
            self._write_file(key, fetch.data)
        finally:
            with self._lock:
                self._fetches.pop(key, None)
        return fetch.data

    def _start_reads_ahead(self, metadata: RemoteLogSegmentMetadata, last: int) -> None:
        """Start to fetch the chunks after ``last``, the index of the last one read, unless they are cached."""
        if self._read_ahead is None:
            return
        segment = uuid_to_string(metadata.segment_id.id)
        count = -(-metadata.segment_size_bytes // self._options.chunk_bytes)
        for index in range(last + 1, min(last + 1 + self._options.read_ahead_chunks, count)):
            key = (segment, index)
            with self._lock:
                if key in self._chunks or key in self._fetches or self._reads_ahead >= MAX_READS_AHEAD:
                    continue
            self._read_ahead(lambda key=key: self._fetch_ahead(metadata, key))  # type: ignore[misc]

    def _fetch_ahead(self, metadata: RemoteLogSegmentMetadata, key: ChunkKey) -> None:
        """Fetch a chunk that no reader waits for yet; a failure is left to the reader that needs the chunk."""
        with self._lock:
            if key in self._chunks or key in self._fetches or self._reads_ahead >= MAX_READS_AHEAD:
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

    # ------------------------------------------------------------------ files

    def _load(self) -> None:
        """Add the chunk files in the directory to the cache; remove those of another chunk size, ignore other files."""
        directory = self._options.directory
        self._disk.makedirs(directory)
        sizes: list[tuple[int, ChunkKey, int]] = []
        for name in self._disk.list_files(directory):
            parsed = _FILE.fullmatch(name)
            if parsed is None:
                continue
            if int(parsed["size"]) != self._options.chunk_bytes:
                self._disk.unlink(f"{directory}/{name}")
                continue
            found = self._disk.stat(f"{directory}/{name}")
            sizes.append((found.mtime_ms, (parsed["segment"], int(parsed["index"])), found.size_bytes))
        for _, key, file_bytes in sorted(sizes):
            self._chunks[key] = _Chunk(file_bytes, None)
            self.cached_bytes += file_bytes
        self._make_space()

    def _path(self, key: ChunkKey) -> str:
        return f"{self._options.directory}/{key[0]}-{self._options.chunk_bytes}-{key[1]}.chunk"

    def _read_file(self, key: ChunkKey, chunk: _Chunk, start: int, end: int | None) -> bytes | None:
        """Return a verified range of a cached chunk; drop the chunk and return None if its file cannot be used."""
        try:
            file = self._disk.open(self._path(key), readonly=True)
            try:
                checksums = chunk.checksums
                if checksums is None:
                    count = block_count(chunk.file_bytes)
                    checksums = chunk.checksums = decode_trailer(
                        file.pread(4 * count + TRAILER_BYTES, chunk.file_bytes - 4 * count - TRAILER_BYTES)
                    )
                data_bytes = chunk.file_bytes - len(checksums) - TRAILER_BYTES
                end = data_bytes if end is None else end
                first = start // BLOCK_BYTES * BLOCK_BYTES
                last = min(-(-end // BLOCK_BYTES) * BLOCK_BYTES, data_bytes)
                data = file.pread(last - first, first)
            finally:
                file.close()
            if len(data) < end - first:
                raise ValueError(f"chunk is truncated: {self._path(key)}")
            verify_blocks(data, checksums, first)
        except FileNotFoundError:
            pass  # evicted meanwhile
        except OSError:
            self.stats.disk_errors += 1
        except ValueError:
            self.stats.corrupt += 1
        else:
            return data if (first, last) == (start, end) else data[start - first : end - first]
        with self._lock:
            dropped = self._chunks.get(key) is chunk
            if dropped:
                self._forget(key)
        if dropped:
            self._unlink([key])
        return None

    def _write_file(self, key: ChunkKey, data: bytes) -> None:
        """Write a chunk to the cache, unless it exceeds the size of the cache; ignore a disk error."""
        checksums = block_checksums(data)
        trailer = encode_trailer(checksums, len(data))
        file_bytes = len(data) + len(trailer)
        if file_bytes > self._options.max_bytes:
            return
        with self._lock:
            if key in self._chunks:
                return
            self.cached_bytes += file_bytes
        self._make_space()
        try:
            file = self._disk.open(self._path(key), create=True)
            try:
                file.truncate(0)
                file.pwrite(data, 0)
                file.pwrite(trailer, len(data))
            finally:
                file.close()
        except OSError:
            self.stats.disk_errors += 1
            with self._lock:
                self.cached_bytes -= file_bytes
            self._unlink([key])
            return
        with self._lock:
            if key in self._chunks:
                self.cached_bytes -= file_bytes
            else:
                self._chunks[key] = _Chunk(file_bytes, checksums)

    def _make_space(self) -> None:
        """Evict the chunks that were unused for longest until the cache is within its limit."""
        evicted = []
        with self._lock:
            while self._chunks and self.cached_bytes > self._options.max_bytes:
                key = next(iter(self._chunks))
                self._forget(key)
                evicted.append(key)
        self.stats.evicted += len(evicted)
        self._unlink(evicted)

    def _forget(self, key: ChunkKey) -> None:
        self.cached_bytes -= self._chunks.pop(key).file_bytes

    def _unlink(self, keys: list[ChunkKey]) -> None:
        for key in keys:
            try:
                self._disk.unlink(self._path(key))
            except FileNotFoundError:
                continue
            except OSError:
                self.stats.disk_errors += 1
