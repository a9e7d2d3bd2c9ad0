"""A replica whose disk was emptied on its way to becoming a voter: its id is there, what it had is not."""

from __future__ import annotations

import pytest

from ottla.controller.raft.state_machine.events import Fetch, ReplicaKey, RequestReceived, ResponseReceived
from ottla.controller.raft.state_machine.tests.test_voter_changes import SPEAKS, STRANGER, adding, said
from ottla.controller.raft.tests.raft_fixture import KEYS, leader_of_voters
from ottla.wire.errors import ErrorCode

FOUR = KEYS[4]


@pytest.mark.parametrize("epoch", [1, 0])
def test_who_lost_its_disk_is_not_added_by_what_was_on_it(epoch: int) -> None:
    raft = leader_of_voters(1, 2, 3)
    ask = adding(raft)
    emptied = ReplicaKey(4, bytes([9] * 16))
    raft.step(2005, RequestReceived("fetch", Fetch(emptied, epoch, 0, 0)))
    ready = raft.step(2010, ResponseReceived(4, ask, SPEAKS))
    assert [a.error for a in said(ready)] == [ErrorCode.REQUEST_TIMED_OUT], "nobody would ever vote for it"
    assert not raft.voters.is_voter(FOUR)
    ask = adding(raft)
    raft.step(2010, ResponseReceived(4, ask, SPEAKS))
    assert raft.voters.is_voter(FOUR), "it is back"


@pytest.mark.parametrize("epoch", [1, 0])
def test_another_directory_with_its_id_takes_nothing_from_a_voter(epoch: int) -> None:
    raft = leader_of_voters(1, 2, 3)
    before = {k: (p.end_offset, p.last_fetch_ms) for k, p in raft.state.replicas.items()}  # type: ignore[union-attr]
    for stranger in (STRANGER, ReplicaKey(2), ReplicaKey(-1)):
        raft.step(2005, RequestReceived("fetch", Fetch(stranger, epoch, 0, 0)))
    after = {k: (p.end_offset, p.last_fetch_ms) for k, p in raft.state.replicas.items()}  # type: ignore[union-attr]
    assert {k: after[k] for k in before} == before


def test_a_fetch_that_names_no_directory_says_nothing_of_others() -> None:
    raft = leader_of_voters(1, 2, 3)
    ask = adding(raft)
    raft.step(2005, RequestReceived("fetch", Fetch(ReplicaKey(4), 1, 0, 0)))
    raft.step(2010, ResponseReceived(4, ask, SPEAKS))
    assert raft.voters.is_voter(FOUR)
