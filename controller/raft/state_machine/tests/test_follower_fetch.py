"""Fetches of a Raft follower (R-222 to R-226, R-235)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    EpochElection,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
)
from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    Fetch,
    FetchedRaftBatch,
    HardState,
    LogFlushed,
    PeerConnectionRefused,
    RaftEvent,
    RaftFetchResponse,
    RaftResponse,
    RaftStarted,
    Ready,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotChunkReceived,
    SnapshotLoaded,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import FENCED, FIRST, KEYS, OK, SECOND, THIRD, leader_with_log, unattached
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import VotersRecord, VotersRecordVoter

# ------------------------------------------------------------------ following


def fetching(**more: Any) -> tuple[RaftStateMachine, Fetch]:
    raft = unattached(**more)
    ready = raft.step(0, RequestReceived("t", BeginEpoch(2, 5)))
    (send,) = ready.sends
    assert send.peer == 2
    assert isinstance(send.request, Fetch)
    return raft, send.request


def fetched(
    raft: RaftStateMachine, fetch: Fetch, *batches: FetchedRaftBatch, now_ms: float = 100, **values: Any
) -> Ready:
    response = RaftFetchResponse(OK, 5, 2, offset=fetch.offset)._replace(**values)
    return raft.step(now_ms, ResponseReceived(2, fetch, response, batches))


def pending_fetch(raft: RaftStateMachine) -> Fetch:
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


@pytest.mark.behaviour("R-222")
def test_follower_fetch_contains_log_end_and_last_epoch() -> None:
    _, fetch = fetching(end=10, epoch=3)
    assert fetch == Fetch(FIRST, 5, 10, 3, -1, 500)
    _, fetch = fetching()
    assert (fetch.offset, fetch.last_epoch) == (0, 0)


@pytest.mark.behaviour("R-225")
def test_follower_syncs_fetched_records_before_next_fetch() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    ready = fetched(raft, fetch, FetchedRaftBatch(10, 12, 4, "raw"), high_watermark=11)
    assert [(a.first_offset, a.records_count, a.epoch, a.batch, a.verbatim) for a in ready.appends] == [
        (10, 3, 4, "raw", True)
    ]
    assert ready.committed == 11
    assert not ready.sends
    assert raft.deadline_ms == 2100
    ready = raft.step(150, LogFlushed(13))
    assert [s.request for s in ready.sends] == [Fetch(FIRST, 5, 13, 4, 11, 500)]
    assert not raft.step(160, Tick()).sends, "one fetch at a time"


@pytest.mark.behaviour("R-224")
def test_follower_ignores_batches_that_do_not_continue_its_log() -> None:
    for wrong in (
        FetchedRaftBatch(14, 15, 4, "x"),
        FetchedRaftBatch(12, 13, 4, "x"),
        FetchedRaftBatch(13, 13, 2, "x"),
        FetchedRaftBatch(13, 13, 6, "x"),
    ):
        raft, fetch = fetching(end=10, epoch=3)
        ready = fetched(raft, fetch, FetchedRaftBatch(10, 12, 4, "raw"), wrong, FetchedRaftBatch(13, 13, 4, "y"))
        assert [a.batch for a in ready.appends] == ["raw"]
        assert raft.log_summary.end_offset == 13


@pytest.mark.behaviour("R-226")
def test_follower_high_watermark_is_limited_by_its_log_end() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    assert fetched(raft, fetch, high_watermark=50).committed == 10
    assert pending_fetch(raft) == Fetch(FIRST, 5, 10, 3, 10, 500)
    assert fetched(raft, pending_fetch(raft), high_watermark=4).committed is None
    assert raft.high_watermark == 10


@pytest.mark.behaviour("R-224")
@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        ((3, 7), 7),
        ((3, 20), 10),
        ((4, 15), 15),
        ((4, 40), 20),
        ((0, 4), 4),
        ((2, 4), 0),  # the own log has no record of that epoch or an older one
    ],
)
def test_follower_truncates_diverging_log(diverging: tuple[int, int], end: int) -> None:
    raft = RaftStateMachine(
        FIRST, VoterSetHistory([FIRST, SECOND, THIRD]), HardState(5), LogSummary(20, [(3, 0), (4, 10)]), lambda: 0.5
    )
    raft.step(0, RaftStarted())
    (send,) = raft.step(0, RequestReceived("t", BeginEpoch(2, 5))).sends
    assert isinstance(send.request, Fetch)
    ready = fetched(raft, send.request, offset=-1, diverging=diverging)
    assert raft.log_summary.end_offset == end
    assert ready.truncate == (end if end < 20 else None)
    assert [s.request.offset for s in ready.sends if isinstance(s.request, Fetch)] == [end]


@pytest.mark.behaviour("R-224")
def test_follower_without_diverging_epoch_truncates_in_two_steps() -> None:
    # Records 22 to 24 are one batch of epoch 2: no log ends within it (simulator seed 3019).
    raft = RaftStateMachine(
        FIRST, VoterSetHistory([FIRST, SECOND, THIRD]), HardState(5), LogSummary(26, [(2, 0), (4, 25)]), lambda: 0.5
    )
    raft.step(0, RaftStarted())
    (send,) = raft.step(0, RequestReceived("t", BeginEpoch(2, 5))).sends
    assert isinstance(send.request, Fetch)
    assert fetched(raft, send.request, offset=-1, diverging=(3, 23)).truncate == 25
    assert (pending_fetch(raft).offset, pending_fetch(raft).last_epoch) == (25, 2)
    assert fetched(raft, pending_fetch(raft), offset=-1, diverging=(2, 22)).truncate == 22


@pytest.mark.behaviour("R-225")
def test_follower_truncation_lowers_flushed_offset() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, offset=-1, diverging=(3, 7))
    assert (raft.flushed_offset, pending_fetch(raft).offset) == (7, 7)
    ready = fetched(raft, pending_fetch(raft), FetchedRaftBatch(7, 8, 4, "new"))
    assert not ready.sends, "rewritten records need a sync as well"
    assert [s.request.offset for s in raft.step(200, LogFlushed(9)).sends if isinstance(s.request, Fetch)] == [9]


@pytest.mark.behaviour("R-201")
def test_follower_voters_follow_voters_records_and_truncation() -> None:
    four = VotersRecord(0, [VotersRecordVoter(n, bytes([n] * 16)) for n in (1, 2, 3, 4)])
    raft, fetch = fetching(end=10, epoch=3)
    before = raft.voters.current
    fetched(raft, fetch, FetchedRaftBatch(10, 10, 4, "raw", four))
    assert [(v.id, v.directory_id) for v in raft.voters.current] == [(n, bytes([n] * 16)) for n in (1, 2, 3, 4)]
    assert raft.voters.majority_size == 3
    raft.step(150, LogFlushed(11))
    fetched(raft, pending_fetch(raft), offset=-1, diverging=(3, 11))
    assert raft.log_summary.end_offset == 10
    assert raft.voters.current == before
    history = VoterSetHistory([FIRST])
    history.add(5, [FIRST, SECOND])
    history.truncate(6)
    assert history.current == (FIRST, SECOND)
    history.truncate(5)
    assert history.current == (FIRST,)


@pytest.mark.behaviour("R-235")
def test_follower_voters_are_those_of_loaded_snapshot() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, offset=-1, snapshot=(90, 4))
    two = VotersRecord(0, [VotersRecordVoter(n, bytes([n] * 16)) for n in (1, 2)])
    raft.step(300, SnapshotLoaded(90, 4, two))
    assert raft.voters.current == (FIRST, SECOND)


@pytest.mark.behaviour("R-224")
def test_follower_divergence_below_high_watermark_is_protocol_violation() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, high_watermark=10)
    ready = fetched(raft, pending_fetch(raft), offset=-1, diverging=(3, 7))
    assert ready.protocol_violation is not None
    assert "below high watermark 10" in ready.protocol_violation
    assert (ready.truncate, ready.sends, raft.log_summary.end_offset) == (None, [], 10)


def test_follower_ignores_delayed_fetch_response() -> None:
    """A repeated or delayed response to an earlier fetch must not truncate records acknowledged since."""
    raft = RaftStateMachine(
        FIRST, VoterSetHistory([FIRST, SECOND, THIRD]), HardState(5), LogSummary(20, [(3, 0), (4, 10)]), lambda: 0.5
    )
    raft.step(0, RaftStarted())
    (send,) = raft.step(0, RequestReceived("t", BeginEpoch(2, 5))).sends
    late = send.request
    assert isinstance(late, Fetch)
    raft.step(2_000, Tick())
    assert isinstance(raft.state, ProspectiveState)
    for peer in (2, 3):
        vote = Vote(FIRST, 5, 4, 20, pre_vote=True)
        raft.step(2_001, ResponseReceived(peer, vote, RaftResponse(OK, 5, 2)))
    assert raft.leader_id == 2, "same leader and epoch again"
    fetched(raft, pending_fetch(raft), offset=-1, diverging=(3, 10), now_ms=2_100)
    fetched(raft, pending_fetch(raft), FetchedRaftBatch(10, 15, 5, "new"), now_ms=2_200)
    raft.step(2_300, LogFlushed(16))
    assert pending_fetch(raft).offset == 16, "the leader uses this offset"
    for values in ({"offset": -1, "diverging": (3, 10)}, {"offset": -1, "snapshot": (90, 4)}, {"error": FENCED}):
        ready = fetched(raft, late, now_ms=2_400, **values)
        assert (ready.truncate, ready.load_snapshot, ready.sends) == (None, None, [])
    assert raft.log_summary.end_offset == 16
    assert not raft.step(2_500, RequestFailed(2, late)).sends
    assert pending_fetch(raft).offset == 16


def test_follower_loading_snapshot_sends_no_fetch_and_ignores_late_response() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, offset=-1, snapshot=(90, 4))
    ready = fetched(raft, fetch, FetchedRaftBatch(10, 12, 4, "raw"))
    assert not ready.appends
    assert not ready.sends
    assert raft.deadline_ms == 2_100
    raft.step(1_900, SnapshotChunkReceived())
    assert raft.deadline_ms == 3_900, "each part resets the fetch timeout"
    assert not raft.step(3_000, Tick()).sends


def test_follower_ignores_snapshot_requested_in_earlier_epoch() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, offset=-1, snapshot=(90, 4))
    raft.step(200, RequestReceived("t", BeginEpoch(3, 6)))
    deadline = raft.deadline_ms
    for event in (SnapshotChunkReceived(), SnapshotLoaded(90, 4)):
        assert raft.step(300, event).truncate_to_snapshot is None
    assert (raft.log_summary.end_offset, raft.log_summary.last_epoch, raft.deadline_ms) == (10, 3, deadline)
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, offset=-1, snapshot=(90, 4))
    assert raft.step(300, SnapshotLoaded(80, 4)).truncate_to_snapshot is None, "snapshot of an earlier epoch"
    assert raft.step(300, SnapshotLoaded(90, 4)).truncate_to_snapshot == (90, 4)


@pytest.mark.behaviour("R-235")
def test_follower_snapshot_replaces_log() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    ready = fetched(raft, fetch, offset=-1, snapshot=(90, 4))
    assert ready.load_snapshot == (90, 4)
    assert not ready.sends
    assert not raft.step(200, Tick()).sends
    ready = raft.step(300, SnapshotLoaded(90, 4))
    assert ready.truncate_to_snapshot == (90, 4)
    assert (
        raft.log_summary.start_offset,
        raft.log_summary.end_offset,
        raft.log_summary.last_epoch,
        raft.high_watermark,
    ) == (90, 90, 4, 90)
    assert [s.request for s in ready.sends] == [Fetch(FIRST, 5, 90, 4, 90, 500)]


def test_follower_failed_fetch_is_retried_after_backoff() -> None:
    for response in (RequestFailed, None):
        raft, fetch = fetching()
        event: RaftEvent = RequestFailed(2, fetch)
        if response is None:
            event = ResponseReceived(2, fetch, RaftFetchResponse(ErrorCode.UNKNOWN_SERVER_ERROR, 5, 2))
        assert not raft.step(100, event).sends
        assert raft.deadline_ms == 120
        assert len(raft.step(120, Tick()).sends) == 1


@pytest.mark.behaviour("R-209")
def test_follower_fetch_response_with_newer_leader_is_followed() -> None:
    for error in (FENCED, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        raft, fetch = fetching()
        raft.step(100, ResponseReceived(2, fetch, RaftFetchResponse(error, 8, 3)))
        assert (raft.epoch, raft.leader_id) == (8, 3)
    raft, fetch = fetching()
    raft.step(100, ResponseReceived(2, fetch, RaftFetchResponse(FENCED, 8, -1)))
    assert (raft.epoch, raft.leader_id) == (8, -1)
    raft, fetch = fetching()
    raft.step(100, ResponseReceived(2, fetch, RaftFetchResponse(ErrorCode.UNKNOWN_LEADER_EPOCH, 4, -1)))
    assert (raft.epoch, raft.leader_id) == (5, 2)


def test_follower_connection_refused_by_leader_starts_election_at_once() -> None:
    raft, fetch = fetching()
    fetched(raft, fetch, high_watermark=0)
    raft.step(200, PeerConnectionRefused(3))
    assert raft.deadline_ms == 2_100, "follows another leader"
    ready = raft.step(200, PeerConnectionRefused(2))
    assert isinstance(raft.state, ProspectiveState)
    assert {type(s.request) for s in ready.sends} == {Vote}
    raft = leader_with_log()
    raft.step(1_600, PeerConnectionRefused(1))
    assert raft.is_leader
    raft = RaftStateMachine(
        KEYS[4], VoterSetHistory([FIRST, SECOND, THIRD]), HardState(5, 2), LogSummary(), lambda: 0.5
    )
    raft.step(0, RaftStarted())
    raft.step(100, PeerConnectionRefused(2))
    assert isinstance(raft.state, RaftFollowerState), "not a voter"


@pytest.mark.parametrize(
    ("number", "count", "leader", "wait"),
    [(1, 3, 2, 0), (3, 3, 2, 75), (1, 5, 2, 0), (3, 5, 2, 37.5), (4, 5, 2, 75), (5, 5, 2, 112.5), (2, 2, 1, 0)],
)
@pytest.mark.parametrize("gone", [True, False])
def test_followers_without_leader_start_elections_one_after_the_other(
    number: int, count: int, leader: int, wait: float, gone: bool
) -> None:
    """Simultaneous candidates would split the votes; waiting followers grant their pre-vote."""
    voters = VoterSetHistory(KEYS[n] for n in range(1, count + 1))
    raft = RaftStateMachine(KEYS[number], voters, HardState(5, leader), LogSummary(), lambda: 0.5)
    raft.step(0, RaftStarted())
    assert raft.requests.pending_fetch is not None
    raft.step(10, ResponseReceived(leader, raft.requests.pending_fetch, RaftFetchResponse(OK, 5, leader, offset=0)))
    other = next(k for k in voters.current if k.id not in (number, leader)) if count > 2 else KEYS[leader]
    pre_vote = RequestReceived("t", Vote(other, 5, 0, 0, pre_vote=True))
    assert [r.response.vote_granted for r in raft.step(1_000, pre_vote).replies] == [False]  # type: ignore[union-attr]
    raft.step(*((1_000, PeerConnectionRefused(leader)) if gone else (2_010, Tick())))  # type: ignore[arg-type]
    at = 1_000 if gone else 2_010
    assert [r.response.vote_granted for r in raft.step(at, pre_vote).replies] == [True]  # type: ignore[union-attr]
    if wait:
        assert raft.state.deadline_ms == at + wait
        raft.step(at + wait - 1, PeerConnectionRefused(leader))
        assert isinstance(raft.state, RaftFollowerState)
        raft.step(at + wait, Tick())
    assert isinstance(raft.state, ProspectiveState)


def test_follower_election_delay_is_reset_by_leader_response() -> None:
    raft = RaftStateMachine(THIRD, VoterSetHistory([FIRST, SECOND, THIRD]), HardState(5, 2), LogSummary(), lambda: 0.5)
    raft.step(0, RaftStarted())
    raft.step(100, PeerConnectionRefused(2))
    assert raft.state.deadline_ms == 175
    assert raft.requests.pending_fetch is not None
    raft.step(150, ResponseReceived(2, raft.requests.pending_fetch, RaftFetchResponse(OK, 5, 2, offset=0)))
    assert raft.state == RaftFollowerState(2, 2_150, has_fetched_from_leader=True, voter_request_due_ms=2_000)
    raft.step(2_150, Tick())
    assert raft.state.deadline_ms == 2_225, "new random timeout"


def test_epoch_election_counts_votes() -> None:
    election = EpochElection({1: True, 2: False, 3: False})
    assert not election.is_vote_granted(2)
    assert election.is_vote_granted(1)
    assert election.is_vote_rejected(3, 2)
    assert not election.is_vote_rejected(5, 3)
    assert isinstance(leader_with_log().state, RaftLeaderState)
