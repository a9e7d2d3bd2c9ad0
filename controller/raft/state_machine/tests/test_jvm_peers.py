"""Responses that would stop a Raft node of Apache Kafka (R-254 to R-260): never sent.

The simulation checks the same for every response (``raft_invariants.py``).
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
def test_request_of_jvm_node_never_returns_a_fatal_error(request_: Any) -> None:
    for make in (leader_with_log, follower, resigned):
        raft = make()
        replies = raft.step(1700, RequestReceived("t", request_)).replies + raft.step(9000, Tick()).replies
        for reply in replies:
            assert reply.response.error not in (ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            assert reply.response.error not in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INCONSISTENT_CLUSTER_ID)


@pytest.mark.behaviour("R-256")
def test_leader_removed_from_voters_is_still_reachable() -> None:
    raft = follower()
    raft.voters = VoterSetHistory([FIRST, THIRD])
    assert raft.leader_id == 2
    assert raft.can_reach(2)


@pytest.mark.behaviour("R-257")
def test_response_never_names_the_receiver_as_leader() -> None:
    """A node that lost its disk, and with it its leadership, would stop."""
    for request in (Vote(NEW._replace(id=2), 5, 0, 0, pre_vote=True), Fetch(NEW._replace(id=2), 4, 0, 0, -1, 500)):
        raft = follower()
        response = response_to(raft, request)
        assert (response.epoch, response.leader_id) == (5, NO_NODE_ID)
        assert raft.leader_id == 2
    response = response_to(follower(), Fetch(THIRD, 4, 0, 0, -1, 500))
    assert (response.error, response.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, 2)


@pytest.mark.behaviour("R-257")
def test_resigned_leader_names_no_leader() -> None:
    assert response_to(resigned(), Fetch(SECOND, 6, 0, 0, -1, 500)).leader_id == NO_NODE_ID


@pytest.mark.behaviour("R-258")
def test_new_leader_advertises_high_watermark_only_after_commit_in_own_epoch() -> None:
    """The first advertised high watermark is above all earlier ones: every committed record is in the log."""
    raft = leader_of_voters(1, 2, 3, commits=False)
    raft.raise_high_watermark(1)
    advertised = [r.response.high_watermark for r in replica_fetches(raft, 2, 1520, 1).replies]  # type: ignore[union-attr]
    assert advertised == [-1]
    advertised = [r.response.high_watermark for r in replica_fetches(raft, 2, 1530).replies]  # type: ignore[union-attr]
    assert advertised == [raft.log_summary.end_offset]


@pytest.mark.behaviour("R-259")
def test_diverging_end_offset_is_above_high_watermark_of_follower() -> None:
    """Committed records are in the leader's log with the same epochs, so the returned end offset is above them."""
    chain = LogSummary(20, [(1, 0), (3, 10), (5, 15)])
    raft = RaftStateMachine(FIRST, VoterSetHistory([FIRST]), HardState(5), chain, lambda: 0.5)
    raft.step(0, RaftStarted())
    raft.step(0, LogFlushed(raft.log_summary.end_offset))
    committed = 12  # high watermark of the follower with the log (1, 0), (3, 10), (4, 12) to 19
    response = response_to(raft, Fetch(SECOND, raft.epoch, 19, 4, committed, 500))
    assert response.diverging is not None
    assert response.diverging[1] >= committed


@pytest.mark.behaviour("R-260")
def test_fetch_snapshot_response_has_requested_snapshot_and_position() -> None:
    response = response_to(leader_with_log(), FetchSnapshot(SECOND, 6, (8, 3), 100, 1000, size_bytes=300))
    assert (response.error, response.snapshot, response.position, response.size_bytes) == (OK, (8, 3), 100, 300)


@pytest.mark.parametrize(
    ("row", "asker", "request_", "response"),
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
def test_raft_invariants_detect_fatal_response(row: str, asker: int, request_: Any, response: dict[str, Any]) -> None:
    host = SimulatedHost(1)
    host.machine = follower()
    invariants = RaftInvariants({1: host})
    invariants.leaders[5] = 2
    pending = (asker, 1, request_)
    kinds: dict[type, AnyRaftResponse] = {
        Vote: RaftResponse(OK, 5, -1),
        Fetch: RaftFetchResponse(OK, 5, -1, high_watermark=7),
        FetchSnapshot: RaftFetchSnapshotResponse(OK, 5, -1, (8, 3)),
    }
    right = kinds[type(request_)]
    invariants.on_response(host, pending, right)
    with pytest.raises(AssertionError, match=row):
        invariants.on_response(host, pending, right._replace(**response))
