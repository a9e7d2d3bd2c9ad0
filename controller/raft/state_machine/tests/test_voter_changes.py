"""Voter changes at the leader (R-242 to R-249)."""

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
OTHER_DIRECTORY = ReplicaKey(2, bytes([9] * 16))
SPEAKS = KRaftVersionsResponse(OK, 0, 1)


def responses(ready: Ready, pending: str = "t") -> list[Any]:
    return [r.response for r in ready.replies if r.pending_request == pending]


def error(raft: RaftStateMachine, request: Any, now_ms: float = 2000) -> ErrorCode | None:
    """Return the error of the immediate response; None if the request is pending."""
    found = responses(raft.step(now_ms, RequestReceived("t", request)))
    return found[0].error if found else None


def version_queries(ready: Ready) -> list[QueryKRaftVersions]:
    return [s.request for s in ready.sends if isinstance(s.request, QueryKRaftVersions)]


def adding(raft: RaftStateMachine, request: AddVoter = ADD) -> QueryKRaftVersions:
    replica_fetches(raft, request.voter.id, 1600)
    (query,) = version_queries(raft.step(2000, RequestReceived("t", request)))
    return query


# ------------------------------------------------------------------ the checks in their order (above R-246)


def pending() -> RaftStateMachine:
    raft = leader_of_voters(1, 2, 3)
    adding(raft)
    return raft


def appended() -> RaftStateMachine:
    """Return a leader with the record of a change in its log, after the response."""
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft, ADD._replace(ack_when_committed=False))
    raft.step(2010, ResponseReceived(4, query, SPEAKS))
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
        (lambda: leader_of_voters(1, 2, 3), AddVoter(OTHER_DIRECTORY, PLACES), ErrorCode.DUPLICATE_VOTER),
        (lambda: leader_of_voters(1, 2, 3), AddVoter(FOUR, (Endpoint("controller", "h", 1),)), None),
        (lambda: leader_of_voters(1, 2, 3), RemoveVoter(OTHER_DIRECTORY), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2, 3), RemoveVoter(FOUR), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1), RemoveVoter(FIRST), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2, 3), RemoveVoter(SECOND), None),
    ],
)
def test_voter_change_is_validated_in_kafkas_order(make: Any, request_: Any, expected: ErrorCode | None) -> None:
    raft = make()
    before = raft.voters.current
    assert error(raft, request_) == expected
    if expected is not None:
        assert raft.voters.current == before


def test_voter_change_error_contains_replica_and_voters() -> None:
    key = "ReplicaKey(id={}, directoryId={})".format
    other, voters = key(2, "CQ" + "kJCQ" * 5), f"[{key(1, 'AQEB' * 5 + 'AQ')}, {key(2, 'AgIC' * 5 + 'Ag')}]"
    for request, message in (
        (AddVoter(OTHER_DIRECTORY, PLACES), f"The voter id for {other} is already part of the set of voters {voters}."),
        (RemoveVoter(OTHER_DIRECTORY), f"Cannot remove voter {other} from the set of voters {voters}"),
    ):
        assert responses(leader_of_voters(1, 2).step(2000, RequestReceived("t", request)))[0].message == message


def test_voter_change_unsupported_or_invalid_returns_message_of_kafka() -> None:
    for request, level, message in (
        (ADD, 0, "Cluster doesn't support adding voter because the kraft.version feature is 0"),
        (RemoveVoter(SECOND), 0, "Cluster doesn't support removing voter because the kraft.version feature is 0"),
        (RemoveVoter(SECOND._replace(id=-1)), 1, "Remove voter request didn't include a valid voter"),
        (AddVoter(FOUR, ()), 1, "Add voter request didn't include the endpoint for the default listener CONTROLLER"),
    ):
        raft = leader_of_voters(1, 2, level=level)
        assert responses(raft.step(2000, RequestReceived("t", request)))[0].message == message


# ------------------------------------------------------------------ adding


@pytest.mark.behaviour("R-248")
def test_add_voter_queries_versions_then_appends_voters_record() -> None:
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft)
    assert query == QueryKRaftVersions(FOUR, PLACES)
    end = raft.log_summary.end_offset
    ready = raft.step(2010, ResponseReceived(4, query, SPEAKS))
    (append,) = ready.appends
    assert append.controls == (voters_record(1, 2, 3, 4),)
    assert (raft.voters.offset, raft.voters.record) == (end, voters_record(1, 2, 3, 4))
    assert raft.voters.is_voter(FOUR), "applied at the append (R-242)"
    assert not responses(ready)
    raft.step(2020, LogFlushed(end + 1))
    assert not responses(replica_fetches(raft, 2, 2030)), "two of four are no majority"
    ready = replica_fetches(raft, 4, 2040)
    assert raft.high_watermark == end + 1
    assert responses(ready) == [VoterChangeResponse(OK, 1, 1)]
    assert error(raft, RemoveVoter(SECOND), 2050) is None, "next change is accepted"


def test_add_voter_without_fetch_receives_begin_quorum_epoch() -> None:
    raft = leader_of_voters(1, 2, 3)
    raft.step(2010, ResponseReceived(4, adding(raft), SPEAKS))
    assert OutboundRequest(4, BeginEpoch(1, 1, FOUR)) not in raft.step(3009, Tick()).sends
    assert OutboundRequest(4, BeginEpoch(1, 1, FOUR)) in raft.step(3010, Tick()).sends


@pytest.mark.behaviour("R-247", "P-63")
def test_add_voter_without_ack_when_committed_is_answered_at_append() -> None:
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft, ADD._replace(ack_when_committed=False))
    ready = raft.step(2010, ResponseReceived(4, query, SPEAKS))
    assert responses(ready) == [VoterChangeResponse(OK, 1, 1)]
    assert error(raft, RemoveVoter(SECOND), 2020) == ErrorCode.REQUEST_TIMED_OUT, "the change is not committed"
    raft.step(2020, LogFlushed(raft.log_summary.end_offset))
    replica_fetches(raft, 2, 2030)
    assert not responses(replica_fetches(raft, 3, 2030)), "no second response"


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
def test_add_voter_with_unsupported_kraft_version_is_rejected(
    versions: KRaftVersionsResponse, expected: ErrorCode | None
) -> None:
    raft = leader_of_voters(1, 2, 3)
    ready = raft.step(2010, ResponseReceived(4, adding(raft), versions))
    assert [a.error for a in responses(ready)] == ([] if expected is None else [expected])
    assert raft.voters.is_voter(FOUR) == (expected is None)
    if expected is not None:
        assert error(raft, RemoveVoter(SECOND), 2020) is None, "next change is accepted"


@pytest.mark.behaviour("R-248")
def test_add_voter_unreachable_is_rejected() -> None:
    raft = leader_of_voters(1, 2, 3)
    ready = raft.step(2010, RequestFailed(4, adding(raft)))
    assert [a.error for a in responses(ready)] == [ErrorCode.REQUEST_TIMED_OUT]
    assert not raft.voters.is_voter(FOUR)


@pytest.mark.behaviour("R-248", "P-63")
def test_add_voter_not_caught_up_is_rejected() -> None:
    hour = 3_600_000
    for fetches, fits in (
        ([], False),
        ([(1600, 0)], False),  # not caught up
        ([(1600, -1)], True),
        ([(1600, -1), (1700, 0)], True),  # having caught up once is enough
        ([(1999 - hour, -1)], False),
    ):
        raft = leader_of_voters(1, 2, 3)
        for at, offset in fetches:
            replica_fetches(raft, 4, at, offset)
        (query,) = version_queries(raft.step(2000, RequestReceived("t", ADD)))
        ready = raft.step(2000, ResponseReceived(4, query, SPEAKS))
        assert [a.error for a in responses(ready)] == ([] if fits else [ErrorCode.REQUEST_TIMED_OUT]), fetches
        assert raft.voters.is_voter(FOUR) == fits
    raft = leader_of_voters(1, 2, 3)
    replica_fetches(raft, 4, 1600, key=ReplicaKey(4, bytes([9] * 16)))
    (query,) = version_queries(raft.step(2000, RequestReceived("t", ADD)))
    raft.step(2000, ResponseReceived(4, query, SPEAKS))
    assert not raft.voters.is_voter(FOUR), "progress of another directory"


@pytest.mark.behaviour("R-247")
def test_voter_change_timeout_is_answered_and_may_still_commit() -> None:
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft)
    assert not responses(raft.step(3999, Tick()))
    assert raft.deadline_ms <= 4000
    assert responses(raft.step(4000, Tick())) == [VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 1, 1)]
    raft.step(4010, ResponseReceived(4, query, SPEAKS))
    assert not raft.voters.is_voter(FOUR), "late response"
    raft = leader_of_voters(1, 2, 3)
    raft.step(2010, ResponseReceived(4, adding(raft), SPEAKS))
    assert responses(raft.step(4010, Tick())) == [VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, 1, 1)]
    assert raft.voters.is_voter(FOUR)


@pytest.mark.behaviour("R-247")
def test_voter_change_fails_when_leader_steps_down() -> None:
    for ends in (Resign(), RequestReceived("b", BeginEpoch(2, 2))):
        raft = leader_of_voters(1, 2, 3)
        query = adding(raft)
        assert [a.error for a in responses(raft.step(2010, ends))] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        raft.step(2020, ResponseReceived(4, query, SPEAKS))
        assert not raft.voters.is_voter(FOUR)


@pytest.mark.behaviour("R-242")
def test_single_leader_requires_added_voter_from_the_append() -> None:
    raft = leader_of_voters(1)
    assert raft.state.deadline_ms == NO_DEADLINE_MS
    raft.step(2010, ResponseReceived(4, adding(raft), SPEAKS))
    assert raft.state.deadline_ms == 2010 + 3000, "fetches of the new voter are required"
    raft.step(2020, LogFlushed(raft.log_summary.end_offset))
    assert raft.high_watermark < raft.log_summary.end_offset
    assert responses(replica_fetches(raft, 4, 2030)) == [VoterChangeResponse(OK, 1, 1)]


# ------------------------------------------------------------------ removing


@pytest.mark.behaviour("R-242")
def test_removed_voter_does_not_count_for_high_watermark() -> None:
    raft = leader_of_voters(1, 2, 3)
    end = raft.log_summary.end_offset
    ready = raft.step(2000, RequestReceived("t", RemoveVoter(THIRD)))
    assert [a.controls for a in ready.appends] == [(voters_record(1, 2),)]
    raft.step(2010, LogFlushed(end + 1))
    replica_fetches(raft, 3, 2020)
    assert raft.high_watermark == end, "observer does not count"
    assert responses(replica_fetches(raft, 2, 2030)) == [VoterChangeResponse(OK, 1, 1)]
    raft.step(2040, RequestReceived("t", RemoveVoter(SECOND)))
    assert raft.state.deadline_ms == NO_DEADLINE_MS, "single voter needs no fetches"
    assert responses(raft.step(2050, LogFlushed(end + 2))) == [VoterChangeResponse(OK, 1, 1)]


@pytest.mark.behaviour("R-242")
def test_remove_slow_voter_commits_records_of_the_others() -> None:
    raft = leader_of_voters(1, 2, 3, commits=False)
    replica_fetches(raft, 2, 1520)
    assert raft.high_watermark == raft.log_summary.end_offset
    raft = leader_of_voters(1, 2)
    assert responses(raft.step(2000, RequestReceived("t", RemoveVoter(SECOND)))) == []
    assert raft.high_watermark < raft.log_summary.end_offset, "not synced on the leader"
    assert responses(raft.step(2010, LogFlushed(raft.log_summary.end_offset))) == [VoterChangeResponse(OK, 1, 1)]


@pytest.mark.behaviour("R-242")
def test_leader_removing_itself_leads_until_commit() -> None:
    raft = leader_of_voters(1, 2, 3)
    end = raft.log_summary.end_offset
    raft.step(2000, RequestReceived("t", RemoveVoter(FIRST)))
    assert raft.is_leader
    raft.step(2010, LogFlushed(end + 1))
    replica_fetches(raft, 2, 2020)
    assert raft.high_watermark == end, "one of two, the leader is not counted"
    ready = replica_fetches(raft, 3, 2030)
    assert responses(ready) == [VoterChangeResponse(OK, 1, 1)]
    assert isinstance(raft.state, ResignedState)
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(1, 1, (SECOND, THIRD))) for i in (2, 3)]
    raft.step(raft.state.deadline_ms, Tick())
    assert (raft.state, raft.epoch) == (UnattachedState(NO_DEADLINE_MS), 2)


@pytest.mark.behaviour("R-228")
def test_leader_removing_itself_does_not_count_for_fetch_majority() -> None:
    raft = leader_of_voters(1, 2, 3)
    raft.step(2000, RequestReceived("t", RemoveVoter(FIRST)))
    deadline = raft.state.deadline_ms
    replica_fetches(raft, 2, 2500, 1)
    assert raft.state.deadline_ms == deadline
    replica_fetches(raft, 3, 2600, 1)
    assert raft.state.deadline_ms == 5600
