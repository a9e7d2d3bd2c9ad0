"""What ends a raft node of Apache Kafka's is never said to one (R-254 to R-260): a test a row.

The same is looked at with every answer in the simulation (``raft_invariants.py``).
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    AnyRaftResponse,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchSnapshot,
    HardState,
    LogFlushed,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RaftResponse,
    RaftStarted,
    ReplicaKey,
    RequestReceived,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import (
    FIRST,
    OK,
    SECOND,
    THIRD,
    follower,
    leader_of_voters,
    leader_with_log,
    replica_fetches,
    resigned,
    response_to,
)
from ottla.controller.raft.tests.raft_invariants import RaftInvariants
from ottla.controller.raft.tests.simulated_hosts import SimulatedHost
from ottla.wire.errors import ErrorCode

NEW = ReplicaKey(3, bytes([9] * 16))
"""Node 3 with an empty disk."""


@pytest.mark.behaviour("R-254")
@pytest.mark.parametrize(
    "request_",
    [
        Vote(NEW, 0, 0, 0, pre_vote=True),
        Vote(NEW, 1, 0, 0),
        Vote(NEW, 6, 3, 10, pre_vote=True, voter=FIRST),
        Vote(NEW, 6, 6, 11, pre_vote=True, voter=FIRST),
        Vote(NEW, 7, 6, 11, voter=SECOND),
        BeginEpoch(3, 6, FIRST),
        BeginEpoch(3, 7, SECOND),
        EndEpoch(3, 6, ()),
        EndEpoch(3, 7, (NEW, FIRST)),
        Fetch(NEW, 0, 0, 0, -1, 500),
        Fetch(NEW, 6, 0, 0, -1, 500),
        Fetch(NEW, 6, 99, 6, 98, 500),
        Fetch(NEW, 9, 5, 9, -1, 500),
        Fetch(ReplicaKey(-1), 6, 0, 0, -1, 0),
        FetchSnapshot(NEW, 6, (8, 3), 0, 1000),
    ],
)
def test_what_a_jvm_node_says_is_never_an_invalid_request(request_: Any) -> None:
    for make in (leader_with_log, follower, resigned):
        raft = make()
        replies = raft.step(1700, RequestReceived("t", request_)).replies + raft.step(9000, Tick()).replies
        for reply in replies:
            assert reply.response.error not in (ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            assert reply.response.error not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INCONSISTENT_CLUSTER_ID)


@pytest.mark.behaviour("R-256")
def test_a_leader_that_left_the_voters_is_still_one_that_can_be_reached() -> None:
    raft = follower()
    raft.voters = VoterSetHistory([FIRST, THIRD])
    assert raft.leader_id == 2
    assert raft.can_reach(2)


@pytest.mark.behaviour("R-257")
def test_nobody_is_told_that_it_leads_itself() -> None:
    """Who forgot it, with its disk, would end."""
    for request in (Vote(NEW._replace(id=2), 5, 0, 0, pre_vote=True), Fetch(NEW._replace(id=2), 4, 0, 0, -1, 500)):
        raft = follower()
        said = response_to(raft, request)
        assert (said.epoch, said.leader_id) == (5, NO_NODE_ID)
        assert raft.leader_id == 2
    said = response_to(follower(), Fetch(THIRD, 4, 0, 0, -1, 500))
    assert (said.error, said.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 2)


@pytest.mark.behaviour("R-257")
def test_who_does_not_lead_any_more_names_nobody() -> None:
    assert response_to(resigned(), Fetch(SECOND, 6, 0, 0, -1, 500)).leader_id == NO_NODE_ID


@pytest.mark.behaviour("R-258")
def test_a_new_leader_tells_no_high_watermark_before_it_commits_in_its_own_epoch() -> None:
    """What it tells then is above all that was told before: every record that was committed is in its log."""
    raft = leader_of_voters(1, 2, 3, commits=False)
    raft.raise_high_watermark(1)
    told = [r.response.high_watermark for r in replica_fetches(raft, 2, 1520, 1).replies]  # type: ignore[union-attr]
    assert told == [-1]
    told = [r.response.high_watermark for r in replica_fetches(raft, 2, 1530).replies]  # type: ignore[union-attr]
    assert told == [raft.log_summary.end_offset]


@pytest.mark.behaviour("R-259")
def test_a_log_that_parts_is_cut_above_what_is_committed() -> None:
    """What is committed is in the leader's log under the same epochs, so the end it names lies above."""
    chain = LogSummary(20, [(1, 0), (3, 10), (5, 15)])
    raft = RaftStateMachine(FIRST, VoterSetHistory([FIRST]), HardState(5), chain, lambda: 0.5)
    raft.step(0, RaftStarted())
    raft.step(0, LogFlushed(raft.log_summary.end_offset))
    committed = 12  # of the asker, whose log is (1, 0), (3, 10), (4, 12) to 19
    said = response_to(raft, Fetch(SECOND, raft.epoch, 19, 4, committed, 500))
    assert said.diverging is not None
    assert said.diverging[1] >= committed


@pytest.mark.behaviour("R-260")
def test_a_part_of_a_snapshot_is_the_one_that_was_asked_for() -> None:
    said = response_to(leader_with_log(), FetchSnapshot(SECOND, 6, (8, 3), 100, 1000, size_bytes=300))
    assert (said.error, said.snapshot, said.position, said.size_bytes) == (OK, (8, 3), 100, 300)


@pytest.mark.parametrize(
    ("row", "asker", "request_", "said"),
    [
        ("R-254", 2, Vote(SECOND, 5, 0, 0), {"error": ErrorCode.INVALID_REQUEST}),
        ("R-255", 2, Vote(SECOND, 5, 0, 0), {"error": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}),
        ("R-256", 2, Vote(SECOND, 5, 0, 0), {"leader_id": 5}),
        ("R-257", 2, Vote(SECOND, 5, 0, 0), {"leader_id": 2}),
        ("R-257", 2, Vote(SECOND, 5, 0, 0), {"leader_id": 3}),
        ("R-258", 2, Fetch(SECOND, 5, 9, 1), {"high_watermark": 6}),
        ("R-259", 2, Fetch(SECOND, 5, 9, 1, 8), {"diverging": (1, 7)}),
        ("R-260", 2, FetchSnapshot(SECOND, 5, (8, 3), 0), {"snapshot": (9, 3)}),
    ],
)
def test_the_simulation_would_see_it(row: str, asker: int, request_: Any, said: dict[str, Any]) -> None:
    host = SimulatedHost(1)
    host.machine = follower()
    promises = RaftInvariants({1: host})
    promises.leaders[5] = 2
    ticket = (asker, 1, request_)
    kinds: dict[type, AnyRaftResponse] = {
        Vote: RaftResponse(OK, 5, -1),
        Fetch: RaftFetchResponse(OK, 5, -1, high_watermark=7),
        FetchSnapshot: RaftFetchSnapshotResponse(OK, 5, -1, (8, 3)),
    }
    right = kinds[type(request_)]
    promises.on_response(host, ticket, right)
    with pytest.raises(AssertionError, match=row):
        promises.on_response(host, ticket, right._replace(**said))
