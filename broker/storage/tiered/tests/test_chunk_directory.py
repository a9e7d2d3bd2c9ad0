"""Files of the chunk cache: verified once, open, ranges of them for responses, and evictions meanwhile."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage, ChunkNotOpenError
from ottla.broker.storage.tiered.chunk_directory import ChunkCacheOptions
from ottla.broker.storage.tiered.tests.chunk_cache_fixture import CHUNK, ENTRY, SIZE, ChunkCacheFixture, joined
from ottla.broker.storage.tiered.tests.segment_files import segment_metadata
from ottla.env.disk import FileSlice
from ottla.runtime.real_disk import RealDisk


def test_damaged_or_truncated_file_is_fetched_again_after_a_restart() -> None:
    rng = random.Random(3)
    for _ in range(60):
        fixture = ChunkCacheFixture()
        fixture.read(0, CHUNK)
        inode = fixture.inode()
        if rng.random() < 0.5:
            inode.data[rng.randrange(CHUNK)] ^= 1 << rng.randrange(8)
        else:
            inode.truncate(rng.randrange(CHUNK))
        fixture.cache = fixture.open()
        fixture.read(0, 10)
        assert len(fixture.store.fetches) == 2, "the whole chunk is verified at its first read"
        assert fixture.cache.stats.corrupt == 1
        assert fixture.cache.cached_bytes == fixture.file_bytes() == ENTRY
        fixture.read(0, CHUNK)
        assert len(fixture.store.fetches) == 2


def test_truncated_file_is_fetched_again_without_a_restart() -> None:
    fixture = ChunkCacheFixture()
    fixture.read(0, CHUNK)
    fixture.inode().truncate(CHUNK - 1)
    with pytest.raises(ChunkNotOpenError):
        fixture.cache.open_slices(fixture.metadata[0], 0, 10)
    fixture.read(0, CHUNK)
    assert (len(fixture.store.fetches), fixture.cache.stats.corrupt) == (2, 1)


def test_verified_file_is_not_read_again_but_for_the_bytes_of_the_range() -> None:
    fixture = ChunkCacheFixture()
    fixture.read(0, CHUNK)
    fixture.cache = fixture.open()
    fixture.read(5, 10)
    fixture.disk.fault = lambda name, path: OSError(errno.EIO, "damaged", path) if name in ("open", "pread") else None
    found = fixture.cache.fetch_slices(fixture.metadata[0], 5, 10)
    fixture.disk.fault = None
    assert joined(found) == fixture.store.records[fixture.metadata[0].segment_id.id][5:10]
    assert len(fixture.store.fetches) == 1


def test_slices_of_open_chunks_equal_the_records_and_others_are_read_in_a_thread() -> None:
    fixture, metadata = ChunkCacheFixture(), segment_metadata(SIZE)
    records, rng = fixture.store.records[metadata.segment_id.id], random.Random(4)

    def open_bytes(start: int, end: int) -> tuple[bytes, bytes] | None:
        try:
            return joined(fixture.cache.open_slices(metadata, start, end)), fixture.cache.read_open(
                metadata, start, end
            )
        except ChunkNotOpenError:
            return None

    for _ in range(2):
        assert open_bytes(0, 10) is None, "not cached, or not verified yet"
        assert joined(fixture.cache.fetch_slices(metadata, 0, SIZE)) == records
        for _ in range(50):
            start = rng.randrange(SIZE)
            end = start + rng.randrange(1, 2 * CHUNK)
            assert open_bytes(start, end) == (records[start:end], records[start:end])
        fixture.cache = fixture.open()
    assert len(fixture.store.fetches) == 6


def test_slice_of_evicted_and_rewritten_chunk_keeps_its_bytes() -> None:
    fixture = ChunkCacheFixture(max_bytes=2 * ENTRY, segments=2)
    fixture.read(0, 10)
    slices = fixture.cache.open_slices(fixture.metadata[0], 5, CHUNK)
    for number in (1, 0, 1):
        for index in range(3):
            fixture.read(index * CHUNK, index * CHUNK + 1, number)
    assert fixture.cache.stats.evicted > 3
    assert joined(slices) == fixture.store.records[fixture.metadata[0].segment_id.id][5:CHUNK]
    fixture.cache.delete_segment(fixture.metadata[0])
    assert joined(slices) == fixture.store.records[fixture.metadata[0].segment_id.id][5:CHUNK]


def test_chunk_whose_old_file_is_being_removed_is_not_written() -> None:
    fixture = ChunkCacheFixture()
    fixture.read(0, 10)

    def read_again(call: str) -> None:
        if call == "unlink":
            fixture.disk.on_call = None
            fixture.read(0, 10)

    fixture.disk.on_call = read_again
    fixture.cache.delete_segment(fixture.metadata[0])
    assert fixture.cache.cached_bytes == fixture.file_bytes() == 0
    fixture.read(0, 10)
    assert fixture.cache.cached_bytes == fixture.file_bytes() == ENTRY


def test_open_files_are_bounded_and_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.storage.tiered.chunk_directory.MAX_OPEN_CHUNKS", 2)
    fixture, metadata = ChunkCacheFixture(), segment_metadata(SIZE)
    fixture.read(0, SIZE)
    for index in (0, 1):
        fixture.read(index * CHUNK, index * CHUNK + 1)
    for index in (0, 1):
        fixture.cache.open_slices(metadata, index * CHUNK, index * CHUNK + 1)
    for index in (2, 3):
        with pytest.raises(ChunkNotOpenError):
            fixture.cache.open_slices(metadata, index * CHUNK, index * CHUNK + 1)
    fixture.read(3 * CHUNK, 3 * CHUNK + 1)
    fixture.cache.open_slices(metadata, CHUNK, CHUNK + 1)
    with pytest.raises(ChunkNotOpenError):
        fixture.cache.open_slices(metadata, 0, 1)
    assert len(fixture.store.fetches) == 6


def test_file_that_is_kept_open_again_during_its_release_is_not_counted_as_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.storage.tiered.chunk_directory.MAX_OPEN_CHUNKS", 1)
    monkeypatch.setattr("ottla.broker.storage.tiered.chunk_directory.MAX_RELEASED_CHUNKS", 1)
    fixture = ChunkCacheFixture()
    fixture.read(0, CHUNK + 1)
    fixture.read(0, 1)

    def release(call: str) -> None:
        if call == "size":
            fixture.disk.on_call = None
            fixture.read(CHUNK, CHUNK + 1)

    fixture.disk.on_call = release
    slices = fixture.cache.fetch_slices(fixture.metadata[0], 0, 10)
    assert fixture.disk.on_call is None
    assert not fixture.cache.is_crowded()
    fixture.read(CHUNK, CHUNK + 1)
    assert fixture.cache.is_crowded()
    slices.clear()
    assert not fixture.cache.is_crowded()


def test_descriptor_of_an_evicted_chunk_is_closed_with_its_last_slice(tmp_path: Path) -> None:
    fixture = ChunkCacheFixture()
    options = ChunkCacheOptions(str(tmp_path), ENTRY, CHUNK, 0)
    cache, metadata = CachedRemoteStorage(fixture.store, RealDisk(), options), fixture.metadata[0]
    (part,) = cache.fetch_slices(metadata, 3, 70_000)
    assert isinstance(part, FileSlice)
    cache.fetch_slices(metadata, CHUNK, CHUNK + 1)
    assert cache.stats.evicted == 1
    descriptor = part.file.fileno()
    assert os.pread(descriptor, 69_997, 3) == fixture.store.records[metadata.segment_id.id][3:70_000]
    del part
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_chunk_that_could_not_be_sent_is_dropped() -> None:
    fixture = ChunkCacheFixture(segments=2)
    fixture.read(0, SIZE)
    (part,) = fixture.cache.fetch_slices(fixture.metadata[0], 0, 10)
    assert isinstance(part, FileSlice)
    fixture.cache.discard(fixture.disk.open("/cache/other", create=True))
    assert fixture.cache.cached_bytes == fixture.file_bytes() > 5 * ENTRY
    fixture.cache.discard(part.file)
    assert fixture.cache.cached_bytes == fixture.file_bytes() < 5 * ENTRY + ENTRY // 2
    fixture.read(0, SIZE)
    assert len(fixture.store.fetches) == 7


def test_chunk_that_cannot_be_opened_without_a_free_descriptor_is_kept() -> None:
    fixture = ChunkCacheFixture()
    fixture.read(0, CHUNK)
    fixture.cache = fixture.open()
    fixture.disk.fault = lambda name, path: OSError(errno.EMFILE, "too many", path) if name == "open" else None
    fixture.read(5, 10)
    assert len(fixture.store.fetches) == 2
    fixture.disk.fault = None
    fixture.read(5, 10)
    assert (len(fixture.store.fetches), fixture.cache.stats.disk_errors) == (2, 0)


def test_slice_of_chunk_without_a_file_keeps_only_its_own_bytes_in_memory() -> None:
    fixture = ChunkCacheFixture(max_bytes=0)
    (part,) = fixture.cache.fetch_slices(fixture.metadata[0], 5, 105)
    assert isinstance(part, memoryview)
    assert part.obj == fixture.store.records[fixture.metadata[0].segment_id.id][5:105]
