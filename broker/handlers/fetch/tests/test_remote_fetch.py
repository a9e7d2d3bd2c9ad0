"""Fetch of offsets below the local log start offset. Source: ``ReplicaManager.fetchMessages``,
``handleOffsetOutOfRangeError``, ``DelayedRemoteFetch.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import request, rows_of
from ottla.broker.requests.peer import PeerDisconnectedError
from ottla.broker.storage.tiered.remote_storage import CorruptRemoteSegmentError, RemoteStorageError
from ottla.broker.storage.tiered.tests.remote_reads_fixture import MAX_WAIT_MS, TieredFixture
from ottla.broker.tests.handler_fixture import as_decoded, resolve
from ottla.log.tests.log_fixtures import make_batch, make_marker, make_transactional_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.fetch import AbortedTransaction, FetchRequest, PartitionData
from ottla.wire.record_batch.legacy_records import iterate_any_batches

SIZE = len(make_batch(10))
NEWEST = 18


@pytest.fixture(params=[None, 200, 1 << 20])
def fixture(request: pytest.FixtureRequest) -> TieredFixture:
    """Return a node with the tiered topics t and u, whose older segments are only in the remote store.

    The parameter is the size of a chunk of the cache; None: no cache.
    """
    out = TieredFixture()
    if request.param is not None:
        out.cache(request.param)
    for name in ("t", "u"):
        out.host(name)
        out.append_batches(50, name)
        assert out.tier(name).local_log_start_offset == 126
    out.hosted.host("local").append(make_batch(10), 1_000_000)
    return out


def send(
    fixture: TieredFixture,
    request: FetchRequest,
    version: int = NEWEST,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> tuple[list[PartitionData], float]:
    """Send a Fetch; return the rows, as the client decodes them, and the seconds it took."""
    answer, took = fixture.send(fetch.handle, ApiKey.FETCH, version, request, meanwhile)
    assert answer.error_code == 0
    return rows_of(as_decoded(answer, version)), took


def local_bytes(fixture: TieredFixture, offset: int, max_bytes: int, name: str = "t", *, least: bool = True) -> bytes:
    untiered = fixture.untiered(name)
    part = untiered.read(offset, max_bytes, untiered.log_end_offset, at_least_one=least)
    return b"" if part is None else part.read()


@pytest.mark.parametrize("version", [4, 11, 12, 13, NEWEST])
@pytest.mark.parametrize("each", [1, 700, 1 << 20])
def test_consumer_reads_all_records_of_both_tiers(fixture: TieredFixture, version: int, each: int) -> None:
    offset, out, log = 0, b"", fixture.log()
    while offset < log.log_end_offset:
        (row,), took = send(fixture, request(("t", 0, offset), each=each), version)
        assert (row.error_code, row.high_watermark, took) == (0, 150, 0)
        assert row.log_start_offset == (0 if version >= 5 else -1)
        for position, header in iterate_any_batches(row.records):
            assert header.base_offset == offset
            out += row.records[position : position + header.size_bytes]
            offset = header.last_offset + 1
    untiered = fixture.untiered()
    assert out == b"".join(bytes(raw) for _, raw in untiered.segments.batches())
    assert fixture.read_stats.fetches >= 4
    assert fixture.read_stats.fetched_bytes >= len(out) - log.size_bytes


def test_fetch_reads_several_remote_partitions_and_returns_local_ones_at_once(fixture: TieredFixture) -> None:
    rows, _ = send(fixture, request(("t", 0, 4), ("local", 0, 0), ("u", 0, 40), wait=5000, least=1 << 20))
    assert [row.records for row in rows] == [
        local_bytes(fixture, 4, 1 << 20),
        bytes(rows[1].records),
        local_bytes(fixture, 40, 1 << 20, "u"),
    ]
    assert len(rows[1].records) == SIZE
    assert fixture.hosted.replicas["t", 0].traffic.bytes_out == len(rows[0].records)
    assert fixture.hosted.replicas["t", 0].traffic.fetches == 1
    assert sorted(fixture.remote.read_quota.recorded) == sorted(len(rows[at].records) for at in (0, 2))


@pytest.mark.parametrize(
    ("each", "most", "sizes"),
    [
        pytest.param(5 * SIZE, 5 * SIZE, (5, 0, 0), id="the first takes all"),
        pytest.param(5 * SIZE, 7 * SIZE, (5, 2, 0), id="the second takes the rest"),
        pytest.param(5 * SIZE, 11 * SIZE, (5, 5, 1), id="the local one takes the rest"),
        pytest.param(5 * SIZE, 10 * SIZE + 1, (5, 5, 0), id="the local batch does not fit"),
        pytest.param(SIZE // 2, 1 << 20, (1, 0, 0), id="only the first batch exceeds the limit"),
        pytest.param(0, 1 << 20, (0, 0, 1), id="no bytes are wanted of a remote partition"),
    ],
)
def test_remote_reads_count_with_their_limit(
    fixture: TieredFixture, each: int, most: int, sizes: tuple[int, ...]
) -> None:
    rows, took = send(fixture, request(("t", 0, 12), ("u", 0, 12), ("local", 0, 0), each=each, most=most))
    assert [(row.error_code, len(row.records)) for row in rows] == [(0, SIZE * count) for count in sizes]
    assert took == 0


def test_fetch_of_more_remote_bytes_than_a_segment_has_counts_with_the_limit(fixture: TieredFixture) -> None:
    each = 5000
    rows, _ = send(fixture, request(("t", 0, 0), ("local", 0, 0), each=each, most=each + SIZE - 1))
    assert [len(row.records) for row in rows] == [len(local_bytes(fixture, 0, each)), 0]


def test_read_committed_fetch_returns_aborted_transactions_of_the_remote_tier() -> None:
    fixture = TieredFixture()
    fixture.host()
    fixture.append(make_transactional_batch(7, 0))
    fixture.append(make_marker(7, 0))
    fixture.append_batches(40)
    fixture.tier()
    (row,), _ = send(fixture, request(("t", 0, 0), isolation=1))
    assert row.aborted_transactions == [AbortedTransaction(7, 0)]
    assert row.records == local_bytes(fixture, 0, 1 << 20)
    assert row.last_stable_offset == fixture.log().last_stable_offset
    (row,), _ = send(fixture, request(("t", 0, 10), isolation=1))
    assert row.aborted_transactions == []
    (row,), _ = send(fixture, request(("t", 0, 0)))
    assert row.aborted_transactions is None


def test_read_committed_fetch_of_cached_records_returns_later_aborted_transactions() -> None:
    fixture = TieredFixture()
    fixture.cache()
    fixture.host()
    fixture.append(make_transactional_batch(7, 0))
    fixture.append_batches(60)
    fixture.append(make_marker(7, 0))
    fixture.append_batches(20)
    fixture.tier()
    for _ in range(3):
        (row,), _ = send(fixture, request(("t", 0, 0), isolation=1, each=1))
        assert row.aborted_transactions == [AbortedTransaction(7, 0)]
    assert fixture.remote.calls > 0


def test_throttled_remote_read_returns_no_records_and_waits_for_other_partitions(fixture: TieredFixture) -> None:
    fixture.remote.read_quota.wait_ms = 100
    rows, took = send(fixture, request(("t", 0, 0), wait=300))
    assert ([(row.error_code, row.records, row.high_watermark) for row in rows], took) == ([(0, b"", 150)], 0.3)
    rows, took = send(fixture, request(("t", 0, 0), ("local", 0, 0), wait=300))
    assert ([(row.error_code, len(row.records)) for row in rows], took) == ([(0, 0), (0, SIZE)], 0)
    assert fixture.read_stats.fetches == 0


def test_fetch_without_max_wait_waits_for_the_remote_tier(fixture: TieredFixture) -> None:
    fixture.remote.delay_s = 0.4
    rows, took = send(fixture, request(("t", 0, 0), ("u", 0, 0), wait=0))
    assert ([row.records for row in rows], took) == ([local_bytes(fixture, 0, 1 << 20)] * 2, pytest.approx(0.4))


def test_remote_read_beyond_the_maximum_wait_returns_no_records(fixture: TieredFixture) -> None:
    fixture.remote.delay_s = 2.0
    rows, took = send(fixture, request(("t", 0, 0), ("local", 0, 0), wait=10_000))
    assert took == pytest.approx(MAX_WAIT_MS / 1000)
    assert [(row.error_code, len(row.records), row.high_watermark) for row in rows] == [(0, 0, 150), (0, SIZE, 3)]
    assert fixture.reads.expired_fetches == 1
    assert len(fixture.services.purgatory) == 0


ERRORS = [
    pytest.param(RemoteStorageError("refused"), ErrorCode.UNKNOWN_SERVER_ERROR, id="store"),
    pytest.param(CorruptRemoteSegmentError("damaged"), ErrorCode.UNKNOWN_SERVER_ERROR, id="corrupt object"),
    pytest.param(OSError(11, "no thread"), ErrorCode.UNKNOWN_SERVER_ERROR, id="no thread"),
    pytest.param(RuntimeError("queue is full"), ErrorCode.UNKNOWN_SERVER_ERROR, id="queue full"),
    pytest.param(WireError("malformed"), ErrorCode.CORRUPT_MESSAGE, id="malformed batch"),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_failed_remote_read_returns_its_error_and_the_other_partitions(
    fixture: TieredFixture, error: Exception, code: ErrorCode
) -> None:
    fixture.remote.errors.append(error)
    rows, took = send(fixture, request(("t", 0, 0), ("local", 0, 0), wait=5000))
    assert [(row.error_code, row.high_watermark, row.log_start_offset) for row in rows] == [(code, -1, -1), (0, 3, 0)]
    assert [len(row.records) for row in rows] == [0, SIZE]
    assert (took, fixture.read_stats.fetch_errors) == (0, 1)
    assert fixture.sent.peer.request_errors == [code]


def test_fetch_before_the_remote_metadata_is_loaded_returns_a_retriable_error(fixture: TieredFixture) -> None:
    caches = dict(fixture.remote.caches)
    fixture.remote.caches.clear()
    (row,), took = send(fixture, request(("t", 0, 0), wait=5000))
    assert row.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert took == pytest.approx(0.1)
    assert fixture.read_stats.fetch_errors == 1

    async def load() -> None:
        await trio.sleep(0.05)
        fixture.remote.caches |= caches

    (row,), _ = send(fixture, request(("t", 0, 0), wait=5000), meanwhile=load)
    assert row.records == local_bytes(fixture, 0, 1 << 20)


def test_fetch_of_lost_remote_offset_is_out_of_range(fixture: TieredFixture) -> None:
    fixture.topics["t"].load()
    fixture.remote.caches[fixture.log().topic_id, 0] = type(fixture.topics["t"].cache)()
    (row,), _ = send(fixture, request(("t", 0, 0), wait=5000))
    assert (row.error_code, fixture.read_stats.fetch_errors) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


def test_fetch_below_the_log_start_offset_is_out_of_range(fixture: TieredFixture) -> None:
    fixture.log().maybe_increment_log_start_offset(40)
    rows, _ = send(fixture, request(("t", 0, 39), ("u", 0, 151), wait=5000))
    assert [row.error_code for row in rows] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
    (row,), _ = send(fixture, request(("t", 0, 40)))
    assert row.records == local_bytes(fixture, 40, 1 << 20)


def test_fetch_without_tiered_storage_on_the_broker_is_out_of_range(fixture: TieredFixture) -> None:
    fixture.services.remote_reads = None
    (row,), _ = send(fixture, request(("t", 0, 0), wait=5000))
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("version", "replica"), [(11, 2), (NEWEST, 2), (11, -3), (14, -3)])
def test_replica_gets_offset_moved_to_tiered_storage(version: int, replica: int) -> None:
    fixture = TieredFixture()
    fixture.host(replicas=(1, 2))
    fixture.append_batches(50)
    fixture.tier()
    (row,), took = send(fixture, request(("t", 0, 0), wait=5000, replica=replica), version)
    assert (row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset) == (
        *(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, 150, -1, 0),
    )
    assert (row.records, took, fixture.read_stats.fetches) == (b"", 0, 0)
    assert fixture.sent.peer.request_errors == [ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE]


def test_waiting_remote_fetch_is_answered_when_its_partition_is_removed(fixture: TieredFixture) -> None:
    fixture.remote.delay_s = 0.4

    async def remove() -> None:
        await trio.sleep(0.1)
        replica = fixture.hosted.replicas.pop(("t", 0))
        replica.notify_waiters()

    rows, took = send(fixture, request(("t", 0, 0), ("u", 0, 0)), meanwhile=remove)
    assert ([(row.error_code, row.records) for row in rows], took) == ([(0, b"")] * 2, pytest.approx(0.1))


def test_disconnected_client_ends_the_wait_for_the_remote_tier(fixture: TieredFixture) -> None:
    fixture.remote.delay_s = 0.4

    async def disconnect() -> None:
        await trio.sleep(0.1)
        fixture.sent.peer.mark_disconnected()

    async def fetched() -> Any:
        fixture._start(disconnect)
        fixture.sent = fixture.context(ApiKey.FETCH, NEWEST)
        with pytest.raises(PeerDisconnectedError):
            await resolve(fetch.handle(fixture.sent, request(("t", 0, 0))))
        return trio.current_time()

    assert fixture.run(fetched) == pytest.approx(0.1)
    assert len(fixture.services.purgatory) == 0


@pytest.mark.parametrize("answered", [False, True])
def test_very_large_fetch_reads_a_single_remote_partition(
    fixture: TieredFixture, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 2)
    if not answered:
        fixture.remote.errors.append(RemoteStorageError("refused"))
    rows, took = send(fixture, request(("t", 0, 0), ("u", 0, 0), ("local", 0, 0), wait=5000, least=1 << 20))
    expected = local_bytes(fixture, 0, 1 << 20) if answered else b""
    assert [bytes(row.records) for row in rows[:2]] == [expected, b""]
    assert (len(rows[2].records), took) == (SIZE, 0)
    assert rows[0].error_code == (0 if answered else ErrorCode.UNKNOWN_SERVER_ERROR)


def test_failures_of_remote_reads_are_logged_once_a_second(
    fixture: TieredFixture, caplog: pytest.LogCaptureFixture
) -> None:
    fixture.remote.caches.clear()

    async def fetch_for_two_seconds() -> None:
        for _ in range(8):
            await resolve(fetch.handle(fixture.context(ApiKey.FETCH, NEWEST), request(("t", 0, 0))))
            await trio.sleep(0.15)

    fixture.run(fetch_for_two_seconds)
    problem = "REPLICA_NOT_AVAILABLE: Remote log metadata cache is not initialized for partition: t-0"
    text = f"Error occurred while reading the remote data for t-0: {problem}"
    assert [record.getMessage() for record in caplog.records] == [
        text,
        f"{text} (3 further errors since the last message)",
    ]


def test_read_that_waits_for_a_thread_is_cancelled_with_its_fetch(fixture: TieredFixture) -> None:
    fixture.remote.delay_s = 2.0

    async def fetch_and_wait() -> None:
        await resolve(fetch.handle(fixture.context(ApiKey.FETCH, NEWEST), request(("t", 0, 0))))
        await trio.sleep(5.0)

    fixture.run(fetch_and_wait)
    assert (fixture.remote.calls, fixture.remote.completed) == (1, 0)
