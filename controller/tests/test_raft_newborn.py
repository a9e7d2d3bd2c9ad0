"""A voter of a fixed set whose disk is empty: it may have voted before, and votes only where nobody ever did.

``RAFT_SEEDS=1000`` runs that many quorums whose voters lose their disks, instead of a few.
"""

from __future__ import annotations

import os

import pytest

from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import (
    Age,
    Answer,
    Answered,
    Asked,
    Batch,
    BeginEpoch,
    Fetch,
    FetchAnswer,
    HardState,
    Ready,
    ReplicaKey,
    Request,
    Start,
    Synced,
    Tick,
    Unreachable,
    Vote,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import Candidate, Follower, Prospective, Unattached
from ottla.controller.tests.quorum_in_a_box import Box
from ottla.controller.tests.raft_world import ME, OK, THREE, TWO, answer, candidate
from ottla.wire.errors import ErrorCode

SEEDS = int(os.environ.get("RAFT_SEEDS", "15"))
WHOLE, NEW, WIPED = Age.GROWN, Age.NEWBORN, Age.LEARNING
NOBODY = ReplicaKey(-1)


def voter(age: Age, hard: HardState = HardState(0), end: int = 0, count: int = 3) -> RaftMachine:  # noqa: B008
    """Replica 1 of several that the settings name, started."""
    chain = EpochChain(end, [(hard.epoch, 0)] if end else [])
    voters = VoterHistory(ReplicaKey(i) for i in range(1, count + 1))
    peers = tuple(range(2, count + 1))
    raft = RaftMachine(ME, voters, hard._replace(age=age), chain, lambda: 0.5, bootstrap=peers)
    raft.step(0, Start())
    return raft


def asked(ready: Ready) -> dict[int, type[Request]]:
    return {s.peer: type(s.request) for s in ready.sends}


# ------------------------------------------------------------------ votes


@pytest.mark.parametrize(
    ("age", "vote", "granted", "then"),
    [
        (WHOLE, Vote(TWO, 1, 0, 0), True, WHOLE),
        (WHOLE, Vote(TWO, 2, 1, 5), True, WHOLE),
        (NEW, Vote(TWO, 0, 0, 0, pre=True), True, NEW),
        (NEW, Vote(TWO, 1, 0, 0), True, WHOLE),  # with its first vote it is like all others
        (NEW, Vote(TWO, 2, 1, 5, pre=True), False, WIPED),
        (NEW, Vote(TWO, 2, 1, 5), False, WIPED),
        (NEW, Vote(TWO, 2, 0, 5), False, WIPED),
        (WIPED, Vote(TWO, 0, 0, 0, pre=True), False, WIPED),
        (WIPED, Vote(TWO, 1, 0, 0), False, WIPED),
        (WIPED, Vote(TWO, 2, 1, 5), False, WIPED),
    ],
)
def test_an_empty_voter_votes_only_for_an_empty_log_and_never_once_it_knows_of_a_quorum(
    age: Age, vote: Vote, granted: bool, then: Age
) -> None:
    raft = voter(age)
    given = answer(raft, vote)
    assert (given.error, given.granted) == (OK, granted)
    assert raft.hard.age == then
    assert raft.hard.voted == (TWO if granted and not vote.pre else None)


def test_what_it_learned_is_on_the_disk_before_it_is_answered() -> None:
    ready = voter(NEW).step(1, Asked("t", Vote(TWO, 0, 0, 5, pre=True)))
    assert ready.hard_state == HardState(0, age=WIPED)
    ready = voter(NEW).step(1, Asked("t", Vote(TWO, 1, 0, 0)))
    assert ready.hard_state == HardState(1, -1, TWO, WHOLE)


# ------------------------------------------------------------------ standing


def test_who_knows_of_a_quorum_does_not_stand_and_asks_the_others_how_far_they_are() -> None:
    raft = voter(WIPED)
    assert isinstance(raft.state, Unattached)
    for at in (150, 3_000, 20_000):
        raft.step(at, Tick())
        assert isinstance(raft.state, Unattached)
    raft = voter(WIPED)
    assert raft.asked.keys() == {2, 3}
    raft.step(10, Answered(2, Vote(ME, 0, 0, 0, True), Answer(OK, 4, -1)))
    assert (raft.epoch, raft.heard) == (4, {2})


def stands(age: Age = NEW, count: int = 3) -> tuple[RaftMachine, Vote]:
    raft = voter(age, count=count)
    raft.step(150, Tick())
    assert isinstance(raft.state, Prospective)
    return raft, Vote(ME, 0, 0, 0, True)


def test_a_newborn_waits_for_what_everybody_says_that_can_be_asked() -> None:
    raft, pre = stands()
    raft.step(160, Answered(2, pre, Answer(OK, 0, -1, granted=True)))
    assert isinstance(raft.state, Prospective), "the third may have a log"
    raft.step(161, Answered(3, pre, Answer(OK, 0, -1, granted=True)))
    assert isinstance(raft.state, Candidate)
    assert raft.hard == HardState(1, -1, ME, NEW)
    raft.step(170, Answered(2, Vote(ME, 1, 0, 0), Answer(OK, 1, -1, granted=True)))
    assert raft.is_leader
    assert raft.hard == HardState(1, 1)


def test_who_cannot_be_asked_is_not_waited_for_and_who_is_silent_only_for_a_while() -> None:
    for order in ((2, 3), (3, 2)):
        raft, pre = stands()
        for peer in order:
            granted = Answered(2, pre, Answer(OK, 0, -1, granted=True))
            raft.step(160, granted if peer == 2 else Unreachable(3, pre))
        assert isinstance(raft.state, Candidate)
    raft, pre = stands()
    raft.step(160, Answered(2, pre, Answer(OK, 0, -1, granted=True)))
    raft.step(3_000, Tick())
    assert isinstance(raft.state, Candidate)


def test_a_refusal_says_that_there_was_a_quorum() -> None:
    raft, pre = stands(count=5)
    ready = raft.step(160, Answered(2, pre, Answer(OK, 0, -1)))
    assert isinstance(raft.state, Unattached)
    assert ready.hard_state == HardState(0, age=WIPED)
    for peer in (3, 4, 5):
        raft.step(170, Answered(peer, pre, Answer(OK, 0, -1, granted=True)))
    assert isinstance(raft.state, Unattached), "what the others say comes too late"


def test_a_vote_that_comes_when_the_election_is_over_elects_nobody() -> None:
    """Who gave it may have lost its disk since, and voted for somebody else."""
    raft = candidate()
    vote = Vote(ME, raft.epoch, 0, 0)
    raft.step(raft.state.deadline_ms, Answered(2, vote, Answer(OK, raft.epoch, -1, granted=True)))
    assert isinstance(raft.state, Candidate)


# ------------------------------------------------------------------ learning


def learns(raft: RaftMachine, at: float = 100) -> Fetch:
    """Follow 2 in epoch 7; gives the fetch that is under way."""
    raft.step(at, Asked("t", BeginEpoch(2, 7)))
    assert isinstance(raft.state, Follower)
    assert raft.hard.age == WIPED
    assert raft.fetching is not None
    return raft.fetching


def nothing(raft: RaftMachine, high_watermark: int = 0) -> FetchAnswer:
    return FetchAnswer(OK, raft.epoch, 2, high_watermark=high_watermark)


def test_a_leader_that_it_did_not_elect_makes_it_learn_and_it_fetches_as_nobody() -> None:
    raft = voter(NEW)
    fetch = learns(raft)
    assert fetch.replica == NOBODY
    raft.step(110, Answered(2, fetch, nothing(raft)))
    assert raft.hard.age == WIPED, "nobody was told that it has this"


def test_once_all_have_answered_and_the_leader_has_nothing_more_it_votes_again() -> None:
    raft = voter(WIPED)
    raft.step(10, Answered(3, Vote(ME, 0, 0, 0, True), Answer(ErrorCode.FENCED_LEADER_EPOCH, 7, -1)))
    fetch = learns(raft)
    assert fetch.replica == NOBODY, "its leader did not answer yet"
    raft.step(110, Answered(2, fetch, nothing(raft)._replace(offset=0), (Batch(0, 4, 7, b""),)))
    fetch = raft.fetching or next_fetch(raft)
    assert fetch.replica == ME
    raft.step(120, Answered(2, fetch, nothing(raft)._replace(offset=5), (Batch(5, 6, 7, b""),)))
    assert raft.hard.age == WIPED, "there was more"
    fetch = raft.fetching or next_fetch(raft)
    raft.step(130, Answered(2, fetch, nothing(raft)._replace(offset=7)))
    assert raft.hard.age == WIPED, "what came was damaged"
    fetch = raft.fetching or next_fetch(raft)
    ready = raft.step(140, Answered(2, fetch, nothing(raft)))
    assert ready.hard_state == HardState(7, 2)
    assert answer(raft, Vote(THREE, 8, 7, 7)).granted


def next_fetch(raft: RaftMachine) -> Fetch:
    """The one that is sent once what came lies on the disk."""
    raft.step(115, Synced(raft.chain.end))
    assert raft.fetching is not None
    return raft.fetching


def test_where_not_all_answer_it_is_silent_until_nothing_can_rest_on_what_it_said_before() -> None:
    raft = voter(NEW)
    fetch = learns(raft)
    at, sent = 100.0, [(100.0, fetch.replica)]
    while raft.hard.age == WIPED and at < 12_000:
        at += 400
        raft.step(at, Answered(2, fetch, nothing(raft)))
        assert raft.fetching is not None
        fetch = raft.fetching
        sent.append((at, fetch.replica))
    first = next(t for t, replica in sent if replica == ME)
    assert 2 * (1000 + 3000) * 1.1 <= first < 2 * (1000 + 3000) * 1.1 + 400
    assert at == first + 400, "the next answer is the leader's end"


def test_a_question_is_not_asked_again_of_who_answered_and_again_of_who_did_not() -> None:
    raft = voter(NEW)
    learns(raft)
    assert raft.asked[3] == float("inf")
    vote = Vote(ME, 7, 0, 0, True, ReplicaKey(3))
    ready = raft.step(200, Unreachable(3, vote))
    assert 3 not in asked(ready)
    assert asked(raft.step(230, Tick()))[3] is Vote
    raft.step(240, Answered(3, vote, Answer(OK, 7, 2)))
    assert asked(raft.step(300, Tick())).get(3) is not Vote


def test_who_finds_no_leader_says_so_once() -> None:
    raft = voter(WIPED)
    told = [raft.step(at, Tick()).news for at in range(0, 60_000, 500)]
    (news,) = [x for x in told if x is not None]
    assert "ottla cluster recover" in news[1]
    assert told.index(news) == 20
    raft = voter(NEW)
    assert not [x for x in (raft.step(at, Tick()).news for at in range(0, 60_000, 500)) if x is not None]


def test_who_learns_late_of_a_quorum_looks_for_its_leader_before_it_says_that_there_is_none() -> None:
    raft = voter(NEW)
    for at in range(0, 20_000, 500):
        raft.step(at, Tick())
    ready = raft.step(20_000, Asked("t", Vote(TWO, raft.epoch, 0, 5, pre=True)))
    assert ready.news is not None
    assert raft.hard.age == WIPED
    told = {at: raft.step(at, Tick()).news for at in range(20_000, 60_000, 500)}
    (said_ms,) = [at for at, news in told.items() if news is not None]
    assert 30_000 <= said_ms < 33_000


# ------------------------------------------------------------------ quorums whose voters lose their disks


def afterwards(box: Box) -> None:
    """Once the trouble is over it goes on, and nobody is left that does not vote."""
    box.heal()
    committed = len(box.promises.committed)
    box.run_until(lambda: len(box.leaders()) == 1 and box.reached(committed + 20))
    box.run_until(lambda: all(h.hard.age == WHOLE for h in box.hosts.values()))


def may_lose_its_disk(box: Box, number: int) -> bool:
    """Where a majority remembers all, and none of them could take the quorum for one that never was."""
    others = [h for h in box.hosts.values() if h.key.id != number]
    whole = [h for h in others if h.hard.age == WHOLE]
    return len(whole) > len(box.hosts) // 2 and all(min(h.synced, h.log.end) > 0 for h in whole)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_promise_is_broken_by_voters_that_lose_their_disks(seed: int) -> None:
    box = Box(seed, 3 + 2 * (seed % 2), repeats=0.1, torn=0.005, fixed=True)
    box.promises.majority_holds = False
    box.start_all()
    lost = 0
    for _ in range(30):
        box.run(box.now_ms + box.chance.random() * 1_500, trouble=0.02)
        number = box.chance.choice(list(box.hosts))
        if may_lose_its_disk(box, number) and box.chance.random() < 0.7:
            box.wipe(number)
            lost += 1
            if box.chance.random() < 0.8:
                box.start(number)
    assert lost > 0
    afterwards(box)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_a_quorum_that_never_was_begins_whoever_is_killed_meanwhile(count: int) -> None:
    for seed in range(4):
        box = Box(seed, count, fixed=True)
        for number in box.chance.sample(list(box.hosts), count):
            if box.hosts[number].machine is None:
                box.start(number)
            box.run(box.now_ms + box.chance.random() * 400, trouble=0.05)
            if box.chance.random() < 0.5:
                victim = box.chance.choice(list(box.hosts))
                box.crash(victim)
        afterwards(box)


def test_a_majority_of_lost_disks_elects_nobody_while_one_that_remembers_is_there() -> None:
    for seed in range(5):
        box = Box(seed, 3, loss=0, fixed=True)
        box.start_all()
        box.run_until(lambda: len(box.promises.committed) > 5 and box.reached(5))  # noqa: B023
        for number in (1, 2, 3):
            box.crash(number)
        for number in (2, 3):
            box.wipe(number)
        for number in box.chance.sample([1, 2, 3], 3):
            box.start(number)
        leaders = dict(box.promises.leaders)
        box.run(box.now_ms + 5_000)
        assert box.promises.leaders == leaders
        assert [h.hard.age for h in box.hosts.values()] == [WHOLE, WIPED, WIPED]


def test_a_leader_that_lives_fills_all_the_others_again() -> None:
    for seed in range(5):
        box = Box(seed, 3, loss=0, fixed=True)
        box.start_all()
        box.run_until(lambda: len(box.promises.committed) > 20 and box.reached(20))  # noqa: B023
        box.promises.majority_holds = False
        (leader,) = box.leaders()
        for number in {1, 2, 3} - {leader}:
            box.wipe(number)
            box.start(number)
        box.proposes = False
        box.run(box.now_ms + 2_000)
        assert box.leaders() == [leader]
        assert {h.hard.age for h in box.hosts.values()} == {WHOLE}
        assert box.reached(20)
