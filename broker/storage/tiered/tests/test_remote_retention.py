"""Segments to copy, and remote segments to delete, by time, size, log start offset and leader epochs."""

from __future__ import annotations

import pytest

from ottla.broker.storage.tiered.remote_retention import (
    TieredLogState,
    expired_remote_segments_job,
    remote_log_size_job,
    segments_to_copy,
    unreferenced_segments,
)
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentId
from ottla.broker.storage.tiered.tests.metadata_cache_fixture import (
    DELETING,
    CacheFixture,
    segment_id,
    segment_number,
)
from ottla.jobs.job import run_to_end

NOW = 1_000_000
BASES = [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("copied", "log_start", "last_stable", "expected"),
    [
        (-1, 0, 40, [0, 10, 20]),
        (9, 0, 40, [10, 20]),
        (29, 0, 40, []),
        (-1, 15, 40, [10, 20]),  # DeleteRecords
        (12, 0, 40, [10, 20]),  # the previous leader's segments ended elsewhere
        (-1, 0, 29, [0, 10]),  # an open transaction in the third segment
        (-1, 0, 30, [0, 10, 20]),
        (-1, 0, 0, []),
        (39, 0, 25, []),  # copied by the previous leader, beyond what is decided here
    ],
)
def test_rolled_segments_without_undecided_records_are_copied(
    copied: int, log_start: int, last_stable: int, expected: list[int]
) -> None:
    ranges = segments_to_copy(BASES, copied, log_start, last_stable)
    assert [each.base_offset for each in ranges] == expected
    assert all(BASES.index(each.next_base_offset) == BASES.index(each.base_offset) + 1 for each in ranges)


class RemoteSegmentsFixture(CacheFixture):
    """Three remote segments of 100 bytes each with ten offsets, of which number n has the timestamp 1000 * n."""

    def __init__(self) -> None:
        super().__init__()
        for number in (1, 2, 3):
            self.copy(number, number * 10 - 10, number * 10 - 1, {0: number * 10 - 10}, newest_ms=1000 * number)

    def expire(
        self,
        *,
        now_ms: int = NOW,
        retention_ms: int = -1,
        retention_bytes: int = -1,
        log_start: int = 0,
        local_bytes: int = 50,
        epochs: tuple[tuple[int, int], ...] = ((0, 0),),
        being_copied: tuple[RemoteLogSegmentId, ...] = (),
    ) -> tuple[list[int | None], int | None]:
        state = TieredLogState(epochs, log_start, 45, local_bytes, retention_ms, retention_bytes)
        found = run_to_end(expired_remote_segments_job(self.cache, state, being_copied, now_ms))
        return [segment_number(metadata) for metadata in found.segments], found.log_start_offset


def test_remote_segments_without_retention_stay() -> None:
    assert RemoteSegmentsFixture().expire() == ([], None)


def test_remote_segments_expire_by_their_largest_timestamp_oldest_first() -> None:
    fixture = RemoteSegmentsFixture()
    assert fixture.expire(now_ms=10_000, retention_ms=8_000) == ([1], 10)
    assert fixture.expire(now_ms=10_001, retention_ms=8_000) == ([1, 2], 20)
    assert fixture.expire(now_ms=500, retention_ms=8_000) == ([], None)
    assert fixture.expire(now_ms=10_000, retention_ms=0) == ([1, 2, 3], 30)


@pytest.mark.parametrize(
    ("limit", "expected"), [(350, []), (349, []), (251, []), (250, [1]), (150, [1, 2]), (149, [1, 2]), (0, [1, 2, 3])]
)
def test_remote_segments_expire_by_the_size_of_both_tiers(limit: int, expected: list[int]) -> None:
    segments, start = RemoteSegmentsFixture().expire(retention_bytes=limit)
    assert segments == expected
    assert start == (len(expected) * 10 or None)


def test_bytes_that_expire_by_time_count_for_the_size_too() -> None:
    fixture = RemoteSegmentsFixture()
    assert fixture.expire(now_ms=3_000, retention_ms=1_500, retention_bytes=250) == ([1], 10)


def test_small_segment_stays_once_the_expiry_by_time_removed_enough_bytes() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0}, newest_ms=1000)
    fixture.copy(2, 10, 19, {0: 10}, newest_ms=9000, size_bytes=1)
    state = TieredLogState([(0, 0)], 0, 45, 0, 5000, 50)
    found = run_to_end(expired_remote_segments_job(fixture.cache, state, (), 10_000))
    assert ([segment_number(metadata) for metadata in found.segments], found.log_start_offset) == ([1], 10)


def test_segments_below_the_log_start_offset_are_deleted_without_a_new_one() -> None:
    assert RemoteSegmentsFixture().expire(log_start=20) == ([1, 2], None)
    assert RemoteSegmentsFixture().expire(log_start=19) == ([1], None)


def test_segments_below_the_log_start_offset_do_not_count_for_the_size() -> None:
    assert RemoteSegmentsFixture().expire(log_start=10, retention_bytes=250) == ([1], None)


def test_segment_whose_deletion_was_interrupted_is_deleted_again() -> None:
    fixture = RemoteSegmentsFixture()
    fixture.set(3, DELETING)
    assert fixture.expire() == ([3], None), "also behind segments that stay"
    assert fixture.expire(epochs=()) == ([3], None)


def test_segment_whose_deletion_was_interrupted_does_not_count_for_the_size() -> None:
    fixture = RemoteSegmentsFixture()
    fixture.set(1, DELETING)
    assert fixture.expire(retention_bytes=250) == ([1], None), "50 bytes locally, and two segments of 100"
    assert fixture.expire(retention_bytes=150) == ([1, 2], 20)


def test_segment_without_bytes_stays_below_the_size_limit() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0}, size_bytes=0)
    for limit, expected in [(-1, []), (50, []), (49, [1])]:
        found = expired_remote_segments_job(fixture.cache, TieredLogState([(0, 0)], 0, 45, 50, -1, limit), (), NOW)
        assert [segment_number(metadata) for metadata in run_to_end(found).segments] == expected


def test_nothing_is_deleted_from_a_segment_that_is_being_copied_on() -> None:
    fixture = RemoteSegmentsFixture()
    fixture.add(4, 10, 19, {0: 10})
    assert fixture.expire(retention_bytes=0, being_copied=(segment_id(1),)) == ([], None)
    assert fixture.expire(retention_bytes=0, being_copied=(segment_id(3),)) == ([1, 2, 4], 20)


def test_segment_of_another_leader_epoch_history_is_neither_counted_nor_deleted_by_size() -> None:
    fixture = RemoteSegmentsFixture()
    fixture.copy(9, 30, 44, {0: 30, 1: 35})
    epochs = ((0, 0), (1, 40))
    state = TieredLogState(epochs, 0, 45, 0, -1, -1)
    assert run_to_end(remote_log_size_job(fixture.cache, state, dict(epochs))) == 300
    assert run_to_end(remote_log_size_job(fixture.cache, state._replace(log_start_offset=10), dict(epochs))) == 200
    assert fixture.expire(retention_bytes=250, epochs=epochs) == ([1], 10)


def test_segment_with_records_of_two_epochs_is_counted_and_deleted_once() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0, 1: 5})
    epochs = {0: 0, 1: 5}
    state = TieredLogState(tuple(epochs.items()), 0, 45, 0, -1, 0)
    assert run_to_end(remote_log_size_job(fixture.cache, state, epochs)) == 100
    found = run_to_end(expired_remote_segments_job(fixture.cache, state, (), NOW))
    assert [segment_number(metadata) for metadata in found.segments] == [1]


def test_segments_of_epochs_before_the_log_are_unreferenced() -> None:
    fixture = RemoteSegmentsFixture()
    fixture.copy(4, 30, 39, {1: 30, 2: 35})
    for earliest, copied, expected in [(0, (), []), (2, (), [1, 2, 3]), (3, (segment_id(4),), [1, 2, 3])]:
        found = unreferenced_segments(fixture.cache, earliest, copied)
        assert [segment_number(metadata) for metadata in found] == expected
