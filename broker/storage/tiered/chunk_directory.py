"""Directory with the files of the chunk cache: bounded, least recently used first out, verified when they are read.

A file of records is verified as a whole at its first use after a start, in the thread that uses it, a file of an index
at each use. A file of records that this process has written, or verified, is trusted from then on, as a local segment
is, but for its length and the headers of batches: a malformed one lets the file be verified again. Files of records
stay open, so that responses send ranges of them without a thread; one that is evicted is closed by the last such
response.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import NamedTuple
from weakref import WeakSet

from ottla.broker.config.limits import MAX_RELEASED_CHUNKS
from ottla.broker.storage.tiered.chunk_file import (
    TRAILER_BYTES,
    block_checksums,
    block_count,
    encode_trailer,
    read_chunk,
    verify_chunk,
)
from ottla.broker.storage.tiered.remote_storage import IndexType
from ottla.env.disk import Disk, File, FileSlice, is_transient

MAX_OPEN_CHUNKS = 128
"""Files of chunks that are open; one that is used again later is opened again."""
_FILE = re.compile(r"(?P<segment>[A-Za-z0-9_-]{22})-(?P<size>[0-9]{1,10})-(?P<index>[0-9]{1,10})\.chunk", re.ASCII)

ChunkKey = tuple[str, int]
"""Id of the segment, in base64url, and index of the chunk; for a stored index its number in `INDEX_CHUNKS`."""
_FIRST_INDEX_CHUNK = 4_000_000_000
INDEX_CHUNKS = {index: _FIRST_INDEX_CHUNK + number for number, index in enumerate(IndexType)}


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


class OpenChunk(NamedTuple):
    """Verified chunk: an open file of the cache, or bytes in memory."""

    size_bytes: int
    file: File | None
    data: bytes = b""
    """The chunk, if `file` is None."""

    def is_complete(self) -> bool:
        """Return whether the file was not truncated since it was verified, without blocking."""
        try:
            return self.file is None or self.file.size() > self.size_bytes
        except OSError:
            return False

    def slice(self, start: int, end: int) -> FileSlice | memoryview:
        """Return bytes [start, end) of the chunk, fewer at its end, without reading them; those in memory are copied.

        A response then does not keep the rest of the chunk in memory.
        """
        if self.file is None:
            return memoryview(self.data[start:end])
        return FileSlice(self.file, start, max(min(end, self.size_bytes) - start, 0))


class _CachedChunk:
    """Entry of the cache for a chunk: length of its file in bytes, its open file, and whether it was verified."""

    __slots__ = ("file", "file_bytes", "is_verified")

    def __init__(self, file_bytes: int, file: File | None, *, is_verified: bool) -> None:
        self.file_bytes = file_bytes
        self.file = file
        """Open file; never closed explicitly, as a response may send from it."""
        self.is_verified = is_verified


class ChunkDirectory:
    """Files of the chunk cache. Its methods may be called in several threads; only `opened` does not block."""

    def __init__(self, disk: Disk, options: ChunkCacheOptions, stats: ChunkCacheStats) -> None:
        """Take over the chunks in the directory; those of another chunk size are removed, other files ignored.

        Raises:
            OSError: the directory cannot be read or created.
        """
        self._disk = disk
        self._options = options
        self._stats = stats
        self._lock = threading.Lock()  # never held during a call of the disk
        self._chunks: OrderedDict[ChunkKey, _CachedChunk] = OrderedDict()
        self._open: OrderedDict[ChunkKey, _CachedChunk] = OrderedDict()
        """Chunks with an open file, the least recently used one first."""
        self._released: WeakSet[File] = WeakSet()
        """Files that the cache keeps open no more, while a response may still send from them."""
        self._max_released = min(MAX_RELEASED_CHUNKS, max(options.max_bytes // options.chunk_bytes, 1))
        self._removing: set[ChunkKey] = set()
        """Chunks that were dropped, whose files are being removed; they are not written meanwhile."""
        self.cached_bytes = 0
        """Length of all files of the cache."""
        self._load()

    def __contains__(self, key: object) -> bool:
        return key in self._chunks

    # ------------------------------------------------------------------ reading

    def opened(self, key: ChunkKey) -> OpenChunk | None:
        """Return a verified chunk whose file is open, without blocking; None if there is none.

        `is_complete` tells whether the file was truncated since.
        """
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is None or chunk.file is None:
                return None
            self._chunks.move_to_end(key)
            self._open.move_to_end(key)
            return OpenChunk(_data_bytes(chunk.file_bytes), chunk.file)

    def open(self, key: ChunkKey) -> OpenChunk | None:
        """Return a verified chunk, of an index its bytes; None if it is not cached, or unusable: then it is dropped.

        Raises:
            OSError: the process has no free descriptor or memory for it; it is kept.
        """
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is None:
                return None
            self._chunks.move_to_end(key)
            file = chunk.file
        try:
            if file is None:
                file = self._disk.open(self._path(key), readonly=True)
            if _is_index(key):
                data = read_chunk(file, chunk.file_bytes)
                return OpenChunk(len(data), None, data)
            if not chunk.is_verified:
                verify_chunk(file, chunk.file_bytes)
            if file.size() != chunk.file_bytes:
                raise ValueError(f"chunk is truncated: {self._path(key)}")
        except FileNotFoundError:
            pass  # evicted meanwhile
        except OSError as error:
            if is_transient(error):
                raise
            self._stats.disk_errors += 1
        except ValueError:
            self._stats.corrupt += 1
        else:
            self._keep_open(key, chunk, file)
            return OpenChunk(_data_bytes(chunk.file_bytes), file)
        self._drop(key, chunk)
        return None

    def read(self, chunk: OpenChunk, start: int, end: int) -> bytes | None:
        """Return bytes [start, end) of a chunk; None, and it is dropped, if the disk fails or its file is too short."""
        if chunk.file is None:
            return chunk.data[start:end]
        size_bytes = max(min(end, chunk.size_bytes) - start, 0)
        try:
            data = chunk.file.pread(size_bytes, start)
        except OSError:
            self._stats.disk_errors += 1
        else:
            if len(data) == size_bytes:
                return data
            self._stats.corrupt += 1
        self.discard(chunk.file)
        return None

    def is_damaged(self, key: ChunkKey) -> bool:
        """Verify the file of a chunk again, and return whether it was dropped; one that is not cached is not damaged.

        Raises:
            OSError: as `open`.
        """
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is None:
                return False
            chunk.is_verified = False
        return self.open(key) is None

    def is_crowded(self) -> bool:
        """Return whether responses keep so many files open that no further one may be sent from a file."""
        return len(self._released) >= self._max_released

    def discard(self, file: File) -> None:
        """Drop the chunk with this open file, which could not be read; another file is ignored."""
        with self._lock:
            found = next(((key, chunk) for key, chunk in self._open.items() if chunk.file is file), None)
        if found is not None:
            self._drop(*found)

    def _keep_open(self, key: ChunkKey, chunk: _CachedChunk, file: File) -> None:
        """Keep the file of a verified chunk open; release the least recently used one beyond the limit."""
        with self._lock:
            chunk.is_verified = True
            if self._chunks.get(key) is not chunk:  # evicted meanwhile
                self._released.add(file)
                return
            if chunk.file is not file:
                self._release(chunk)
            chunk.file = file
            self._released.discard(file)
            self._open[key] = chunk
            self._open.move_to_end(key)
            while len(self._open) > MAX_OPEN_CHUNKS:
                self._release(self._open.popitem(last=False)[1])

    def _release(self, chunk: _CachedChunk) -> None:
        """Leave the open file of a chunk, if it has one, to the responses that send from it: the last one closes it."""
        if chunk.file is not None:
            self._released.add(chunk.file)
            chunk.file = None

    # ------------------------------------------------------------------ changes

    def write(self, key: ChunkKey, data: bytes) -> OpenChunk:
        """Write a chunk's file and return the chunk; evict others beyond the limit of the cache.

        The chunk is returned in memory if it is an index, or if no file was written: it exceeds the limit alone, has a
        file already, or the disk failed.
        """
        trailer = encode_trailer(block_checksums(data), len(data))
        in_memory = OpenChunk(len(data), None, data)
        file_bytes = len(data) + len(trailer)
        if file_bytes > self._options.max_bytes:
            return in_memory
        with self._lock:
            if key in self._chunks or key in self._removing:
                return in_memory
            self.cached_bytes += file_bytes
        self._make_space()
        try:
            file = self._write_file(key, data, trailer)
        except OSError:
            self._stats.disk_errors += 1
            with self._lock:
                self.cached_bytes -= file_bytes
            self._unlink([key])
            return in_memory
        chunk = _CachedChunk(file_bytes, None, is_verified=True)
        with self._lock:
            if key in self._chunks:
                self.cached_bytes -= file_bytes
                return in_memory
            self._chunks[key] = chunk
        if _is_index(key):
            return in_memory
        self._keep_open(key, chunk, file)
        return OpenChunk(len(data), file)

    def remove_segment(self, segment: str) -> None:
        """Remove the chunks of a segment."""
        with self._lock:
            removed = [key for key in self._chunks if key[0] == segment]
            for key in removed:
                self._forget(key)
        self._unlink(removed)

    def _load(self) -> None:
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
            self._chunks[key] = _CachedChunk(file_bytes, None, is_verified=False)
            self.cached_bytes += file_bytes
        self._make_space()

    def _path(self, key: ChunkKey) -> str:
        return f"{self._options.directory}/{key[0]}-{self._options.chunk_bytes}-{key[1]}.chunk"

    def _write_file(self, key: ChunkKey, data: bytes, trailer: bytes) -> File:
        """Write a new file, never into an existing one, from which a response may still be sent. Raises OSError."""
        path = self._path(key)
        if self._disk.exists(path):
            self._disk.unlink(path)
        file = self._disk.open(path, create=True)
        file.pwrite(data, 0)
        file.pwrite(trailer, len(data))
        return file

    def _make_space(self) -> None:
        """Evict the chunks that were unused for longest until the cache is within its limit."""
        evicted = []
        with self._lock:
            while self._chunks and self.cached_bytes > self._options.max_bytes:
                key = next(iter(self._chunks))
                self._forget(key)
                evicted.append(key)
        self._stats.evicted += len(evicted)
        self._unlink(evicted)

    def _drop(self, key: ChunkKey, chunk: _CachedChunk) -> None:
        with self._lock:
            if self._chunks.get(key) is not chunk:
                return
            self._forget(key)
        self._unlink([key])

    def _forget(self, key: ChunkKey) -> None:
        chunk = self._chunks.pop(key)
        self._release(chunk)
        self._open.pop(key, None)
        self._removing.add(key)
        self.cached_bytes -= chunk.file_bytes

    def _unlink(self, keys: list[ChunkKey]) -> None:
        for key in keys:
            try:
                self._disk.unlink(self._path(key))
            except FileNotFoundError:
                pass
            except OSError:
                self._stats.disk_errors += 1
            self._removing.discard(key)


def _is_index(key: ChunkKey) -> bool:
    return key[1] >= _FIRST_INDEX_CHUNK


def _data_bytes(file_bytes: int) -> int:
    """Return the length in bytes of the chunk in a chunk file of ``file_bytes`` bytes."""
    return file_bytes - 4 * block_count(file_bytes) - TRAILER_BYTES
