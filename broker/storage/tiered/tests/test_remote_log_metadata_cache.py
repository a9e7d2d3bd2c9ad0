"""Cache of the remote segments of a partition: reads by leader epoch and offset, replacement, deletion."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from ottla.broker.storage.tiered.leader_epoch_lineage import is_within_leader_epochs
from ottla.broker.storage.tiered.remote_log_metadata_cache import SEGMENTS_PER_STEP
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentState, RemoteResourceNotFoundError
from ottla.broker.storage.tiered.tests.metadata_cache_fixture import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    CacheFixture,
    CountingDict,
    segment_number,
)
from ottla.jobs.job import run_to_end


def test_segment_is_read_only_between_the_end_of_its_copy_and_the_start_of_its_deletion() -> None:
    fixture = CacheFixture()
    fixture.add(1, 0, 9, {0: 0})
    assert (fixture.read(0, 5), fixture.listed(0)) == (None, [1])
    fixture.set(1, FINISHED)
    assert (fixture.read(0, 5), fixture.listed(0)) == (1, [1])
    fixture.set(1, DELETING)
    assert (fixture.read(0, 5), fixture.listed(0)) == (None, [1])
    fixture.set(1, DELETED)
    assert (fixture.read(0, 5), fixture.listed(0), fixture.listed()) == (None, [], [])


def test_offset_is_read_by_the_epoch_that_wrote_it_only() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0, 2: 6})
    assert [fixture.read(0, offset) for offset in (0, 5, 6, 9)] == [1, 1, None, None]
    assert [fixture.read(2, offset) for offset in (5, 6, 9, 10)] == [None, 1, 1, None]
    assert fixture.read(1, 5) is None


def test_segment_that_a_larger_one_covers_is_listed_but_not_read() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0})
    fixture.copy(2, 0, 19, {0: 0})
    assert (fixture.read(0, 5), fixture.read(0, 15)) == (2, 2)
    assert fixture.listed(0) == [2, 1]


def test_overlapping_segment_of_a_later_leader_is_read_instead() -> None:
    """A comment in ``RemoteLogLeaderEpochState``: 10-90, then 5-100 and 101-200; offset 95 is in the second."""
    fixture = CacheFixture()
    fixture.copy(1, 10, 90, {0: 10})
    fixture.copy(2, 5, 100, {0: 5})
    fixture.copy(3, 101, 200, {0: 101})
    assert [fixture.read(0, offset) for offset in (7, 50, 95, 150)] == [2, 2, 2, 3]


def test_shorter_copy_with_the_same_start_replaces_a_segment() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0})
    fixture.copy(2, 0, 4, {0: 0})
    assert [fixture.read(0, offset) for offset in (0, 4, 5)] == [2, 2, None]


def test_add_of_another_state_or_of_a_copied_segment_changes_nothing() -> None:
    fixture = CacheFixture()
    fixture.add(1, 0, 9, {0: 0})
    (started,) = fixture.cache.list_segments()
    assert not fixture.cache.add(replace(started, state=FINISHED))
    assert fixture.cache.list_segments() == [started]
    assert fixture.cache.add(started), "written again after a retry"
    fixture.set(1, FINISHED)
    assert not fixture.cache.add(started)
    assert fixture.read(0, 5) == 1


def test_highest_offset_of_an_epoch_is_not_lowered_by_deletions() -> None:
    fixture = CacheFixture()
    assert fixture.cache.highest_offset_for_epoch(0) is None
    fixture.add(1, 0, 9, {0: 0, 1: 4})
    assert fixture.cache.highest_offset_for_epoch(0) is None
    fixture.set(1, FINISHED, DELETING, DELETED)
    assert [fixture.cache.highest_offset_for_epoch(epoch) for epoch in (0, 1)] == [3, 9]


def test_next_segment_with_txn_index_skips_segments_without_one_and_ends_at_a_gap() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0})
    fixture.copy(2, 10, 19, {0: 10})
    fixture.copy(3, 20, 29, {0: 20}, txns=True)
    assert segment_number(run_to_end(fixture.cache.next_segment_with_txn_index_job(0, 3))) == 3
    fixture.set(2, DELETING)
    assert run_to_end(fixture.cache.next_segment_with_txn_index_job(0, 3)) is None


def test_next_segment_with_txn_index_yields_between_many_segments_without_one() -> None:
    fixture = CacheFixture()
    count = 5 * SEGMENTS_PER_STEP
    for number in range(count):
        fixture.copy(number, number, number, {0: number})
    assert len(list(fixture.cache.next_segment_with_txn_index_job(0, 0))) == 5


def test_time_of_a_record_is_proportional_to_its_leader_epochs() -> None:
    """A record of 1 MB has 80,000 of them: a scan of all for each one would hold the event loop for minutes."""
    epochs = CountingDict((epoch, epoch) for epoch in range(50))
    fixture = CacheFixture()
    fixture.copy(1, 0, 99, epochs)
    assert [fixture.read(epoch, epoch) for epoch in (0, 48, 49)] == [1, 1, 1]
    epochs.scans = 0
    metadata = fixture.cache.list_segments()[0]
    fixture.set(1, FINISHED, DELETING)
    assert is_within_leader_epochs(metadata, 200, epochs)
    assert epochs.scans < 10


@pytest.mark.parametrize(
    ("before", "state"),
    [([], DELETED), ([FINISHED, DELETING], FINISHED), ([], STARTED), ([DELETING], FINISHED)],
    ids=str,
)
def test_state_out_of_order_is_ignored(before: list[RemoteLogSegmentState], state: RemoteLogSegmentState) -> None:
    fixture = CacheFixture()
    fixture.add(1, 0, 9, {0: 0})
    fixture.set(1, *before)
    listed = fixture.cache.list_segments()
    assert fixture.set(1, state) == [False]
    assert fixture.cache.list_segments() == listed


def test_update_of_an_unknown_segment_is_an_error_once_the_cache_is_initialized() -> None:
    fixture = CacheFixture()
    with pytest.raises(RemoteResourceNotFoundError):
        fixture.set(1, FINISHED)
    fixture.cache.is_initialized = False
    assert fixture.set(1, FINISHED) == [False]


def test_first_record_repeated_with_other_epochs_leaves_no_segment_behind() -> None:
    fixture = CacheFixture()
    fixture.add(1, 0, 9, {0: 0})
    fixture.add(1, 0, 9, {1: 0})
    fixture.set(1, DELETING, DELETED)
    assert (fixture.listed(0), fixture.listed(1)) == ([], [])


@pytest.mark.parametrize("seed", range(20))
def test_random_leaders_and_deletions_read_only_segments_that_contain_the_offset(seed: int) -> None:
    """Naive model: owner epoch of each offset; leaders copy what follows the copied offset, in segments of any size."""
    rng = random.Random(seed)
    fixture, numbers = CacheFixture(), itertools.count(1)
    owners: list[int] = []  # epoch of each offset
    segments: dict[int, tuple[int, int]] = {}  # readable or replaced segments
    copied = 0  # first offset that is not copied
    for epoch in range(12):
        owners += [epoch] * rng.randint(1, 25)
        begin = max(0, copied - rng.choice([0, 0, 5, 15]))  # the new leader may not know of the last copies
        while begin < len(owners) and rng.random() < 0.8:
            end = min(begin + rng.randint(0, 12), len(owners) - 1)
            if end + 1 <= copied and rng.random() < 0.5:
                break
            epochs: dict[int, int] = {}
            for offset in range(begin, end + 1):
                epochs.setdefault(owners[offset], offset)
            number = next(numbers)
            fixture.copy(number, begin, end, epochs)
            segments[number] = begin, end
            begin, copied = end + 1, max(copied, end + 1)
        for offset in range(copied):
            number_read = fixture.read(owners[offset], offset)
            if number_read is not None:
                start, end = segments[number_read]
                assert start <= offset <= end
        assert sorted(segments) == sorted(each for each in fixture.listed() if each is not None)
        if segments and rng.random() < 0.4:
            oldest = min(segments, key=lambda each: segments[each])
            fixture.set(oldest, DELETING, DELETED)
            del segments[oldest]


@pytest.mark.parametrize("seed", range(10))
def test_copies_without_overlap_leave_no_offset_unreadable(seed: int) -> None:
    rng = random.Random(seed)
    fixture = CacheFixture()
    owners = sorted(rng.choices(range(5), k=120))
    begin, number = 0, 0
    while begin < len(owners):
        end = min(begin + rng.randint(0, 12), len(owners) - 1)
        epochs: dict[int, int] = {}
        for offset in range(begin, end + 1):
            epochs.setdefault(owners[offset], offset)
        number += 1
        fixture.copy(number, begin, end, epochs)
        begin = end + 1
    for offset, epoch in enumerate(owners):
        metadata = fixture.cache.segment_for(epoch, offset)
        assert metadata is not None
        assert metadata.start_offset <= offset <= metadata.end_offset
        assert fixture.cache.segment_for(epoch + 1, offset) is None
