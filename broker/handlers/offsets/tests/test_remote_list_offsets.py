"""ListOffsets and OffsetForLeaderEpoch over both tiers. Source: ``UnifiedLog.fetchOffsetByTimestamp``,
``DelayedRemoteListOffsets.java``, ``ReplicaManager.fetchOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from ottla.broker.handlers.offsets import list_offsets, offset_for_leader_epoch
from ottla.broker.storage.tiered.remote_storage import RemoteStorageError
from ottla.broker.storage.tiered.tests.remote_reads_fixture import TieredFixture
from ottla.broker.tests.handler_fixture import NOW_MS, as_decoded
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

EARLIEST, LATEST, MAX_TIMESTAMP, LOCAL, TIERED, PENDING = -2, -1, -3, -4, -5, -6
NOTHING = (ErrorCode.NONE, -1, -1, -1)


@pytest.fixture
def fixture() -> TieredFixture:
    """Return a node with tiered topic t: offsets 0-74 of leader epoch 0, 75-149 of epoch 4; 126-149 are local."""
    out = TieredFixture()
    out.host()
    out.append_batches(25, epoch=0)
    out.append_batches(25, epoch=4)
    assert out.tier().local_log_start_offset == 126
    return out


Result = tuple[int, int, int, int]


def list_all(
    fixture: TieredFixture,
    *timestamps: tuple[str, int] | int,
    version: int = 11,
    replica: int = -1,
    timeout_ms: int = 0,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> tuple[list[Result], float]:
    """Return (error code, offset, timestamp, leader epoch) for each topic and timestamp, and the seconds it took."""
    pairs = [("t", each) if isinstance(each, int) else each for each in timestamps]
    topics = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, timestamp)]) for name, timestamp in pairs]
    request = ListOffsetsRequest(replica, 0, topics, timeout_ms)
    answer, took = fixture.send(list_offsets.handle, ApiKey.LIST_OFFSETS, version, request, meanwhile)
    rows = [row for topic in as_decoded(answer, version).topics for row in topic.partitions]
    times = [row.timestamp if row.timestamp < 0 else row.timestamp - NOW_MS for row in rows]
    results = [(row.error_code, row.offset, time, row.leader_epoch) for row, time in zip(rows, times, strict=True)]
    return results, took


def list_offset(fixture: TieredFixture, timestamp: int, version: int = 11, replica: int = -1) -> Result:
    (result,), _ = list_all(fixture, timestamp, version=version, replica=replica)
    return result


def test_special_timestamps_return_the_ends_of_the_tiers(fixture: TieredFixture) -> None:
    assert list_offset(fixture, EARLIEST) == (0, 0, -1, 0)
    assert list_offset(fixture, LOCAL) == (0, 126, -1, 4)
    assert list_offset(fixture, TIERED) == (0, 125, -1, 4)
    assert list_offset(fixture, PENDING) == (0, 126, -1, 4)
    assert list_offset(fixture, LATEST) == (0, 150, -1, 3)
    assert list_offset(fixture, MAX_TIMESTAMP) == (0, 149, 149, 4)


@pytest.mark.parametrize(("timestamp", "since"), [(LOCAL, 8), (TIERED, 9), (PENDING, 11)])
def test_special_timestamp_before_its_version_is_unsupported(
    fixture: TieredFixture, timestamp: int, since: int
) -> None:
    assert list_offset(fixture, timestamp, since - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert list_offset(fixture, timestamp, since)[0] == 0


def test_special_timestamps_of_log_without_copies() -> None:
    fixture = TieredFixture()
    fixture.host()
    assert [list_offset(fixture, each) for each in (LOCAL, TIERED, PENDING)] == [(0, 0, -1, -1), NOTHING, NOTHING]
    fixture.append_batches(50)
    assert [list_offset(fixture, each) for each in (LOCAL, TIERED, PENDING)] == [(0, 0, -1, 0), NOTHING, (0, 0, -1, 0)]
    fixture.hosted.host("plain").append(make_batch(0), NOW_MS)
    plain = [list_all(fixture, ("plain", each))[0][0] for each in (LOCAL, TIERED, PENDING)]
    assert plain == [(ErrorCode.NONE, 0, -1, 3), NOTHING, NOTHING]


def test_earliest_pending_upload_is_unknown_until_the_leader_has_read_the_metadata(fixture: TieredFixture) -> None:
    fixture.log().forget_remote_records()  # as on a new leader
    assert [list_offset(fixture, each) for each in (LOCAL, TIERED, PENDING)] == [(0, 126, -1, 4), NOTHING, NOTHING]


def test_earliest_pending_upload_at_the_high_watermark_has_no_offset(fixture: TieredFixture) -> None:
    log = fixture.log()
    log.raise_highest_remote_offset(149)
    assert list_offset(fixture, PENDING) == NOTHING
    assert list_offset(fixture, TIERED) == (0, 149, -1, 4)
    log.forget_remote_records()
    log.raise_highest_remote_offset(30)
    log.maybe_increment_log_start_offset(60)
    assert list_offset(fixture, PENDING) == (0, 60, -1, 0)


@pytest.mark.parametrize("timestamp", [0, 1, 74, 75, 76, 125, 126, 127, 149, 150])
def test_offset_by_timestamp_is_that_of_either_tier(fixture: TieredFixture, timestamp: int) -> None:
    expected = (0, timestamp, timestamp, 0 if timestamp < 75 else 4) if timestamp < 150 else NOTHING
    assert list_offset(fixture, NOW_MS + timestamp) == expected
    assert list_offset(fixture, NOW_MS + timestamp, version=1)[:3] == expected[:3]


def test_offset_by_timestamp_at_or_above_the_high_watermark_is_not_returned(fixture: TieredFixture) -> None:
    fixture.log().follow_high_watermark(120)
    assert list_offset(fixture, NOW_MS + 119)[1] == 119
    assert list_offset(fixture, NOW_MS + 120) == NOTHING
    assert list_offset(fixture, NOW_MS + 120, replica=2)[1] == 120


def test_searches_of_a_request_run_at_a_time_and_others_are_answered_with_them(fixture: TieredFixture) -> None:
    fixture.host("u")
    fixture.append_batches(50, "u")
    fixture.tier("u")
    fixture.remote.delay_s = 1.0
    results, took = list_all(fixture, NOW_MS + 5, ("u", NOW_MS + 7), ("t-untiered", NOW_MS + 9), ("u", NOW_MS + 7))
    assert [result[:2] for result in results] == [
        (0, 5),
        (ErrorCode.INVALID_REQUEST, -1),
        (0, 9),
        (ErrorCode.INVALID_REQUEST, -1),
    ]
    assert took == pytest.approx(1.0)


@pytest.mark.parametrize(("timeout_ms", "took_s"), [(0, 30.0), (2000, 2.0)])
def test_search_beyond_the_timeout_is_request_timed_out(fixture: TieredFixture, timeout_ms: int, took_s: float) -> None:
    fixture.remote.delay_s = 100.0
    results, took = list_all(fixture, NOW_MS + 5, ("t-untiered", NOW_MS + 9), timeout_ms=timeout_ms)
    assert ([result[:2] for result in results], took) == (
        [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 9)],
        pytest.approx(took_s),
    )
    assert fixture.reads.expired_list_offsets == 1
    assert len(fixture.services.purgatory) == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [(RemoteStorageError("no"), ErrorCode.UNKNOWN_SERVER_ERROR), (WireError("no"), ErrorCode.CORRUPT_MESSAGE)],
)
def test_failed_search_returns_its_error(fixture: TieredFixture, error: Exception, code: ErrorCode) -> None:
    fixture.remote.errors.append(error)
    assert list_offset(fixture, NOW_MS + 5) == (code, -1, -1, -1)
    fixture.remote.caches.clear()
    assert list_offset(fixture, NOW_MS + 5)[0] == ErrorCode.REPLICA_NOT_AVAILABLE


def test_local_segments_are_searched_before_the_remote_searches_of_other_partitions_end() -> None:
    """Local retention may delete the segment with the timestamp meanwhile, as it is in the remote tier, too."""
    fixture = TieredFixture()
    for name in ("t", "u"):
        fixture.host(name)
        fixture.append_batches(50, name)
    log = fixture.tier(local_start=fixture.log().segments.base_offsets[1])
    fixture.tier("u")
    fixture.remote.delay_s = 0.4

    async def retain() -> None:
        await trio.sleep(0.1)
        log.maybe_increment_local_log_start_offset(log.segments.active.base_offset)
        log.delete_segments_below_start(NOW_MS)

    results, _ = list_all(fixture, ("t", NOW_MS + 60), ("u", NOW_MS + 5), meanwhile=retain)
    assert log.local_log_start_offset > 60
    assert [offset for _, offset, _, _ in results] == [60, 5]


def test_waiting_search_is_answered_when_its_partition_is_removed(fixture: TieredFixture) -> None:
    fixture.remote.delay_s = 10.0

    async def remove() -> None:
        await trio.sleep(0.5)
        fixture.hosted.replicas.pop(("t", 0)).notify_waiters()

    results, took = list_all(fixture, NOW_MS + 5, meanwhile=remove)
    assert (results[0][0], took) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, pytest.approx(0.5))


@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 75)), (3, (0, 75)), (4, (4, 150)), (5, (-1, -1))])
def test_offset_for_leader_epoch_knows_the_epochs_of_both_tiers(
    fixture: TieredFixture, epoch: int, expected: tuple[int, int]
) -> None:
    fixture.hosted.replicas["t", 0].leader_epoch = 4
    request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, epoch)])])
    answer, _ = fixture.send(offset_for_leader_epoch.handle, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request)
    (row,) = as_decoded(answer, 4).topics[0].partitions
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, *expected)
