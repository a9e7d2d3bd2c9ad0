"""Reads from remote segments, compared with the reads of a log that has the same records in local segments.

Source: ``RemoteLogManager.read``, ``collectAbortedTransactions``, ``findOffsetByTimestamp`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.storage.tiered.remote_index_cache import RemoteIndexCache
from ottla.broker.storage.tiered.remote_log_metadata import RemoteLogSegmentMetadataUpdate
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchData, RemoteFetchInfo
from ottla.broker.storage.tiered.remote_segment_reader import RemoteSegmentReader, aborted_txns_in_range
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundError,
)
from ottla.broker.storage.tiered.tests.remote_reads_fixture import ReadSettings, TieredFixture
from ottla.broker.storage.tiered.tests.segment_files import segment_metadata
from ottla.broker.tests.handler_fixture import NOW_MS, run_virtual
from ottla.env.disk import write_file
from ottla.log.segment.indexes import AbortedTxn, OffsetIndex, TimeIndex
from ottla.log.segment.log_segment import segment_file_name
from ottla.log.tests.log_fixtures import make_batch, make_marker, make_transactional_batch
from ottla.log.timestamp_lookup import TimestampAndOffset, find_offset_by_timestamp
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch.batch_header import set_offset_and_epoch

SIZE = len(make_batch(10))


@pytest.fixture
def fixture() -> TieredFixture:
    """Return a node with a tiered topic of several segments and leader epochs."""
    out = TieredFixture()
    out.host()
    for epoch in (0, 2, 3):
        out.append_batches(25, epoch=epoch)
    return out


def read(
    fixture: TieredFixture, offset: int, max_bytes: int = 1 << 20, *, least: bool = True, committed: bool = False
) -> RemoteFetchData:
    info = RemoteFetchInfo(fixture.log(), offset, max_bytes, least, committed)
    return run_virtual(lambda: fixture.reads.reader.read(info))


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


@pytest.mark.parametrize("seed", range(4))
def test_remote_read_committed_returns_the_aborted_transactions_of_the_local_read(seed: int) -> None:
    rng, fixture = random.Random(seed), TieredFixture()
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


@pytest.mark.parametrize("committed", [False, True])
def test_remote_read_ends_before_records_that_only_the_former_leader_had(*, committed: bool) -> None:
    fixture = TieredFixture()
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
        assert read(fixture, offset, committed=committed).records == local.read()


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


# ------------------------------------------------------------------ one segment


def stored(raw: bytes, index: OffsetIndex, timestamps: TimeIndex | None = None) -> RemoteSegmentReader:
    """Return a reader of a segment with these records and indexes."""
    contents = {IndexType.OFFSET: index.pack(), IndexType.TIMESTAMP: (timestamps or TimeIndex(0)).pack()}
    indexes = RemoteIndexCache(lambda metadata, kind: contents[kind])
    return RemoteSegmentReader(lambda metadata, start, end: raw[start:end], indexes)


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
    assert (found.base_offset, found.records, found.upper_offset) == (30, batches(30), 100)


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
    assert found.records == batches(60, 63, 66)[: 2 * SIZE]
    batch = reader.find_batch_by_timestamp(metadata, NOW_MS + 70, 0)
    assert batch is not None
    assert batch.raw == batches(69)
    following = reader.find_batch_by_timestamp(metadata, NOW_MS + 70, 0, batch.next_position)
    assert following is not None
    assert following.raw == batches(72)


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


def test_changed_size_of_the_index_cache_applies_from_the_next_index_on(fixture: TieredFixture) -> None:
    fixture.tier()
    indexes = fixture.reads.reader.indexes
    read(fixture, 0)
    assert indexes.cached_bytes > 8
    fixture.remote.settings = ReadSettings(index_cache_bytes=8)
    read(fixture, 60)
    assert (indexes.max_bytes, indexes.cached_bytes <= 8) == (8, True)


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
