"""Changes of the voters (R-242 to R-249): the leader asked directly, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    NO_DEADLINE_MS,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    AddVoter,
    BeginEpoch,
    EndEpoch,
    KRaftVersionsResponse,
    LogFlushed,
    OutboundRequest,
    QueryKRaftVersions,
    Ready,
    RemoveVoter,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Tick,
    VoterChangeResponse,
)
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import (
    FIRST,
    KEYS,
    OK,
    SECOND,
    THIRD,
    leader_of_voters,
    replica_fetches,
    voters_record,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import Endpoint

FOUR = KEYS[4]
PLACES = (Endpoint("CONTROLLER", "host4", 9093),)
ADD = AddVoter(FOUR, PLACES)
STRANGER = ReplicaKey(2, bytes([9] * 16))
SPEAKS = KRaftVersionsResponse(OK, 0, 1)


def said(ready: Ready, ticket: str = "t") -> list[Any]:
    return [r.response for r in ready.replies if r.pending_request == ticket]


def error(raft: RaftStateMachine, request: Any, now_ms: float = 2000) -> ErrorCode | None:
    """What a wish is answered at once; None where it waits."""
    found = said(raft.step(now_ms, RequestReceived("t", request)))
    return found[0].error if found else None


def asks(ready: Ready) -> list[QueryKRaftVersions]:
    return [s.request for s in ready.sends if isinstance(s.request, QueryKRaftVersions)]


def adding(raft: RaftStateMachine, request: AddVoter = ADD) -> QueryKRaftVersions:
    replica_fetches(raft, request.voter.id, 1600)
    (ask,) = asks(raft.step(2000, RequestReceived("t", request)))
    return ask


# ------------------------------------------------------------------ the checks in their order (above R-246)


def pending() -> RaftStateMachine:
    raft = leader_of_voters(1, 2, 3)
    adding(raft)
    return raft


def appended() -> RaftStateMachine:
    """The record of a change stands in the log, and the one who wished it has been answered."""
    raft = leader_of_voters(1, 2, 3)
    ask = adding(raft, ADD._replace(ack_when_committed=False))
    raft.step(2010, ResponseReceived(4, ask, SPEAKS))
    raft.state.pending_change = None  # type: ignore[union-attr]
    return raft


def following() -> RaftStateMachine:
    raft = leader_of_voters(1, 2, 3)
    raft.step(1600, RequestReceived("t", BeginEpoch(2, 2)))
    return raft


@pytest.mark.behaviour("R-246")
@pytest.mark.parametrize(
    ("make", "request_", "expected"),
    [
        (following, ADD, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (following, AddVoter(ReplicaKey(-1), ()), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (following, RemoveVoter(SECOND), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (pending, AddVoter(ReplicaKey(4), PLACES), ErrorCode.INVALID_REQUEST),
        (pending, AddVoter(ReplicaKey(-1, FOUR.directory_id), PLACES), ErrorCode.INVALID_REQUEST),
        (pending, AddVoter(FOUR, ()), ErrorCode.INVALID_REQUEST),
        (pending, AddVoter(FOUR, (Endpoint("OTHER", "host4", 9093),)), ErrorCode.INVALID_REQUEST),
        (pending, RemoveVoter(ReplicaKey(2)), ErrorCode.INVALID_REQUEST),
        (pending, ADD, ErrorCode.REQUEST_TIMED_OUT),
        (pending, RemoveVoter(SECOND), ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2, 3, commits=False), ADD, ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2, 3, commits=False), RemoveVoter(SECOND), ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2, 3, commits=False, level=0), ADD, ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2, 3, level=0), ADD, ErrorCode.UNSUPPORTED_VERSION),
        (lambda: leader_of_voters(1, 2, 3, level=0), RemoveVoter(SECOND), ErrorCode.UNSUPPORTED_VERSION),
        (appended, AddVoter(KEYS[5], PLACES), ErrorCode.REQUEST_TIMED_OUT),
        (appended, RemoveVoter(SECOND), ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2, 3), AddVoter(SECOND, PLACES), ErrorCode.DUPLICATE_VOTER),
        (lambda: leader_of_voters(1, 2, 3), AddVoter(STRANGER, PLACES), ErrorCode.DUPLICATE_VOTER),
        (lambda: leader_of_voters(1, 2, 3), AddVoter(FOUR, (Endpoint("controller", "h", 1),)), None),
        (lambda: leader_of_voters(1, 2, 3), RemoveVoter(STRANGER), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2, 3), RemoveVoter(FOUR), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1), RemoveVoter(FIRST), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2, 3), RemoveVoter(SECOND), None),
    ],
)
def test_a_wish_is_checked_in_order(make: Any, request_: Any, expected: ErrorCode | None) -> None:
    raft = make()
    before = raft.voters.current
    assert error(raft, request_) == expected
    if expected is not None:
        assert raft.voters.current == before


def test_a_refusal_names_the_replica_and_all_voters() -> None:
    key = "ReplicaKey(id={}, directoryId={})".format
    stranger, voters = key(2, "CQ" + "kJCQ" * 5), f"[{key(1, 'AQEB' * 5 + 'AQ')}, {key(2, 'AgIC' * 5 + 'Ag')}]"
    for request, message in (
        (AddVoter(STRANGER, PLACES), f"The voter id for {stranger} is already part of the set of voters {voters}."),
        (RemoveVoter(STRANGER), f"Cannot remove voter {stranger} from the set of voters {voters}"),
    ):
        assert said(leader_of_voters(1, 2).step(2000, RequestReceived("t", request)))[0].message == message


# ------------------------------------------------------------------ adding


@pytest.mark.behaviour("R-248")
def test_the_new_voter_is_asked_what_it_speaks_and_then_added() -> None:
    raft = leader_of_voters(1, 2, 3)
    ask = adding(raft)
    assert ask == QueryKRaftVersions(FOUR, PLACES)
    end = raft.log_summary.end_offset
    ready = raft.step(2010, ResponseReceived(4, ask, SPEAKS))
    (append,) = ready.appends
    assert append.controls == (voters_record(1, 2, 3, 4),)
    assert (raft.voters.offset, raft.voters.record) == (end, voters_record(1, 2, 3, 4))
    assert raft.voters.is_voter(FOUR), "it counts from now on (R-242)"
    assert not said(ready)
    raft.step(2020, LogFlushed(end + 1))
    assert not said(replica_fetches(raft, 2, 2030)), "two of four are no majority"
    ready = replica_fetches(raft, 4, 2040)
    assert raft.high_watermark == end + 1
    assert said(ready) == [VoterChangeResponse(OK, 1, 1)]
    assert error(raft, RemoveVoter(SECOND), 2050) is None, "the next one may come"


def test_a_new_voter_that_does_not_fetch_hears_who_leads() -> None:
    raft = leader_of_voters(1, 2, 3)
    raft.step(2010, ResponseReceived(4, adding(raft), SPEAKS))
    assert OutboundRequest(4, BeginEpoch(1, 1, FOUR)) not in raft.step(3009, Tick()).sends
    assert OutboundRequest(4, BeginEpoch(1, 1, FOUR)) in raft.step(3010, Tick()).sends


@pytest.mark.behaviour("R-247")
def test_who_does_not_want_to_wait_is_answered_at_the_append() -> None:
    raft = leader_of_voters(1, 2, 3)
    ask = adding(raft, ADD._replace(ack_when_committed=False))
    ready = raft.step(2010, ResponseReceived(4, ask, SPEAKS))
    assert said(ready) == [VoterChangeResponse(OK, 1, 1)]
    assert error(raft, RemoveVoter(SECOND), 2020) == ErrorCode.REQUEST_TIMED_OUT, "it is not committed yet"
    raft.step(2020, LogFlushed(raft.log_summary.end_offset))
    replica_fetches(raft, 2, 2030)
    assert not said(replica_fetches(raft, 3, 2030)), "not twice"


@pytest.mark.behaviour("R-248")
@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (KRaftVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, 0, 1), ErrorCode.REQUEST_TIMED_OUT),
        (KRaftVersionsResponse(OK), ErrorCode.INVALID_REQUEST),
        (KRaftVersionsResponse(OK, 0, 0), ErrorCode.INVALID_REQUEST),
        (KRaftVersionsResponse(OK, 2, 3), ErrorCode.INVALID_REQUEST),
        (KRaftVersionsResponse(OK, 1, 1), None),
    ],
)
def test_what_the_new_voter_speaks_must_fit(versions: KRaftVersionsResponse, expected: ErrorCode | None) -> None:
    raft = leader_of_voters(1, 2, 3)
    ready = raft.step(2010, ResponseReceived(4, adding(raft), versions))
    assert [a.error for a in said(ready)] == ([] if expected is None else [expected])
    assert raft.voters.is_voter(FOUR) == (expected is None)
    if expected is not None:
        assert error(raft, RemoveVoter(SECOND), 2020) is None, "the way is free again"


@pytest.mark.behaviour("R-248")
def test_who_cannot_be_asked_is_not_added() -> None:
    raft = leader_of_voters(1, 2, 3)
    ready = raft.step(2010, RequestFailed(4, adding(raft)))
    assert [a.error for a in said(ready)] == [ErrorCode.REQUEST_TIMED_OUT]
    assert not raft.voters.is_voter(FOUR)


@pytest.mark.behaviour("R-248")
def test_who_has_not_all_or_is_long_gone_is_not_added() -> None:
    hour = 3_600_000
    for fetches, fits in (
        ([], False),
        ([(1600, 0)], False),  # not caught up
        ([(1600, -1)], True),
        ([(1600, -1), (1700, 0)], True),  # once is enough
        ([(1999 - hour, -1)], False),
    ):
        raft = leader_of_voters(1, 2, 3)
        for at, offset in fetches:
            replica_fetches(raft, 4, at, offset)
        (ask,) = asks(raft.step(2000, RequestReceived("t", ADD)))
        ready = raft.step(2000, ResponseReceived(4, ask, SPEAKS))
        assert [a.error for a in said(ready)] == ([] if fits else [ErrorCode.REQUEST_TIMED_OUT]), fetches
        assert raft.voters.is_voter(FOUR) == fits
    raft = leader_of_voters(1, 2, 3)
    replica_fetches(raft, 4, 1600, key=ReplicaKey(4, bytes([9] * 16)))
    (ask,) = asks(raft.step(2000, RequestReceived("t", ADD)))
    raft.step(2000, ResponseReceived(4, ask, SPEAKS))
    assert not raft.voters.is_voter(FOUR), "another directory's log is not its own"


@pytest.mark.behaviour("R-247")
def test_a_change_that_takes_too_long_is_answered_and_may_still_be_committed() -> None:
    raft = leader_of_voters(1, 2, 3)
    ask = adding(raft)
    assert not said(raft.step(3999, Tick()))
    assert raft.deadline_ms <= 4000
    assert said(raft.step(4000, Tick())) == [VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 1, 1)]
    raft.step(4010, ResponseReceived(4, ask, SPEAKS))
    assert not raft.voters.is_voter(FOUR), "its answer came too late"
    raft = leader_of_voters(1, 2, 3)
    raft.step(2010, ResponseReceived(4, adding(raft), SPEAKS))
    assert said(raft.step(4010, Tick())) == [VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 1, 1)]
    assert raft.voters.is_voter(FOUR)


@pytest.mark.behaviour("R-247")
def test_a_change_ends_with_its_leader() -> None:
    for ends in (Resign(), RequestReceived("b", BeginEpoch(2, 2))):
        raft = leader_of_voters(1, 2, 3)
        ask = adding(raft)
        assert [a.error for a in said(raft.step(2010, ends))] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        raft.step(2020, ResponseReceived(4, ask, SPEAKS))
        assert not raft.voters.is_voter(FOUR)


@pytest.mark.behaviour("R-242")
def test_a_lone_leader_needs_the_new_voter_from_the_append_on() -> None:
    raft = leader_of_voters(1)
    assert raft.state.deadline_ms == NO_DEADLINE_MS
    raft.step(2010, ResponseReceived(4, adding(raft), SPEAKS))
    assert raft.state.deadline_ms == 2010 + 3000, "somebody has to listen to it now"
    raft.step(2020, LogFlushed(raft.log_summary.end_offset))
    assert raft.high_watermark < raft.log_summary.end_offset
    assert said(replica_fetches(raft, 4, 2030)) == [VoterChangeResponse(OK, 1, 1)]


# ------------------------------------------------------------------ removing


@pytest.mark.behaviour("R-242")
def test_a_removed_voter_does_not_count_any_more() -> None:
    raft = leader_of_voters(1, 2, 3)
    end = raft.log_summary.end_offset
    ready = raft.step(2000, RequestReceived("t", RemoveVoter(THIRD)))
    assert [a.controls for a in ready.appends] == [(voters_record(1, 2),)]
    raft.step(2010, LogFlushed(end + 1))
    replica_fetches(raft, 3, 2020)
    assert raft.high_watermark == end, "it is an observer"
    assert said(replica_fetches(raft, 2, 2030)) == [VoterChangeResponse(OK, 1, 1)]
    raft.step(2040, RequestReceived("t", RemoveVoter(SECOND)))
    assert raft.state.deadline_ms == NO_DEADLINE_MS, "alone again"
    assert said(raft.step(2050, LogFlushed(end + 2))) == [VoterChangeResponse(OK, 1, 1)]


@pytest.mark.behaviour("R-242")
def test_removing_a_slow_voter_commits_what_the_others_have() -> None:
    raft = leader_of_voters(1, 2, 3, commits=False)
    replica_fetches(raft, 2, 1520)
    assert raft.high_watermark == raft.log_summary.end_offset
    raft = leader_of_voters(1, 2)
    assert said(raft.step(2000, RequestReceived("t", RemoveVoter(SECOND)))) == []
    assert raft.high_watermark < raft.log_summary.end_offset, "not before this node has it on its disk"
    assert said(raft.step(2010, LogFlushed(raft.log_summary.end_offset))) == [VoterChangeResponse(OK, 1, 1)]


@pytest.mark.behaviour("R-242")
def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    raft = leader_of_voters(1, 2, 3)
    end = raft.log_summary.end_offset
    raft.step(2000, RequestReceived("t", RemoveVoter(FIRST)))
    assert raft.is_leader
    raft.step(2010, LogFlushed(end + 1))
    replica_fetches(raft, 2, 2020)
    assert raft.high_watermark == end, "one of two, for it does not count itself"
    ready = replica_fetches(raft, 3, 2030)
    assert said(ready) == [VoterChangeResponse(OK, 1, 1)]
    assert isinstance(raft.state, ResignedState)
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(1, 1, (SECOND, THIRD))) for i in (2, 3)]
    raft.step(raft.state.deadline_ms, Tick())
    assert (raft.state, raft.epoch) == (UnattachedState(NO_DEADLINE_MS), 2)


@pytest.mark.behaviour("R-228")
def test_a_leader_that_removed_itself_is_no_part_of_the_majority_that_listens() -> None:
    raft = leader_of_voters(1, 2, 3)
    raft.step(2000, RequestReceived("t", RemoveVoter(FIRST)))
    deadline = raft.state.deadline_ms
    replica_fetches(raft, 2, 2500, 1)
    assert raft.state.deadline_ms == deadline
    replica_fetches(raft, 3, 2600, 1)
    assert raft.state.deadline_ms == 5600
