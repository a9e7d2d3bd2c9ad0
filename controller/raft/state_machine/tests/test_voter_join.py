"""What a follower tells its leader of itself (R-249, R-250), and the voter sets in the log (R-201)."""

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


def follows(mine: VotersRecordVoter | None, voters: VotersRecord | None, *, joins: bool = False) -> RaftStateMachine:
    """Replica 1 follows 2 in epoch 5 from time 0 on; its fetch is under way."""
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
    """What is sent once the fetch that is under way has brought nothing."""
    (send,) = raft.step(now_ms, ResponseReceived(2, in_flight(raft), RaftFetchResponse(OK, 5, 2, offset=0))).sends
    assert send.peer == 2
    return send.request


OWN = UpdateVoter(FIRST, 5, tuple(voter_entry(1).endpoints), 0, 1)


@pytest.mark.behaviour("R-249")
def test_a_voter_whose_entry_differs_tells_the_leader_each_fetch_timeout() -> None:
    raft = follows(voter_entry(1), VotersRecord(0, [voter_entry(1, 1), voter_entry(2)]))
    assert isinstance(next_request(raft, 1999), Fetch)
    own = next_request(raft, 2000)
    assert own == OWN
    assert raft.requests.pending_fetch is None, "nothing is fetched meanwhile"
    (send,) = raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(OK, 5, 2))).sends
    assert isinstance(send.request, Fetch)
    assert raft.state.deadline_ms == 4010, "the leader lives"
    assert isinstance(next_request(raft, 3999), Fetch)
    assert next_request(raft, 4000) == OWN, "it differs still"


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize(
    ("mine", "voters"),
    [
        (voter_entry(1), voters_record(1, 2)),
        (None, voters_record(1, 2)),  # a broker only
        (voter_entry(1), voters_record(2, 3)),  # no voter
        (voter_entry(1), VotersRecord(0, [VotersRecordVoter(1, bytes([9] * 16)), voter_entry(2)])),
    ],
)
def test_who_has_nothing_new_to_say_goes_on_fetching(mine: Any, voters: Any) -> None:
    raft = follows(mine, voters)
    assert isinstance(next_request(raft, 1000), Fetch)
    assert isinstance(next_request(raft, 2000), Fetch)


@pytest.mark.behaviour("R-249")
def test_at_kraft_version_0_each_leader_is_told_once() -> None:
    for how in ("answered", "unsupported", "refused"):
        raft = follows(voter_entry(1), None)
        next_request(raft, 1000)
        own = next_request(raft, 2000)
        assert own == OWN
        match how:
            case "answered":
                raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(OK, 5, 2)))
            case "unsupported":
                raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(ErrorCode.UNSUPPORTED_VERSION, 5, 2)))
            case "refused":
                raft.step(2010, RequestRejected(2, own, ErrorCode.UNSUPPORTED_VERSION))
        for now in (3000, 4001, 5000):
            assert isinstance(next_request(raft, now), Fetch), how
        raft.step(5100, RequestReceived("t", BeginEpoch(2, 6)))
        answer = RaftFetchResponse(OK, 6, 2, offset=0)
        raft.step(6000, ResponseReceived(2, in_flight(raft), answer))
        (send,) = raft.step(7100, ResponseReceived(2, in_flight(raft), answer)).sends
        assert send.request == OWN._replace(epoch=6), "a new leader"


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize("how", ["timed out", "unreachable", "no answer"])
def test_an_update_that_failed_is_said_again_in_its_turn(how: str) -> None:
    raft = follows(voter_entry(1), None)
    next_request(raft, 1000)
    own = next_request(raft, 2000)
    match how:
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
    assert isinstance(send.request, Fetch) == (how != "no answer")
    if how != "no answer":
        assert next_request(raft, 4000) == OWN


@pytest.mark.behaviour("R-249")
def test_an_update_answered_by_another_epoch_is_followed() -> None:
    raft = follows(voter_entry(1), None)
    next_request(raft, 1000)
    own = next_request(raft, 2000)
    (send,) = raft.step(2010, ResponseReceived(2, own, VoterChangeResponse(ErrorCode.FENCED_LEADER_EPOCH, 8, 2))).sends
    assert (raft.epoch, raft.leader_id) == (8, 2)
    assert isinstance(send.request, Fetch)


@pytest.mark.behaviour("R-250")
def test_who_may_joins_by_itself() -> None:
    others = voters_record(2, 3)
    raft = follows(voter_entry(1), others, joins=True)
    next_request(raft, 1000)
    wish = next_request(raft, 2000)
    assert wish == AddVoter(FIRST, tuple(voter_entry(1).endpoints), ack_when_committed=False)
    for error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, OK):
        (send,) = raft.step(2010, ResponseReceived(2, wish, VoterChangeResponse(error))).sends
        assert isinstance(send.request, Fetch)
        raft.requests.pending_voter_request = wish
        raft.requests.pending_fetch = None
    assert not raft.step(2020, ResponseReceived(2, wish, VoterChangeResponse(ErrorCode.UNKNOWN_SERVER_ERROR))).sends, (
        "the leader rests"
    )
    (send,) = raft.step(2040, Tick()).sends
    assert isinstance(send.request, Fetch)
    assert next_request(raft, 4000) == wish


@pytest.mark.behaviour("R-250")
def test_an_entry_with_another_directory_is_removed_first() -> None:
    old = VotersRecordVoter(1, bytes([9] * 16))
    raft = follows(voter_entry(1), VotersRecord(0, [old, voter_entry(2)]), joins=True)
    next_request(raft, 1000)
    wish = next_request(raft, 2000)
    assert wish == RemoveVoter(ReplicaKey(1, bytes([9] * 16)))
    (send,) = raft.step(2010, ResponseReceived(2, wish, VoterChangeResponse(ErrorCode.VOTER_NOT_FOUND))).sends
    assert isinstance(send.request, Fetch)


@pytest.mark.behaviour("R-250")
@pytest.mark.parametrize(
    ("mine", "voters", "joins"),
    [(voter_entry(1), voters_record(2, 3), False), (None, voters_record(2, 3), True), (voter_entry(1), None, True)],
)
def test_others_do_not(mine: Any, voters: Any, joins: bool) -> None:
    raft = follows(mine, voters, joins=joins)
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
def test_what_counts_as_another_entry(known: VotersRecordVoter, differ: bool) -> None:
    assert voter_needs_update([known], voter_entry(1)) == differ


@pytest.mark.behaviour("R-249")
def test_names_of_hosts_and_listeners_are_the_same_in_any_letters() -> None:
    other = voter_entry(1)
    other.endpoints = [Endpoint("controller", "HOST1", 9093)]
    assert not voter_needs_update([other], voter_entry(1))


# ------------------------------------------------------------------ the set and the log


@pytest.mark.behaviour("R-201")
def test_a_cut_takes_a_change_back() -> None:
    raft = follows(voter_entry(1), voters_record(1, 2))
    four = voters_record(1, 2, 4)
    batches = FetchedRaftBatch(0, 0, 4, "raw"), FetchedRaftBatch(1, 1, 4, "raw", four)
    raft.step(10, ResponseReceived(2, in_flight(raft), RaftFetchResponse(OK, 5, 2, offset=0), batches))
    assert (raft.voters.record, raft.voters.offset) == (four, 1)
    raft.step(20, LogFlushed(2))
    assert raft.requests.pending_fetch is not None
    raft.step(30, ResponseReceived(2, raft.requests.pending_fetch, RaftFetchResponse(OK, 5, 2, diverging=(4, 1))))
    assert (raft.voters.record, raft.voters.offset) == (voters_record(1, 2), 0)


def test_who_was_removed_by_what_may_not_be_committed_has_no_turn_to_wait_for() -> None:
    raft = follows(voter_entry(1), voters_record(1, 2, 3))
    raft.voters.add(5, [SECOND, THIRD], voters_record(2, 3))
    assert raft.can_be_candidate
    raft.step(2_000, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert raft.state.election.votes == {}, "its own voice does not count"


def test_a_leader_that_removed_itself_and_died_is_elected_once_more_to_see_it_through() -> None:
    """Where nobody else can be: the other one of two voters does not have its record."""
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
        assert not again.is_leader, "it does not count itself"
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
    ("me", "leader", "epoch", "told"),
    [
        (9, 9, 6, True),
        (9, 2, 6, False),
        (9, 9, 5, False),  # in an epoch it knew of; it may have said so itself before it was removed
        (1, 1, 6, False),  # a voter: somebody has mixed something up, and the next answer is right
    ],
)
def test_that_another_node_with_its_id_leads_is_said_once_an_epoch(
    me: int, leader: int, epoch: int, told: bool
) -> None:
    """Else it would wait for ever for the metadata of a leader it takes for itself, and never say why."""
    history = VoterSetHistory([ReplicaKey(1), ReplicaKey(2)])
    key = FIRST if me == 1 else ReplicaKey(me, bytes([me] * 16))
    raft = RaftStateMachine(key, history, HardState(5), LogSummary(), lambda: 0.5, bootstrap=(-2,))
    (send,) = raft.step(0, RaftStarted()).sends
    said = []
    for turn in range(3):
        ready = raft.step(
            turn * 3000, ResponseReceived(send.peer, send.request, RaftFetchResponse(OK, epoch, leader, offset=0))
        )
        said.append(ready.log_message)
    assert [x for x in said if x is not None] == [x for x in said[:1] if told]
    if told:
        assert said[0] is not None
        assert said[0][1].startswith("a node 9 leads in epoch 6, and it is not this one")


def test_a_leader_that_is_asked_by_somebody_with_its_own_id_says_so_once_and_so_does_who_asked() -> None:
    raft = leader_of_voters(1, 2, 3)
    stranger = ReplicaKey(FIRST.id, b"another one here")
    asked = Fetch(stranger, raft.epoch, 0, 0)
    readies = [raft.step(now_ms, RequestReceived("t", asked)) for now_ms in (1600, 1601)]
    said = [ready.log_message for ready in readies]
    assert said[0] is not None
    assert said[0][1] == "Another node fetches the metadata log with node id 1: each node needs its own node.id"
    assert said[1] is None
    (reply,) = readies[0].replies
    assert reply.response.error is ErrorCode.UNKNOWN_SERVER_ERROR
    other = RaftStateMachine(stranger, VoterSetHistory([]), HardState(0), LogSummary(), lambda: 0.5, bootstrap=(-2,))
    (send,) = other.step(0, RaftStarted()).sends
    told = other.step(1, ResponseReceived(send.peer, send.request, reply.response)).log_message
    assert told is not None
    assert told[1].startswith(f"the leader of epoch {raft.epoch} rejects fetches of node 1")
