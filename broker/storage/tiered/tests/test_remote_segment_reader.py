"""Reads of one remote segment, and the cache of its indexes."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.storage.tiered.remote_index_cache import RemoteIndexCache
from ottla.broker.storage.tiered.remote_segment_reader import (
    RemoteSegmentReader,
    aborted_txns_in_range,
    is_in_page_cache,
    read_records,
)
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
)
from ottla.broker.storage.tiered.tests.chunk_cache_fixture import CHUNK, ChunkCacheFixture
from ottla.broker.storage.tiered.tests.segment_files import segment_metadata
from ottla.broker.tests.handler_fixture import NOW_MS
from ottla.env.disk import FileSlice
from ottla.log.segment.indexes import AbortedTxn, OffsetIndex, TimeIndex
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.codec.chunk_sequence import ChunkSequence
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import set_offset_and_epoch
from ottla.wire.record_batch.records import NewRecord, build_batch

SIZE = len(make_batch(10))


def stored(raw: bytes, index: OffsetIndex, timestamps: TimeIndex | None = None) -> RemoteSegmentReader:
    """Return a reader of a segment with these records and indexes."""
    contents = {IndexType.OFFSET: index.pack(), IndexType.TIMESTAMP: (timestamps or TimeIndex(0)).pack()}
    indexes = RemoteIndexCache(lambda metadata, kind: contents[kind])
    store: Any = SimpleNamespace(fetch_segment=lambda metadata, start, end: raw[start:end])
    return RemoteSegmentReader(lambda: store, indexes)


def batches(*bases: int, count: int = 3) -> bytes:
    raw = b""
    for base in bases:
        data = make_batch(base, count)
        set_offset_and_epoch(data, 0, base, 0)
        raw += bytes(data)
    return raw


def test_segment_read_of_offset_behind_its_last_batch_returns_none() -> None:
    raw = batches(0, 3)
    assert stored(raw, OffsetIndex(0)).read(segment_metadata(len(raw)), 6, 1000, at_least_one=True) is None


def test_segment_read_of_removed_offset_starts_with_the_next_batch() -> None:
    raw = batches(0, 30)
    found = stored(raw, OffsetIndex(0)).read(segment_metadata(len(raw)), 5, 1000, at_least_one=True)
    assert found is not None
    assert (found.base_offset, read_records(found.records), found.upper_offset) == (30, batches(30), 100)


@pytest.mark.parametrize("cut", [1, 10, 44, 60, 80])
def test_segment_read_of_truncated_batch_returns_none(cut: int) -> None:
    raw = batches(0, 3)[: SIZE - 5 + cut]
    reader = stored(raw, OffsetIndex(0))
    assert reader.read(segment_metadata(len(raw)), 4, 1000, at_least_one=True) is None


def test_segment_read_of_damaged_header_raises_wire_error() -> None:
    raw = bytearray(batches(0, 3))
    raw[8:12] = b"\x00\x00\x00\x01"
    with pytest.raises(WireError):
        stored(bytes(raw), OffsetIndex(0)).read(segment_metadata(len(raw)), 4, 1000, at_least_one=True)


def test_segment_read_beyond_the_window_finds_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.storage.tiered.remote_segment_reader.WINDOW_BYTES", 100)
    raw = batches(*range(0, 90, 3))
    reader, metadata = stored(raw, OffsetIndex(0)), segment_metadata(len(raw))
    found = reader.read(metadata, 61, 2 * SIZE, at_least_one=False)
    assert found is not None
    assert read_records(found.records) == batches(60, 63, 66)[: 2 * SIZE]
    batch = reader.find_batch_by_timestamp(metadata, NOW_MS + 70, 0)
    assert batch is not None
    assert batch.raw == batches(69)
    following = reader.find_batch_by_timestamp(metadata, NOW_MS + 70, 0, batch.next_position)
    assert following is not None
    assert following.raw == batches(72)


def test_search_by_timestamp_holds_only_the_newest_chunks() -> None:
    batch = bytearray(build_batch([NewRecord(None, bytes(20_000), NOW_MS)]))
    raw = bytearray()
    for base in range(8 * CHUNK // len(batch)):
        set_offset_and_epoch(batch, 0, base, 0)
        raw += batch
    raw += batches(base + 1)
    fixture, metadata = ChunkCacheFixture(), segment_metadata(len(raw))
    fixture.store.records[metadata.segment_id.id] = bytes(raw)
    indexes = RemoteIndexCache(lambda metadata, kind: OffsetIndex(0).pack() if kind is IndexType.OFFSET else b"")
    found = RemoteSegmentReader(lambda: fixture.cache, indexes).find_batch_by_timestamp(metadata, NOW_MS + 1, 0)
    assert found is not None
    assert found.header.base_offset == base + 1
    assert len(fixture.store.fetches) == 8
    assert len(found.chunks) == 8
    assert 1 <= sum(chunk is not None for chunk in found.chunks.values()) <= 3


def test_batch_that_the_search_has_read_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, fetched = batches(0, 3), list[tuple[int, int]]()

    def fetch(metadata: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        fetched.append((start, end))
        return raw[start:end]

    indexes = RemoteIndexCache(lambda metadata, kind: b"")
    reader = RemoteSegmentReader(lambda: cast("Any", SimpleNamespace(fetch_segment=fetch)), indexes)
    metadata = segment_metadata(len(raw))
    found = reader.find_batch_by_timestamp(metadata, NOW_MS, 3)
    assert found is not None
    assert (found.raw, found.next_position, fetched) == (batches(3), len(raw), [(0, len(raw))])
    monkeypatch.setattr("ottla.broker.storage.tiered.remote_segment_reader.WINDOW_BYTES", 70)
    fetched.clear()
    found = reader.find_batch_by_timestamp(metadata, NOW_MS, 0)
    assert found is not None
    assert (found.raw, fetched) == (batches(0), [(0, 70), (70, found.next_position)])


@pytest.mark.parametrize(
    ("cached", "expected"),
    [((10, 19, 40, 40), True), ((19, 40), False), ((10, 40), False), ((10, 19), False), ((), False)],
)
def test_records_are_in_page_cache_if_first_and_last_byte_of_each_range_are(
    cached: tuple[int, ...], *, expected: bool
) -> None:
    file: Any = SimpleNamespace(
        pread_cached=lambda size, at: bytes(size) if {*range(at, at + size)} <= {*cached} else None
    )
    records = ChunkSequence([memoryview(b"in memory"), FileSlice(file, 10, 10), FileSlice(file, 40, 1)])
    assert is_in_page_cache(records) is expected
    assert is_in_page_cache(b"in memory")


def test_index_cache_evicts_the_least_recently_used_index() -> None:
    fetched: list[bytes] = []

    def fetch(metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        fetched.append(metadata.segment_id.id)
        return OffsetIndex(0).pack() + b"\x00\x00\x00\x01\x00\x00\x00\x02" * 1

    cache = RemoteIndexCache(fetch, 16)
    one, two, three = (segment_metadata(1, number=number) for number in range(3))
    for metadata in (one, two, one, three, one, two):
        cache.offset_index(metadata)
    assert fetched == [each.segment_id.id for each in (one, two, three, two)]
    assert cache.cached_bytes == 16


def test_malformed_index_is_a_corrupt_segment() -> None:
    cache = RemoteIndexCache(lambda metadata, index: b"12345")
    for part in (cache.offset_index, cache.time_index, cache.aborted_txns):
        with pytest.raises(CorruptRemoteSegmentError):
            part(segment_metadata(1))
    assert cache.cached_bytes == 0


def test_missing_transaction_index_has_no_aborted_transactions() -> None:
    def fetch(metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        raise RemoteResourceNotFoundError("no such index")

    assert RemoteIndexCache(fetch).aborted_txns(segment_metadata(1)) == []


def test_aborted_transactions_in_range_end_with_a_later_last_stable_offset() -> None:
    entries = [AbortedTxn(1, 0, 9, 5), AbortedTxn(2, 5, 19, 20), AbortedTxn(3, 22, 29, 30)]
    assert aborted_txns_in_range(entries, 0, 100) == (entries, False)
    assert aborted_txns_in_range(entries, 10, 6) == ([entries[1]], True)
    assert aborted_txns_in_range(entries, 10, 5) == ([], True)


@pytest.mark.parametrize("is_full", [False, True])
def test_read_through_the_cache_loads_each_chunk_once(*, is_full: bool) -> None:
    fixture = ChunkCacheFixture()
    raw = batches(*range(0, 3 * 3 * CHUNK // SIZE, 3))
    metadata = segment_metadata(len(raw))
    fixture.store.records[metadata.segment_id.id] = raw
    if is_full:
        fixture.disk.fault = lambda name, path: OSError(errno.ENOSPC, "full", path) if name == "pwrite" else None
    reader = RemoteSegmentReader(lambda: fixture.cache, RemoteIndexCache(lambda metadata, kind: OffsetIndex(0).pack()))
    found = reader.read(metadata, 2 * (CHUNK // SIZE), CHUNK, at_least_one=True)
    assert found is not None
    start = raw.index(bytes(batches(found.base_offset)))
    assert read_records(found.records) == raw[start : start + CHUNK]
    assert fixture.store.fetches == [(0, CHUNK), (CHUNK, 2 * CHUNK)]
    assert (fixture.cache.stats.misses, fixture.cache.stats.hits) == (2, 0)
