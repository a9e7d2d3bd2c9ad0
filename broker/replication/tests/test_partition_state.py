"""Rules of a partition's replication state (R-327 to R-338)."""

from __future__ import annotations

import pytest

from ottla.broker.replication.partition_state import (
    AlterPartitionOutcome,
    AlterPartitionResult,
    CommittedIsr,
    FollowerReplica,
    IsrChange,
    LeaderState,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from ottla.wire.errors import ErrorCode

LAG_MS = 30_000
NOW = 1_000_000


def anybody(broker: int, broker_epoch: int) -> bool:
    return True


def is_never_eligible(broker: int, broker_epoch: int) -> bool:
    return False


def leading(replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), end: int = 100) -> LeaderState:
    """Return the state of a leader, broker 1, of epoch 5 from ``end`` on."""
    return LeaderState.start_epoch(1, 5, 7, replicas, CommittedIsr(isr), end, NOW)


def watermark(state: LeaderState, log_end: int = 200, *, min_isr: int = 1, now: int = NOW, eligible=anybody, own=None):  # type: ignore[no-untyped-def]
    return state.high_watermark(log_end if own is None else own, log_end, now, LAG_MS, min_isr, eligible)


# ---------------------------------------------------------------------- follower fetch state


CAUGHT_UP = [
    # offset, leader end, caught up before, last fetch at, leader end then -> caught up at
    pytest.param(200, 200, 0, 0, -1, NOW, id="R-328 at the end: caught up now"),
    pytest.param(201, 200, 0, 0, -1, NOW, id="R-328 beyond the end: caught up now"),
    pytest.param(200, 200, NOW + 5, 0, -1, NOW + 5, id="R-328 the time never goes back"),
    pytest.param(150, 200, 0, NOW - 9, 150, NOW - 9, id="R-328 at the end of the last fetch: caught up then"),
    pytest.param(151, 200, 0, NOW - 9, 150, NOW - 9, id="R-328 beyond the end of the last fetch: caught up then"),
    pytest.param(150, 200, NOW - 3, NOW - 9, 150, NOW - 3, id="R-328 that time does not go back either"),
    pytest.param(149, 200, 42, NOW - 9, 150, 42, id="R-328 short of both: nothing is known anew"),
]


@pytest.mark.parametrize(("offset", "end", "before", "last_fetch", "last_end", "expected"), CAUGHT_UP)
def test_update_fetch_state_sets_caught_up_time(
    offset: int, end: int, before: int, last_fetch: int, last_end: int, expected: int
) -> None:
    follower = FollowerReplica(caught_up_ms=before, last_fetch_ms=last_fetch, last_leader_end=last_end)
    follower.update_fetch_state(NOW, offset, end)
    assert follower.caught_up_ms == expected
    assert (follower.end_offset, follower.last_fetch_ms, follower.last_leader_end) == (offset, NOW, end)


@pytest.mark.behaviour("P-46")
@pytest.mark.parametrize(
    ("end", "caught_up", "expected"),
    [(200, 0, True), (199, NOW - LAG_MS, True), (199, NOW - LAG_MS - 1, False), (-1, NOW, True)],
)
def test_is_caught_up_at_log_end_or_within_lag(end: int, caught_up: int, expected: bool) -> None:
    assert FollowerReplica(end, caught_up_ms=caught_up).is_caught_up(NOW, 200, LAG_MS) is expected


def test_update_follower_updates_known_replica_and_ignores_others() -> None:
    state = leading()
    follower = state.update_follower(2, 33, 120, 8, 200, NOW + 1)
    assert follower is state.followers[2]
    assert (follower.end_offset, follower.log_start_offset, follower.broker_epoch) == (120, 8, 33)
    before = {i: (f.end_offset, f.broker_epoch) for i, f in state.followers.items()}
    assert state.update_follower(9, 33, 120, 8, 200, NOW + 1) is None
    assert {i: (f.end_offset, f.broker_epoch) for i, f in state.followers.items()} == before


# ---------------------------------------------------------------------- leadership


def test_start_epoch_resets_followers_and_gives_isr_members_time() -> None:
    state = leading((3, 1, 2), (1, 2))
    assert set(state.followers) == {2, 3}
    assert {i: f.caught_up_ms for i, f in state.followers.items()} == {2: NOW, 3: 0}
    assert all(f.end_offset == -1 for f in state.followers.values())
    assert state.leader_epoch_start_offset == 100
    assert leading((1,), (1,)).followers == {}


def test_start_epoch_after_leading_previous_epoch_keeps_follower_ends() -> None:
    """R-329: only a broker that did not lead before resets the state of the others (`Replica.resetReplicaState`)."""
    before = leading()
    before.update_follower(2, 33, 150, 8, 150, NOW - 9)
    before.update_follower(3, 44, 120, 7, 150, NOW - 9)
    state = LeaderState.start_epoch(1, 6, 8, (1, 2, 3, 4), CommittedIsr((1, 2)), 150, NOW, before)
    assert state.followers == {
        2: FollowerReplica(150, 8, caught_up_ms=NOW, last_fetch_ms=NOW, last_leader_end=150, broker_epoch=33),
        3: FollowerReplica(120, 7, caught_up_ms=0, last_fetch_ms=0, last_leader_end=150, broker_epoch=44),
        4: FollowerReplica(last_leader_end=150),
    }
    assert watermark(state, 150) == 150
    assert before.followers[2] is not state.followers[2]


def test_apply_partition_state_in_same_epoch_keeps_followers_and_ignores_older() -> None:
    state = leading()
    state.update_follower(2, -1, 150, 0, 200, NOW)
    assert state.apply_partition_state(8, (1, 2, 4), CommittedIsr((1, 2)))
    assert (state.partition_epoch, state.isr) == (8, CommittedIsr((1, 2)))
    assert state.followers[2].end_offset == 150
    assert (state.followers[4].end_offset, state.followers[4].caught_up_ms) == (-1, 0)
    assert 3 not in state.followers
    for older in (7, 8):
        assert not state.apply_partition_state(older, (1,), CommittedIsr((1,)))
    assert (state.isr, set(state.followers)) == (CommittedIsr((1, 2)), {2, 4})
    assert state.apply_partition_state(9, (1,), CommittedIsr((1,)))
    assert not state.followers


# ---------------------------------------------------------------------- the high watermark


HIGH_WATERMARK = [
    # ends of 2 and 3, isr, min isr -> high watermark at own end 200
    pytest.param({2: 150, 3: 120}, (1, 2, 3), 1, 120, id="R-332 the lowest end of the ISR"),
    pytest.param({2: 250, 3: 250}, (1, 2, 3), 1, 200, id="R-332 the leader's own end counts"),
    pytest.param({2: -1, 3: 180}, (1, 2, 3), 1, None, id="R-332 a member unknown since the election holds it"),
    pytest.param({2: 0, 3: 180}, (1, 2, 3), 1, 0, id="R-332 an empty member keeps it at 0"),
    pytest.param({2: 150, 3: 120}, (1, 2), 1, 150, id="R-332 outside the ISR and far behind: not waited for"),
    pytest.param({2: 150, 3: 120}, (1,), 2, None, id="R-332 KIP-966: it waits while too few are in sync"),
    pytest.param({2: 150, 3: 120}, (1, 2), 2, 150, id="R-332 KIP-966: as many as asked for are enough"),
    pytest.param(
        {2: 150, 3: 120}, (1, 2, 3), 9, 120, id="R-332 KIP-966: no more are asked for than there are replicas"
    ),
]


@pytest.mark.behaviour("P-47")
@pytest.mark.parametrize(("ends", "isr", "min_isr", "expected"), HIGH_WATERMARK)
def test_high_watermark_is_minimum_end_of_isr(
    ends: dict[int, int], isr: tuple[int, ...], min_isr: int, expected: int | None
) -> None:
    state = leading(isr=isr)
    for broker, end in ends.items():
        state.followers[broker].end_offset = end
        state.followers[broker].caught_up_ms = 0
    assert watermark(state, min_isr=min_isr) == expected


def test_high_watermark_is_limited_by_own_durable_end() -> None:
    state = leading()
    for follower in state.followers.values():
        follower.end_offset = 200
    assert watermark(state, own=130) == 130


@pytest.mark.behaviour("P-47")
def test_high_watermark_waits_for_caught_up_replica_outside_isr() -> None:
    state = leading(isr=(1, 2))
    state.followers[2].end_offset = 200
    state.followers[3].end_offset = 190
    state.followers[3].caught_up_ms = NOW - LAG_MS
    assert watermark(state) == 190
    assert watermark(state, eligible=is_never_eligible) == 200
    assert watermark(state, now=NOW + 1) == 200


@pytest.mark.behaviour("P-47", "P-49")
def test_high_watermark_uses_maximal_isr_during_change() -> None:
    state = leading(isr=(1, 2))
    state.followers[2].end_offset = 150
    state.followers[3].end_offset = 140
    state.followers[3].caught_up_ms = 0
    assert watermark(state, now=NOW + LAG_MS * 2) == 150
    state.isr = PendingExpandIsr(CommittedIsr((1, 2)), 3)
    assert watermark(state, now=NOW + LAG_MS * 2) == 140
    state.isr = PendingShrinkIsr(CommittedIsr((1, 2)), frozenset({2}))
    assert watermark(state, now=NOW + LAG_MS * 2) == 150


def test_min_isr_does_not_count_pending_member() -> None:
    state = leading(isr=(1,))
    assert state.is_under_min_isr(2)
    state.isr = PendingExpandIsr(CommittedIsr((1,)), 2)
    assert state.is_under_min_isr(2)
    assert state.has_enough_replicas(2)
    state.isr = CommittedIsr((1, 2))
    assert not state.is_under_min_isr(2)
    state.isr = PendingShrinkIsr(CommittedIsr((1, 2)), frozenset({2}))
    assert not state.is_under_min_isr(2)
    assert state.has_enough_replicas(2)
    state.isr = CommittedIsr((1,))
    assert not state.has_enough_replicas(2)


# ---------------------------------------------------------------------- joining and leaving


def fetched_by_3(state: LeaderState, offset: int, broker_epoch: int = 33) -> None:
    state.update_follower(3, broker_epoch, offset, 0, 200, NOW)


@pytest.mark.behaviour("P-48", "P-49")
def test_maybe_expand_isr_adds_follower_at_high_watermark_and_epoch_start() -> None:
    state = leading(isr=(1, 2))
    fetched_by_3(state, 120)
    state.followers[2].broker_epoch = 22
    assert state.maybe_expand_isr(3, 120, anybody) == IsrChange(5, 7, (1, 2, 3), (-1, 22, 33))
    assert state.isr == PendingExpandIsr(CommittedIsr((1, 2)), 3)
    assert state.isr.maximal_isr == state.isr.requested_isr == (1, 2, 3)


STAYS_OUT = [
    pytest.param(119, 120, "outside", True, id="R-331 short of the high watermark"),
    pytest.param(99, 50, "outside", True, id="R-331 short of the start of this epoch"),
    pytest.param(120, 120, "outside", False, id="R-331 not eligible"),
    pytest.param(120, 120, "member", True, id="R-331 a member already"),
    pytest.param(120, 120, "pending", True, id="R-331 a change is under way"),
]


@pytest.mark.behaviour("P-48")
@pytest.mark.parametrize(("offset", "high_watermark", "label", "may"), STAYS_OUT)
def test_maybe_expand_isr_refuses_follower_unless_all_conditions_hold(
    offset: int, high_watermark: int, label: str, may: bool
) -> None:
    state = leading(isr=(1, 2, 3) if label == "member" else (1, 2))
    if label == "pending":
        state.isr = PendingShrinkIsr(CommittedIsr((1, 2)), frozenset({2}))
    fetched_by_3(state, offset)
    before = state.isr
    assert state.maybe_expand_isr(3, high_watermark, anybody if may else is_never_eligible) is None
    assert state.isr == before


def test_maybe_expand_isr_checks_eligibility_with_broker_epoch_of_last_fetch() -> None:
    state = leading(isr=(1, 2))
    fetched_by_3(state, 120, broker_epoch=41)
    requested: list[tuple[int, int]] = []
    state.maybe_expand_isr(3, 120, lambda broker, epoch: not requested.append((broker, epoch)))
    assert requested == [(3, 41)]
    assert state.maybe_expand_isr(9, 0, anybody) is None


@pytest.mark.behaviour("P-46", "P-49")
def test_maybe_shrink_isr_removes_all_lagging_members_together() -> None:
    state = leading((1, 2, 3, 4), (1, 2, 3, 4))
    state.followers[2].end_offset = 200
    state.followers[2].caught_up_ms = 0
    state.followers[3].caught_up_ms = state.followers[4].caught_up_ms = NOW - LAG_MS
    assert state.maybe_shrink_isr(NOW, 200, LAG_MS) is None
    assert state.maybe_shrink_isr(NOW + 1, 200, LAG_MS) == IsrChange(5, 7, (1, 2), (-1, -1))
    assert state.isr == PendingShrinkIsr(CommittedIsr((1, 2, 3, 4)), frozenset({3, 4}))
    assert state.isr.maximal_isr == (1, 2, 3, 4)
    assert state.maybe_shrink_isr(NOW + LAG_MS, 300, LAG_MS) is None  # one change at a time


def test_maybe_shrink_isr_keeps_leader() -> None:
    state = leading(isr=(1,))
    assert state.maybe_shrink_isr(NOW + 10 * LAG_MS, 300, LAG_MS) is None


# ---------------------------------------------------------------------- results of AlterPartition


ANSWERS = [
    (AlterPartitionResult(0, 5, 7, (1, 2, 3)), AlterPartitionOutcome.APPLIED),
    (AlterPartitionResult(0, 5, 8, (1, 2, 3)), AlterPartitionOutcome.APPLIED),
    (AlterPartitionResult(0, 5, 6, (1, 2, 3)), AlterPartitionOutcome.IGNORED),
    (AlterPartitionResult(0, 4, 8, (1, 2, 3)), AlterPartitionOutcome.IGNORED),
    (AlterPartitionResult(0, 6, 8, (1, 2, 3)), AlterPartitionOutcome.IGNORED),
    (AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA), AlterPartitionOutcome.REVERTED),
    (AlterPartitionResult(ErrorCode.OPERATION_NOT_ATTEMPTED), AlterPartitionOutcome.REVERTED),
    (AlterPartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), AlterPartitionOutcome.ABANDONED),
    (AlterPartitionResult(ErrorCode.UNKNOWN_TOPIC_ID), AlterPartitionOutcome.ABANDONED),
    (AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH), AlterPartitionOutcome.ABANDONED),
    (AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION), AlterPartitionOutcome.ABANDONED),
    (AlterPartitionResult(ErrorCode.INVALID_REQUEST), AlterPartitionOutcome.ABANDONED),
    (AlterPartitionResult(ErrorCode.NEW_LEADER_ELECTED), AlterPartitionOutcome.ABANDONED),
    (AlterPartitionResult(ErrorCode.NOT_CONTROLLER), AlterPartitionOutcome.RETRY),
    (AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR), AlterPartitionOutcome.RETRY),
]


@pytest.mark.behaviour("P-49")
@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
def test_alter_partition_result_applies_reverts_or_retries_pending_isr(
    answer: AlterPartitionResult, expected: AlterPartitionOutcome
) -> None:
    state = leading(isr=(1, 2))
    pending = state.isr = PendingExpandIsr(CommittedIsr((1, 2)), 3)
    assert state.handle_alter_partition_result(answer) is expected
    if expected is AlterPartitionOutcome.APPLIED:
        assert (state.isr, state.partition_epoch) == (CommittedIsr((1, 2, 3)), answer.partition_epoch)
    elif expected is AlterPartitionOutcome.REVERTED:
        assert state.isr == CommittedIsr((1, 2))
    else:
        assert (state.isr, state.partition_epoch) == (pending, 7)


def test_alter_partition_result_after_image_is_ignored() -> None:
    state = leading(isr=(1, 2))
    assert state.handle_alter_partition_result(AlterPartitionResult(0, 5, 9, (1,))) is AlterPartitionOutcome.IGNORED
    assert (state.isr, state.partition_epoch) == (CommittedIsr((1, 2)), 7)


def test_alter_partition_result_of_shrink_has_recovery_state() -> None:
    state = leading()
    state.isr = PendingShrinkIsr(CommittedIsr((1, 2, 3)), frozenset({3}))
    assert state.isr.requested_isr == (1, 2)
    assert (
        state.handle_alter_partition_result(AlterPartitionResult(0, 5, 8, (1, 2), is_recovering=True))
        is AlterPartitionOutcome.APPLIED
    )
    assert state.isr == CommittedIsr((1, 2), is_recovering=True)


def test_low_watermark_is_lowest_start_of_live_replicas() -> None:
    state = leading()
    state.followers[2].log_start_offset = 10
    state.followers[3].log_start_offset = 4
    assert state.low_watermark(50, {2: 0, 3: 0}) == 4
    assert state.low_watermark(50, {2: 0}) == 10
    assert state.low_watermark(5, {2: 0}) == 5
    assert leading((1,), (1,)).low_watermark(50, {}) == 50
