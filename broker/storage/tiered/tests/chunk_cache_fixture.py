"""Fixture of the chunk cache: a store in memory, and a simulated disk."""

from __future__ import annotations

import random
from collections.abc import Callable

from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.chunk_file import BLOCK_BYTES
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
    SegmentFiles,
)
from ottla.broker.storage.tiered.tests.segment_files import random_records, segment_metadata
from ottla.env.disk import FileSlice
from ottla.env.inode import Inode
from ottla.env.memory_disk import MemoryDisk

CHUNK = 3 * BLOCK_BYTES
SIZE = 5 * CHUNK + 777
ENTRY = CHUNK + 4 * 3 + 12


class RecordingStore:
    """Store in memory that records its fetches and can be told to fail or to wait."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}
        self.fetches: list[tuple[int, int]] = []
        self.index_fetches: list[IndexType] = []
        self.hook: Callable[[int], None] = lambda start: None
        self.deleted: list[bytes] = []

    def copy_segment(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> bytes | None:
        return b"custom"

    def fetch_segment(self, metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        self.fetches.append((start, end))
        self.hook(start)
        return self.records[metadata.segment_id.id][start:end]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        self.index_fetches.append(index)
        if index is IndexType.TRANSACTION:
            raise RemoteResourceNotFoundError("no transaction index")
        return b"" if index is IndexType.TIMESTAMP else index.value.encode() * 30_000

    def delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.deleted.append(metadata.segment_id.id)


class ChunkCacheFixture:
    """Cache of a store with some segments."""

    def __init__(self, *, max_bytes: int = 100 * ENTRY, read_ahead: int = 0, segments: int = 1) -> None:
        self.time_ms = 0
        self.memory = MemoryDisk(random.Random(0), self.now_ms)
        self.disk = self.memory.session()
        self.store = RecordingStore()
        self.metadata = [segment_metadata(SIZE, number=number) for number in range(segments)]
        for number, each in enumerate(self.metadata):
            self.store.records[each.segment_id.id] = random_records(SIZE, number)
        self.options = ChunkCacheOptions("/cache", max_bytes, CHUNK, read_ahead)
        self.ahead: list[Callable[[], None]] = []
        self.cache = self.open()

    def now_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms

    def open(self, options: ChunkCacheOptions | None = None) -> CachedRemoteStorage:
        return CachedRemoteStorage(self.store, self.disk, options or self.options, self.ahead.append)

    def read(self, start: int, end: int, number: int = 0) -> None:
        metadata = self.metadata[number]
        assert self.cache.fetch_segment(metadata, start, end) == self.store.records[metadata.segment_id.id][start:end]

    def inode(self) -> Inode:
        """Return the only file of the cache."""
        (inode,) = [inode for path, inode in self.memory.files.items() if path.startswith("/cache/")]
        return inode

    def file_bytes(self) -> int:
        return sum(len(inode.data) for path, inode in self.memory.files.items() if path.startswith("/cache/"))


def joined(slices: list[FileSlice | memoryview]) -> bytes:
    return b"".join(each.read_all() if isinstance(each, FileSlice) else each for each in slices)
