"""Reads from remote segments, compared with the reads of a log that has the same records in local segments.

Source: ``RemoteLogManager.read``, ``collectAbortedTransactions``, ``findOffsetByTimestamp`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.storage.tiered.remote_log_metadata import RemoteLogSegmentMetadataUpdate
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchData, RemoteFetchInfo
from ottla.broker.storage.tiered.remote_segment_reader import (
    read_records,
)
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteLogSegmentState,
)
from ottla.broker.storage.tiered.tests.remote_reads_fixture import ReadSettings, TieredFixture
from ottla.broker.tests.handler_fixture import NOW_MS, run_virtual
from ottla.env.disk import FileSlice, write_file
from ottla.env.memory_disk import MemoryFile
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.segment.log_segment import segment_file_name
from ottla.log.tests.log_fixtures import make_batch, make_marker, make_transactional_batch
from ottla.log.timestamp_lookup import TimestampAndOffset, find_offset_by_timestamp
from ottla.wire.codec.chunk_sequence import ChunkSequence, flatten_chunks
from ottla.wire.errors import ErrorCode, ProtocolError

SIZE = len(make_batch(10))


CHUNKS = [None, 61, 500, 1 << 20]
"""Sizes of the chunks of the cache, of which several hold no whole batch; None: no cache."""


@pytest.fixture(params=CHUNKS)
def fixture(request: pytest.FixtureRequest) -> TieredFixture:
    """Return a node with a tiered topic of several segments and leader epochs."""
    out = TieredFixture()
    if request.param is not None:
        out.cache(request.param)
    out.host()
    for epoch in (0, 2, 3):
        out.append_batches(25, epoch=epoch)
    return out


def read(
    fixture: TieredFixture, offset: int, max_bytes: int = 1 << 20, *, least: bool = True, committed: bool = False
) -> RemoteFetchData:
    info = RemoteFetchInfo(fixture.log(), offset, max_bytes, least, committed)
    found = run_virtual(lambda: fixture.reads.reader.read(info))
    return found._replace(records=read_records(found.records))


def find(fixture: TieredFixture, timestamp: int) -> TimestampAndOffset | None:
    limiter = DecompressionLimiter()
    return run_virtual(lambda: fixture.reads.reader.find_offset_by_timestamp(fixture.log(), timestamp, limiter))


@pytest.mark.parametrize("name", ["index", "timeindex"])
@pytest.mark.parametrize("raw", [None, b"damaged", b""])
def test_segment_with_missing_or_damaged_index_files_is_copied_with_rebuilt_ones(
    fixture: TieredFixture, name: str, raw: bytes | None
) -> None:
    log, untiered = fixture.log(), fixture.untiered()
    log.flush()
    for _ in range(2):
        log.close_idle_files()  # a log that is loaded has no indexes in memory
    for base in log.segments.base_offsets[:-1]:
        path = f"{log.directory}/{segment_file_name(base, f'.{name}')}"
        log.disk.unlink(path)
        if raw is not None:
            write_file(log.disk, path, raw, sync=False, sync_dir=False)
    fixture.tier()
    local = untiered.read(60, 1 << 20, untiered.log_end_offset, at_least_one=True)
    assert local is not None
    assert read(fixture, 60).records == local.read()
    assert find(fixture, NOW_MS + 60) == find_offset_by_timestamp(untiered, NOW_MS + 60, untiered.log_end_offset)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("max_bytes", [1, SIZE - 1, SIZE, 3 * SIZE + 7, 1 << 20])
def test_remote_read_returns_the_bytes_of_the_local_read(
    fixture: TieredFixture, max_bytes: int, *, least: bool
) -> None:
    log, untiered = fixture.tier(), fixture.untiered()
    assert log.local_log_start_offset > 100
    for offset in range(0, log.local_log_start_offset, 7):
        local = untiered.read(offset, max_bytes, untiered.log_end_offset, at_least_one=least)
        found = read(fixture, offset, max_bytes, least=least)
        assert found.records == (b"" if local is None else local.read()), offset
        assert found.aborted_txns is None


def test_remote_read_needs_a_transaction_index_only_for_committed_records(
    fixture: TieredFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture.tier()
    requested: list[Any] = []

    def aborted_txns(metadata: Any) -> list[AbortedTxn]:
        requested.append(metadata)
        return []

    indexes = fixture.reads.reader.indexes
    monkeypatch.setattr(indexes, "aborted_txns", aborted_txns)
    monkeypatch.setattr(indexes, "cached_aborted_txns", lambda metadata: None)
    assert read(fixture, 0).aborted_txns is None
    assert read(fixture, 0, 1, least=False, committed=True).records == b""
    assert requested == []
    assert read(fixture, 0, committed=True).records
    assert len(requested) > 0


@pytest.mark.parametrize("seed", range(4))
def test_remote_read_committed_returns_the_aborted_transactions_of_the_local_read(seed: int) -> None:
    rng, fixture = random.Random(seed), TieredFixture()
    if seed % 2:
        fixture.cache(250)
    fixture.host()
    open_txns: dict[int, int] = {}
    for _ in range(160):
        producer = rng.randrange(6)
        if rng.random() < 0.2:
            fixture.append_batches(1)
        elif rng.random() < 0.3 and producer in open_txns:
            del open_txns[producer]
            fixture.append(make_marker(producer, rng.randrange(2)))
        else:
            open_txns[producer] = open_txns.get(producer, -1) + 1
            fixture.append(make_transactional_batch(producer, open_txns[producer]))
    for producer in open_txns:
        fixture.append(make_marker(producer, 0))
    fixture.append_batches(20)
    local = fixture.untiered().segments.base_offsets
    log, untiered = fixture.tier(local_start=local[rng.randrange(1, len(local))]), fixture.untiered()
    seen = 0
    for offset in range(log.local_log_start_offset):
        part = untiered.read(offset, 700, untiered.log_end_offset, at_least_one=True)
        assert part is not None
        expected = untiered.aborted_txns_in_slice(part, offset)
        found = read(fixture, offset, 700, committed=True)
        assert found.records == part.read()
        assert found.aborted_txns == expected
        seen += len(expected)
    assert seen


def test_remote_read_returns_aborted_transactions_whose_markers_are_in_later_segments() -> None:
    fixture = TieredFixture()
    fixture.host()
    fixture.append(make_transactional_batch(7, 0))
    fixture.append_batches(40)
    fixture.append(make_transactional_batch(8, 0))
    fixture.append(make_marker(7, 0))
    fixture.append_batches(40)
    fixture.append(make_marker(8, 0))  # in the active segment
    log = fixture.tier()
    assert log.epochs.epoch_for_offset(0) == 0
    assert read(fixture, 0, 1, committed=True).aborted_txns == [AbortedTxn(7, 0, 122, 121)]
    found = read(fixture, 121, 1 << 20, committed=True).aborted_txns
    assert found is not None
    assert [(a.producer_id, a.first_offset) for a in found] == [(7, 0), (8, 121)]
    assert read(fixture, 60, 1, committed=True).aborted_txns == [AbortedTxn(7, 0, 122, 121)]


def test_remote_read_of_offset_in_no_remote_segment_is_out_of_range(fixture: TieredFixture) -> None:
    log = fixture.tier()
    fixture.topics["t"].cache._epochs[2].ids.clear()
    fixture.topics["t"].cache._epochs[2].starts.clear()
    assert log.epochs.epoch_for_offset(80) == 2
    with pytest.raises(ProtocolError) as caught:
        read(fixture, 80)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(fixture, 0).records


def test_remote_read_before_the_metadata_is_loaded_fails(fixture: TieredFixture) -> None:
    fixture.tier()
    fixture.remote.caches.clear()
    with pytest.raises(ProtocolError, match="not initialized for partition: t-0"):
        read(fixture, 0)


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_remote_read_ends_before_records_that_only_the_former_leader_had(*, committed: bool, is_cached: bool) -> None:
    fixture = TieredFixture()
    if is_cached:
        fixture.cache(250)
    fixture.host()
    fixture.append_batches(25)
    log, untiered = fixture.tier(local_start=0), fixture.untiered()
    second = log.segments.base_offsets[1]
    cut = second + 6
    for each in (log, untiered):  # as after an unclean election
        each.truncate_to(cut, NOW_MS)
    log.roll(NOW_MS)
    fixture.append_batches(10, epoch=5)
    log.raise_highest_remote_offset(cut - 1)
    log.maybe_increment_local_log_start_offset(cut)
    for offset in (second, second + 3):
        local = untiered.read(offset, 1 << 20, cut, at_least_one=True)
        assert local is not None
        expected = local.read()
        assert read(fixture, offset, committed=committed).records == expected
    fixture.env.disk.fault = lambda name, path: (
        OSError(errno.EIO, "damaged", path) if name == "pread" and path.startswith("/cache/") else None
    )
    assert read(fixture, offset, committed=committed).records == expected


def test_remote_segment_of_a_foreign_leader_epoch_is_not_read(fixture: TieredFixture) -> None:
    log, cache = fixture.tier(), RemoteLogMetadataCache()
    for metadata in fixture.topics["t"].cache.list_segments():
        epochs = {9 if epoch == 2 else epoch: start for epoch, start in metadata.segment_leader_epochs.items()}
        started = replace(
            metadata,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            segment_leader_epochs=dict(sorted(epochs.items())),
        )
        cache.add(started)
        cache.update(
            RemoteLogSegmentMetadataUpdate(
                *(metadata.segment_id, 0, metadata.custom_metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1)
            )
        )
    fixture.remote.caches.update({(log.topic_id, 0): cache})
    with pytest.raises(ProtocolError):
        read(fixture, 76)
    assert read(fixture, 74).records


@pytest.mark.parametrize("committed", [False, True])
def test_remote_read_of_open_chunks_needs_no_thread_and_copies_no_records(*, committed: bool) -> None:
    fixture = TieredFixture()
    cached = fixture.cache(700)
    fixture.host()
    fixture.append_batches(60)
    log = fixture.tier()
    for thread_calls in (1, 1):
        info = RemoteFetchInfo(log, 6, 1500, True, committed)
        found = run_virtual(lambda info=info: fixture.reads.reader.read(info))  # type: ignore[misc]
        assert fixture.remote.calls == thread_calls
        assert isinstance(found.records, ChunkSequence)
        assert {type(each) for each in found.records.chunks} == {FileSlice}, "also at the read that fetches the chunks"
        local = fixture.untiered().read(6, 1500, log.log_end_offset, at_least_one=True)
        assert local is not None
        assert read_records(found.records) == local.read()
    hits = cached.stats.hits
    found = read(fixture, 0, SIZE + 1)
    assert (len(found.records), fixture.remote.calls) == (SIZE + 1, 1)
    assert cached.stats.hits == hits + 1


def test_remote_read_with_many_headers_to_skip_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = TieredFixture()
    fixture.cache()
    fixture.host()
    fixture.append_batches(60)
    fixture.tier()
    read(fixture, 0)
    monkeypatch.setattr("ottla.broker.storage.tiered.remote_segment_reader.OPEN_WINDOW_BYTES", 61)
    monkeypatch.setattr("ottla.broker.storage.tiered.remote_segment_reader.MAX_OPEN_WINDOWS", 1)
    read(fixture, 0)
    assert fixture.remote.calls == 1
    expected = fixture.untiered().read(4, 100, 100, at_least_one=True)
    assert expected is not None
    assert read(fixture, 4, 100).records == expected.read()
    assert fixture.remote.calls == 2


@pytest.mark.parametrize("offset", [0, 1, 74, 120, 150])
def test_remote_read_fetches_indexes_of_a_segment_once(fixture: TieredFixture, offset: int) -> None:
    fixture.tier()
    fetched: list[IndexType] = []
    fetch_index = fixture.remote.storage.fetch_index
    fixture.remote.storage.fetch_index = lambda metadata, index: (  # type: ignore[method-assign]
        fetched.append(index) or fetch_index(metadata, index)  # type: ignore[func-returns-value]
    )
    for _ in range(3):
        read(fixture, offset)
    assert fetched == [IndexType.OFFSET]


@pytest.mark.parametrize("local_start", [None, 30])
def test_remote_offset_by_timestamp_is_that_of_the_local_search(
    fixture: TieredFixture, local_start: int | None
) -> None:
    bases = fixture.untiered().segments.base_offsets
    if local_start is not None:
        local_start = bases[2]
    log, untiered = fixture.tier(local_start=local_start), fixture.untiered()
    found_remotely = 0
    for timestamp in range(NOW_MS - 2, NOW_MS + untiered.log_end_offset + 2, 5):
        expected = find_offset_by_timestamp(untiered, timestamp, untiered.log_end_offset)
        found = find(fixture, timestamp)
        if found is None:
            found = find_offset_by_timestamp(log, timestamp, log.log_end_offset)
        else:
            found_remotely += 1
        assert found == expected, timestamp
    assert found_remotely == (log.local_log_start_offset + 1) // 5 + 1


def test_remote_offset_by_timestamp_respects_the_log_start_offset(fixture: TieredFixture) -> None:
    log = fixture.tier()
    log.maybe_increment_log_start_offset(40)
    assert find(fixture, NOW_MS) == TimestampAndOffset(NOW_MS + 40, 40, 0)


def test_changed_size_of_the_index_cache_applies_from_the_next_index_on(fixture: TieredFixture) -> None:
    fixture.tier()
    indexes = fixture.reads.reader.indexes
    read(fixture, 0)
    assert indexes.cached_bytes > 8
    fixture.remote.settings = ReadSettings(index_cache_bytes=8)
    read(fixture, 60)
    assert (indexes.max_bytes, indexes.cached_bytes <= 8) == (8, True)


@pytest.mark.parametrize("chunk_bytes", [61, 1 << 20])
@pytest.mark.parametrize("sizes", [range(1), range(2), range(1 << 20)])
def test_records_to_parse_are_in_memory_or_in_the_page_cache(
    chunk_bytes: int, sizes: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = TieredFixture()
    fixture.cache(chunk_bytes)
    fixture.host()
    fixture.append_batches(60)
    fixture.tier()
    read(fixture, 0)
    pread_cached = MemoryFile.pread_cached

    def read_cached(file: MemoryFile, size_bytes: int, offset: int) -> bytes | None:
        return None if size_bytes in sizes else pread_cached(file, size_bytes, offset)

    monkeypatch.setattr(MemoryFile, "pread_cached", read_cached)
    found = run_virtual(
        lambda: fixture.reads.reader.read(RemoteFetchInfo(fixture.log(), 4, 300, True, False, is_parsed=True))
    )
    is_cached = sizes == range(1)
    assert any(isinstance(each, FileSlice) for each in flatten_chunks([found.records])) == is_cached
    local = fixture.untiered().read(4, 300, 150, at_least_one=True)
    assert local is not None
    assert read_records(found.records) == local.read()


@pytest.mark.parametrize("is_open", [False, True])
def test_headers_that_were_damaged_in_the_cache_are_read_from_the_store(*, is_open: bool) -> None:
    fixture = TieredFixture()
    cached = fixture.cache(1000)
    fixture.host()
    fixture.append_batches(60)
    fixture.tier()
    expected = read(fixture, 0, 3000).records
    if not is_open:
        fixture.reads.reader.indexes.resize(0)
    for path, inode in fixture.env.memory.files.items():
        if path.startswith("/cache/") and len(inode.data) > 900:
            inode.data[:900] = bytes(900)
    assert read(fixture, 0, 3000).records == expected
    assert cached.stats.corrupt == 1


@pytest.mark.parametrize("damaged", [range(16, 17), range(61, 70)], ids=["header", "records"])
def test_offset_by_timestamp_reads_damaged_cache_chunks_from_the_store(damaged: range) -> None:
    fixture = TieredFixture()
    cached = fixture.cache(1000)
    fixture.host()
    fixture.append_batches(60)
    fixture.tier()
    expected = find(fixture, NOW_MS)
    assert expected is not None
    for path, inode in fixture.env.memory.files.items():
        if path.startswith("/cache/") and len(inode.data) > 900:
            inode.data[damaged.start : damaged.stop] = b"\xff" * len(damaged)
    assert find(fixture, NOW_MS) == expected
    assert cached.stats.corrupt == 1
