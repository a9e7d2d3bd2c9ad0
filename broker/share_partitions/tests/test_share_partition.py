"""Acquisition and acknowledgement of records of a share partition (C-219 to C-230)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.share_partitions import acknowledgement
from ottla.broker.share_partitions.acquisition import AcquiredRange, AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.in_flight import RecordState
from ottla.broker.share_partitions.share_partition import InvalidShareState, SharePartition, SharePartitionLimits
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.wire.errors import ErrorCode, ProtocolError

FREE, DONE, GONE = 0, 2, 4
LOCK_MS = 100
FAILS, WAITS = "fails", "waits"


class SharePartitionFixture:
    """Share partition over a log of batches of five records."""

    def __init__(self, *stored: PersisterStateBatch, start: int = 0, **limits: Any) -> None:
        limits = {"max_delivery_count": 5, "max_record_locks": 100, "lock_duration_ms": LOCK_MS} | limits
        self.share = SharePartition(start, stored, SharePartitionLimits(**limits))
        self.now = 0
        self.pending: list[acknowledgement.RecordStateChanges] = []

    def fetch(
        self, member: str = "a", most: int = 5, size: int = 100, strict: bool = False, upto: int = 49
    ) -> list[AcquiredRange]:
        at = self.share.next_fetch_offset()
        read = [(base, base + 4) for base in range(at - at % 5, upto + 1, 5)]
        return acquire_records(
            self.share, AcquireRequest(member, most, size, strict), FetchedOffsets(at, read), self.now
        )

    def acknowledge(self, first: int, last: int, *types: int, member: str = "a", how: str = "") -> None:
        batches = [acknowledgement.ShareAcknowledgementBatch(first, last, types)]
        changes = acknowledgement.acknowledge_records(self.share, member, batches, self.now)
        if how == WAITS:
            self.pending.append(changes)
        else:
            acknowledgement.complete_changes(self.share, changes, self.now, written=how != FAILS)

    def tick(self, ms: int) -> list[PersisterStateBatch]:
        self.now += ms
        out = acknowledgement.expire_locks(self.share, self.now)
        self.share.advance_start_offset()
        return out

    @property
    def states(self) -> str:
        """Return state and delivery count of each record from the first in flight on; A is acquired, D acknowledged."""
        letters = {0: "-", 1: "A", 2: "D", 4: "X"}
        return " ".join(
            f"{letters[batch.state_at(offset).state]}{batch.state_at(offset).delivery_count}"
            for batch in self.share
            for offset in range(batch.first_offset, batch.last_offset + 1)
        )

    @property
    def window(self) -> tuple[int, int, int]:
        return self.share.start_offset, self.share.end_offset, self.share.delivery_complete_count


def refused(fixture: SharePartitionFixture, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
    before = fixture.states, fixture.window
    with pytest.raises(ProtocolError) as caught:
        fixture.acknowledge(first, last, *types, member=member)
    assert (fixture.states, fixture.window) == before, "nothing of it was taken"
    return caught.value.code


def test_acquire_returns_whole_batches_beyond_max_records() -> None:
    fixture = SharePartitionFixture()
    assert fixture.fetch(most=7) == [AcquiredRange(0, 9, 1)]
    assert fixture.share.next_fetch_offset() == 10


def test_acquire_splits_ranges_at_batch_size() -> None:
    assert SharePartitionFixture().fetch(most=20, size=10) == [AcquiredRange(0, 9, 1), AcquiredRange(10, 19, 1)]


def test_strict_acquire_returns_at_most_max_records() -> None:
    fixture = SharePartitionFixture()
    assert fixture.fetch(most=3, strict=True) == [AcquiredRange(0, 2, 1)]
    assert fixture.states == "A1 A1 A1 -0 -0"
    assert fixture.fetch("b", most=3, strict=True) == [AcquiredRange(3, 4, 1), AcquiredRange(5, 5, 1)]


def test_acquire_gives_members_different_records() -> None:
    fixture = SharePartitionFixture()
    assert fixture.fetch("a") == [AcquiredRange(0, 4, 1)]
    assert fixture.fetch("b") == [AcquiredRange(5, 9, 1)]
    assert refused(fixture, 5, 9, acknowledgement.ACCEPT, member="a") is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    ("rule", "types", "states", "window"),
    [
        ("accepted: done, and the window moves on", [acknowledgement.ACCEPT], "", (5, 5, 0)),
        ("rejected: gone", [acknowledgement.REJECT], "", (5, 5, 0)),
        ("a gap: gone", [acknowledgement.GAP], "", (5, 5, 0)),
        ("released: free, and the count stays", [acknowledgement.RELEASE], "-1 -1 -1 -1 -1", (0, 4, 0)),
        ("each its own", [1, 2, 3, 2, 0], "D1 -1 X1 -1 X1", (1, 4, 2)),
        ("renewed: still acquired", [acknowledgement.RENEW], "A1 A1 A1 A1 A1", (0, 4, 0)),
    ],
)
def test_acknowledge_type_determines_next_record_state(
    rule: str, types: list[int], states: str, window: tuple[int, int, int]
) -> None:
    fixture = SharePartitionFixture()
    fixture.fetch()
    fixture.acknowledge(0, 4, *types)
    assert (fixture.states, fixture.window) == (states, window), rule


@pytest.mark.parametrize(
    ("rule", "batches", "expected"),
    [
        ("another member's", (0, 4, 1, "b"), ErrorCode.INVALID_RECORD_STATE),
        ("another member's record", (1, 1, 1, "b"), ErrorCode.INVALID_RECORD_STATE),
        ("nobody ever had it: behind the end", (0, 6, 1, "a"), ErrorCode.INVALID_REQUEST),
        ("all of it behind the end", (7, 8, 1, "a"), ErrorCode.INVALID_REQUEST),
        ("before the start: long done", (-5, -1, 1, "a"), None),
    ],
)
def test_acknowledge_by_member_without_the_record_is_refused(
    rule: str, batches: tuple[Any, ...], expected: ErrorCode | None
) -> None:
    fixture = SharePartitionFixture()
    fixture.fetch()
    *numbers, member = batches
    if expected is None:
        fixture.acknowledge(*numbers, member=member)
    else:
        assert refused(fixture, *numbers, member=member) is expected, rule


def test_acknowledge_twice_is_refused() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch(most=10)
    fixture.acknowledge(3, 3, acknowledgement.ACCEPT)
    assert refused(fixture, 3, 3, acknowledgement.ACCEPT) is ErrorCode.INVALID_RECORD_STATE
    fixture.acknowledge(4, 4, acknowledgement.ACCEPT, how=WAITS)
    assert refused(fixture, 4, 4, acknowledgement.REJECT) is ErrorCode.INVALID_RECORD_STATE, (
        "also while it is being written"
    )


def test_acknowledge_with_one_invalid_batch_changes_no_record() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch(most=10)
    batches = [
        acknowledgement.ShareAcknowledgementBatch(0, 4, [acknowledgement.REJECT]),
        acknowledgement.ShareAcknowledgementBatch(5, 20, [acknowledgement.ACCEPT]),
    ]
    with pytest.raises(ProtocolError):
        acknowledgement.acknowledge_records(fixture.share, "a", batches, 0)
    assert fixture.window == (0, 9, 0)
    assert fixture.states == " ".join(["A1"] * 10)


def test_acknowledge_write_failure_restores_acquired_state() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch()
    fixture.acknowledge(0, 4, 1, 1, 1, 2, 1, how=FAILS)
    assert (fixture.states, fixture.window) == ("A1 A1 A1 A1 A1", (0, 4, 0))
    fixture.acknowledge(0, 4, acknowledgement.ACCEPT)
    assert fixture.window == (5, 5, 0)


def test_pending_write_holds_window_and_records() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch()
    fixture.acknowledge(0, 4, acknowledgement.RELEASE, how=WAITS)
    assert fixture.share.next_fetch_offset() == 5
    assert fixture.fetch("b", upto=4) == []
    acknowledgement.complete_changes(fixture.share, fixture.pending[0], 0, written=True)
    assert fixture.fetch("b", upto=4) == [AcquiredRange(0, 4, 2)]


def test_lock_timeout_releases_records_and_renew_extends_it() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch(most=10)
    fixture.now = 60
    fixture.acknowledge(0, 1, acknowledgement.RENEW)
    assert acknowledgement.next_lock_expiry_ms(fixture.share) == LOCK_MS
    assert fixture.tick(39) == []
    assert fixture.tick(1) == [PersisterStateBatch(2, 9, 1, FREE)]
    assert fixture.share.next_fetch_offset() == 2
    assert acknowledgement.next_lock_expiry_ms(fixture.share) == 160


def test_lock_timeout_during_failed_write_releases_record() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch()
    fixture.acknowledge(0, 4, acknowledgement.ACCEPT, how=WAITS)
    assert fixture.tick(LOCK_MS) == []
    acknowledgement.complete_changes(fixture.share, fixture.pending[0], fixture.now, written=False)
    assert fixture.states == "-1 -1 -1 -1 -1"


def test_release_acquired_records_makes_them_available() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch("a")
    fixture.fetch("b")
    fixture.acknowledge(1, 1, acknowledgement.ACCEPT)
    changes = acknowledgement.release_acquired_records(fixture.share, "a")
    assert [row.state_batch[:2] for row in changes.changes] == [(0, 0), (2, 4)]
    acknowledgement.complete_changes(fixture.share, changes, 0, written=True)
    assert fixture.states == "-1 D1 -1 -1 -1 A1 A1 A1 A1 A1"


@pytest.mark.behaviour("P-94")
def test_max_delivery_count_reached_archives_record() -> None:
    fixture = SharePartitionFixture(max_delivery_count=2)
    for _ in range(2):
        fixture.fetch(upto=4)
        fixture.acknowledge(0, 0, acknowledgement.RELEASE)
        fixture.tick(LOCK_MS)
    assert fixture.states == ""
    assert fixture.window == (5, 5, 0)


def test_acquire_reduces_batch_as_delivery_count_approaches_limit() -> None:
    fixture = SharePartitionFixture(PersisterStateBatch(0, 15, 3, FREE), max_delivery_count=8)
    assert fixture.fetch(most=50, upto=14) == [AcquiredRange(0, 14, 4)], "below half of the limit nothing is held back"
    fixture = SharePartitionFixture(PersisterStateBatch(0, 15, 4, FREE), max_delivery_count=8)
    assert fixture.fetch(most=50, upto=14) == [AcquiredRange(0, 7, 5)], "half of the batch"
    fixture = SharePartitionFixture(PersisterStateBatch(0, 15, 6, FREE), max_delivery_count=8)
    assert fixture.fetch(most=50, upto=14) == [AcquiredRange(0, 1, 7)], "an eighth"
    fixture = SharePartitionFixture(PersisterStateBatch(0, 15, 7, FREE), max_delivery_count=8)
    assert fixture.fetch(most=50, upto=14) == [AcquiredRange(0, 0, 8)], "at last one alone"


def test_acquire_separates_records_with_high_delivery_count() -> None:
    fixture = SharePartitionFixture(PersisterStateBatch(0, 4, 1, FREE), PersisterStateBatch(5, 9, 3, FREE))
    assert fixture.fetch(most=50) == [AcquiredRange(0, 4, 2)]
    assert fixture.fetch(most=50) == [AcquiredRange(5, 6, 4)]


@pytest.mark.behaviour("P-94")
def test_max_record_locks_limits_in_flight_records() -> None:
    fixture = SharePartitionFixture(max_record_locks=10)
    fixture.fetch(most=10)
    assert not fixture.share.can_acquire()
    assert fixture.fetch(most=10) == []
    fixture.acknowledge(5, 9, acknowledgement.RELEASE)
    assert fixture.share.can_acquire()
    assert fixture.fetch("b", most=10) == [AcquiredRange(5, 9, 2)]
    fixture.acknowledge(0, 4, acknowledgement.ACCEPT)
    assert fixture.window == (5, 9, 0)
    assert fixture.fetch(most=10) == [AcquiredRange(10, 14, 1)]


def test_gaps_in_loaded_state_are_acquired_as_new() -> None:
    fixture = SharePartitionFixture(PersisterStateBatch(0, 4, 1, FREE), PersisterStateBatch(10, 14, 1, DONE))
    assert fixture.fetch(most=50) == [AcquiredRange(0, 4, 2), AcquiredRange(5, 9, 1), AcquiredRange(15, 49, 1)]
    assert fixture.window == (0, 49, 5)


def test_start_offset_does_not_pass_a_gap() -> None:
    fixture = SharePartitionFixture(PersisterStateBatch(5, 9, 1, DONE))
    assert fixture.window == (0, 9, 5)
    assert fixture.share.next_fetch_offset() == 0


def test_loaded_final_states_advance_start_offset() -> None:
    fixture = SharePartitionFixture(PersisterStateBatch(0, 4, 1, DONE), PersisterStateBatch(5, 9, 2, FREE))
    assert fixture.window == (5, 9, 0)
    assert SharePartitionFixture(PersisterStateBatch(0, 4, 1, DONE)).window == (5, 5, 0)


@pytest.mark.parametrize("batch", [PersisterStateBatch(2, 4, 1, FREE), PersisterStateBatch(6, 5, 1, FREE)])
def test_load_of_invalid_state_batch_raises_invalid_share_state(batch: PersisterStateBatch) -> None:
    with pytest.raises(InvalidShareState):
        SharePartition(5, [batch])


def test_log_start_offset_advance_archives_unacquired_records() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch()
    fixture.fetch()
    fixture.acknowledge(0, 4, 1, 2, 2, 2, 2)
    assert fixture.window == (1, 9, 0)
    fixture.share.update_log_start_offset(7)
    assert fixture.states == "D1 X1 X1 X1 X1 A1 A1 A1 A1 A1"
    assert fixture.window == (7, 9, 0)
    fixture.acknowledge(5, 9, acknowledgement.ACCEPT)
    assert fixture.window == (7, 9, 3), "what lies before the start waits for its lock"
    assert [row[:2] for row in fixture.tick(LOCK_MS)] == [(5, 6)]
    assert fixture.window == (10, 10, 0)


def test_log_start_offset_after_unused_share_partition_moves_its_window() -> None:
    fixture = SharePartitionFixture()
    fixture.share.update_log_start_offset(20)
    assert fixture.window == (20, 20, 0)
    fixture.share.update_log_start_offset(3)
    assert fixture.window == (20, 20, 0), "never back"


def test_acquire_archives_records_missing_from_log() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch(most=10)
    fixture.acknowledge(0, 9, acknowledgement.RELEASE)
    acquire_records(fixture.share, AcquireRequest("a", 5, 5), FetchedOffsets(0, [(5, 9)]), 0)
    assert fixture.states == "X1 X1 X1 X1 X1 A2 A2 A2 A2 A2", "the first five were compacted away"
    assert fixture.window == (0, 9, 5)


@pytest.mark.behaviour("C-218")
def test_acquire_skips_aborted_records() -> None:
    fixture = SharePartitionFixture()
    fetched = FetchedOffsets(0, [(0, 4), (5, 9), (10, 14)], aborted_offsets=[(5, 9)])
    assert acquire_records(fixture.share, AcquireRequest("a", 50, 50), fetched, 0) == [
        AcquiredRange(0, 4, 1),
        AcquiredRange(10, 14, 1),
    ]
    assert fixture.window == (0, 14, 5)
    assert fixture.share.last_batch_at_or_before(7).state_at(7).state is RecordState.ARCHIVED  # type: ignore[union-attr]


def test_window_of_aborted_records_advances() -> None:
    fixture = SharePartitionFixture(max_record_locks=10)
    for first in (0, 5):
        assert fixture.share.can_acquire()
        read = FetchedOffsets(first, [(first, first + 4)], aborted_offsets=[(first, first + 4)])
        assert acquire_records(fixture.share, AcquireRequest("a", 5, 5), read, 0) == []
    assert (fixture.window, fixture.share.next_fetch_offset()) == ((10, 10, 0), 10)
    assert fixture.fetch() == [AcquiredRange(10, 14, 1)]


def test_aborted_records_after_acquired_ones_wait_for_acknowledgement() -> None:
    fixture = SharePartitionFixture()
    fixture.fetch("b")
    assert (
        acquire_records(
            fixture.share, AcquireRequest("a", 5, 5), FetchedOffsets(5, [(5, 9)], aborted_offsets=[(5, 9)]), 0
        )
        == []
    )
    assert fixture.window == (0, 9, 5)
    fixture.acknowledge(0, 4, acknowledgement.ACCEPT, member="b")
    assert fixture.window == (10, 10, 0)


def test_full_window_missing_from_log_is_passed() -> None:
    fixture = SharePartitionFixture(max_record_locks=10)
    fixture.fetch(most=10)
    acknowledgement.complete_changes(
        fixture.share, acknowledgement.release_acquired_records(fixture.share, "a"), fixture.now, written=True
    )
    read = FetchedOffsets(0, [(25, 29)])
    assert acquire_records(fixture.share, AcquireRequest("a", 5, 5), read, 0) == []
    assert (fixture.window, list(fixture.share)) == ((10, 10, 0), [])
    assert acquire_records(fixture.share, AcquireRequest("a", 5, 5), FetchedOffsets(10, [(25, 29)]), 0) == [
        AcquiredRange(25, 29, 1)
    ]


def test_aborted_batch_across_start_offset_is_archived_from_there() -> None:
    """The log start or an administrator may set the start offset inside a batch; earlier records are not in flight."""
    fixture = SharePartitionFixture(start=3)
    read = FetchedOffsets(3, [(0, 4), (5, 9)], aborted_offsets=[(0, 4)])
    assert acquire_records(fixture.share, AcquireRequest("a", 10, 100), read, 0) == [AcquiredRange(5, 9, 1)]
    assert fixture.states == "X1 X1 A1 A1 A1 A1 A1"
    assert fixture.window == (3, 9, 2)


@pytest.mark.parametrize("size", [1, 0, -5])
def test_acquire_with_batch_size_below_two_returns_record_batches(size: int) -> None:
    """A request for zero or fewer records per range gets no empty range."""
    fixture = SharePartitionFixture()
    assert fixture.fetch(most=12, size=size) == [AcquiredRange(first, first + 4, 1) for first in (0, 5, 10)]
    assert fixture.states == " ".join(["A1"] * 15)


def test_acknowledged_neighbours_of_same_state_are_written_as_one_batch() -> None:
    """Otherwise a large batch acknowledged record by record would exceed the maximum size of a write."""
    fixture = SharePartitionFixture()
    fixture.fetch(most=10)
    fixture.acknowledge(4, 4, acknowledgement.RELEASE)
    batches = [
        acknowledgement.ShareAcknowledgementBatch(0, 3, [1, 1, 2, 2]),
        acknowledgement.ShareAcknowledgementBatch(5, 9, [2, 1, 1, 1, 3]),
    ]
    changes = acknowledgement.acknowledge_records(fixture.share, "a", batches, 0)
    assert changes.state_batches() == (
        PersisterStateBatch(0, 1, 1, DONE),
        PersisterStateBatch(2, 3, 1, FREE),
        PersisterStateBatch(5, 5, 1, FREE),
        PersisterStateBatch(6, 8, 1, DONE),
        PersisterStateBatch(9, 9, 1, GONE),
    )
    acknowledgement.complete_changes(fixture.share, changes, 0, written=False)
    assert fixture.states == "A1 A1 A1 A1 -1 A1 A1 A1 A1 A1"
