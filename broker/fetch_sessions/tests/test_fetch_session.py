"""Partitions of fetch sessions: what a response changes; other tasks run after every 64 of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ottla.broker.fetch_sessions.fetch_session import (
    CachedPartition,
    FetchedPartitions,
    FetchSession,
    IncrementalFetchContext,
    group_by_topic,
)
from ottla.broker.fetch_sessions.follower_session import FollowerFetchSession
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

YIELDS = [(1, 0), (63, 0), (64, 1), (127, 1), (128, 2), (640, 10)]
"""Number of partitions, and how often a job over them yields."""


def cached(count: int) -> dict[Any, CachedPartition]:
    return {("t", ZERO_UUID, n): CachedPartition("t", ZERO_UUID, FetchPartition(n)) for n in range(count)}


def rows_for(partitions: dict[Any, CachedPartition], high_watermark: int = 5) -> FetchedPartitions:
    """Return a row for each partition; with -1, an incremental response contains none of them."""
    return [
        (want, PartitionData(want.partition, high_watermark=high_watermark, log_start_offset=-1, records=b""))
        for want in partitions.values()
    ]


def count_yields(job: Generator[Any, Any, Any]) -> int:
    return sum(1 for _ in job)


@pytest.mark.parametrize(("count", "expected"), YIELDS)
def test_group_by_topic_of_many_partitions_yields_after_every_64(count: int, expected: int) -> None:
    assert count_yields(group_by_topic(rows_for(cached(count)))) == expected


@pytest.mark.parametrize(("count", "expected"), YIELDS)
def test_incremental_response_of_many_partitions_yields_after_every_64(count: int, expected: int) -> None:
    partitions = cached(count)
    session = FetchSession(1, partitions, uses_ids=False, now_ms=0)
    context = IncrementalFetchContext(session, {}, is_follower=False, is_own=False)
    assert count_yields(context.build_response(rows_for(partitions, -1))) == expected, "none is in the response"
    assert count_yields(context.build_response(rows_for(partitions))) == 2 * expected, "also where it is built"


@pytest.mark.parametrize(("count", "expected"), YIELDS)
def test_follower_session_after_response_of_many_partitions_yields_after_every_64(count: int, expected: int) -> None:
    partitions = cached(count)
    session = FollowerFetchSession(1, partitions, 2, uses_ids=False, used_ms=0, now_ms=0)
    assert count_yields(session.on_response(rows_for(partitions), lambda *_: True, lambda key: None)) == expected
    assert session.partitions_to_read() == []


def test_follower_session_reads_all_partitions_in_every_64th_request() -> None:
    partitions = cached(2)
    session = FollowerFetchSession(1, partitions, 2, uses_ids=False, used_ms=0, now_ms=0)
    whole = []
    for number in range(1, 200):
        session.record_request(number)
        if session.partitions_to_read():
            whole.append((number, len(session.partitions_to_read())))
        for _ in session.on_response(rows_for(partitions), lambda *_: True, lambda key: None):
            pass
    assert whole == [(1, 2), (64, 2), (128, 2), (192, 2)], "the first one is that of a new session"


def test_session_of_a_consumer_reads_all_partitions_after_a_response() -> None:
    partitions = cached(2)
    session = FetchSession(1, partitions, uses_ids=False, now_ms=0)
    assert count_yields(session.on_response(rows_for(partitions), lambda *_: True, lambda key: None)) == 0
    assert (session.partitions_to_read(), session.client_id) == (list(partitions.values()), "")


@pytest.mark.parametrize(("epoch", "expected"), [(-2, -1), (-1, -1), (0, 0), (1, 1)])
def test_current_leader_epoch_from_0_on_is_checked(epoch: int, expected: int) -> None:
    part = CachedPartition("t", ZERO_UUID, FetchPartition(0, current_leader_epoch=epoch))
    assert part.current_leader_epoch == expected


def test_row_with_an_error_is_returned_and_the_high_watermark_after_it() -> None:
    part = CachedPartition("t", ZERO_UUID, FetchPartition(0))
    row = PartitionData(0, high_watermark=5, log_start_offset=0, records=b"")
    assert [part.maybe_update_response_data(row) for _ in range(2)] == [True, False]
    error = PartitionData(0, error_code=6, high_watermark=5, log_start_offset=0, records=b"")
    assert [part.maybe_update_response_data(error) for _ in range(2)] == [True, True]
    assert part.high_watermark == -1
    assert [part.maybe_update_response_data(row) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(("replica", "expected"), [(-1, False), (0, True), (1, True)])
def test_row_with_preferred_read_replica_is_returned(replica: int, *, expected: bool) -> None:
    part = CachedPartition("t", ZERO_UUID, FetchPartition(0))
    row = PartitionData(0, high_watermark=5, log_start_offset=0, records=b"", preferred_read_replica=replica)
    part.remember_response(5, 0)
    assert part.maybe_update_response_data(row) is expected


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, [0, 2]),
        ({"records": b"x"}, [0, 2, 1]),
        ({"error_code": 6}, [0, 1, 2]),
        ({"diverging_epoch": EpochEndOffset(0, 3)}, [0, 1, 2]),
    ],
    ids=str,
)
def test_follower_partition_without_records_error_or_diverging_epoch_is_clean(
    changes: dict[str, Any], left: list[int]
) -> None:
    partitions = cached(3)
    session = FollowerFetchSession(1, partitions, 2, uses_ids=False, used_ms=0, now_ms=0)
    row = PartitionData(1, **{"high_watermark": 5, "records": b"", **changes})
    count_yields(session.on_response([(partitions["t", ZERO_UUID, 1], row)], lambda *_: True, lambda key: None))
    assert [part.partition for part in session.partitions_to_read()] == left


def test_change_before_the_first_response_of_a_follower_session_leaves_all_to_read() -> None:
    session = FollowerFetchSession(1, cached(2), 2, uses_ids=False, used_ms=0, now_ms=0)
    session.mark_dirty(("t", ZERO_UUID, 0), more=True)
    assert len(session.partitions_to_read()) == 2
