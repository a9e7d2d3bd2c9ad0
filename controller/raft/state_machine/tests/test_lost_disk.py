"""A voter of a fixed set whose disk is empty: it may have voted before, and votes only where nobody ever did.

``RAFT_SEEDS=1000`` runs that many quorums whose voters lose their disks, instead of a few.
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
WHOLE, NEW, WIPED = VoterState.GROWN, VoterState.NEWBORN, VoterState.LEARNING
NOBODY = ReplicaKey(-1)


def voter(age: VoterState, hard: HardState = HardState(0), end: int = 0, count: int = 3) -> RaftStateMachine:  # noqa: B008
    """Replica 1 of several that the settings name, started."""
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
        (NEW, Vote(SECOND, 1, 0, 0), True, WHOLE),  # with its first vote it is like all others
        (NEW, Vote(SECOND, 2, 1, 5, pre_vote=True), False, WIPED),
        (NEW, Vote(SECOND, 2, 1, 5), False, WIPED),
        (NEW, Vote(SECOND, 2, 0, 5), False, WIPED),
        (WIPED, Vote(SECOND, 0, 0, 0, pre_vote=True), False, WIPED),
        (WIPED, Vote(SECOND, 1, 0, 0), False, WIPED),
        (WIPED, Vote(SECOND, 2, 1, 5), False, WIPED),
    ],
)
def test_an_empty_voter_votes_only_for_an_empty_log_and_never_once_it_knows_of_a_quorum(
    age: VoterState, vote: Vote, granted: bool, then: VoterState
) -> None:
    raft = voter(age)
    given = response_to(raft, vote)
    assert (given.error, given.vote_granted) == (OK, granted)
    assert raft.hard_state.voter_state == then
    assert raft.hard_state.voted_key == (SECOND if granted and not vote.pre_vote else None)


def test_what_it_learned_is_on_the_disk_before_it_is_answered() -> None:
    ready = voter(NEW).step(1, RequestReceived("t", Vote(SECOND, 0, 0, 5, pre_vote=True)))
    assert ready.hard_state == HardState(0, voter_state=WIPED)
    ready = voter(NEW).step(1, RequestReceived("t", Vote(SECOND, 1, 0, 0)))
    assert ready.hard_state == HardState(1, -1, SECOND, WHOLE)


# ------------------------------------------------------------------ standing


def test_who_knows_of_a_quorum_does_not_stand_and_asks_the_others_how_far_they_are() -> None:
    raft = voter(WIPED)
    assert isinstance(raft.state, UnattachedState)
    for at in (150, 3_000, 20_000):
        raft.step(at, Tick())
        assert isinstance(raft.state, UnattachedState)
    raft = voter(WIPED)
    assert raft.requests.next_request_ms.keys() == {2, 3}
    raft.step(10, ResponseReceived(2, Vote(FIRST, 0, 0, 0, True), RaftResponse(OK, 4, -1)))
    assert (raft.epoch, raft.responded_voters) == (4, {2})


def stands(age: VoterState = NEW, count: int = 3) -> tuple[RaftStateMachine, Vote]:
    raft = voter(age, count=count)
    raft.step(150, Tick())
    assert isinstance(raft.state, ProspectiveState)
    return raft, Vote(FIRST, 0, 0, 0, True)


def test_a_newborn_waits_for_what_everybody_says_that_can_be_asked() -> None:
    raft, pre = stands()
    raft.step(160, ResponseReceived(2, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    assert isinstance(raft.state, ProspectiveState), "the third may have a log"
    raft.step(161, ResponseReceived(3, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)
    assert raft.hard_state == HardState(1, -1, FIRST, NEW)
    raft.step(170, ResponseReceived(2, Vote(FIRST, 1, 0, 0), RaftResponse(OK, 1, -1, vote_granted=True)))
    assert raft.is_leader
    assert raft.hard_state == HardState(1, 1)


def test_who_cannot_be_asked_is_not_waited_for_and_who_is_silent_only_for_a_while() -> None:
    for order in ((2, 3), (3, 2)):
        raft, pre = stands()
        for peer in order:
            granted = ResponseReceived(2, pre, RaftResponse(OK, 0, -1, vote_granted=True))
            raft.step(160, granted if peer == 2 else RequestFailed(3, pre))
        assert isinstance(raft.state, CandidateState)
    raft, pre = stands()
    raft.step(160, ResponseReceived(2, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    raft.step(3_000, Tick())
    assert isinstance(raft.state, CandidateState)


def test_a_refusal_says_that_there_was_a_quorum() -> None:
    raft, pre = stands(count=5)
    ready = raft.step(160, ResponseReceived(2, pre, RaftResponse(OK, 0, -1)))
    assert isinstance(raft.state, UnattachedState)
    assert ready.hard_state == HardState(0, voter_state=WIPED)
    for peer in (3, 4, 5):
        raft.step(170, ResponseReceived(peer, pre, RaftResponse(OK, 0, -1, vote_granted=True)))
    assert isinstance(raft.state, UnattachedState), "what the others say comes too late"


def test_a_vote_that_comes_when_the_election_is_over_elects_nobody() -> None:
    """Who gave it may have lost its disk since, and voted for somebody else."""
    raft = candidate()
    vote = Vote(FIRST, raft.epoch, 0, 0)
    raft.step(raft.state.deadline_ms, ResponseReceived(2, vote, RaftResponse(OK, raft.epoch, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)


# ------------------------------------------------------------------ learning


def learns(raft: RaftStateMachine, at: float = 100) -> Fetch:
    """Follow 2 in epoch 7; gives the fetch that is under way."""
    raft.step(at, RequestReceived("t", BeginEpoch(2, 7)))
    assert isinstance(raft.state, RaftFollowerState)
    assert raft.hard_state.voter_state == WIPED
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


def nothing(raft: RaftStateMachine, high_watermark: int = 0) -> RaftFetchResponse:
    return RaftFetchResponse(OK, raft.epoch, 2, high_watermark=high_watermark)


def test_a_leader_that_it_did_not_elect_makes_it_learn_and_it_fetches_as_nobody() -> None:
    raft = voter(NEW)
    fetch = learns(raft)
    assert fetch.replica == NOBODY
    raft.step(110, ResponseReceived(2, fetch, nothing(raft)))
    assert raft.hard_state.voter_state == WIPED, "nobody was told that it has this"


def test_once_all_have_answered_and_the_leader_has_nothing_more_it_votes_again() -> None:
    raft = voter(WIPED)
    raft.step(10, ResponseReceived(3, Vote(FIRST, 0, 0, 0, True), RaftResponse(ErrorCode.FENCED_LEADER_EPOCH, 7, -1)))
    fetch = learns(raft)
    assert fetch.replica == NOBODY, "its leader did not answer yet"
    raft.step(110, ResponseReceived(2, fetch, nothing(raft)._replace(offset=0), (FetchedRaftBatch(0, 4, 7, b""),)))
    fetch = raft.requests.pending_fetch or next_fetch(raft)
    assert fetch.replica == FIRST
    raft.step(120, ResponseReceived(2, fetch, nothing(raft)._replace(offset=5), (FetchedRaftBatch(5, 6, 7, b""),)))
    assert raft.hard_state.voter_state == WIPED, "there was more"
    fetch = raft.requests.pending_fetch or next_fetch(raft)
    raft.step(130, ResponseReceived(2, fetch, nothing(raft)._replace(offset=7)))
    assert raft.hard_state.voter_state == WIPED, "what came was damaged"
    fetch = raft.requests.pending_fetch or next_fetch(raft)
    ready = raft.step(140, ResponseReceived(2, fetch, nothing(raft)))
    assert ready.hard_state == HardState(7, 2)
    assert response_to(raft, Vote(THIRD, 8, 7, 7)).vote_granted


def next_fetch(raft: RaftStateMachine) -> Fetch:
    """The one that is sent once what came lies on the disk."""
    raft.step(115, LogFlushed(raft.log_summary.end_offset))
    assert raft.requests.pending_fetch is not None
    return raft.requests.pending_fetch


def test_where_not_all_answer_it_is_silent_until_nothing_can_rest_on_what_it_said_before() -> None:
    raft = voter(NEW)
    fetch = learns(raft)
    at, sent = 100.0, [(100.0, fetch.replica)]
    while raft.hard_state.voter_state == WIPED and at < 12_000:
        at += 400
        raft.step(at, ResponseReceived(2, fetch, nothing(raft)))
        assert raft.requests.pending_fetch is not None
        fetch = raft.requests.pending_fetch
        sent.append((at, fetch.replica))
    first = next(t for t, replica in sent if replica == FIRST)
    assert 2 * (1000 + 3000) * 1.1 <= first < 2 * (1000 + 3000) * 1.1 + 400
    assert at == first + 400, "the next answer is the leader's end"


def test_a_question_is_not_asked_again_of_who_answered_and_again_of_who_did_not() -> None:
    raft = voter(NEW)
    learns(raft)
    assert raft.requests.next_request_ms[3] == float("inf")
    vote = Vote(FIRST, 7, 0, 0, True, ReplicaKey(3))
    ready = raft.step(200, RequestFailed(3, vote))
    assert 3 not in requests_by_peer(ready)
    assert requests_by_peer(raft.step(230, Tick()))[3] is Vote
    raft.step(240, ResponseReceived(3, vote, RaftResponse(OK, 7, 2)))
    assert requests_by_peer(raft.step(300, Tick())).get(3) is not Vote


def test_who_finds_no_leader_says_so_once() -> None:
    raft = voter(WIPED)
    told = [raft.step(at, Tick()).log_message for at in range(0, 60_000, 500)]
    (news,) = [x for x in told if x is not None]
    assert "ottla cluster recover" in news[1]
    assert told.index(news) == 20
    raft = voter(NEW)
    assert not [x for x in (raft.step(at, Tick()).log_message for at in range(0, 60_000, 500)) if x is not None]


def test_who_learns_late_of_a_quorum_looks_for_its_leader_before_it_says_that_there_is_none() -> None:
    raft = voter(NEW)
    for at in range(0, 20_000, 500):
        raft.step(at, Tick())
    ready = raft.step(20_000, RequestReceived("t", Vote(SECOND, raft.epoch, 0, 5, pre_vote=True)))
    assert ready.log_message is not None
    assert raft.hard_state.voter_state == WIPED
    told = {at: raft.step(at, Tick()).log_message for at in range(20_000, 60_000, 500)}
    (said_ms,) = [at for at, news in told.items() if news is not None]
    assert 30_000 <= said_ms < 33_000


# ------------------------------------------------------------------ quorums whose voters lose their disks


def afterwards(box: SimulatedQuorum) -> None:
    """Once the trouble is over it goes on, and nobody is left that does not vote."""
    box.remove_faults()
    committed = len(box.invariants.committed)
    box.run_until(lambda: len(box.leaders()) == 1 and box.reached(committed + 20))
    box.run_until(lambda: all(h.hard_state.voter_state == WHOLE for h in box.hosts.values()))


def may_lose_its_disk(box: SimulatedQuorum, number: int) -> bool:
    """Where a majority remembers all, and none of them could take the quorum for one that never was."""
    others = [h for h in box.hosts.values() if h.key.id != number]
    whole = [h for h in others if h.hard_state.voter_state == WHOLE]
    return len(whole) > len(box.hosts) // 2 and all(min(h.flushed_offset, h.log.end_offset) > 0 for h in whole)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_promise_is_broken_by_voters_that_lose_their_disks(seed: int) -> None:
    box = SimulatedQuorum(seed, 3 + 2 * (seed % 2), repeats=0.1, torn=0.005, fixed=True)
    box.invariants.checks_majority = False
    box.start_all()
    lost = 0
    for _ in range(30):
        box.run(box.now_ms + box.random.random() * 1_500, trouble=0.02)
        number = box.random.choice(list(box.hosts))
        if may_lose_its_disk(box, number) and box.random.random() < 0.7:
            box.wipe(number)
            lost += 1
            if box.random.random() < 0.8:
                box.start(number)
    assert lost > 0
    afterwards(box)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_quorum_that_never_was_begins_whoever_is_killed_meanwhile(count: int) -> None:
    for seed in range(4):
        box = SimulatedQuorum(seed, count, fixed=True)
        for number in box.random.sample(list(box.hosts), count):
            if box.hosts[number].machine is None:
                box.start(number)
            box.run(box.now_ms + box.random.random() * 400, trouble=0.05)
            if box.random.random() < 0.5:
                victim = box.random.choice(list(box.hosts))
                box.crash(victim)
        afterwards(box)


def test_a_majority_of_lost_disks_elects_nobody_while_one_that_remembers_is_there() -> None:
    for seed in range(5):
        box = SimulatedQuorum(seed, 3, loss=0, fixed=True)
        box.start_all()
        box.run_until(lambda: len(box.invariants.committed) > 5 and box.reached(5))  # noqa: B023
        for number in (1, 2, 3):
            box.crash(number)
        for number in (2, 3):
            box.wipe(number)
        for number in box.random.sample([1, 2, 3], 3):
            box.start(number)
        leaders = dict(box.invariants.leaders)
        box.run(box.now_ms + 5_000)
        assert box.invariants.leaders == leaders
        assert [h.hard_state.voter_state for h in box.hosts.values()] == [WHOLE, WIPED, WIPED]


def test_a_leader_that_lives_fills_all_the_others_again() -> None:
    for seed in range(5):
        box = SimulatedQuorum(seed, 3, loss=0, fixed=True)
        box.start_all()
        box.run_until(lambda: len(box.invariants.committed) > 20 and box.reached(20))  # noqa: B023
        box.invariants.checks_majority = False
        (leader,) = box.leaders()
        for number in {1, 2, 3} - {leader}:
            box.wipe(number)
            box.start(number)
        box.accepts_proposals = False
        box.run(box.now_ms + 2_000)
        assert box.leaders() == [leader]
        assert {h.hard_state.voter_state for h in box.hosts.values()} == {WHOLE}
        assert box.reached(20)
