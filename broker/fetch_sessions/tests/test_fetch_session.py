"""Jobs over the partitions of fetch sessions: other tasks run after every 64 of them."""

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
from ottla.wire.messages.fetch import FetchPartition, PartitionData

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
    context = IncrementalFetchContext(FetchSession(1, partitions, uses_ids=False, now_ms=0), {})
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
