"""Chunk cache: bounded, verified, shared by concurrent readers, kept over a restart."""

from __future__ import annotations

import errno
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from ottla.broker.storage.tiered.tests.chunk_cache_fixture import CHUNK, ENTRY, SIZE, ChunkCacheFixture
from ottla.broker.storage.tiered.tests.segment_files import write_segment
from ottla.env.memory_disk import ProcessKilled


def test_ranges_equal_the_store_and_each_chunk_is_fetched_once() -> None:
    fixture = ChunkCacheFixture()
    rng = random.Random(1)
    for _ in range(200):
        start = rng.randrange(SIZE)
        fixture.read(start, start + rng.randrange(1, 2 * CHUNK))
    assert sorted(fixture.store.fetches) == [(at, at + CHUNK) for at in range(0, SIZE, CHUNK)]
    assert fixture.cache.stats.misses == 6
    assert fixture.cache.stats.hits > 200
    assert fixture.cache.fetch_segment(fixture.metadata[0], SIZE, SIZE + 1) == b""
    assert fixture.cache.fetch_segment(fixture.metadata[0], 5, 5) == b""
    with pytest.raises(ValueError, match="invalid range"):
        fixture.cache.fetch_segment(fixture.metadata[0], -1, 5)


def test_cache_stays_within_its_limit_and_evicts_the_least_recently_used() -> None:
    fixture = ChunkCacheFixture(max_bytes=3 * ENTRY, segments=2)
    for index in (0, 1, 2):
        fixture.read(index * CHUNK, index * CHUNK + 1)
    fixture.read(0, 1)
    fixture.read(0, 1, number=1)
    assert fixture.cache.cached_bytes == fixture.file_bytes() <= 3 * ENTRY
    assert fixture.cache.stats.evicted == 1
    fixture.store.fetches.clear()
    fixture.read(0, 1)
    fixture.read(2 * CHUNK, 2 * CHUNK + 1)
    assert fixture.store.fetches == []
    fixture.read(CHUNK, CHUNK + 1)
    assert fixture.store.fetches == [(CHUNK, 2 * CHUNK)], "chunk 1 was unused for longest"


def test_random_reads_never_exceed_the_limit() -> None:
    fixture = ChunkCacheFixture(max_bytes=4 * ENTRY + 100, segments=4)
    rng = random.Random(2)
    for _ in range(300):
        start = rng.randrange(SIZE)
        fixture.read(start, start + rng.randrange(1, CHUNK), rng.randrange(4))
        assert fixture.cache.cached_bytes == fixture.file_bytes() <= 4 * ENTRY + 100


@pytest.mark.parametrize("max_bytes", [0, ENTRY - 1])
def test_chunk_larger_than_the_cache_is_served_and_not_kept(max_bytes: int) -> None:
    fixture = ChunkCacheFixture(max_bytes=max_bytes)
    fixture.read(0, 100)
    fixture.read(0, 100)
    assert fixture.cache.stats.misses == 2
    assert fixture.file_bytes() == 0


def test_cache_survives_a_restart_and_keeps_the_order_of_writing() -> None:
    fixture = ChunkCacheFixture(max_bytes=3 * ENTRY)
    for index in (2, 0, 1):
        fixture.read(index * CHUNK, index * CHUNK + 1)
    fixture.store.fetches.clear()
    fixture.cache = fixture.open()
    assert fixture.cache.cached_bytes == fixture.file_bytes() == 3 * ENTRY
    fixture.read(0, 2 * CHUNK)
    assert fixture.store.fetches == []
    fixture.cache = fixture.open(fixture.options._replace(max_bytes=2 * ENTRY))
    assert fixture.cache.stats.evicted == 1
    fixture.read(0, 2 * CHUNK)
    assert fixture.store.fetches == [], "the chunk that was written first is evicted"


def test_restart_with_another_chunk_size_removes_the_files_and_ignores_foreign_ones() -> None:
    fixture = ChunkCacheFixture()
    fixture.read(0, 1)
    fixture.disk.open("/cache/README", create=True)
    fixture.cache = fixture.open(fixture.options._replace(chunk_bytes=2 * CHUNK))
    assert fixture.disk.listdir("/cache") == ["README"]
    fixture.read(0, 1)


def test_kill_at_each_disk_call_leaves_no_chunk_with_wrong_bytes() -> None:
    for at in range(1, 60):
        fixture = ChunkCacheFixture(max_bytes=2 * ENTRY)
        fixture.disk.kill_at = fixture.memory.calls + at
        try:
            for index in range(4):
                fixture.read(index * CHUNK, index * CHUNK + 5)
        except ProcessKilled:
            pass
        fixture.memory.lose_power()
        fixture.disk = fixture.memory.session()
        fixture.cache = fixture.open()
        fixture.read(0, SIZE)
        assert fixture.cache.cached_bytes == fixture.file_bytes() <= 2 * ENTRY


@pytest.mark.parametrize("call", ["open", "pwrite", "pread", "unlink"])
def test_failing_disk_of_the_cache_fails_no_read(call: str) -> None:
    fixture = ChunkCacheFixture(max_bytes=2 * ENTRY)
    fixture.read(0, 10)
    fixture.disk.fault = lambda name, path: OSError(errno.ENOSPC, "full", path) if name == call else None
    for _ in range(2):
        for index in range(4):
            fixture.read(index * CHUNK, index * CHUNK + 10)
    assert fixture.cache.stats.disk_errors > 0
    fixture.disk.fault = None
    fixture.read(0, SIZE)


def test_failed_read_of_the_cache_counts_as_one_disk_error() -> None:
    fixture = ChunkCacheFixture()
    fixture.read(0, 10)
    fixture.read(0, 10)
    fixture.disk.fault = lambda name, path: OSError(errno.EIO, "broken", path) if name == "pread" else None
    fixture.read(0, 10)
    assert (fixture.cache.stats.disk_errors, len(fixture.store.fetches)) == (1, 2)


def test_concurrent_readers_share_one_fetch() -> None:
    fixture = ChunkCacheFixture()
    entered, proceed = threading.Event(), threading.Event()

    def hook(start: int) -> None:
        entered.set()
        assert proceed.wait(20)

    fixture.store.hook = hook
    waiting = threading.Semaphore(0)

    def wait(event: threading.Event) -> None:
        waiting.release()
        event.wait()

    fixture.cache = CachedRemoteStorage(fixture.store, fixture.disk, fixture.options, None, wait)
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(fixture.read, 0, 100)
        assert entered.wait(20)
        others = [pool.submit(fixture.read, at, at + 50) for at in range(4)]
        for _ in others:
            assert waiting.acquire(timeout=20)
        proceed.set()
        for each in (first, *others):
            each.result()
    assert fixture.store.fetches == [(0, CHUNK)]
    assert fixture.cache.stats.shared == 4


def test_failed_fetch_fails_its_readers_and_the_next_read_tries_again() -> None:
    fixture = ChunkCacheFixture()

    def fail(start: int) -> None:
        raise RetriableRemoteStorageError("503")

    fixture.store.hook = fail
    with pytest.raises(RetriableRemoteStorageError, match="503"):
        fixture.read(0, 10)
    fixture.store.hook = lambda start: None
    fixture.read(0, 10)
    assert len(fixture.store.fetches) == 2


def test_lost_segment_is_not_found_through_the_cache() -> None:
    fixture = ChunkCacheFixture()

    def fail(start: int) -> None:
        raise RemoteResourceNotFoundError("lost")

    fixture.store.hook = fail
    with pytest.raises(RemoteResourceNotFoundError):
        fixture.read(0, 10)


def test_next_chunk_is_fetched_ahead_once_and_not_behind_the_end() -> None:
    fixture = ChunkCacheFixture(read_ahead=2)
    fixture.read(0, 10)
    assert fixture.store.fetches == [(0, CHUNK)], "the reader does not wait for the chunks after its own"
    for work in fixture.ahead:
        work()
        work()
    assert fixture.store.fetches == [(at, at + CHUNK) for at in (0, CHUNK, 2 * CHUNK)]
    assert fixture.cache.stats.fetched_ahead == 2
    fixture.ahead.clear()
    fixture.read(CHUNK, CHUNK + 1)
    assert fixture.cache.stats.misses == 1
    assert len(fixture.ahead) == 1, "only the chunk that is not cached yet"
    fixture.ahead.clear()
    fixture.read(SIZE - 1, SIZE)
    assert fixture.ahead == []


def test_chunk_is_not_fetched_ahead_twice_while_no_thread_is_free() -> None:
    fixture = ChunkCacheFixture(read_ahead=1)
    fixture.read(0, 10)
    for _ in range(5):
        fixture.cache.open_slices(fixture.metadata[0], 0, 10)
    assert len(fixture.ahead) == 1
    fixture.ahead.clear()
    fixture.read(0, 10)
    assert len(fixture.ahead) == 1, "the first one was dropped"


def test_failed_fetch_ahead_is_left_to_the_reader() -> None:
    fixture = ChunkCacheFixture(read_ahead=1)
    fixture.read(0, 10)

    def fail(start: int) -> None:
        raise RetriableRemoteStorageError("503")

    fixture.store.hook = fail
    fixture.ahead.pop()()
    fixture.store.hook = lambda start: None
    fixture.read(CHUNK, CHUNK + 1)
    assert fixture.cache.stats.fetched_ahead == 0


def test_deleted_segment_leaves_the_cache() -> None:
    fixture = ChunkCacheFixture(segments=2)
    fixture.read(0, SIZE)
    fixture.read(0, 1, number=1)
    fixture.cache.delete_segment(fixture.metadata[0])
    assert fixture.store.deleted == [fixture.metadata[0].segment_id.id]
    assert fixture.cache.cached_bytes == fixture.file_bytes() == ENTRY


def test_copies_pass_through() -> None:
    fixture = ChunkCacheFixture()
    files = write_segment(fixture.disk, "/log/t-0", b"records")
    assert fixture.cache.copy_segment(fixture.metadata[0], files) == b"custom"


def test_many_threads_read_equal_bytes_from_a_small_cache() -> None:
    fixture = ChunkCacheFixture(max_bytes=3 * ENTRY, segments=3, read_ahead=1)
    with ThreadPoolExecutor(2) as background:
        fixture.cache = CachedRemoteStorage(
            fixture.store, fixture.disk, fixture.options, lambda work: background.submit(work) and None
        )

        def reader(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(100):
                start = rng.randrange(SIZE)
                fixture.read(start, start + rng.randrange(1, CHUNK), rng.randrange(3))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(reader, range(6)))
    assert fixture.cache.cached_bytes <= 3 * ENTRY
    assert fixture.cache.cached_bytes == fixture.file_bytes()


def test_indexes_are_cached_over_a_restart_and_deleted_with_their_segment() -> None:
    fixture = ChunkCacheFixture()
    cache, metadata = fixture.cache, fixture.metadata[0]
    for _ in range(2):
        for _ in range(2):
            assert cache.fetch_index(metadata, IndexType.OFFSET) == b"offset" * 30_000
            assert cache.fetch_index(metadata, IndexType.TIMESTAMP) == b""
        cache = fixture.open()
    assert fixture.store.index_fetches == [IndexType.OFFSET, IndexType.TIMESTAMP]
    assert cache.cached_bytes == fixture.file_bytes() > 180_000
    for _ in range(2):
        with pytest.raises(RemoteResourceNotFoundError):
            cache.fetch_index(metadata, IndexType.TRANSACTION)
    cache.delete_segment(metadata)
    assert (cache.cached_bytes, fixture.file_bytes()) == (0, 0)


def test_damaged_index_is_fetched_again() -> None:
    fixture = ChunkCacheFixture()
    fixture.cache.fetch_index(fixture.metadata[0], IndexType.OFFSET)
    (inode,) = [inode for path, inode in fixture.memory.files.items() if path.startswith("/cache/")]
    inode.data[100_000] ^= 1
    assert fixture.cache.fetch_index(fixture.metadata[0], IndexType.OFFSET) == b"offset" * 30_000
    assert fixture.store.index_fetches == [IndexType.OFFSET] * 2
    assert fixture.cache.stats.corrupt == 1
