"""Observers (R-219, R-251): expired by the leader after a while, and limited in number."""

from __future__ import annotations

from ottla.controller.raft.state_machine.epoch_states import MAX_OBSERVERS, OBSERVER_SESSION_TIMEOUT_MS
from ottla.controller.raft.state_machine.events import Fetch, ReplicaKey, RequestReceived, ResponseReceived
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.state_machine.tests.test_voter_changes import SPEAKS, adding, responses
from ottla.controller.raft.tests.raft_fixture import KEYS, leader_of_voters, replica_fetches
from ottla.wire.errors import ErrorCode

VOTERS = 3


def fetch_as_new_observer(raft: RaftStateMachine, number: int, now_ms: float) -> None:
    key = ReplicaKey(1000 + number, number.to_bytes(16, "big"))
    raft.step(now_ms, RequestReceived("fetch", Fetch(key, raft.epoch, 0, 0)))


def test_observer_table_is_limited_to_1000_entries() -> None:
    raft = leader_of_voters(1, 2, 3)
    for number in range(3 * MAX_OBSERVERS):
        fetch_as_new_observer(raft, number, 2000 + number / 10)
    assert len(raft.state.replicas) == VOTERS + MAX_OBSERVERS  # type: ignore[union-attr]
    assert all(v in raft.state.replicas for v in raft.voters.current)  # type: ignore[union-attr]


def test_fetching_observer_is_not_evicted_by_new_ones() -> None:
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft)
    for number in range(3 * MAX_OBSERVERS):
        if number % 100 == 0:
            replica_fetches(raft, 4, 2010 + number / 10)
        fetch_as_new_observer(raft, number, 2010 + number / 10)
    ready = raft.step(2400, ResponseReceived(4, query, SPEAKS))
    assert not [a for a in responses(ready) if a.error == ErrorCode.REQUEST_TIMED_OUT], "the observer is caught up"
    assert raft.voters.is_voter(KEYS[4])


def test_inactive_observer_expires_when_a_new_one_fetches() -> None:
    raft = leader_of_voters(1, 2, 3)
    for number in range(10):
        fetch_as_new_observer(raft, number, 2000)
    fetch_as_new_observer(raft, 10, 2000 + OBSERVER_SESSION_TIMEOUT_MS - 1)
    assert len(raft.state.replicas) == VOTERS + 11  # type: ignore[union-attr]
    raft = leader_of_voters(1, 2, 3)
    for number in range(10):
        fetch_as_new_observer(raft, number, 2000)
    fetch_as_new_observer(raft, 10, 2000 + OBSERVER_SESSION_TIMEOUT_MS)
    assert len(raft.state.replicas) == VOTERS + 1  # type: ignore[union-attr]
