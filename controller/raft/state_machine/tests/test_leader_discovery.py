"""Discovery of the leader (R-209, R-223), and reachability of a followed leader (R-256)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    NO_DEADLINE_MS,
    ProspectiveState,
    RaftFollowerState,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchedRaftBatch,
    HardState,
    LogFlushed,
    RaftFetchResponse,
    RaftResponse,
    RaftStarted,
    Ready,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import FENCED, FIRST, KEYS, OK, SECOND, THIRD
from ottla.wire.errors import ErrorCode

OBSERVER = KEYS[5]


def started_node(
    me: Any = OBSERVER, bootstrap: tuple[int, ...] = (-2, -3), hard: HardState | None = None, **more: Any
) -> tuple[RaftStateMachine, Ready]:
    """Return a started node and its first requests."""
    voters = VoterSetHistory(more.pop("voters", [FIRST, SECOND, THIRD]))
    chances: Iterator[float] = iter(more.pop("chances", [0.5] * 50))
    raft = RaftStateMachine(me, voters, hard or HardState(5), LogSummary(), lambda: next(chances), bootstrap=bootstrap)
    return raft, raft.step(0, RaftStarted())


def requested_peers(ready: Ready) -> list[int]:
    assert all(isinstance(s.request, Fetch) for s in ready.sends)
    return [s.peer for s in ready.sends]


def in_flight(raft: RaftStateMachine) -> Fetch:
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


def fetch_response(
    raft: RaftStateMachine, now_ms: float, error: ErrorCode, epoch: int, leader_id: int, **values: Any
) -> Ready:
    response = RaftFetchResponse(error, epoch, leader_id)._replace(**values)
    return raft.step(now_ms, ResponseReceived(raft.requests.fetch_peer, in_flight(raft), response))


@pytest.mark.behaviour("R-223")
@pytest.mark.parametrize(("random", "peer"), [(0.0, -2), (0.49, -2), (0.5, -3), (0.99, -3)])
def test_node_without_leader_fetches_from_random_bootstrap_server(random: float, peer: int) -> None:
    raft, ready = started_node(chances=[0.1, random])
    assert requested_peers(ready) == [peer]
    assert in_flight(raft) == Fetch(OBSERVER, 5, 0, 0, -1, 500)
    assert not raft.step(10, Tick()).sends, "one fetch at a time"


@pytest.mark.behaviour("R-223")
def test_voter_without_leader_fetches_until_election_timeout() -> None:
    raft, ready = started_node(FIRST, (1, 2, 3), chances=[0.5] * 9)
    assert raft.bootstrap == (2, 3), "this node is not among the bootstrap servers"
    assert requested_peers(ready) == [3]
    ready = raft.step(1500, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert {type(s.request) for s in ready.sends} == {Vote}


@pytest.mark.behaviour("R-223")
@pytest.mark.parametrize(
    ("error", "epoch", "leader_id"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, -1),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 4, -1),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 4, 2),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 5, -1),
        (ErrorCode.BROKER_NOT_AVAILABLE, 5, -1),
    ],
)
def test_bootstrap_server_without_leader_is_followed_by_another(error: ErrorCode, epoch: int, leader_id: int) -> None:
    raft, _ = started_node(chances=[0.0] * 9)
    assert requested_peers(fetch_response(raft, 100, error, epoch, leader_id)) == [-3]
    assert isinstance(raft.state, UnattachedState)
    assert not fetch_response(raft, 110, error, epoch, leader_id).sends, "both are in backoff"
    assert raft.deadline_ms == 120
    assert requested_peers(raft.step(120, Tick())) == [-2]


@pytest.mark.behaviour("R-209")
@pytest.mark.parametrize(
    ("error", "epoch"),
    [(FENCED, 8), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 8), (FENCED, 5)],
)
def test_response_with_leader_is_followed_by_fetch_from_it(error: ErrorCode, epoch: int) -> None:
    raft, _ = started_node()
    ready = fetch_response(raft, 100, error, epoch, 2)
    assert (raft.epoch, raft.leader_id) == (epoch, 2)
    assert ready.hard_state == HardState(epoch, 2)
    assert [(s.peer, s.request) for s in ready.sends] == [(2, Fetch(OBSERVER, epoch, 0, 0, -1, 500))]


@pytest.mark.behaviour("R-209")
def test_fetch_response_of_undiscovered_leader_is_applied() -> None:
    raft, _ = started_node()
    response = RaftFetchResponse(OK, 5, 2, offset=0, high_watermark=1)
    ready = raft.step(100, ResponseReceived(-3, in_flight(raft), response, (FetchedRaftBatch(0, 1, 5, "raw"),)))
    assert raft.leader_id == 2
    assert [a.batch for a in ready.appends] == ["raw"]
    assert ready.committed == 1
    assert requested_peers(raft.step(110, LogFlushed(2))) == [2]


@pytest.mark.behaviour("R-223")
def test_unreachable_leader_is_searched_at_bootstrap_servers() -> None:
    raft, ready = started_node(hard=HardState(5, 2), chances=[0.0] * 9)
    assert requested_peers(ready) == [2]
    assert requested_peers(raft.step(100, RequestFailed(2, in_flight(raft)))) == [-2]
    assert requested_peers(fetch_response(raft, 105, ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, 2)) == [-3]
    assert raft.state.deadline_ms == 2000, "only responses of the leader reset the timeout"
    assert requested_peers(raft.step(130, RequestFailed(-3, in_flight(raft)))) == [2], "the leader is in backoff"
    raft.step(140, RequestFailed(2, in_flight(raft)))
    assert requested_peers(fetch_response(raft, 141, FENCED, 6, 3)) == [3]
    assert raft.epoch == 6


@pytest.mark.behaviour("R-223")
def test_fetch_goes_to_static_voters_except_the_failed_one() -> None:
    raft, _ = started_node(FIRST, (1, 2, 3), hard=HardState(5, 2))
    assert requested_peers(raft.step(100, RequestFailed(2, in_flight(raft)))) == [3]


@pytest.mark.behaviour("R-223")
def test_bootstrap_server_timeout_moves_to_next_server() -> None:
    raft, _ = started_node(chances=[0.0] * 9)
    late = in_flight(raft)
    assert raft.deadline_ms == 2000
    assert requested_peers(raft.step(2000, Tick())) == [-3]
    assert raft.step(2001, ResponseReceived(-2, late, RaftFetchResponse(OK, 5, 2))).appends == []
    assert raft.leader_id == 2, "a late response names the leader"


def test_observer_has_no_election_timeout() -> None:
    for hard in (HardState(5), HardState(5, -1, OBSERVER)):
        raft, _ = started_node(hard=hard)
        assert raft.state.deadline_ms == NO_DEADLINE_MS
    fetch_response(raft, 100, FENCED, 9, -1)
    assert (raft.epoch, raft.state.deadline_ms) == (9, NO_DEADLINE_MS)
    assert raft.deadline_ms < NO_DEADLINE_MS, "next fetch is scheduled"


@pytest.mark.behaviour("R-204")
def test_removed_leader_resigns_after_restart() -> None:
    raft, ready = started_node(hard=HardState(5, OBSERVER.id))
    assert isinstance(raft.state, ResignedState)
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(5, 5)) for i in (1, 2, 3)]
    raft.step(raft.state.deadline_ms, Tick())
    assert (raft.state, raft.epoch) == (UnattachedState(NO_DEADLINE_MS), 6)


# ------------------------------------------------------------------ a leader without an address


def name_leader_4(raft: RaftStateMachine, epoch: int, source: str) -> None:
    match source:
        case "begins":
            raft.step(100, RequestReceived("t", BeginEpoch(4, epoch)))
        case "fetch":
            fetch_response(raft, 100, FENCED, epoch, 4)
        case "vote":
            raft.step(100, ResponseReceived(2, Vote(OBSERVER, 5, 0, 0), RaftResponse(OK, epoch, 4)))


@pytest.mark.behaviour("R-256")
@pytest.mark.parametrize("source", ["begins", "fetch", "vote"])
@pytest.mark.parametrize("epoch", [5, 6])
def test_unreachable_leader_is_not_followed(epoch: int, source: str) -> None:
    raft, _ = started_node()
    name_leader_4(raft, epoch, source)
    assert isinstance(raft.state, UnattachedState)
    assert (raft.epoch, raft.leader_id) == (epoch, -1)
    assert raft.hard_state == (HardState(6, 4) if epoch == 6 else HardState(5)), "leader of a higher epoch is persisted"
    raft, _ = started_node()
    raft.reachable_replicas.add(4)
    name_leader_4(raft, epoch, source)
    assert isinstance(raft.state, RaftFollowerState)
    assert (raft.epoch, raft.leader_id, raft.requests.fetch_peer) == (epoch, 4, 4)


@pytest.mark.behaviour("R-256")
def test_leader_is_followed_once_its_address_is_known() -> None:
    raft, _ = started_node()
    name_leader_4(raft, 6, "begins")
    raft.reachable_replicas.add(4)
    raft.step(200, RequestReceived("t", BeginEpoch(4, 6)))
    assert (raft.epoch, raft.leader_id) == (6, 4)


@pytest.mark.behaviour("R-204")
def test_restarted_node_searches_leader_outside_voters() -> None:
    raft, ready = started_node(hard=HardState(5, 4))
    assert isinstance(raft.state, UnattachedState)
    assert requested_peers(ready) == [-3]


@pytest.mark.behaviour("R-208")
def test_lost_pre_vote_returns_to_leader_outside_voters() -> None:
    raft, _ = started_node(FIRST)
    raft.reachable_replicas.add(4)
    name_leader_4(raft, 6, "begins")
    raft.step(2100, Tick())
    assert isinstance(raft.state, ProspectiveState)
    for peer in (2, 3):
        raft.step(2110, ResponseReceived(peer, Vote(FIRST, 6, 0, 0, pre_vote=True), RaftResponse(OK, 6, -1)))
    assert raft.leader_id == 4
