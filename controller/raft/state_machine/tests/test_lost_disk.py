"""Voter of a static quorum with an empty disk: it may have voted before, so it votes only in a new quorum.

``RAFT_SEEDS=1000`` runs that many quorums of voters that lose their disks.
"""

from __future__ import annotations

import os

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    Fetch,
    FetchedRaftBatch,
    HardState,
    LogFlushed,
    RaftFetchResponse,
    RaftRequest,
    RaftResponse,
    RaftStarted,
    Ready,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
    Vote,
    VoterState,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.controller.raft.tests.raft_fixture import FIRST, OK, SECOND, THIRD, candidate, response_to
from ottla.controller.raft.tests.simulated_quorum import SimulatedQuorum
from ottla.wire.errors import ErrorCode

SEEDS = int(os.environ.get("RAFT_SEEDS", "15"))
WHOLE, NEW, WIPED = VoterState.NORMAL, VoterState.EMPTY_LOG, VoterState.RECOVERING
NO_REPLICA = ReplicaKey(-1)


def voter(age: VoterState, hard: HardState = HardState(0), end: int = 0, count: int = 3) -> RaftStateMachine:  # noqa: B008
    """Return replica 1 of static voters, started."""
    chain = LogSummary(end, [(hard.epoch, 0)] if end else [])
    voters = VoterSetHistory(ReplicaKey(i) for i in range(1, count + 1))
    peers = tuple(range(2, count + 1))
    raft = RaftStateMachine(FIRST, voters, hard._replace(voter_state=age), chain, lambda: 0.5, bootstrap=peers)
    raft.step(0, RaftStarted())
    return raft


def requests_by_peer(ready: Ready) -> dict[int, type[RaftRequest]]:
    return {s.peer: type(s.request) for s in ready.sends}


# ------------------------------------------------------------------ votes


@pytest.mark.parametrize(
    ("age", "vote", "granted", "then"),
    [
        (WHOLE, Vote(SECOND, 1, 0, 0), True, WHOLE),
        (WHOLE, Vote(SECOND, 2, 1, 5), True, WHOLE),
        (NEW, Vote(SECOND, 0, 0, 0, pre_vote=True), True, NEW),
        (NEW, Vote(SECOND, 1, 0, 0), True, WHOLE),  # after its first vote it is an ordinary voter
        (NEW, Vote(SECOND, 2, 1, 5, pre_vote=True), False, WIPED),
        (NEW, Vote(SECOND, 2, 1, 5), False, WIPED),
        (NEW, Vote(SECOND, 2, 0, 5), False, WIPED),
        (WIPED, Vote(SECOND, 0, 0, 0, pre_vote=True), False, WIPED),
        (WIPED, Vote(SECOND, 1, 0, 0), False, WIPED),
        (WIPED, Vote(SECOND, 2, 1, 5), False, WIPED),
    ],
)
def test_voter_with_empty_disk_votes_only_for_empty_logs_before_it_knows_a_quorum(
    age: VoterState, vote: Vote, granted: bool, then: VoterState
) -> None:
    raft = voter(age)
    given = response_to(raft, vote)
    assert (given.error, given.vote_granted) == (OK, granted)
    assert raft.hard_state.voter_state == then
    assert raft.hard_state.voted_key == (SECOND if granted and not vote.pre_vote else None)


def test_voter_state_is_persisted_before_vote_response() -> None:
    ready = voter(NEW).step(1, RequestReceived("t", Vote(SECOND, 0, 0, 5, pre_vote=True)))
    assert ready.hard_state == HardState(0, voter_state=WIPED)
    ready = voter(NEW).step(1, RequestReceived("t", Vote(SECOND, 1, 0, 0)))
    assert ready.hard_state == HardState(1, -1, SECOND, WHOLE)


# ------------------------------------------------------------------ candidacy


def test_recovering_voter_starts_no_election_and_queries_all_voters() -> None:
    raft = voter(WIPED)
    assert isinstance(raft.state, UnattachedState)
    for at in (150, 3_000, 20_000):
        raft.step(at, Tick())
        assert isinstance(raft.state, UnattachedState)
    raft = voter(WIPED)
    assert raft.requests.next_request_ms.keys() == {2, 3}
    raft.step(10, ResponseReceived(2, Vote(FIRST, 0, 0, 0, True), RaftResponse(OK, 4, -1)))
    assert (raft.epoch, raft.responded_voters) == (4, {2})


def prospective_voter(age: VoterState = NEW, count: int = 3) -> tuple[RaftStateMachine, Vote]:
    raft = voter(age, count=count)
    raft.step(150, Tick())
    assert isinstance(raft.state, ProspectiveState)
    return raft, Vote(FIRST, 0, 0, 0, True)


def test_voter_with_empty_log_waits_for_all_reachable_voters() -> None:
    raft, pre = prospective_voter()
    raft.step(160, ResponseReceived(2, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    assert isinstance(raft.state, ProspectiveState), "no response of the third voter"
    raft.step(161, ResponseReceived(3, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)
    assert raft.hard_state == HardState(1, -1, FIRST, NEW)
    raft.step(170, ResponseReceived(2, Vote(FIRST, 1, 0, 0), RaftResponse(OK, 1, -1, vote_granted=True)))
    assert raft.is_leader
    assert raft.hard_state == HardState(1, 1)


def test_voter_with_empty_log_skips_unreachable_and_slow_voters() -> None:
    for order in ((2, 3), (3, 2)):
        raft, pre = prospective_voter()
        for peer in order:
            granted = ResponseReceived(2, pre, RaftResponse(OK, 0, -1, vote_granted=True))
            raft.step(160, granted if peer == 2 else RequestFailed(3, pre))
        assert isinstance(raft.state, CandidateState)
    raft, pre = prospective_voter()
    raft.step(160, ResponseReceived(2, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    raft.step(3_000, Tick())
    assert isinstance(raft.state, CandidateState)


def test_rejected_pre_vote_starts_recovery_of_voter_with_empty_log() -> None:
    raft, pre = prospective_voter(count=5)
    ready = raft.step(160, ResponseReceived(2, pre, RaftResponse(OK, 0, -1)))
    assert isinstance(raft.state, UnattachedState)
    assert ready.hard_state == HardState(0, voter_state=WIPED)
    for peer in (3, 4, 5):
        raft.step(170, ResponseReceived(peer, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    assert isinstance(raft.state, UnattachedState), "late responses are ignored"


def test_vote_received_at_election_timeout_is_ignored() -> None:
    """The voter may have lost its disk since, and voted for another candidate."""
    raft = candidate()
    vote = Vote(FIRST, raft.epoch, 0, 0)
    raft.step(raft.state.deadline_ms, ResponseReceived(2, vote, RaftResponse(OK, raft.epoch, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)


# ------------------------------------------------------------------ learning


def follow_leader(raft: RaftStateMachine, at: float = 100) -> Fetch:
    """Follow replica 2 in epoch 7; return the pending fetch."""
    raft.step(at, RequestReceived("t", BeginEpoch(2, 7)))
    assert isinstance(raft.state, RaftFollowerState)
    assert raft.hard_state.voter_state == WIPED
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


def empty_response(raft: RaftStateMachine, high_watermark: int = 0) -> RaftFetchResponse:
    return RaftFetchResponse(OK, raft.epoch, 2, high_watermark=high_watermark)


def test_unelected_leader_starts_recovery_of_voter_with_empty_log_without_replica_id() -> None:
    raft = voter(NEW)
    fetch = follow_leader(raft)
    assert fetch.replica == NO_REPLICA
    raft.step(110, ResponseReceived(2, fetch, empty_response(raft)))
    assert raft.hard_state.voter_state == WIPED, "the leader's log end offset is unknown"


def test_recovering_voter_votes_again_after_all_responses_and_leader_log_end() -> None:
    raft = voter(WIPED)
    raft.step(10, ResponseReceived(3, Vote(FIRST, 0, 0, 0, True), RaftResponse(ErrorCode.FENCED_LEADER_EPOCH, 7, -1)))
    fetch = follow_leader(raft)
    assert fetch.replica == NO_REPLICA, "no response of the leader"
    raft.step(
        110, ResponseReceived(2, fetch, empty_response(raft)._replace(offset=0), (FetchedRaftBatch(0, 4, 7, b""),))
    )
    fetch = raft.requests.pending_fetch or next_fetch(raft)
    assert fetch.replica == FIRST
    raft.step(
        120, ResponseReceived(2, fetch, empty_response(raft)._replace(offset=5), (FetchedRaftBatch(5, 6, 7, b""),))
    )
    assert raft.hard_state.voter_state == WIPED, "records before the leader's log end are missing"
    fetch = raft.requests.pending_fetch or next_fetch(raft)
    raft.step(130, ResponseReceived(2, fetch, empty_response(raft)._replace(offset=7)))
    assert raft.hard_state.voter_state == WIPED, "damaged records"
    fetch = raft.requests.pending_fetch or next_fetch(raft)
    ready = raft.step(140, ResponseReceived(2, fetch, empty_response(raft)))
    assert ready.hard_state == HardState(7, 2)
    assert response_to(raft, Vote(THIRD, 8, 7, 7)).vote_granted


def next_fetch(raft: RaftStateMachine) -> Fetch:
    """Return the fetch that is sent once the records are flushed."""
    raft.step(115, LogFlushed(raft.log_summary.end_offset))
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


def test_recovering_voter_without_all_responses_fetches_anonymously_until_timeout() -> None:
    raft = voter(NEW)
    fetch = follow_leader(raft)
    at, sent = 100.0, [(100.0, fetch.replica)]
    while raft.hard_state.voter_state == WIPED and at < 12_000:
        at += 400
        raft.step(at, ResponseReceived(2, fetch, empty_response(raft)))
        assert raft.requests.pending_fetch is not None
        fetch = raft.requests.pending_fetch
        sent.append((at, fetch.replica))
    first = next(t for t, replica in sent if replica == FIRST)
    assert 2 * (1000 + 3000) * 1.1 <= first < 2 * (1000 + 3000) * 1.1 + 400
    assert at == first + 400, "the next response is at the leader's log end"


def test_query_is_repeated_only_to_voters_without_response() -> None:
    raft = voter(NEW)
    follow_leader(raft)
    assert raft.requests.next_request_ms[3] == float("inf")
    vote = Vote(FIRST, 7, 0, 0, True, ReplicaKey(3))
    ready = raft.step(200, RequestFailed(3, vote))
    assert 3 not in requests_by_peer(ready)
    assert requests_by_peer(raft.step(230, Tick()))[3] is Vote
    raft.step(240, ResponseReceived(3, vote, RaftResponse(OK, 7, 2)))
    assert requests_by_peer(raft.step(300, Tick())).get(3) is not Vote


def test_recovering_voter_without_leader_logs_once() -> None:
    raft = voter(WIPED)
    messages = [raft.step(at, Tick()).log_message for at in range(0, 60_000, 500)]
    (message,) = [x for x in messages if x is not None]
    assert "ottla cluster recover" in message[1]
    assert messages.index(message) == 20
    raft = voter(NEW)
    assert not [x for x in (raft.step(at, Tick()).log_message for at in range(0, 60_000, 500)) if x is not None]


def test_voter_that_starts_recovery_late_logs_after_full_timeout() -> None:
    raft = voter(NEW)
    for at in range(0, 20_000, 500):
        raft.step(at, Tick())
    ready = raft.step(20_000, RequestReceived("t", Vote(SECOND, raft.epoch, 0, 5, pre_vote=True)))
    assert ready.log_message is not None
    assert raft.hard_state.voter_state == WIPED
    messages = {at: raft.step(at, Tick()).log_message for at in range(20_000, 60_000, 500)}
    (logged_ms,) = [at for at, message in messages.items() if message is not None]
    assert 30_000 <= logged_ms < 33_000


# ------------------------------------------------------------------ quorums of voters that lose their disks


def check_recovery(quorum: SimulatedQuorum) -> None:
    """Remove the faults; check progress, and that every voter votes again."""
    quorum.remove_faults()
    committed = len(quorum.invariants.committed)
    quorum.run_until(lambda: len(quorum.leaders()) == 1 and quorum.reached(committed + 20))
    quorum.run_until(lambda: all(h.hard_state.voter_state == WHOLE for h in quorum.hosts.values()))


def may_lose_its_disk(quorum: SimulatedQuorum, number: int) -> bool:
    """Return True if a majority remembers all and cannot mistake the quorum for a new one."""
    others = [h for h in quorum.hosts.values() if h.key.id != number]
    whole = [h for h in others if h.hard_state.voter_state == WHOLE]
    return len(whole) > len(quorum.hosts) // 2 and all(min(h.flushed_offset, h.log.end_offset) > 0 for h in whole)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_invariants_hold_when_voters_lose_their_disks(seed: int) -> None:
    quorum = SimulatedQuorum(seed, 3 + 2 * (seed % 2), repeats=0.1, torn=0.005, fixed=True)
    quorum.invariants.checks_majority = False
    quorum.start_all()
    lost = 0
    for _ in range(30):
        quorum.run(quorum.now_ms + quorum.random.random() * 1_500, fault_probability=0.02)
        number = quorum.random.choice(list(quorum.hosts))
        if may_lose_its_disk(quorum, number) and quorum.random.random() < 0.7:
            quorum.wipe(number)
            lost += 1
            if quorum.random.random() < 0.8:
                quorum.start(number)
    assert lost > 0
    check_recovery(quorum)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_new_quorum_elects_leader_despite_crashes(count: int) -> None:
    for seed in range(4):
        quorum = SimulatedQuorum(seed, count, fixed=True)
        for number in quorum.random.sample(list(quorum.hosts), count):
            if quorum.hosts[number].machine is None:
                quorum.start(number)
            quorum.run(quorum.now_ms + quorum.random.random() * 400, fault_probability=0.05)
            if quorum.random.random() < 0.5:
                victim = quorum.random.choice(list(quorum.hosts))
                quorum.crash(victim)
        check_recovery(quorum)


def test_majority_of_lost_disks_elects_no_leader() -> None:
    for seed in range(5):
        quorum = SimulatedQuorum(seed, 3, loss=0, fixed=True)
        quorum.start_all()
        quorum.run_until(lambda: len(quorum.invariants.committed) > 5 and quorum.reached(5))  # noqa: B023
        for number in (1, 2, 3):
            quorum.crash(number)
        for number in (2, 3):
            quorum.wipe(number)
        for number in quorum.random.sample([1, 2, 3], 3):
            quorum.start(number)
        leaders = dict(quorum.invariants.leaders)
        quorum.run(quorum.now_ms + 5_000)
        assert quorum.invariants.leaders == leaders
        assert [h.hard_state.voter_state for h in quorum.hosts.values()] == [WHOLE, WIPED, WIPED]


def test_surviving_leader_restores_all_voters() -> None:
    for seed in range(5):
        quorum = SimulatedQuorum(seed, 3, loss=0, fixed=True)
        quorum.start_all()
        quorum.run_until(lambda: len(quorum.invariants.committed) > 20 and quorum.reached(20))  # noqa: B023
        quorum.invariants.checks_majority = False
        (leader,) = quorum.leaders()
        for number in {1, 2, 3} - {leader}:
            quorum.wipe(number)
            quorum.start(number)
        quorum.accepts_proposals = False
        quorum.run(quorum.now_ms + 2_000)
        assert quorum.leaders() == [leader]
        assert {h.hard_state.voter_state for h in quorum.hosts.values()} == {WHOLE}
        assert quorum.reached(20)
