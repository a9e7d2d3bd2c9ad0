"""Replica that lost its disk while becoming a voter: same id, other directory."""

from __future__ import annotations

import pytest

from ottla.controller.raft.state_machine.events import Fetch, ReplicaKey, RequestReceived, ResponseReceived
from ottla.controller.raft.state_machine.tests.test_voter_changes import OTHER_DIRECTORY, SPEAKS, adding, responses
from ottla.controller.raft.tests.raft_fixture import KEYS, leader_of_voters
from ottla.wire.errors import ErrorCode

FOUR = KEYS[4]


@pytest.mark.parametrize("epoch", [1, 0])
def test_add_voter_ignores_progress_of_earlier_directory(epoch: int) -> None:
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft)
    emptied = ReplicaKey(4, bytes([9] * 16))
    raft.step(2005, RequestReceived("fetch", Fetch(emptied, epoch, 0, 0)))
    ready = raft.step(2010, ResponseReceived(4, query, SPEAKS))
    assert [a.error for a in responses(ready)] == [ErrorCode.REQUEST_TIMED_OUT], "the added directory no longer fetches"
    assert not raft.voters.is_voter(FOUR)
    query = adding(raft)
    raft.step(2010, ResponseReceived(4, query, SPEAKS))
    assert raft.voters.is_voter(FOUR), "the added directory fetches again"


@pytest.mark.parametrize("epoch", [1, 0])
def test_fetch_with_other_directory_id_does_not_change_voter_state(epoch: int) -> None:
    raft = leader_of_voters(1, 2, 3)
    before = {k: (p.end_offset, p.last_fetch_ms) for k, p in raft.state.replicas.items()}  # type: ignore[union-attr]
    for other in (OTHER_DIRECTORY, ReplicaKey(2), ReplicaKey(-1)):
        raft.step(2005, RequestReceived("fetch", Fetch(other, epoch, 0, 0)))
    after = {k: (p.end_offset, p.last_fetch_ms) for k, p in raft.state.replicas.items()}  # type: ignore[union-attr]
    assert {k: after[k] for k in before} == before


def test_fetch_without_directory_id_does_not_change_other_replicas() -> None:
    raft = leader_of_voters(1, 2, 3)
    query = adding(raft)
    raft.step(2005, RequestReceived("fetch", Fetch(ReplicaKey(4), 1, 0, 0)))
    raft.step(2010, ResponseReceived(4, query, SPEAKS))
    assert raft.voters.is_voter(FOUR)
