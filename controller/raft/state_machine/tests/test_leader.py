"""Higher epochs, and the Raft leader (R-209 to R-221, R-227, R-228, R-243)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.state_machine.epoch_states import ProspectiveState, ResignedState
from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    EndEpoch,
    Fetch,
    HardState,
    LogFlushed,
    Propose,
    RaftResponse,
    RaftStarted,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.state_machine.rpc_handlers import successor_wait_ms
from ottla.controller.raft.tests.raft_fixture import (
    FENCED,
    FIRST,
    INVALID,
    INVALID_KEY,
    KEYS,
    OK,
    SECOND,
    THIRD,
    candidate,
    follower,
    leader,
    leader_with_log,
    prospective,
    response_to,
    unattached,
    voters_record,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import KRaftVersionRecord

# ------------------------------------------------------------------ epochs of others


@pytest.mark.behaviour("R-214")
@pytest.mark.parametrize(
    ("request_", "error", "epoch", "leader_id"),
    [
        (BeginEpoch(2, 5), OK, 5, 2),
        (BeginEpoch(2, 6), OK, 6, 2),
        (BeginEpoch(2, 4), FENCED, 5, -1),
        (BeginEpoch(-1, 6), INVALID, 5, -1),
        (BeginEpoch(2, 6, SECOND), INVALID_KEY, 6, 2),  # the epoch is adopted first
        (BeginEpoch(2, 6, FIRST), OK, 6, 2),
        (BeginEpoch(1, 6), OK, 5, -1),  # naming this node as leader is invalid
        (EndEpoch(2, 6), OK, 6, 2),
        (EndEpoch(2, 4), FENCED, 5, -1),
        (EndEpoch(-1, 6), INVALID, 5, -1),
    ],
)
def test_begin_quorum_epoch_valid_leader_is_followed(
    request_: Any, error: ErrorCode, epoch: int, leader_id: int
) -> None:
    raft = unattached()
    response = response_to(raft, request_)
    assert (response.error, response.epoch, response.leader_id) == (error, epoch, leader_id)
    assert (raft.epoch, raft.leader_id) == (epoch, leader_id)


def test_begin_quorum_epoch_second_leader_of_epoch_is_protocol_violation() -> None:
    raft = follower()
    raft.step(2000, Tick())
    doubt = raft.step(2001, RequestReceived("t", BeginEpoch(3, 5))).protocol_violation
    assert doubt is not None
    assert "Two leaders in epoch 5" in doubt
    assert (raft.leader_id, raft.hard_state.leader_id) == (-1, 2)


@pytest.mark.behaviour("R-215")
@pytest.mark.parametrize(
    ("positions", "wait"),
    [
        ([True], 0),
        ([], 0),  # a restarted leader has no preferred successors
        ([False, False], 1000),
        ([False, True], 500),
        ([False, True, False], 250),
        ([False, False, True], 500),
        ([False, False, False, True], 500),
    ],
)
def test_successor_wait_ms_increases_with_position(positions: list[bool], wait: float) -> None:
    assert successor_wait_ms(positions, 1000) == wait


@pytest.mark.behaviour("R-215")
def test_end_quorum_epoch_shortens_timeout_of_followers_only() -> None:
    for raft in (unattached(), prospective(), candidate(), leader_with_log()):
        state, deadline = raft.state, raft.state.deadline_ms
        response_to(raft, EndEpoch(THIRD.id if raft.epoch == 5 else 2, raft.epoch - 1, (FIRST,)), 10)
        assert (raft.state, raft.state.deadline_ms) == (state, deadline)
    raft = follower()
    deadline = raft.deadline_ms
    raft.step(10, RequestReceived("t", EndEpoch(THIRD.id, 5, (FIRST,))))
    assert (raft.leader_id, raft.deadline_ms) == (2, deadline), "request of another leader"
    raft = leader_with_log()
    response_to(raft, EndEpoch(2, 6, (FIRST,)), 10)
    assert raft.is_leader


@pytest.mark.behaviour("R-215")
def test_end_quorum_epoch_first_successor_starts_election_at_once() -> None:
    for successors, deadline in (((FIRST, THIRD), 10), ((THIRD, FIRST), 510), ((THIRD,), 1010), ((), 10)):
        raft = follower()
        response_to(raft, EndEpoch(2, 5, successors), 10)
        assert raft.deadline_ms == deadline


def test_resign_sends_end_quorum_epoch_with_most_caught_up_successor_first() -> None:
    raft = leader(end=10, epoch=3)
    for key, end in ((SECOND, 10), (THIRD, 11)):
        raft.step(1600, RequestReceived("f", Fetch(key, 6, end, 3 if end == 10 else 6)))
    ready = raft.step(1700, Resign())
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(1, 6, (THIRD, SECOND))) for i in (2, 3)]
    assert raft.leader_id == -1
    raft.step(1710, ResponseReceived(2, EndEpoch(1, 6), RaftResponse(OK, 6, -1)))
    raft.step(1720, RequestFailed(3, EndEpoch(1, 6)))
    assert [s.peer for s in raft.step(1740, Tick()).sends] == [3]
    ready = raft.step(4000, Tick())
    assert isinstance(raft.state, ProspectiveState)
    assert ready.hard_state == HardState(7)


# ------------------------------------------------------------------ leading


@pytest.mark.behaviour("R-217")
@pytest.mark.parametrize(
    ("fetch", "error"),
    [
        (Fetch(SECOND, 6, 10, 3), OK),
        (Fetch(SECOND, 6, 10, 3, max_wait_ms=-1), INVALID),
        (Fetch(SECOND, 6, -1, 3), INVALID),
        (Fetch(SECOND, 6, 10, -1), INVALID),
        (Fetch(SECOND, 6, 10, 7), INVALID),
        (Fetch(SECOND, 6, 10, 6), OK),
        (Fetch(SECOND, 5, 10, 3), FENCED),
        (Fetch(SECOND, 7, 10, 3), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_leader_fetch_is_validated_in_kafkas_order(fetch: Fetch, error: ErrorCode) -> None:
    assert response_to(leader_with_log(), fetch).error == error


@pytest.mark.behaviour("R-217")
def test_follower_fetch_request_returns_not_leader_or_follower() -> None:
    response = response_to(follower(), Fetch(THIRD, 5, 0, 0))
    assert (response.error, response.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


CHAIN = [(2, 0), (4, 10), (7, 20)]


@pytest.mark.behaviour("R-218", "P-61")
@pytest.mark.parametrize(
    ("start", "snapshots", "offset", "epoch", "expected"),
    [
        (0, [], 0, 0, "valid"),
        (0, [], 10, 2, "valid"),
        (0, [], 15, 4, "valid"),
        (0, [], 20, 4, "valid"),
        (0, [], 30, 7, "valid"),
        (0, [], 31, 7, ("diverging", (7, 30))),
        (0, [], 11, 2, ("diverging", (2, 10))),
        (0, [], 21, 4, ("diverging", (4, 20))),
        (0, [], 12, 3, ("diverging", (2, 10))),
        (0, [], 25, 5, ("diverging", (4, 20))),
        (0, [], 30, 9, ("diverging", (7, 30))),
        (0, [(15, 4)], 0, 0, ("snapshot", (15, 4))),
        (0, [(15, 4)], 16, 4, "valid"),
        (0, [(15, 4), (22, 7)], 0, 0, ("snapshot", (22, 7))),
        (15, [(15, 4), (22, 7)], 14, 4, ("snapshot", (22, 7))),
        (15, [(15, 4)], 15, 4, "valid"),
        (15, [(15, 4)], 15, 2, ("snapshot", (15, 4))),
        (15, [(15, 4)], 15, 7, ("snapshot", (15, 4))),
        (15, [(15, 4)], 16, 3, ("snapshot", (15, 4))),
        (15, [(15, 4)], 25, 7, "valid"),
        (0, [(0, 0)], 0, 0, "valid"),  # (0, 0) is never served
    ],
)
def test_validate_offset_and_epoch_returns_divergence_or_snapshot(
    start: int, snapshots: list[tuple[int, int]], offset: int, epoch: int, expected: Any
) -> None:
    epochs = [(e, max(o, start)) for e, o in CHAIN if e >= 4 or start == 0]
    found = LogSummary(30, epochs, start, snapshots).validate_offset_and_epoch(offset, epoch)
    assert (found[0] if expected == "valid" else found) == expected


@pytest.mark.behaviour("R-227", "P-58")
def test_high_watermark_is_majority_offset_of_current_epoch() -> None:
    raft = leader_with_log()
    assert raft.high_watermark == -1
    raft.step(1600, RequestReceived("a", Fetch(SECOND, 6, 10, 3)))
    assert raft.high_watermark == -1, "offset 10 is of an older epoch"
    assert raft.advertised_high_watermark == -1
    ready = raft.step(1610, RequestReceived("b", Fetch(SECOND, 6, 11, 6)))
    assert ready.committed == raft.high_watermark == raft.advertised_high_watermark == 11
    raft.step(1620, Propose("x", 4))
    assert raft.high_watermark == 11
    raft.step(1630, RequestReceived("c", Fetch(SECOND, 6, 15, 6)))
    assert raft.high_watermark == 11, "not synced on this node"
    assert raft.step(1640, LogFlushed(15)).committed == 15
    raft.step(1650, RequestReceived("d", Fetch(SECOND, 6, 11, 6)))
    assert raft.high_watermark == 15, "the high watermark never decreases"


@pytest.mark.behaviour("R-219")
def test_high_watermark_ignores_replicas_that_are_not_voters() -> None:
    raft = leader_with_log()
    for key in (KEYS[5], ReplicaKey(2, bytes([9] * 16)), ReplicaKey(2), ReplicaKey(-1)):
        raft.step(1600, RequestReceived("a", Fetch(key, 6, 11, 6)))
    assert raft.high_watermark == -1
    raft.step(1600, RequestReceived("a", Fetch(SECOND, 6, 11, 6)))
    assert raft.high_watermark == 11


@pytest.mark.behaviour("R-201")
def test_voter_without_directory_id_matches_any_directory() -> None:
    """kraft.version 0: voters are identified by their ids alone."""
    raft = leader_with_log()
    raft.voters = VoterSetHistory(map(ReplicaKey, (1, 2, 3)))
    raft.step(1600, RequestReceived("a", Fetch(SECOND, 6, 11, 6)))
    raft.step(1600, LogFlushed(11))
    assert raft.high_watermark == 11


def test_fetch_with_leader_id_returns_unknown_server_error() -> None:
    raft = leader_with_log()
    for key in (FIRST, ReplicaKey(1, bytes([9] * 16))):
        (reply,) = raft.step(1600, RequestReceived("a", Fetch(key, 6, 4, 3))).replies
        assert (reply.response.error, reply.response.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    raft.step(1600, RequestReceived("a", Fetch(SECOND, 6, 11, 6)))
    assert raft.high_watermark == 11, "this node's own offset counts"


@pytest.mark.behaviour("R-220")
def test_fetch_waits_for_records_high_watermark_or_timeout() -> None:
    raft = leader_with_log()
    raft.step(1600, RequestReceived("x", Fetch(SECOND, 6, 11, 6)))
    waiting = Fetch(SECOND, 6, 11, 6, high_watermark=11, max_wait_ms=500)
    assert not raft.step(1610, RequestReceived("a", waiting)).replies
    assert raft.deadline_ms <= 2110
    (reply,) = raft.step(1620, Propose("x", 1)).replies
    assert (reply.pending_request, reply.response.offset, reply.response.high_watermark) == ("a", 11, 11)
    raft.step(1625, LogFlushed(12))
    assert not raft.step(1630, RequestReceived("b", waiting._replace(offset=12, high_watermark=12))).replies
    raft = leader_with_log()
    raft.step(1600, RequestReceived("x", Fetch(SECOND, 6, 11, 6)))
    raft.step(1610, RequestReceived("a", waiting))
    assert not raft.step(2109, Tick()).replies
    (reply,) = raft.step(2110, Tick()).replies
    assert (reply.pending_request, reply.response.offset) == ("a", 11)
    raft.step(2120, RequestReceived("c", waiting))
    (reply,) = raft.step(2130, Resign()).replies
    assert (reply.pending_request, reply.response.error) == ("c", ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.behaviour("R-220")
@pytest.mark.parametrize(
    "fetch",
    [
        Fetch(SECOND, 6, 10, 3, 11, 500),  # records are available
        Fetch(SECOND, 6, 11, 6, 10, 500),  # an older high watermark
        Fetch(SECOND, 6, 11, 6, 11, 0),  # no wait time
        Fetch(SECOND, 6, 12, 6, 11, 500),  # diverging
    ],
)
def test_fetch_with_available_data_is_answered_at_once(fetch: Fetch) -> None:
    raft = leader_with_log()
    raft.step(1600, RequestReceived("x", Fetch(THIRD, 6, 11, 6)))
    assert raft.high_watermark == 11
    assert len(raft.step(1610, RequestReceived("a", fetch)).replies) == 1


def test_delayed_fetch_is_answered_once_on_leader_change() -> None:
    raft = leader_with_log()
    raft.step(1600, RequestReceived("f", Fetch(SECOND, 6, 11, 6, 11, 500)))
    raft.step(1601, RequestReceived("g", Fetch(THIRD, 6, 11, 6, 11, 500)))
    replies = raft.step(1650, RequestReceived("b", BeginEpoch(2, 7))).replies
    errors = [(r.pending_request, r.response.error) for r in replies if r.pending_request != "b"]
    assert errors == [(pending, ErrorCode.NOT_LEADER_OR_FOLLOWER) for pending in "fg"]
    assert not raft.delayed_fetches
    for now in (2200, 4000, 6000):
        assert not raft.step(now, Tick()).replies


@pytest.mark.behaviour("R-228", "P-60")
def test_leader_without_majority_of_fetches_resigns() -> None:
    raft = leader_with_log(count=5)
    deadline = raft.state.deadline_ms
    assert deadline == 1502 + 3000
    raft.step(2000, RequestReceived("a", Fetch(SECOND, 6, 10, 3)))
    raft.step(2001, RequestReceived("a", Fetch(SECOND, 6, 10, 3)))
    raft.step(2001, RequestReceived("a", Fetch(ReplicaKey(3, bytes([9] * 16)), 6, 10, 3)))
    raft.step(2002, RequestReceived("a", Fetch(THIRD, 6, 12, 5)))
    assert raft.state.deadline_ms == deadline, "valid fetches of two other voters are required"
    raft.step(2500, RequestReceived("b", Fetch(THIRD, 6, 10, 3)))
    assert raft.state.deadline_ms == 5500
    raft.step(5499, Tick())
    assert raft.is_leader
    raft.step(5500, Tick())
    assert isinstance(raft.state, ResignedState)


def test_leader_repeats_begin_quorum_epoch_until_fetched() -> None:
    raft = candidate()
    ready = raft.step(1502, ResponseReceived(2, Vote(FIRST, 6, 0, 0), RaftResponse(OK, 6, -1, vote_granted=True)))
    assert [(s.peer, s.request) for s in ready.sends] == [(2, BeginEpoch(1, 6, SECOND)), (3, BeginEpoch(1, 6, THIRD))]
    raft.step(1510, ResponseReceived(2, BeginEpoch(1, 6), RaftResponse(OK, 6, 1)))
    raft.step(1510, ResponseReceived(3, BeginEpoch(1, 6), RaftResponse(OK, 6, 1)))
    raft.step(2400, RequestReceived("a", Fetch(SECOND, 6, 0, 0)))
    assert [s.peer for s in raft.step(2510, Tick()).sends] == [3]
    raft.step(2520, RequestFailed(3, BeginEpoch(1, 6)))
    assert 3 not in [s.peer for s in raft.step(3519, Tick()).sends], "fetching voters need no request"
    assert [s.peer for s in raft.step(3520, Tick()).sends] == [3]


@pytest.mark.behaviour("R-243")
def test_first_leader_appends_kraft_version_and_voters_records() -> None:
    raft = RaftStateMachine(
        FIRST,
        VoterSetHistory([FIRST]),
        HardState(0),
        LogSummary(),
        lambda: 0.5,
        first_records=(KRaftVersionRecord(0, 1), voters_record(1)),
    )
    (append,) = raft.step(0, RaftStarted()).appends
    assert (append.records_count, append.controls[1:]) == (3, (KRaftVersionRecord(0, 1), voters_record(1)))
    assert raft.log_summary.end_offset == 3
    assert raft.first_records == ()
    assert (raft.voters.offset, raft.voters.record, raft.voters.kraft_version) == (2, voters_record(1), 1)


def test_leader_steps_down_on_higher_epoch() -> None:
    for request in (BeginEpoch(2, 7), Vote(SECOND, 7, 3, 10)):
        raft = leader_with_log()
        response_to(raft, request)
        assert not raft.is_leader
        assert raft.epoch == 7
    raft = leader_with_log()
    raft.step(1600, ResponseReceived(2, BeginEpoch(1, 6), RaftResponse(FENCED, 9, 3)))
    assert (raft.epoch, raft.leader_id) == (9, 3)
