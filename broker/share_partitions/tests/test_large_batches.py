"""Record batches that claim any number of records: their cost is bounded by the acknowledgements of them."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from ottla.broker.config.limits import MAX_SHARE_BATCH_CUTS
from ottla.broker.share_partitions import acknowledgement, in_flight
from ottla.broker.share_partitions.acquisition import AcquiredRange, AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.in_flight import InFlightBatch, InFlightRun, InFlightState, RecordState
from ottla.broker.share_partitions.share_partition import SharePartition, SharePartitionLimits
from ottla.wire.errors import ErrorCode, ProtocolError

MOST = (1 << 31) - 2
"""Number of records that a batch can claim."""
READ = FetchedOffsets(0, [(0, MOST - 1)])


@contextmanager
def at_most(kib: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < kib << 10
    finally:
        tracemalloc.stop()


def acquired_partition() -> SharePartition:
    share = SharePartition(0, limits=SharePartitionLimits())
    assert acquire_records(share, AcquireRequest("a", 500, 500), READ, 0) == [AcquiredRange(0, MOST - 1, 1)]
    return share


def acknowledge(
    share: SharePartition, first: int, *types: int, last: int | None = None
) -> acknowledgement.RecordStateChanges:
    last = first + len(types) - 1 if last is None else last
    return acknowledgement.acknowledge_records(
        share, "a", [acknowledgement.ShareAcknowledgementBatch(first, last, types)], 0
    )


def runs_of(share: SharePartition) -> list[tuple[int, int, RecordState, str, int | None]]:
    """Return all in-flight runs with member and lock deadline; equal neighbours may be merged or not."""
    runs = (run for batch in share for run in batch.runs(batch.first_offset, batch.last_offset))
    return [(first, last, state.state, state.member_id, state.lock_until_ms) for first, last, state in runs]


def test_acknowledge_in_batch_of_two_billion_records_is_cheap() -> None:
    with at_most(64):
        share = acquired_partition()
        acknowledgement.complete_changes(share, acknowledge(share, 7, acknowledgement.ACCEPT), 0, written=True)
        assert share.cut_count == 2
        acknowledgement.complete_changes(share, acknowledge(share, 0, acknowledgement.ACCEPT, last=6), 0, written=True)
        assert (share.start_offset, share.cut_count) == (8, 1)
        share.update_log_start_offset(1 << 30)
        assert len(acknowledgement.expire_locks(share, 1 << 40)) == 2
        assert share.cut_count == 2


def test_strict_acquire_in_batch_of_two_billion_records_is_cheap() -> None:
    with at_most(64):
        share = SharePartition(0, limits=SharePartitionLimits())
        request = AcquireRequest("a", 500, 500, is_record_limit_strict=True)
        assert acquire_records(share, request, READ, 0) == [AcquiredRange(0, 499, 1)]
        assert acquire_records(share, request, READ, 0) == [AcquiredRange(500, 999, 1)]
        assert share.next_fetch_offset() == 1000


def test_acknowledgements_over_maximum_cuts_are_refused() -> None:
    share = acquired_partition()
    changes = acknowledge(share, 0, *[acknowledgement.ACCEPT, acknowledgement.RELEASE] * (MAX_SHARE_BATCH_CUTS // 2))
    assert (share.cut_count, len(changes.state_batches())) == (MAX_SHARE_BATCH_CUTS, MAX_SHARE_BATCH_CUTS)
    acknowledgement.complete_changes(share, changes, 0, written=True)
    with pytest.raises(ProtocolError) as caught:
        acknowledge(share, MAX_SHARE_BATCH_CUTS, acknowledgement.ACCEPT, acknowledgement.REJECT)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert (share.cut_count, share.delivery_complete_count) == (MAX_SHARE_BATCH_CUTS, MAX_SHARE_BATCH_CUTS // 2 - 1), (
        "nothing of it was taken"
    )
    acknowledgement.complete_changes(
        share, acknowledge(share, MAX_SHARE_BATCH_CUTS, acknowledgement.ACCEPT, last=MOST - 1), 0, written=True
    )
    assert not acknowledgement.release_acquired_records(share, "a").changes
    assert acquire_records(share, AcquireRequest("a", 1, 1, is_record_limit_strict=True), READ, 0) == [
        AcquiredRange(1, 1, 2)
    ], "it goes on"


def test_oversized_acknowledgement_is_refused_without_full_scan() -> None:
    share = acquired_partition()
    reported_of_each = acknowledgement.ShareAcknowledgementBatch(
        0, 3_999_999, bytes([acknowledgement.ACCEPT, acknowledgement.RELEASE]) * 2_000_000
    )
    with at_most(8192), pytest.raises(ProtocolError):
        acknowledgement.acknowledge_records(share, "a", [reported_of_each], 0)
    assert share.cut_count == 0


def test_acknowledgement_of_cut_records_is_applied_to_all_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An acknowledgement without a new cut is not refused: records after the last visited one stay valid."""
    monkeypatch.setattr(acknowledgement, "MAX_SHARE_BATCH_CUTS", 10)
    share = SharePartition(0, limits=SharePartitionLimits())
    for now in range(12):  # one by one, without a cut by an acknowledgement
        acquire_records(
            share, AcquireRequest("a", 1, 1, is_record_limit_strict=True), FetchedOffsets(now, [(0, 19)]), now
        )
    acquire_records(share, AcquireRequest("a", 8, 8, is_record_limit_strict=True), FetchedOffsets(12, [(0, 19)]), 12)
    assert (share.cut_count, share.next_fetch_offset()) == (12, 20)
    before = runs_of(share)
    with pytest.raises(ProtocolError) as caught:
        acknowledge(share, 0, *[acknowledgement.ACCEPT, acknowledgement.RELEASE] * 10)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert runs_of(share) == before, "nor are the last eight accepted, of which four were released"
    changes = acknowledge(share, 0, *[acknowledgement.ACCEPT, acknowledgement.RELEASE] * 5, acknowledgement.ACCEPT)
    assert [row[:2] for row in changes.state_batches()] == [(at, at) for at in range(11)], "as far as it is cut"


@pytest.mark.parametrize(
    ("rule", "kind", "now_ms"),
    [
        ("a lock is not prolonged", acknowledgement.RENEW, 29_000),
        ("nothing is freed, though its lock is over", acknowledgement.ACCEPT, 30_000),
        ("nothing is given up", acknowledgement.REJECT, 30_000),
    ],
)
@pytest.mark.parametrize("limit", [1, 5])
def test_acknowledgement_of_other_member_changes_no_run(rule: str, kind: int, now_ms: int, limit: int) -> None:
    share = SharePartition(0, limits=SharePartitionLimits(max_delivery_count=limit))
    acquire_records(share, AcquireRequest("a", 10, 10), FetchedOffsets(0, [(0, 9)]), 0)
    # it is tracked per record from here on
    acknowledgement.complete_changes(share, acknowledge(share, 9, acknowledgement.ACCEPT), 10, written=True)
    before = runs_of(share)
    with pytest.raises(ProtocolError) as caught:
        acknowledgement.acknowledge_records(
            share, "b", [acknowledgement.ShareAcknowledgementBatch(5, 8, [kind])], now_ms
        )
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    assert (runs_of(share), share.delivery_complete_count) == (before, 1), rule


def test_next_fetch_offset_and_start_offset_scan_stop_at_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both are needed at each fetch and each acknowledgement; a batch may have thousands of runs."""
    share, made = acquired_partition(), list[InFlightRun]()
    acknowledgement.complete_changes(
        share, acknowledge(share, 0, *[acknowledgement.RELEASE, acknowledgement.ACCEPT] * 1000), 0, written=True
    )
    assert share.cut_count == 2000

    def run(first: int, last: int, state: InFlightState) -> InFlightRun:
        made.append(InFlightRun(first, last, state))
        return made[-1]

    monkeypatch.setattr(in_flight, "InFlightRun", run)
    assert (share.next_fetch_offset(), len(made)) == (0, 1)
    acquire_records(share, AcquireRequest("a", 1, 1, is_record_limit_strict=True), READ, 0)
    changes = acknowledge(share, 0, acknowledgement.ACCEPT)
    made.clear()
    acknowledgement.complete_changes(share, changes, 0, written=True)
    assert (share.start_offset, len(made)) == (2, 3)


def test_full_window_archived_while_its_write_fails_is_passed() -> None:
    """No member holds any of it: neither an acknowledgement nor a lock timeout would move the start offset."""
    share = SharePartition(0, limits=SharePartitionLimits(1, 10, 100))
    acquire_records(share, AcquireRequest("a", 10, 10), FetchedOffsets(0, [(0, 9)]), 0)
    changes = acknowledgement.acknowledge_records(
        share, "a", [acknowledgement.ShareAcknowledgementBatch(0, 9, [acknowledgement.ACCEPT])], 50
    )
    assert acknowledgement.complete_changes(share, changes, 150, written=False)
    assert (share.start_offset, share.can_acquire()) == (10, True)


def test_cuts_without_difference_are_merged() -> None:
    share = acquired_partition()
    for offset in range(100, 0, -2):
        acknowledgement.complete_changes(share, acknowledge(share, offset, acknowledgement.ACCEPT), 0, written=True)
    assert share.cut_count == 100
    for offset in range(99, 0, -2):
        acknowledgement.complete_changes(share, acknowledge(share, offset, acknowledgement.ACCEPT), 0, written=True)
    assert share.cut_count == 2
    acknowledgement.complete_changes(share, acknowledge(share, 0, acknowledgement.ACCEPT), 0, written=True)
    acknowledgement.complete_changes(
        share, acknowledge(share, 101, acknowledgement.ACCEPT, last=MOST - 1), 0, written=True
    )
    assert (len(share), share.cut_count, share.start_offset) == (0, 0, MOST)


def test_pending_change_of_run_split_meanwhile_is_completed_in_all_parts() -> None:
    share = acquired_partition()
    acknowledge(share, 5, acknowledgement.RENEW)  # it is tracked per record from here on
    changes = acknowledge(share, 10, acknowledgement.RELEASE, last=19)
    share.update_log_start_offset(15)
    acknowledgement.complete_changes(share, changes, 0, written=False)
    batch = share.first_batch
    assert [batch.state_at(at).state for at in (10, 14)] == [RecordState.ARCHIVED] * 2
    assert [batch.state_at(at).state for at in (15, 19)] == [RecordState.ACQUIRED] * 2
    assert all(state.rollback_state is None for state in batch.states())


def test_split_runs_cover_batch_without_gaps() -> None:
    rng = random.Random(3)
    batch = InFlightBatch(10, 59, InFlightState(RecordState.AVAILABLE, 0))
    batch.track_offset_states()
    for _ in range(40):
        first = rng.randrange(10, 60)
        last = rng.randrange(first, 60)
        batch.split_runs_at((first, last + 1))
        batch.state_at(first).delivery_count = rng.randrange(3)
        result = batch.runs(first, last)
        assert (result[0].first_offset, result[-1].last_offset) == (first, last)
        runs = batch.runs(10, 59)
        assert [run.first_offset for run in runs[1:]] == [run.last_offset + 1 for run in runs[:-1]]
        assert sum(run.record_count for run in runs) == len(batch)
        assert all(batch.is_whole_run(*run[:2]) for run in runs)
    alike = [run.state.delivery_count for run in runs]
    batch.merge_equivalent_runs()
    assert batch.cut_count == sum(a != b for a, b in pairwise(alike))
    assert batch.runs(60, 70) == batch.runs(0, 9) == []
    assert type(batch.runs(0, 10)[0]) is InFlightRun
