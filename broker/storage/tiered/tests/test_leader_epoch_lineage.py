"""Remote segments against the leader epochs of a log, and the offsets that a new leader finds."""

from __future__ import annotations

import pytest

from ottla.broker.storage.tiered.leader_epoch_lineage import (
    epochs_with_records,
    find_copied_offset,
    find_highest_remote_offset,
    find_log_start_offset,
    is_within_leader_epochs,
)
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata
from ottla.broker.storage.tiered.tests.metadata_cache_fixture import DELETING, CacheFixture, segment_id
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.tests.log_fixtures import memory_disk


def _epochs(entries: list[tuple[int, int]]) -> LeaderEpochFileCache:
    cache = LeaderEpochFileCache(memory_disk().session(), "/logs/t-0")
    cache.entries = entries
    return cache


def _segment(start: int, end: int, epochs: dict[int, int]) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(segment_id(1), start, end, 0, 1, 0, 1, epochs)


def test_epochs_without_records_are_left_out() -> None:
    assert epochs_with_records([(0, 0), (1, 10), (2, 10), (3, 10), (5, 20), (6, 20)]) == {0: 0, 3: 10, 6: 20}
    assert epochs_with_records([]) == {}


LOG = {5: 10, 7: 15, 9: 100}


@pytest.mark.parametrize(
    ("start", "end", "epochs", "expected"),
    [
        (12, 14, {5: 12}, True),
        (5, 50, {5: 5, 7: 15}, True),  # the log start offset advanced since
        (0, 50, {3: 0, 5: 8, 7: 15}, True),
        (14, 150, {5: 14, 7: 15, 9: 100}, True),
        (0, 8, {3: 0}, False),
        (12, 15, {5: 12}, False),  # ends in the next epoch's offsets
        (12, 50, {5: 12, 7: 16}, False),  # another start of epoch 7
        (12, 50, {5: 12, 6: 15}, False),
        (14, 50, {7: 14}, False),  # before the start of epoch 7
        (14, 150, {5: 14, 9: 100}, False),  # without epoch 7
        (120, 199, {9: 120}, True),
        (120, 200, {9: 120}, False),  # beyond the log end offset
    ],
)
def test_segment_belongs_to_the_log_if_its_epochs_do(
    start: int, end: int, epochs: dict[int, int], *, expected: bool
) -> None:
    assert is_within_leader_epochs(_segment(start, end, epochs), 200, LOG) is expected


def test_log_without_leader_epochs_has_no_remote_segments() -> None:
    assert not is_within_leader_epochs(_segment(0, 5, {0: 0}), 10, {})


def test_new_leader_copies_on_from_the_highest_offset_of_its_latest_copied_epoch() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 0, 9, {0: 0})
    fixture.copy(2, 10, 29, {0: 10, 1: 20})
    assert find_highest_remote_offset(fixture.cache, _epochs([(0, 0), (1, 20), (3, 50)]), 80) == (29, 1)


def test_new_leader_whose_epoch_ended_before_the_copied_offset_copies_on_from_its_own_end() -> None:
    """After an unclean election the remote store has offsets 20 to 29 of epoch 1, which this log does not have."""
    fixture = CacheFixture()
    fixture.copy(1, 0, 29, {0: 0, 1: 20})
    assert find_highest_remote_offset(fixture.cache, _epochs([(0, 0), (1, 20), (3, 25)]), 80) == (24, 1)
    assert find_highest_remote_offset(fixture.cache, _epochs([(0, 0), (3, 15)]), 80) == (14, 0)
    assert find_highest_remote_offset(fixture.cache, _epochs([(3, 0)]), 80) == (-1, -1)


def test_copied_offset_after_deletions_is_that_of_the_last_remaining_segment() -> None:
    fixture = CacheFixture()
    for number in (1, 2, 3):
        fixture.copy(number, number * 10 - 10, number * 10 - 1, {0: number * 10 - 10})
    fixture.copy(9, 20, 24, {5: 20})  # of another leader epoch history
    epochs = _epochs([(0, 0)])
    assert find_copied_offset(fixture.cache, epochs, 0, 80) == 29
    fixture.set(3, DELETING)
    assert find_copied_offset(fixture.cache, epochs, 0, 80) == 19
    assert find_copied_offset(fixture.cache, epochs, 29, 80) == 19
    assert find_copied_offset(fixture.cache, epochs, 30, 80) == 29, "the log has none of the deleted records"
    for number in (1, 2):
        fixture.set(number, DELETING)
    assert find_copied_offset(fixture.cache, epochs, 0, 80) == -1


def test_log_start_offset_of_a_new_leader_is_the_oldest_remote_segment_of_its_epochs() -> None:
    fixture = CacheFixture()
    fixture.copy(1, 4, 9, {0: 4})
    fixture.copy(2, 10, 29, {1: 10})
    assert find_log_start_offset(fixture.cache, _epochs([(0, 0), (1, 10)]), 30) == 4
    assert find_log_start_offset(fixture.cache, _epochs([(1, 10)]), 30) == 10
    assert find_log_start_offset(fixture.cache, _epochs([(2, 30)]), 30) == 30
