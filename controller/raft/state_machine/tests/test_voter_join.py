"""Voter updates and automatic joining of a follower (R-249, R-250), and voter sets in the log (R-201)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    NO_DEADLINE_MS,
    ProspectiveState,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    AddVoter,
    BeginEpoch,
    Fetch,
    FetchedRaftBatch,
    HardState,
    LogFlushed,
    RaftFetchResponse,
    RaftResponse,
    RaftStarted,
    RemoveVoter,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    RequestRejected,
    ResponseReceived,
    Tick,
    UpdateVoter,
    Vote,
    VoterChangeResponse,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory, voter_keys, voter_needs_update
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import (
    FIRST,
    OK,
    SECOND,
    THIRD,
    leader_of_voters,
    replica_fetches,
    voter_entry,
    voters_record,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import Endpoint, VotersRecord, VotersRecordVoter


def following_replica(
    mine: VotersRecordVoter | None, voters: VotersRecord | None, *, joins: bool = False
) -> RaftStateMachine:
    """Return replica 1 following 2 in epoch 5 from time 0, with a pending fetch."""
    keys = [ReplicaKey(1), ReplicaKey(2)] if voters is None else voter_keys(voters)
    history = VoterSetHistory(keys, voters, 0 if voters else -1)
    raft = RaftStateMachine(FIRST, history, HardState(5, 2), LogSummary(), lambda: 0.5, entry=mine, auto_join=joins)
    raft.step(0, RaftStarted())
    assert raft.requests.pending_fetch is not None
    return raft


def in_flight(raft: RaftStateMachine) -> Fetch:
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


def next_request(raft: RaftStateMachine, now_ms: float) -> Any:
    """Return the next request after an empty response to the pending fetch."""
    (send,) = raft.step(now_ms, ResponseReceived(2, in_flight(raft), RaftFetchResponse(OK, 5, 2, offset=0))).sends
    assert send.peer == 2
    return send.request


OWN = UpdateVoter(FIRST, 5, tuple(voter_entry(1).endpoints), 0, 1)


@pytest.mark.behaviour("R-249")
def test_voter_with_changed_entry_sends_update_voter_each_fetch_timeout() -> None:
    raft = following_replica(voter_entry(1), VotersRecord(0, [voter_entry(1, 1), voter_entry(2)]))
    assert isinstance(next_request(raft, 1999), Fetch)
    own = next_request(raft, 2000)
    assert own == OWN
    assert raft.requests.pending_fetch is None, "no fetch while the request is pending"
    (send,) = raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(OK, 5, 2))).sends
    assert isinstance(send.request, Fetch)
    assert raft.state.deadline_ms == 4010, "the leader responded"
    assert isinstance(next_request(raft, 3999), Fetch)
    assert next_request(raft, 4000) == OWN, "the voter entry still differs"


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize(
    ("mine", "voters"),
    [
        (voter_entry(1), voters_record(1, 2)),
        (None, voters_record(1, 2)),  # broker only
        (voter_entry(1), voters_record(2, 3)),  # not a voter
        (voter_entry(1), VotersRecord(0, [VotersRecordVoter(1, bytes([9] * 16)), voter_entry(2)])),
    ],
)
def test_follower_without_changed_entry_continues_fetching(mine: Any, voters: Any) -> None:
    raft = following_replica(mine, voters)
    assert isinstance(next_request(raft, 1000), Fetch)
    assert isinstance(next_request(raft, 2000), Fetch)


@pytest.mark.behaviour("R-249")
def test_update_voter_at_kraft_version_0_is_sent_once_per_leader() -> None:
    for outcome in ("answered", "unsupported", "refused"):
        raft = following_replica(voter_entry(1), None)
        next_request(raft, 1000)
        own = next_request(raft, 2000)
        assert own == OWN
        match outcome:
            case "answered":
                raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(OK, 5, 2)))
            case "unsupported":
                raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(ErrorCode.UNSUPPORTED_VERSION, 5, 2)))
            case "refused":
                raft.step(2010, RequestRejected(2, own, ErrorCode.UNSUPPORTED_VERSION))
        for now in (3000, 4001, 5000):
            assert isinstance(next_request(raft, now), Fetch), outcome
        raft.step(5100, RequestReceived("t", BeginEpoch(2, 6)))
        answer = RaftFetchResponse(OK, 6, 2, offset=0)
        raft.step(6000, ResponseReceived(2, in_flight(raft), answer))
        (send,) = raft.step(7100, ResponseReceived(2, in_flight(raft), answer)).sends
        assert send.request == OWN._replace(epoch=6), "new leader"


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize("outcome", ["timed out", "unreachable", "no answer"])
def test_failed_update_voter_is_retried_at_next_timeout(outcome: str) -> None:
    raft = following_replica(voter_entry(1), None)
    next_request(raft, 1000)
    own = next_request(raft, 2000)
    match outcome:
        case "timed out":
            ready = raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 5, 2)))
        case "unreachable":
            ready = raft.step(2010, RequestFailed(2, own))
        case _:
            raft.state.deadline_ms = 9000
            assert raft.deadline_ms == 4000
            ready = raft.step(4000, Tick())
    assert not ready.sends
    rests = raft.deadline_ms
    (send,) = raft.step(rests, Tick()).sends
    assert isinstance(send.request, Fetch) == (outcome != "no answer")
    if outcome != "no answer":
        assert next_request(raft, 4000) == OWN


@pytest.mark.behaviour("R-249")
def test_update_voter_response_with_higher_epoch_is_followed() -> None:
    raft = following_replica(voter_entry(1), None)
    next_request(raft, 1000)
    own = next_request(raft, 2000)
    (send,) = raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(ErrorCode.FENCED_LEADER_EPOCH, 8, 2))).sends
    assert (raft.epoch, raft.leader_id) == (8, 2)
    assert isinstance(send.request, Fetch)


@pytest.mark.behaviour("R-250")
def test_follower_with_auto_join_sends_add_voter() -> None:
    others = voters_record(2, 3)
    raft = following_replica(voter_entry(1), others, joins=True)
    next_request(raft, 1000)
    request = next_request(raft, 2000)
    assert request == AddVoter(FIRST, tuple(voter_entry(1).endpoints), ack_when_committed=False)
    for error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, OK):
        (send,) = raft.step(2010, ResponseReceived(2, request, VoterChangeResponse(error))).sends
        assert isinstance(send.request, Fetch)
        raft.requests.pending_voter_request = request
        raft.requests.pending_fetch = None
    assert not raft.step(
        2020, ResponseReceived(2, request, VoterChangeResponse(ErrorCode.UNKNOWN_SERVER_ERROR))
    ).sends, "the leader is in backoff"
    (send,) = raft.step(2040, Tick()).sends
    assert isinstance(send.request, Fetch)
    assert next_request(raft, 4000) == request


@pytest.mark.behaviour("R-250")
def test_auto_join_removes_entry_with_other_directory_first() -> None:
    old = VotersRecordVoter(1, bytes([9] * 16))
    raft = following_replica(voter_entry(1), VotersRecord(0, [old, voter_entry(2)]), joins=True)
    next_request(raft, 1000)
    request = next_request(raft, 2000)
    assert request == RemoveVoter(ReplicaKey(1, bytes([9] * 16)))
    (send,) = raft.step(2010, ResponseReceived(2, request, VoterChangeResponse(ErrorCode.VOTER_NOT_FOUND))).sends
    assert isinstance(send.request, Fetch)


@pytest.mark.behaviour("R-250")
@pytest.mark.parametrize(
    ("mine", "voters", "joins"),
    [(voter_entry(1), voters_record(2, 3), False), (None, voters_record(2, 3), True), (voter_entry(1), None, True)],
)
def test_follower_without_auto_join_or_entry_continues_fetching(mine: Any, voters: Any, joins: bool) -> None:
    raft = following_replica(mine, voters, joins=joins)
    if voters is None:
        raft.voters = VoterSetHistory([SECOND, THIRD])
    next_request(raft, 1000)
    assert isinstance(next_request(raft, 2000), Fetch)


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize(
    ("known", "differ"),
    [
        (voter_entry(1), False),
        (voter_entry(1, 1), True),
        (voter_entry(1, most=0), True),
        (voter_entry(2), False),
        (VotersRecordVoter(1, bytes([9] * 16)), False),
        (VotersRecordVoter(1, FIRST.directory_id, [Endpoint("controller", "HOST1", 9093)]), True),
    ],
)
def test_voter_needs_update_compares_endpoints_and_versions(known: VotersRecordVoter, differ: bool) -> None:
    assert voter_needs_update([known], voter_entry(1)) == differ


@pytest.mark.behaviour("R-249")
def test_voter_needs_update_ignores_case_of_hosts_and_listeners() -> None:
    other = voter_entry(1)
    other.endpoints = [Endpoint("controller", "HOST1", 9093)]
    assert not voter_needs_update([other], voter_entry(1))


# ------------------------------------------------------------------ the set and the log


@pytest.mark.behaviour("R-201")
def test_truncation_restores_previous_voters() -> None:
    raft = following_replica(voter_entry(1), voters_record(1, 2))
    four = voters_record(1, 2, 4)
    batches = FetchedRaftBatch(0, 0, 4, "raw"), FetchedRaftBatch(1, 1, 4, "raw", four)
    raft.step(10, ResponseReceived(2, in_flight(raft), RaftFetchResponse(OK, 5, 2, offset=0), batches))
    assert (raft.voters.record, raft.voters.offset) == (four, 1)
    raft.step(20, LogFlushed(2))
    assert raft.requests.pending_fetch is not None
    raft.step(30, ResponseReceived(2, raft.requests.pending_fetch, RaftFetchResponse(OK, 5, 2, diverging=(4, 1))))
    assert (raft.voters.record, raft.voters.offset) == (voters_record(1, 2), 0)


def test_replica_removed_by_uncommitted_record_starts_election_without_own_vote() -> None:
    raft = following_replica(voter_entry(1), voters_record(1, 2, 3))
    raft.voters.add(5, [SECOND, THIRD], voters_record(2, 3))
    assert raft.can_be_candidate
    raft.step(2_000, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert raft.state.election.votes == {}, "own vote is not counted"


def test_leader_removing_itself_is_elected_again_after_restart() -> None:
    """No other voter can win: the other one does not have the record."""
    raft = leader_of_voters(1, 2)
    end = raft.log_summary.end_offset
    raft.step(2000, RequestReceived("t", RemoveVoter(FIRST)))
    raft.step(2010, LogFlushed(end + 1))
    history = VoterSetHistory(voter_keys(voters_record(1, 2)), voters_record(1, 2), 0)
    history.add(end, [SECOND], voters_record(2))
    again = RaftStateMachine(FIRST, history, HardState(1, 1), LogSummary(end + 1, [(1, 0)]), lambda: 0.5)
    again.step(0, RaftStarted())
    again.step(again.state.deadline_ms, Tick())
    for pre in (True, False):
        assert not again.is_leader, "own vote is not counted"
        vote = Vote(FIRST, again.epoch, 1, end + 1, pre)
        again.step(1600, ResponseReceived(2, vote, RaftResponse(OK, again.epoch, -1, vote_granted=True)))
    assert (again.is_leader, again.epoch) == (True, 3)
    again.step(1610, LogFlushed(end + 2))
    assert again.advertised_high_watermark == -1
    replica_fetches(again, 2, 1620)
    assert isinstance(again.state, ResignedState)
    again.step(again.state.deadline_ms, Tick())
    assert (again.state, again.can_be_candidate) == (UnattachedState(NO_DEADLINE_MS), False)


@pytest.mark.parametrize(
    ("me", "leader", "epoch", "logged"),
    [
        (9, 9, 6, True),
        (9, 2, 6, False),
        (9, 9, 5, False),  # a known epoch; the node may have been that leader before its removal
        (1, 1, 6, False),  # a voter: inconsistent, corrected by the next response
    ],
)
def test_leader_with_same_node_id_is_logged_once_per_epoch(me: int, leader: int, epoch: int, logged: bool) -> None:
    """Otherwise the node would wait for a leader with its own id, and never report the reason."""
    history = VoterSetHistory([ReplicaKey(1), ReplicaKey(2)])
    key = FIRST if me == 1 else ReplicaKey(me, bytes([me] * 16))
    raft = RaftStateMachine(key, history, HardState(5), LogSummary(), lambda: 0.5, bootstrap=(-2,))
    (send,) = raft.step(0, RaftStarted()).sends
    messages = []
    for turn in range(3):
        ready = raft.step(
            turn * 3000, ResponseReceived(send.peer, send.request, RaftFetchResponse(OK, epoch, leader, offset=0))
        )
        messages.append(ready.log_message)
    assert [x for x in messages if x is not None] == [x for x in messages[:1] if logged]
    if logged:
        assert messages[0] is not None
        assert messages[0][1].startswith("a node 9 leads in epoch 6, and it is not this one")


def test_fetch_with_leader_node_id_is_logged_once_by_both_nodes() -> None:
    raft = leader_of_voters(1, 2, 3)
    other_key = ReplicaKey(FIRST.id, b"another one here")
    fetch = Fetch(other_key, raft.epoch, 0, 0)
    readies = [raft.step(now_ms, RequestReceived("t", fetch)) for now_ms in (1600, 1601)]
    messages = [ready.log_message for ready in readies]
    assert messages[0] is not None
    assert messages[0][1] == "Another node fetches the metadata log with node id 1: each node needs its own node.id"
    assert messages[1] is None
    (reply,) = readies[0].replies
    assert reply.response.error is ErrorCode.UNKNOWN_SERVER_ERROR
    other = RaftStateMachine(other_key, VoterSetHistory([]), HardState(0), LogSummary(), lambda: 0.5, bootstrap=(-2,))
    (send,) = other.step(0, RaftStarted()).sends
    logged = other.step(1, ResponseReceived(send.peer, send.request, reply.response)).log_message
    assert logged is not None
    assert logged[1].startswith(f"the leader of epoch {raft.epoch} rejects fetches of node 1")
