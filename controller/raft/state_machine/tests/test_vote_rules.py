"""Vote requests: granted and rejected (R-202, R-211, R-212)."""

from __future__ import annotations

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    ProspectiveState,
)
from ottla.controller.raft.state_machine.events import (
    HardState,
    ReplicaKey,
    RequestReceived,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import (
    FENCED,
    FIRST,
    INVALID,
    INVALID_KEY,
    OK,
    SECOND,
    THIRD,
    candidate,
    follower,
    leader,
    prospective,
    resigned,
    response_to,
    unattached,
)
from ottla.wire.errors import ErrorCode

# ------------------------------------------------------------------ votes


@pytest.mark.behaviour("R-211")
@pytest.mark.parametrize(
    ("vote", "error"),
    [
        (Vote(SECOND, 6, 5, 9), OK),
        (Vote(SECOND, 6, 6, 9), INVALID),
        (Vote(SECOND, 6, 6, 9, pre_vote=True), OK),
        (Vote(SECOND, 6, 7, 9, pre_vote=True), INVALID),
        (Vote(SECOND, 6, -1, 9), INVALID),
        (Vote(SECOND, 6, 0, -1), INVALID),
        (Vote(SECOND, 6, 0, 0), OK),
        (Vote(ReplicaKey(-1), 6, 5, 9), INVALID),
        (Vote(ReplicaKey(0), 6, 5, 9), OK),
        (Vote(SECOND, 4, 3, 9), FENCED),
        (Vote(SECOND, 4, 4, 9), INVALID),
        (Vote(ReplicaKey(-1), 4, 3, 9), FENCED),
        (Vote(SECOND, 6, 5, 9, voter=SECOND), INVALID_KEY),
        (Vote(SECOND, 6, 5, 9, voter=ReplicaKey(1, bytes([8] * 16))), INVALID_KEY),
        (Vote(SECOND, 6, 5, 9, voter=ReplicaKey(1)), OK),
        (Vote(SECOND, 6, 5, 9, voter=FIRST), OK),
    ],
)
def test_vote_request_is_validated_in_kafkas_order(vote: Vote, error: ErrorCode) -> None:
    raft = unattached()
    response = response_to(raft, vote)
    assert response.error == error
    assert raft.epoch == (5 if error in (FENCED, INVALID) else 6), "epoch is raised before the voter key is checked"
    assert response.epoch == raft.epoch


@pytest.mark.behaviour("R-202")
def test_vote_is_persisted_before_response_and_granted_once_per_epoch() -> None:
    raft = unattached()
    ready = raft.step(100, RequestReceived("t", Vote(SECOND, 6, 0, 0)))
    assert ready.hard_state == HardState(6, -1, SECOND)
    assert ready.replies[0].response.vote_granted
    assert raft.deadline_ms == 1600, "election timeout is reset"
    assert not response_to(raft, Vote(THIRD, 6, 0, 5)).vote_granted
    assert response_to(raft, Vote(SECOND, 6, 0, 0)).vote_granted
    assert not response_to(raft, Vote(ReplicaKey(2), 6, 0, 0)).vote_granted
    assert not response_to(raft, Vote(ReplicaKey(2, bytes([8] * 16)), 6, 0, 0)).vote_granted


def test_vote_for_own_id_with_other_directory_is_rejected() -> None:
    raft = unattached()
    assert not response_to(raft, Vote(ReplicaKey(1, bytes([9] * 16)), 6, 0, 0)).vote_granted
    assert raft.hard_state == HardState(6)


def in_state(name: str) -> RaftStateMachine:
    if name == "follower":
        return follower(end=10, epoch=3)
    if name == "follower that fetched":
        return follower(fetched=True, end=10, epoch=3)
    makers = {"leader": leader, "candidate": candidate, "prospective": prospective, "unattached": unattached}
    return resigned() if name == "resigned" else makers[name](end=10, epoch=3)


@pytest.mark.behaviour("R-212")
@pytest.mark.parametrize(
    ("state", "real", "pre"),
    [
        ("leader", False, False),
        ("follower", False, True),
        ("follower that fetched", False, False),
        ("candidate", False, True),
        ("resigned", False, True),
        ("unattached", True, True),
        ("prospective", True, True),
    ],
)
def test_vote_is_granted_by_state_and_log(state: str, real: bool, pre: bool) -> None:
    for pre_vote, expected in ((False, real), (True, pre)):
        raft = in_state(state)
        last, end = raft.log_summary.last_epoch, raft.log_summary.end_offset
        at = raft.epoch
        for last_epoch, offset, up_to_date in (
            (last, end, True),
            (last, end + 1, True),
            (last, end - 1, False),
            (last - 1, end + 9, False),
        ):
            if last_epoch < 0 or offset < 0 or (not pre_vote and last_epoch >= at):
                continue
            raft = in_state(state)
            response = response_to(raft, Vote(THIRD, at, last_epoch, offset, pre_vote=pre_vote), 1)
            assert response.error == OK
            assert response.vote_granted == (expected and up_to_date), (state, pre_vote, last_epoch, offset)
            if pre_vote:
                assert raft.hard_state.voted_key != THIRD, "a pre-vote is not persisted"


@pytest.mark.behaviour("R-212")
def test_vote_with_known_leader_grants_only_pre_vote() -> None:
    raft = follower()
    raft.step(2000, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert not response_to(raft, Vote(THIRD, 5, 0, 0), 2001).vote_granted
    assert response_to(raft, Vote(THIRD, 5, 0, 0, pre_vote=True), 2001).vote_granted
