"""How a node finds its leader (R-209, R-223), and that it follows only whom it can reach (R-256)."""

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


def seeking(
    me: Any = OBSERVER, bootstrap: tuple[int, ...] = (-2, -3), hard: HardState | None = None, **more: Any
) -> tuple[RaftStateMachine, Ready]:
    """A node that has just started, and what it asks for first."""
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
    said = RaftFetchResponse(error, epoch, leader_id)._replace(**values)
    return raft.step(now_ms, ResponseReceived(raft.requests.fetch_peer, in_flight(raft), said))


@pytest.mark.behaviour("R-223")
@pytest.mark.parametrize(("chance", "peer"), [(0.0, -2), (0.49, -2), (0.5, -3), (0.99, -3)])
def test_who_knows_no_leader_asks_any_bootstrap_server(chance: float, peer: int) -> None:
    raft, ready = seeking(chances=[0.1, chance])
    assert requested_peers(ready) == [peer]
    assert in_flight(raft) == Fetch(OBSERVER, 5, 0, 0, -1, 500)
    assert not raft.step(10, Tick()).sends, "one at a time"


@pytest.mark.behaviour("R-223")
def test_a_voter_asks_too_while_its_timer_runs() -> None:
    raft, ready = seeking(FIRST, (1, 2, 3), chances=[0.5] * 9)
    assert raft.bootstrap == (2, 3), "nobody asks itself"
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
def test_who_knows_no_more_rests_and_another_is_asked(error: ErrorCode, epoch: int, leader_id: int) -> None:
    raft, _ = seeking(chances=[0.0] * 9)
    assert requested_peers(fetch_response(raft, 100, error, epoch, leader_id)) == [-3]
    assert isinstance(raft.state, UnattachedState)
    assert not fetch_response(raft, 110, error, epoch, leader_id).sends, "both rest"
    assert raft.deadline_ms == 120
    assert requested_peers(raft.step(120, Tick())) == [-2]


@pytest.mark.behaviour("R-209")
@pytest.mark.parametrize(
    ("error", "epoch"),
    [(FENCED, 8), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 5), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 8), (FENCED, 5)],
)
def test_the_leader_that_is_named_is_asked_at_once(error: ErrorCode, epoch: int) -> None:
    raft, _ = seeking()
    ready = fetch_response(raft, 100, error, epoch, 2)
    assert (raft.epoch, raft.leader_id) == (epoch, 2)
    assert ready.hard_state == HardState(epoch, 2)
    assert [(s.peer, s.request) for s in ready.sends] == [(2, Fetch(OBSERVER, epoch, 0, 0, -1, 500))]


@pytest.mark.behaviour("R-209")
def test_what_the_leader_sends_to_who_did_not_know_it_counts() -> None:
    raft, _ = seeking()
    said = RaftFetchResponse(OK, 5, 2, offset=0, high_watermark=1)
    ready = raft.step(100, ResponseReceived(-3, in_flight(raft), said, (FetchedRaftBatch(0, 1, 5, "raw"),)))
    assert raft.leader_id == 2
    assert [a.batch for a in ready.appends] == ["raw"]
    assert ready.committed == 1
    assert requested_peers(raft.step(110, LogFlushed(2))) == [2]


@pytest.mark.behaviour("R-223")
def test_while_the_leader_does_not_answer_others_are_asked_for_another() -> None:
    raft, ready = seeking(hard=HardState(5, 2), chances=[0.0] * 9)
    assert requested_peers(ready) == [2]
    assert requested_peers(raft.step(100, RequestFailed(2, in_flight(raft)))) == [-2]
    assert requested_peers(fetch_response(raft, 105, ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, 2)) == [-3]
    assert raft.state.deadline_ms == 2000, "only the leader's own answers count"
    assert requested_peers(raft.step(130, RequestFailed(-3, in_flight(raft)))) == [2], "the leader has rested"
    raft.step(140, RequestFailed(2, in_flight(raft)))
    assert requested_peers(fetch_response(raft, 141, FENCED, 6, 3)) == [3]
    assert raft.epoch == 6


@pytest.mark.behaviour("R-223")
def test_static_voters_are_asked_but_the_one_that_fails() -> None:
    raft, _ = seeking(FIRST, (1, 2, 3), hard=HardState(5, 2))
    assert requested_peers(raft.step(100, RequestFailed(2, in_flight(raft)))) == [3]


@pytest.mark.behaviour("R-223")
def test_a_server_that_never_answers_is_given_up() -> None:
    raft, _ = seeking(chances=[0.0] * 9)
    late = in_flight(raft)
    assert raft.deadline_ms == 2000
    assert requested_peers(raft.step(2000, Tick())) == [-3]
    assert raft.step(2001, ResponseReceived(-2, late, RaftFetchResponse(OK, 5, 2))).appends == []
    assert raft.leader_id == 2, "who leads is believed all the same"


def test_an_observer_has_no_election_timer() -> None:
    for hard in (HardState(5), HardState(5, -1, OBSERVER)):
        raft, _ = seeking(hard=hard)
        assert raft.state.deadline_ms == NO_DEADLINE_MS
    fetch_response(raft, 100, FENCED, 9, -1)
    assert (raft.epoch, raft.state.deadline_ms) == (9, NO_DEADLINE_MS)
    assert raft.deadline_ms < NO_DEADLINE_MS, "it goes on asking"


@pytest.mark.behaviour("R-204")
def test_a_removed_leader_that_starts_again_says_that_it_is_none_any_more() -> None:
    raft, ready = seeking(hard=HardState(5, OBSERVER.id))
    assert isinstance(raft.state, ResignedState)
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(5, 5)) for i in (1, 2, 3)]
    raft.step(raft.state.deadline_ms, Tick())
    assert (raft.state, raft.epoch) == (UnattachedState(NO_DEADLINE_MS), 6)


# ------------------------------------------------------------------ a leader without an address


def naming(raft: RaftStateMachine, epoch: int, how: str) -> None:
    match how:
        case "begins":
            raft.step(100, RequestReceived("t", BeginEpoch(4, epoch)))
        case "fetch":
            fetch_response(raft, 100, FENCED, epoch, 4)
        case "vote":
            raft.step(100, ResponseReceived(2, Vote(OBSERVER, 5, 0, 0), RaftResponse(OK, epoch, 4)))


@pytest.mark.behaviour("R-256")
@pytest.mark.parametrize("how", ["begins", "fetch", "vote"])
@pytest.mark.parametrize("epoch", [5, 6])
def test_nobody_follows_a_leader_it_cannot_reach(epoch: int, how: str) -> None:
    raft, _ = seeking()
    naming(raft, epoch, how)
    assert isinstance(raft.state, UnattachedState)
    assert (raft.epoch, raft.leader_id) == (epoch, -1)
    assert raft.hard_state == (HardState(6, 4) if epoch == 6 else HardState(5)), "a higher epoch's leader is remembered"
    raft, _ = seeking()
    raft.reachable_replicas.add(4)
    naming(raft, epoch, how)
    assert isinstance(raft.state, RaftFollowerState)
    assert (raft.epoch, raft.leader_id, raft.requests.fetch_peer) == (epoch, 4, 4)


@pytest.mark.behaviour("R-256")
def test_the_address_may_come_later() -> None:
    raft, _ = seeking()
    naming(raft, 6, "begins")
    raft.reachable_replicas.add(4)
    raft.step(200, RequestReceived("t", BeginEpoch(4, 6)))
    assert (raft.epoch, raft.leader_id) == (6, 4)


@pytest.mark.behaviour("R-204")
def test_a_leader_outside_the_voters_is_looked_for_after_a_start() -> None:
    raft, ready = seeking(hard=HardState(5, 4))
    assert isinstance(raft.state, UnattachedState)
    assert requested_peers(ready) == [-3]


@pytest.mark.behaviour("R-208")
def test_a_lost_pre_vote_goes_back_to_a_leader_outside_the_voters() -> None:
    raft, _ = seeking(FIRST)
    raft.reachable_replicas.add(4)
    naming(raft, 6, "begins")
    raft.step(2100, Tick())
    assert isinstance(raft.state, ProspectiveState)
    for peer in (2, 3):
        raft.step(2110, ResponseReceived(peer, Vote(FIRST, 6, 0, 0, pre_vote=True), RaftResponse(OK, 6, -1)))
    assert raft.leader_id == 4
