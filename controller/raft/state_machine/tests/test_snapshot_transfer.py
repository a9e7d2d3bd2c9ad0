"""Snapshot transfer from a leader to a follower (R-228, R-234 to R-236)."""

from __future__ import annotations

import pytest

from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    Fetch,
    FetchSnapshot,
    HardState,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RaftStarted,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotLoaded,
    Tick,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import FENCED, FIRST, OK, SECOND, THIRD, follower, leader_with_log
from ottla.wire.errors import ErrorCode

FETCH_SNAPSHOT = FetchSnapshot(SECOND, 6, (8, 3), 100, 1000, size_bytes=300)


def following() -> RaftStateMachine:
    raft = leader_with_log()
    raft.step(1600, RequestReceived("b", BeginEpoch(3, 7)))
    return raft


@pytest.mark.behaviour("R-234")
@pytest.mark.parametrize(
    ("make", "fetch_snapshot", "error"),
    [
        (leader_with_log, FETCH_SNAPSHOT._replace(epoch=5, size_bytes=-1), FENCED),
        (leader_with_log, FETCH_SNAPSHOT._replace(epoch=7, size_bytes=-1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (following, FETCH_SNAPSHOT._replace(epoch=7, size_bytes=-1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (leader_with_log, FETCH_SNAPSHOT._replace(size_bytes=-1, position=-1), ErrorCode.SNAPSHOT_NOT_FOUND),
        (
            leader_with_log,
            FETCH_SNAPSHOT._replace(snapshot=(0, 0)),
            ErrorCode.SNAPSHOT_NOT_FOUND,
        ),  # (0, 0) is never served
        (leader_with_log, FETCH_SNAPSHOT._replace(position=-1), ErrorCode.POSITION_OUT_OF_RANGE),
        (leader_with_log, FETCH_SNAPSHOT._replace(position=300), ErrorCode.POSITION_OUT_OF_RANGE),
        (leader_with_log, FETCH_SNAPSHOT._replace(position=299), OK),
        (leader_with_log, FETCH_SNAPSHOT._replace(position=0), OK),
    ],
)
def test_fetch_snapshot_is_validated_in_kafkas_order(
    make: type, fetch_snapshot: FetchSnapshot, error: ErrorCode
) -> None:
    raft = make()
    (reply,) = raft.step(1700, RequestReceived("t", fetch_snapshot)).replies
    assert reply.pending_request == "t"
    where = ((8, 3), 300, fetch_snapshot.position) if error == OK else ((-1, -1), 0, 0)
    assert reply.response == RaftFetchSnapshotResponse(error, raft.epoch, raft.leader_id, *where)


@pytest.mark.behaviour("R-228")
def test_fetch_snapshot_of_voter_counts_as_fetch_for_the_leader() -> None:
    raft = leader_with_log()
    before = raft.state.deadline_ms
    for request in (
        FETCH_SNAPSHOT._replace(replica=ReplicaKey(2, bytes([9] * 16))),
        FETCH_SNAPSHOT._replace(replica=ReplicaKey(4, bytes([4] * 16))),
        FETCH_SNAPSHOT._replace(position=300),
    ):
        raft.step(1700, RequestReceived("t", request))
        assert raft.state.deadline_ms == before
    raft.step(1700, RequestReceived("t", FETCH_SNAPSHOT))
    assert raft.state.deadline_ms == 4700


def loading() -> tuple[RaftStateMachine, FetchSnapshot]:
    """Return a follower of 2 in epoch 5 that loads a snapshot, and its first request."""
    raft = follower()
    assert raft.requests.pending_fetch is not None
    raft.step(100, ResponseReceived(2, raft.requests.pending_fetch, RaftFetchResponse(OK, 5, 2, snapshot=(90, 4))))
    assert raft.requests.loading_snapshot == (90, 4)
    return raft, FetchSnapshot(FIRST, 5, (90, 4), 0)


PART = RaftFetchSnapshotResponse(OK, 5, 2, (90, 4), 300, 0)


@pytest.mark.behaviour("R-235")
def test_fetch_snapshot_chunk_resets_fetch_timeout() -> None:
    raft, request = loading()
    for now, position in ((1000, 0), (2500, 100)):
        at = request._replace(position=position)
        assert not raft.step(now, ResponseReceived(2, at, PART._replace(position=position))).sends
        assert raft.state.deadline_ms == now + 2000
        assert raft.requests.loading_snapshot == (90, 4)
    raft.step(2600, SnapshotLoaded(90, 4))
    assert raft.log_summary.end_offset == 90


@pytest.mark.behaviour("R-235")
@pytest.mark.parametrize(
    "response",
    [
        PART._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND, snapshot=(-1, -1)),
        PART._replace(error=ErrorCode.POSITION_OUT_OF_RANGE, snapshot=(-1, -1)),
        PART._replace(snapshot=(95, 4)),
        PART._replace(position=100),
    ],
)
def test_fetch_snapshot_not_found_returns_to_log_fetch(response: RaftFetchSnapshotResponse) -> None:
    raft, request = loading()
    (send,) = raft.step(1000, ResponseReceived(2, request, response)).sends
    assert isinstance(send.request, Fetch)
    assert raft.requests.loading_snapshot is None
    assert raft.step(1100, SnapshotLoaded(90, 4)).truncate_to_snapshot is None


@pytest.mark.behaviour("R-209")
@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE])
def test_fetch_snapshot_other_error_keeps_loading(error: ErrorCode) -> None:
    raft, request = loading()
    assert not raft.step(1000, ResponseReceived(2, request, RaftFetchSnapshotResponse(error, 5, 2))).sends
    assert not raft.step(1000, RequestFailed(2, request)).sends
    assert (raft.requests.loading_snapshot, raft.state.deadline_ms) == ((90, 4), 2100)


@pytest.mark.behaviour("R-209")
def test_fetch_snapshot_response_with_new_leader_stops_loading() -> None:
    for response in (
        RaftFetchSnapshotResponse(FENCED, 8, 3),
        RaftFetchSnapshotResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 8, 3),
    ):
        raft, request = loading()
        (send,) = raft.step(1000, ResponseReceived(2, request, response)).sends
        assert (raft.epoch, raft.leader_id, send.peer, raft.requests.loading_snapshot) == (8, 3, 3, None)
        assert isinstance(send.request, Fetch)
        raft.step(1010, ResponseReceived(2, request, PART))
        assert raft.state.deadline_ms == 3000, "late response"


def test_observer_without_leader_stops_loading_and_fetches_elsewhere() -> None:
    raft = RaftStateMachine(
        ReplicaKey(4, bytes([4] * 16)),
        VoterSetHistory([FIRST, SECOND, THIRD]),
        HardState(5, 2),
        LogSummary(),
        lambda: 0.5,
        bootstrap=(-2,),
    )
    raft.step(0, RaftStarted())
    assert raft.requests.pending_fetch is not None
    raft.step(100, ResponseReceived(2, raft.requests.pending_fetch, RaftFetchResponse(OK, 5, 2, snapshot=(90, 4))))
    ready = raft.step(2100, Tick())
    assert raft.requests.loading_snapshot is None
    assert [type(s.request) for s in ready.sends] == [Fetch]
