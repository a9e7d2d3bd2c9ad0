"""Raft start, elections and votes (R-203 to R-212)."""

from __future__ import annotations

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    EndEpoch,
    Fetch,
    HardState,
    PeerConnectionRefused,
    RaftResponse,
    RaftStarted,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    RequestRejected,
    ResponseReceived,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import (
    FENCED,
    FIRST,
    KEYS,
    SECOND,
    THIRD,
    candidate,
    follower,
    new_machine,
    prospective,
    response_to,
    unattached,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import LeaderChangeMessage

# ------------------------------------------------------------------ start


@pytest.mark.behaviour("R-204")
@pytest.mark.parametrize(
    ("hard", "log_epoch", "state", "epoch", "leader_id"),
    [
        (HardState(0), 0, UnattachedState, 0, -1),
        (HardState(3), 0, UnattachedState, 3, -1),
        (HardState(3, 2), 0, RaftFollowerState, 3, 2),
        (HardState(3, 9), 0, UnattachedState, 3, 9),  # not a voter
        (HardState(3, 1), 0, ResignedState, 3, 1),
        (HardState(3, -1, FIRST), 0, CandidateState, 3, -1),
        (HardState(3, -1, ReplicaKey(1)), 0, CandidateState, 3, -1),
        (HardState(3, -1, ReplicaKey(1, bytes([9] * 16))), 0, UnattachedState, 3, -1),
        (HardState(3, -1, SECOND), 0, UnattachedState, 3, -1),
        (HardState(3, 2, FIRST), 3, RaftFollowerState, 3, 2),
        (HardState(3, 2), 4, UnattachedState, 4, -1),
        (HardState(4, 2), 4, RaftFollowerState, 4, 2),
    ],
)
def test_raft_start_restores_state_from_quorum_state_and_log(
    hard: HardState, log_epoch: int, state: type, epoch: int, leader_id: int
) -> None:
    raft = new_machine(hard, end=5 if log_epoch else 0, epoch=log_epoch)
    ready = raft.step(0, RaftStarted())
    assert type(raft.state) is state
    assert (raft.hard_state.epoch, raft.hard_state.leader_id) == (epoch, leader_id)
    assert (ready.hard_state is not None) == (log_epoch > hard.epoch)
    assert raft.leader_id == (2 if state is RaftFollowerState else -1)
    assert [type(s.request) for s in ready.sends] == {
        RaftFollowerState: [Fetch],
        CandidateState: [Vote, Vote],
        ResignedState: [EndEpoch, EndEpoch],
        UnattachedState: [],
    }[state]


@pytest.mark.behaviour("R-205")
def test_raft_start_single_voter_becomes_leader_at_once() -> None:
    for hard, epoch in ((HardState(3, 1), 4), (HardState(3), 4), (HardState(3, -1, FIRST), 3)):
        raft = new_machine(hard, count=1)
        ready = raft.step(0, RaftStarted())
        assert ready.hard_state == HardState(epoch, 1)
        assert [(a.first_offset, a.epoch, a.records_count) for a in ready.appends] == [(0, epoch, 1)]
        assert not ready.sends
        assert raft.deadline_ms == float("inf"), "a single voter needs no fetches"


def test_raft_observer_does_not_request_votes() -> None:
    chain = LogSummary()
    raft = RaftStateMachine(
        KEYS[5], VoterSetHistory([FIRST, SECOND, THIRD]), HardState(2, -1, KEYS[5]), chain, lambda: 0.5
    )
    assert not raft.step(0, RaftStarted()).sends
    assert isinstance(raft.state, UnattachedState)
    response_to(raft, BeginEpoch(2, 3))
    raft.step(9000, Tick())
    assert isinstance(raft.state, RaftFollowerState)
    assert [type(s.request) for s in raft.step(9020, Tick()).sends] == [Fetch]


# ------------------------------------------------------------------ elections


def test_raft_observer_fetches_repeatedly_from_known_leader() -> None:
    raft = RaftStateMachine(
        KEYS[4], VoterSetHistory([FIRST, SECOND, THIRD]), HardState(5, 2), LogSummary(), lambda: 0.5
    )
    (send,) = raft.step(0, RaftStarted()).sends
    assert (send.peer, raft.deadline_ms) == (2, 2000)
    for now in (2000, 4020):
        assert not raft.step(now, Tick()).sends
        assert raft.deadline_ms == now + 20
        (send,) = raft.step(now + 20, Tick()).sends
        assert (send.peer, raft.deadline_ms) == (2, now + 2000)


@pytest.mark.behaviour("R-209")
def test_response_with_leader_of_own_epoch_is_applied_except_unknown_leader_epoch() -> None:
    """``maybeHandleCommonResponse``: the leader of the own epoch was unknown before the response."""
    for error in (ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER, FENCED):
        raft = prospective()
        raft.step(1600, ResponseReceived(2, Vote(FIRST, 5, 0, 0, pre_vote=True), RaftResponse(error, 5, 3)))
        assert raft.leader_id == 3
    raft = prospective()
    raft.step(
        1600,
        ResponseReceived(2, Vote(FIRST, 5, 0, 0, pre_vote=True), RaftResponse(ErrorCode.UNKNOWN_LEADER_EPOCH, 5, 3)),
    )
    assert raft.leader_id == -1


@pytest.mark.behaviour("R-203")
def test_election_timeout_is_random_and_survives_epoch_change() -> None:
    raft = unattached()
    assert raft.deadline_ms == 1500
    raft.step(1499, Tick())
    assert isinstance(raft.state, UnattachedState)
    response_to(raft, Vote(SECOND, 9, 0, 0, pre_vote=True), 700)
    assert (raft.epoch, raft.deadline_ms) == (9, 1500)
    raft.step(1500, Tick())
    assert isinstance(raft.state, ProspectiveState)


@pytest.mark.behaviour("P-59")
def test_follower_election_timeout_sends_pre_vote_without_epoch_bump() -> None:
    raft = follower()
    assert raft.deadline_ms == 2000
    ready = raft.step(2000, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert raft.epoch == 5
    assert ready.hard_state is None
    assert [(s.peer, s.request) for s in ready.sends] == [
        (2, Vote(FIRST, 5, 0, 0, True, SECOND)),
        (3, Vote(FIRST, 5, 0, 0, True, THIRD)),
    ]


@pytest.mark.behaviour("R-206")
def test_pre_vote_majority_makes_candidate_of_new_epoch() -> None:
    raft = prospective()
    vote = Vote(FIRST, 5, 0, 0, pre_vote=True)
    ready = raft.step(1600, ResponseReceived(2, vote, RaftResponse(ErrorCode.NONE, 5, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)
    assert ready.hard_state == HardState(6, -1, FIRST)
    assert [(s.peer, s.request) for s in ready.sends] == [
        (2, Vote(FIRST, 6, 0, 0, False, SECOND)),
        (3, Vote(FIRST, 6, 0, 0, False, THIRD)),
    ]


@pytest.mark.behaviour("R-208")
def test_lost_pre_vote_returns_to_old_leader_or_unattached() -> None:
    no = RaftResponse(ErrorCode.NONE, 5, -1)
    vote = Vote(FIRST, 5, 0, 0, pre_vote=True)
    raft = prospective()
    raft.step(1600, ResponseReceived(2, vote, no))
    assert isinstance(raft.state, ProspectiveState)
    raft.step(1600, ResponseReceived(3, vote, no))
    assert isinstance(raft.state, UnattachedState)
    raft = follower()
    raft.step(2000, Tick())
    for peer in (2, 3):
        raft.step(2100, ResponseReceived(peer, vote, no))
    assert isinstance(raft.state, RaftFollowerState)
    assert (raft.leader_id, raft.deadline_ms) == (2, 4100)
    raft = follower()
    raft.step(2000, Tick())
    raft.step(raft.deadline_ms, Tick())
    assert isinstance(raft.state, RaftFollowerState), "the election timeout has expired"
    raft = prospective()
    at = raft.deadline_ms
    raft.step(at, Tick())
    assert isinstance(raft.state, ProspectiveState), "no fetch timeout remains: new pre-vote"
    assert raft.deadline_ms == at + 1500
    raft = prospective()
    for peer in (2, 3):
        raft.step(1600, ResponseReceived(peer, vote, no))
    assert raft.deadline_ms == 3100, "new election timeout after the rejection"


def test_pre_vote_is_requested_again_from_rejecting_voter_that_requests_votes() -> None:
    """The fetch timeout of that voter has expired as well. A voter that can win is not asked, as both would compete."""
    vote = Vote(FIRST, 5, 3, 10, pre_vote=True)
    raft = prospective(end=10, epoch=3)
    raft.step(1600, ResponseReceived(2, vote, RaftResponse(ErrorCode.NONE, 5, -1)))
    assert not raft.step(1610, Tick()).sends
    ready = raft.step(1620, RequestReceived("t", Vote(SECOND, 5, 3, 9, pre_vote=True)))
    assert [r.response.vote_granted for r in ready.replies] == [False]  # type: ignore[union-attr]
    assert [(s.peer, s.request) for s in ready.sends] == [(2, vote._replace(voter=SECOND))]
    assert not raft.step(1630, RequestReceived("t", Vote(SECOND, 5, 3, 9, pre_vote=True))).sends, (
        "its vote request is pending"
    )
    raft.step(1640, ResponseReceived(2, vote, RaftResponse(ErrorCode.NONE, 5, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)
    raft = prospective(end=10, epoch=3)
    raft.step(1600, ResponseReceived(2, vote, RaftResponse(ErrorCode.NONE, 5, -1)))
    ready = raft.step(1620, RequestReceived("t", Vote(SECOND, 5, 3, 10, pre_vote=True)))
    assert [r.response.vote_granted for r in ready.replies] == [True]  # type: ignore[union-attr]
    assert not ready.sends


def test_lost_pre_vote_does_not_return_to_leader_with_refused_connection() -> None:
    raft = follower()
    raft.step(100, PeerConnectionRefused(2))
    assert isinstance(raft.state, ProspectiveState)
    raft.step(raft.state.deadline_ms, Tick())
    assert isinstance(raft.state, ProspectiveState), "new pre-vote"
    response_to(raft, BeginEpoch(3, 6), 5000)
    raft.step(7000, Tick())
    raft.step(raft.state.deadline_ms, Tick())
    assert isinstance(raft.state, RaftFollowerState), "the current leader refused no connection"


@pytest.mark.behaviour("R-206")
def test_later_response_counts_for_pre_vote_but_not_for_vote() -> None:
    yes, no = (RaftResponse(ErrorCode.NONE, 5, -1, vote_granted=g) for g in (True, False))
    raft = prospective(count=5)
    vote = Vote(FIRST, 5, 0, 0, pre_vote=True)
    raft.step(1600, ResponseReceived(2, vote, no))
    raft.step(1600, ResponseReceived(2, vote, yes))
    raft.step(1600, ResponseReceived(3, vote, yes))
    assert isinstance(raft.state, CandidateState)
    real = Vote(FIRST, 6, 0, 0)
    for response in (no, yes):
        raft.step(1600, ResponseReceived(2, real, response._replace(epoch=6)))
    raft.step(1600, ResponseReceived(3, real, yes._replace(epoch=6)))
    assert isinstance(raft.state, CandidateState), "a rejection is final"
    raft.step(1600, ResponseReceived(4, real, yes._replace(epoch=6)))
    assert raft.is_leader


@pytest.mark.behaviour("R-229")
def test_new_leader_appends_leader_change_with_voters_and_granting_voters() -> None:
    raft = candidate()
    vote = Vote(FIRST, 6, 0, 0)
    ready = raft.step(1600, ResponseReceived(3, vote, RaftResponse(ErrorCode.NONE, 6, -1, vote_granted=True)))
    (append,) = ready.appends
    (change,) = append.controls
    assert isinstance(change, LeaderChangeMessage)
    assert (append.epoch, append.records_count, change.leader_id) == (6, 1, 1)
    assert [voter.voter_id for voter in change.voters] == [1, 2, 3]
    assert [voter.voter_id for voter in change.granting_voters] == [1, 3]


def test_candidate_without_majority_waits_for_election_timeout() -> None:
    raft = candidate()
    for peer in (2, 3):
        raft.step(1600, ResponseReceived(peer, Vote(FIRST, 6, 0, 0), RaftResponse(ErrorCode.NONE, 6, -1)))
    assert isinstance(raft.state, CandidateState)
    raft.step(raft.deadline_ms, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert raft.epoch == 6


def test_vote_response_with_error_or_older_epoch_is_no_vote() -> None:
    raft = prospective()
    wrong = RaftResponse(ErrorCode.INVALID_VOTER_KEY, 5, -1, vote_granted=True)
    assert not raft.step(1600, ResponseReceived(2, Vote(FIRST, 5, 0, 0, pre_vote=True), wrong)).sends
    assert isinstance(raft.state, ProspectiveState)
    assert raft.state.election.votes == {1: True}, "neither granted nor rejected"
    assert [s.peer for s in raft.step(1620, Tick()).sends] == [2], "retried after the backoff"
    old = RaftResponse(ErrorCode.NONE, 5, -1, vote_granted=True)
    raft.step(1600, ResponseReceived(3, Vote(FIRST, 4, 0, 0, pre_vote=True), old))
    assert isinstance(raft.state, ProspectiveState)


def test_rejected_candidate_sends_no_more_vote_requests() -> None:
    raft = candidate(count=5)
    for peer in (2, 3, 4):
        ready = raft.step(1600, ResponseReceived(peer, Vote(FIRST, 6, 0, 0), RaftResponse(ErrorCode.NONE, 6, -1)))
    raft.step(1600, RequestFailed(5, Vote(FIRST, 6, 0, 0)))
    ready = raft.step(1620, Tick())
    assert not ready.sends


@pytest.mark.behaviour("R-207")
def test_pre_vote_unsupported_by_peer_starts_real_election() -> None:
    raft = prospective()
    pre = Vote(FIRST, 5, 0, 0, pre_vote=True)
    assert not raft.step(1600, RequestRejected(2, pre, ErrorCode.UNKNOWN_SERVER_ERROR)).sends
    assert isinstance(raft.state, ProspectiveState)
    ready = raft.step(1620, RequestRejected(2, pre, ErrorCode.UNSUPPORTED_VERSION))
    assert isinstance(raft.state, CandidateState)
    assert ready.hard_state == HardState(6, -1, FIRST)
    assert [s.request for s in ready.sends] == [Vote(FIRST, 6, 0, 0, voter=SECOND), Vote(FIRST, 6, 0, 0, voter=THIRD)]
    raft.step(1630, RequestRejected(2, pre, ErrorCode.UNSUPPORTED_VERSION))
    assert raft.epoch == 6, "late rejection"


def test_failed_vote_request_is_retried_after_backoff() -> None:
    raft = prospective()
    assert not raft.step(1501, Tick()).sends, "a request to each voter is pending"
    assert not raft.step(1510, RequestFailed(2, Vote(FIRST, 5, 0, 0, pre_vote=True))).sends
    assert raft.deadline_ms == 1530
    assert [s.peer for s in raft.step(1530, Tick()).sends] == [2]
