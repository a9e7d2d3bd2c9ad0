"""Raft's rules one by one: the rows of the project's list (R201 on), with the machine asked directly."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.answers import successor_wait_ms
from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import (
    Answer,
    Answered,
    Asked,
    Batch,
    BeginEpoch,
    EndEpoch,
    Event,
    Fetch,
    FetchAnswer,
    HardState,
    Propose,
    Ready,
    ReplicaKey,
    Resign,
    SnapshotLoaded,
    Start,
    Synced,
    Tick,
    Unreachable,
    Vote,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import Candidate, Election, Follower, Leader, Prospective, Resigned, Unattached
from ottla.wire.errors import ErrorCode

KEYS = {i: ReplicaKey(i, bytes([i] * 16)) for i in (1, 2, 3, 4, 5)}
ME, TWO, THREE = KEYS[1], KEYS[2], KEYS[3]


def machine(hard: HardState = HardState(0), count: int = 3, end: int = 0, epoch: int = 0) -> RaftMachine:  # noqa: B008
    """Replica 1 of several, its log of ``end`` records of one epoch; not started."""
    chain = EpochChain(end, [(epoch, 0)] if end else [])
    return RaftMachine(ME, VoterHistory(KEYS[i] for i in range(1, count + 1)), hard, chain, lambda: 0.5)


def answer(raft: RaftMachine, request: Any, now_ms: float = 0) -> Any:
    (reply,) = raft.step(now_ms, Asked("t", request)).replies
    assert reply.ticket == "t"
    return reply.answer


def unattached(hard: HardState = HardState(5), **more: Any) -> RaftMachine:  # noqa: B008
    raft = machine(hard, **more)
    raft.step(0, Start())
    return raft


def prospective(**more: Any) -> RaftMachine:
    raft = unattached(**more)
    raft.step(1500, Tick())
    assert isinstance(raft.state, Prospective)
    return raft


def candidate(**more: Any) -> RaftMachine:
    raft = prospective(**more)
    vote = Vote(ME, raft.epoch, raft.chain.last_epoch, raft.chain.end, pre=True)
    for peer in (2, 3)[: raft.voters.majority - 1]:
        raft.step(1501, Answered(peer, vote, Answer(ErrorCode.NONE, raft.epoch, -1, granted=True)))
    assert isinstance(raft.state, Candidate)
    return raft


def leader(**more: Any) -> RaftMachine:
    raft = candidate(**more)
    vote = Vote(ME, raft.epoch, raft.chain.last_epoch, raft.chain.end)
    for peer in (2, 3)[: raft.voters.majority - 1]:
        raft.step(1502, Answered(peer, vote, Answer(ErrorCode.NONE, raft.epoch, -1, granted=True)))
    assert raft.is_leader
    return raft


def follower(fetched: bool = False, **more: Any) -> RaftMachine:
    raft = unattached(**more)
    answer(raft, BeginEpoch(2, raft.epoch))
    assert isinstance(raft.state, Follower)
    raft.state.fetched = fetched
    return raft


def resigned() -> RaftMachine:
    raft = leader()
    raft.step(1503, Resign())
    assert isinstance(raft.state, Resigned)
    return raft


# ------------------------------------------------------------------ start (R204, R205)


@pytest.mark.parametrize(
    ("hard", "log_epoch", "state", "epoch", "leader_id"),
    [
        (HardState(0), 0, Unattached, 0, -1),
        (HardState(3), 0, Unattached, 3, -1),
        (HardState(3, 2), 0, Follower, 3, 2),
        (HardState(3, 9), 0, Unattached, 3, 9),  # no voter
        (HardState(3, 1), 0, Resigned, 3, 1),
        (HardState(3, -1, ME), 0, Candidate, 3, -1),
        (HardState(3, -1, ReplicaKey(1)), 0, Candidate, 3, -1),
        (HardState(3, -1, ReplicaKey(1, bytes([9] * 16))), 0, Unattached, 3, -1),
        (HardState(3, -1, TWO), 0, Unattached, 3, -1),
        (HardState(3, 2), 4, Unattached, 4, -1),
        (HardState(4, 2), 4, Follower, 4, 2),
    ],
)
def test_r204_a_start_takes_up_what_was_left(
    hard: HardState, log_epoch: int, state: type, epoch: int, leader_id: int
) -> None:
    raft = machine(hard, end=5 if log_epoch else 0, epoch=log_epoch)
    ready = raft.step(0, Start())
    assert type(raft.state) is state
    assert (raft.hard.epoch, raft.hard.leader_id) == (epoch, leader_id)
    assert (ready.hard_state is not None) == (log_epoch > hard.epoch)
    assert raft.leader_id == (2 if state is Follower else -1)
    assert [type(s.request) for s in ready.sends] == {
        Follower: [Fetch],
        Candidate: [Vote, Vote],
        Resigned: [EndEpoch, EndEpoch],
        Unattached: [],
    }[state]


def test_r205_a_lone_voter_leads_without_waiting() -> None:
    for hard, epoch in ((HardState(3, 1), 4), (HardState(3), 4), (HardState(3, -1, ME), 3)):
        raft = machine(hard, count=1)
        ready = raft.step(0, Start())
        assert ready.hard_state == HardState(epoch, 1)
        assert [(a.first_offset, a.epoch, a.records_count) for a in ready.append] == [(0, epoch, 1)]
        assert not ready.sends
        assert raft.deadline_ms == float("inf"), "nobody has to listen to it"


def test_who_is_no_voter_never_asks_for_votes() -> None:
    chain = EpochChain()
    raft = RaftMachine(KEYS[5], VoterHistory([ME, TWO, THREE]), HardState(2, -1, KEYS[5]), chain, lambda: 0.5)
    assert not raft.step(0, Start()).sends
    assert isinstance(raft.state, Unattached)
    answer(raft, BeginEpoch(2, 3))
    ready = raft.step(9000, Tick())
    assert isinstance(raft.state, Follower)
    assert [type(s.request) for s in ready.sends] == [Fetch]


# ------------------------------------------------------------------ elections


def test_r203_the_election_timer_is_random_and_goes_on_where_it_ran() -> None:
    raft = unattached()
    assert raft.deadline_ms == 1500
    raft.step(1499, Tick())
    assert isinstance(raft.state, Unattached)
    answer(raft, Vote(TWO, 9, 0, 0, pre=True), 700)
    assert (raft.epoch, raft.deadline_ms) == (9, 1500)
    raft.step(1500, Tick())
    assert isinstance(raft.state, Prospective)


def test_r59_a_follower_asks_first_and_disturbs_nobody() -> None:
    raft = follower()
    assert raft.deadline_ms == 2000
    ready = raft.step(2000, Tick())
    assert isinstance(raft.state, Prospective)
    assert raft.epoch == 5
    assert ready.hard_state is None
    assert [(s.peer, s.request) for s in ready.sends] == [
        (2, Vote(ME, 5, 0, 0, True, TWO)),
        (3, Vote(ME, 5, 0, 0, True, THREE)),
    ]


def test_r206_a_majority_of_pre_votes_makes_a_candidate_of_a_new_epoch() -> None:
    raft = prospective()
    vote = Vote(ME, 5, 0, 0, pre=True)
    ready = raft.step(1600, Answered(2, vote, Answer(ErrorCode.NONE, 5, -1, granted=True)))
    assert isinstance(raft.state, Candidate)
    assert ready.hard_state == HardState(6, -1, ME)
    assert [(s.peer, s.request) for s in ready.sends] == [
        (2, Vote(ME, 6, 0, 0, False, TWO)),
        (3, Vote(ME, 6, 0, 0, False, THREE)),
    ]


def test_r208_a_lost_pre_vote_goes_back_to_the_old_leader_or_to_nobody() -> None:
    no = Answer(ErrorCode.NONE, 5, -1)
    vote = Vote(ME, 5, 0, 0, pre=True)
    raft = prospective()
    raft.step(1600, Answered(2, vote, no))
    assert isinstance(raft.state, Prospective)
    raft.step(1600, Answered(3, vote, no))
    assert isinstance(raft.state, Unattached)
    raft = follower()
    raft.step(2000, Tick())
    for peer in (2, 3):
        raft.step(2100, Answered(peer, vote, no))
    assert isinstance(raft.state, Follower)
    assert (raft.leader_id, raft.deadline_ms) == (2, 4100)
    raft = follower()
    raft.step(2000, Tick())
    raft.step(raft.deadline_ms, Tick())
    assert isinstance(raft.state, Follower), "its time is over"


def test_r206_a_later_answer_counts_for_a_pre_vote_and_not_for_a_vote() -> None:
    yes, no = (Answer(ErrorCode.NONE, 5, -1, granted=g) for g in (True, False))
    raft = prospective(count=5)
    vote = Vote(ME, 5, 0, 0, pre=True)
    raft.step(1600, Answered(2, vote, no))
    raft.step(1600, Answered(2, vote, yes))
    raft.step(1600, Answered(3, vote, yes))
    assert isinstance(raft.state, Candidate)
    real = Vote(ME, 6, 0, 0)
    for said in (no, yes):
        raft.step(1600, Answered(2, real, said._replace(epoch=6)))
    raft.step(1600, Answered(3, real, yes._replace(epoch=6)))
    assert isinstance(raft.state, Candidate), "one no stays a no"
    raft.step(1600, Answered(4, real, yes._replace(epoch=6)))
    assert raft.is_leader


def test_a_beaten_candidate_waits_out_its_timer() -> None:
    raft = candidate()
    for peer in (2, 3):
        raft.step(1600, Answered(peer, Vote(ME, 6, 0, 0), Answer(ErrorCode.NONE, 6, -1)))
    assert isinstance(raft.state, Candidate)
    raft.step(raft.deadline_ms, Tick())
    assert isinstance(raft.state, Prospective)
    assert raft.epoch == 6


def test_an_answer_with_an_error_is_no_vote_and_one_to_an_older_question_none_at_all() -> None:
    raft = prospective()
    wrong = Answer(ErrorCode.INVALID_VOTER_KEY, 5, -1, granted=True)
    raft.step(1600, Answered(2, Vote(ME, 5, 0, 0, pre=True), wrong))
    assert isinstance(raft.state, Prospective)
    old = Answer(ErrorCode.NONE, 5, -1, granted=True)
    raft.step(1600, Answered(3, Vote(ME, 4, 0, 0, pre=True), old))
    assert isinstance(raft.state, Prospective)


def test_what_got_no_answer_is_asked_again_shortly() -> None:
    raft = prospective()
    assert not raft.step(1501, Tick()).sends, "a request is under way to each"
    assert not raft.step(1510, Unreachable(2, Vote(ME, 5, 0, 0, pre=True))).sends
    assert raft.deadline_ms == 1530
    assert [s.peer for s in raft.step(1530, Tick()).sends] == [2]


# ------------------------------------------------------------------ votes (R211, R212)

OK, FENCED, INVALID, KEY = (
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_VOTER_KEY,
)


@pytest.mark.parametrize(
    ("vote", "error"),
    [
        (Vote(TWO, 6, 5, 9), OK),
        (Vote(TWO, 6, 6, 9), INVALID),
        (Vote(TWO, 6, 6, 9, pre=True), OK),
        (Vote(TWO, 6, 7, 9, pre=True), INVALID),
        (Vote(TWO, 6, -1, 9), INVALID),
        (Vote(TWO, 6, 0, -1), INVALID),
        (Vote(TWO, 6, 0, 0), OK),
        (Vote(ReplicaKey(-1), 6, 5, 9), INVALID),
        (Vote(ReplicaKey(0), 6, 5, 9), OK),
        (Vote(TWO, 4, 3, 9), FENCED),
        (Vote(TWO, 4, 4, 9), INVALID),
        (Vote(TWO, 6, 5, 9, voter=TWO), KEY),
        (Vote(TWO, 6, 5, 9, voter=ReplicaKey(1, bytes([8] * 16))), KEY),
        (Vote(TWO, 6, 5, 9, voter=ReplicaKey(1)), OK),
        (Vote(TWO, 6, 5, 9, voter=ME), OK),
    ],
)
def test_r211_a_vote_is_checked_in_order(vote: Vote, error: ErrorCode) -> None:
    raft = unattached()
    said = answer(raft, vote)
    assert said.error == error
    assert raft.epoch == (5 if error in (FENCED, INVALID) else 6), "a wrong key has moved the epoch already"
    assert said.epoch == raft.epoch


def test_r202_a_vote_is_on_the_disk_before_it_is_said_and_given_once() -> None:
    raft = unattached()
    ready = raft.step(100, Asked("t", Vote(TWO, 6, 0, 0)))
    assert ready.hard_state == HardState(6, -1, TWO)
    assert ready.replies[0].answer.granted
    assert raft.deadline_ms == 1600, "the timer begins anew"
    assert not answer(raft, Vote(THREE, 6, 0, 5)).granted
    assert answer(raft, Vote(TWO, 6, 0, 0)).granted
    assert answer(raft, Vote(ReplicaKey(2), 6, 0, 0)).granted
    assert not answer(raft, Vote(ReplicaKey(2, bytes([8] * 16)), 6, 0, 0)).granted


def in_state(name: str) -> RaftMachine:
    if name == "follower":
        return follower(end=10, epoch=3)
    if name == "follower that fetched":
        return follower(fetched=True, end=10, epoch=3)
    makers = {"leader": leader, "candidate": candidate, "prospective": prospective, "unattached": unattached}
    return resigned() if name == "resigned" else makers[name](end=10, epoch=3)


@pytest.mark.parametrize(
    ("state", "real", "pre"),
    [
        ("leader", False, False),
        ("follower", False, True),
        ("follower that fetched", False, False),
        ("candidate", False, True),
        ("resigned", False, True),
        ("unattached", True, True),
        ("prospective", True, True),
    ],
)
def test_r212_who_votes_for_whom(state: str, real: bool, pre: bool) -> None:
    for asked, expected in ((False, real), (True, pre)):
        raft = in_state(state)
        last, end = raft.chain.last_epoch, raft.chain.end
        at = raft.epoch
        for last_epoch, offset, up_to_date in (
            (last, end, True),
            (last, end + 1, True),
            (last, end - 1, False),
            (last - 1, end + 9, False),
        ):
            if last_epoch < 0 or offset < 0 or (not asked and last_epoch >= at):
                continue
            raft = in_state(state)
            said = answer(raft, Vote(THREE, at, last_epoch, offset, pre=asked), 1)
            assert said.error == OK
            assert said.granted == (expected and up_to_date), (state, asked, last_epoch, offset)
            if asked:
                assert raft.hard.voted != THREE, "a pre-vote is no vote"


def test_r212_nobody_votes_while_it_knows_of_a_leader() -> None:
    raft = follower()
    raft.step(2000, Tick())
    assert isinstance(raft.state, Prospective)
    assert not answer(raft, Vote(THREE, 5, 0, 0), 2001).granted
    assert answer(raft, Vote(THREE, 5, 0, 0, pre=True), 2001).granted


# ------------------------------------------------------------------ epochs of others (R209, R214, R215)


@pytest.mark.parametrize(
    ("request_", "error", "epoch", "leader_id"),
    [
        (BeginEpoch(2, 5), OK, 5, 2),
        (BeginEpoch(2, 6), OK, 6, 2),
        (BeginEpoch(2, 4), FENCED, 5, -1),
        (BeginEpoch(-1, 6), INVALID, 5, -1),
        (BeginEpoch(2, 6, TWO), KEY, 6, 2),  # followed first
        (BeginEpoch(2, 6, ME), OK, 6, 2),
        (BeginEpoch(1, 6), OK, 5, -1),  # who says it is us is wrong
        (EndEpoch(2, 6), OK, 6, 2),
        (EndEpoch(2, 4), FENCED, 5, -1),
        (EndEpoch(-1, 6), INVALID, 5, -1),
    ],
)
def test_r214_a_leader_that_makes_itself_known_is_followed(
    request_: Any, error: ErrorCode, epoch: int, leader_id: int
) -> None:
    raft = unattached()
    said = answer(raft, request_)
    assert (said.error, said.epoch, said.leader_id) == (error, epoch, leader_id)
    assert (raft.epoch, raft.leader_id) == (epoch, leader_id)


def test_two_leaders_of_one_epoch_are_never_believed() -> None:
    raft = follower()
    raft.step(2000, Tick())
    with pytest.raises(AssertionError, match="two leaders"):
        raft.step(2001, Asked("t", BeginEpoch(3, 5)))


@pytest.mark.parametrize(
    ("places", "wait"),
    [
        ([True], 0),
        ([], 1000),
        ([False, False], 1000),
        ([False, True], 500),
        ([False, True, False], 250),
        ([False, False, True], 500),
        ([False, False, False, True], 500),
    ],
)
def test_r215_successors_wait_by_their_place(places: list[bool], wait: float) -> None:
    assert successor_wait_ms(places, 1000) == wait


def test_r215_the_first_successor_tries_at_once() -> None:
    for successors, deadline in (((ME, THREE), 10), ((THREE, ME), 510), ((), 1010)):
        raft = follower()
        answer(raft, EndEpoch(2, 5, successors), 10)
        assert raft.deadline_ms == deadline


def test_a_resigned_leader_tells_all_who_has_most_first_and_then_tries_again() -> None:
    raft = leader(end=10, epoch=3)
    for key, end in ((TWO, 10), (THREE, 11)):
        raft.step(1600, Asked("f", Fetch(key, 6, end, 3 if end == 10 else 6)))
    ready = raft.step(1700, Resign())
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(1, 6, (THREE, TWO))) for i in (2, 3)]
    assert raft.leader_id == -1
    raft.step(1710, Answered(2, EndEpoch(1, 6), Answer(OK, 6, -1)))
    raft.step(1720, Unreachable(3, EndEpoch(1, 6)))
    assert [s.peer for s in raft.step(1740, Tick()).sends] == [3]
    ready = raft.step(4000, Tick())
    assert isinstance(raft.state, Prospective)
    assert ready.hard_state == HardState(7)


# ------------------------------------------------------------------ leading (R217-R221, R227, R228)


def led(end: int = 10, **more: Any) -> RaftMachine:
    """Leader of epoch 6 over ``end`` records of epoch 3 and its own first one, which is on its disk."""
    raft = leader(end=end, epoch=3, **more)
    raft.step(1503, Synced(end + 1))
    return raft


@pytest.mark.parametrize(
    ("fetch", "error"),
    [
        (Fetch(TWO, 6, 10, 3), OK),
        (Fetch(TWO, 6, 10, 3, max_wait_ms=-1), INVALID),
        (Fetch(TWO, 6, -1, 3), INVALID),
        (Fetch(TWO, 6, 10, -1), INVALID),
        (Fetch(TWO, 6, 10, 7), INVALID),
        (Fetch(TWO, 6, 10, 6), OK),
        (Fetch(TWO, 5, 10, 3), FENCED),
        (Fetch(TWO, 7, 10, 3), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_r217_a_fetch_is_checked_in_order(fetch: Fetch, error: ErrorCode) -> None:
    assert answer(led(), fetch).error == error


def test_r217_only_the_leader_serves() -> None:
    said = answer(follower(), Fetch(THREE, 5, 0, 0))
    assert (said.error, said.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


CHAIN = [(2, 0), (4, 10), (7, 20)]


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
def test_r218_where_a_log_parts_from_ours(
    start: int, snapshots: list[tuple[int, int]], offset: int, epoch: int, expected: Any
) -> None:
    epochs = [(e, max(o, start)) for e, o in CHAIN if e >= 4 or start == 0]
    found = EpochChain(30, epochs, start, snapshots).check(offset, epoch)
    assert (found[0] if expected == "valid" else found) == expected


def test_r227_committed_is_what_a_majority_has_of_this_epoch() -> None:
    raft = led()
    assert raft.high_watermark == -1
    raft.step(1600, Asked("a", Fetch(TWO, 6, 10, 3)))
    assert raft.high_watermark == -1, "ten are of an older epoch"
    assert raft.told_high_watermark == -1
    ready = raft.step(1610, Asked("b", Fetch(TWO, 6, 11, 6)))
    assert ready.committed == raft.high_watermark == raft.told_high_watermark == 11
    raft.step(1620, Propose("x", 4))
    assert raft.high_watermark == 11
    raft.step(1630, Asked("c", Fetch(TWO, 6, 15, 6)))
    assert raft.high_watermark == 11, "this node has not synced it"
    assert raft.step(1640, Synced(15)).committed == 15
    raft.step(1650, Asked("d", Fetch(TWO, 6, 11, 6)))
    assert raft.high_watermark == 15, "it never goes back"


def test_r219_who_is_no_voter_does_not_count() -> None:
    raft = led()
    for key in (KEYS[5], ReplicaKey(2, bytes([9] * 16)), ReplicaKey(-1)):
        raft.step(1600, Asked("a", Fetch(key, 6, 11, 6)))
    assert raft.high_watermark == -1
    raft.step(1600, Asked("a", Fetch(ReplicaKey(2), 6, 11, 6)))
    assert raft.high_watermark == 11


def test_r220_a_fetch_waits_for_records_or_for_the_high_watermark_or_its_time() -> None:
    raft = led()
    raft.step(1600, Asked("x", Fetch(TWO, 6, 11, 6)))
    waiting = Fetch(TWO, 6, 11, 6, high_watermark=11, max_wait_ms=500)
    assert not raft.step(1610, Asked("a", waiting)).replies
    assert raft.deadline_ms <= 2110
    (reply,) = raft.step(1620, Propose("x", 1)).replies
    assert (reply.ticket, reply.answer.offset, reply.answer.high_watermark) == ("a", 11, 11)
    raft.step(1625, Synced(12))
    assert not raft.step(1630, Asked("b", waiting._replace(offset=12, high_watermark=12))).replies
    raft = led()
    raft.step(1600, Asked("x", Fetch(TWO, 6, 11, 6)))
    raft.step(1610, Asked("a", waiting))
    assert not raft.step(2109, Tick()).replies
    (reply,) = raft.step(2110, Tick()).replies
    assert (reply.ticket, reply.answer.offset) == ("a", 11)
    raft.step(2120, Asked("c", waiting))
    (reply,) = raft.step(2130, Resign()).replies
    assert (reply.ticket, reply.answer.error) == ("c", ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    "fetch",
    [
        Fetch(TWO, 6, 10, 3, 11, 500),  # there are records
        Fetch(TWO, 6, 11, 6, 10, 500),  # it does not know the high watermark
        Fetch(TWO, 6, 11, 6, 11, 0),  # it does not want to wait
        Fetch(TWO, 6, 12, 6, 11, 500),  # diverging
    ],
)
def test_r220_what_is_answered_at_once(fetch: Fetch) -> None:
    raft = led()
    raft.step(1600, Asked("x", Fetch(THREE, 6, 11, 6)))
    assert raft.high_watermark == 11
    assert len(raft.step(1610, Asked("a", fetch)).replies) == 1


def test_r228_a_leader_nobody_listens_to_resigns() -> None:
    raft = led(count=5)
    deadline = raft.state.deadline_ms
    assert deadline == 1502 + 3000
    raft.step(2000, Asked("a", Fetch(TWO, 6, 10, 3)))
    raft.step(2001, Asked("a", Fetch(TWO, 6, 10, 3)))
    raft.step(2001, Asked("a", Fetch(ReplicaKey(3, bytes([9] * 16)), 6, 10, 3)))
    assert raft.state.deadline_ms == deadline, "two others are needed"
    raft.step(2500, Asked("b", Fetch(THREE, 6, 10, 3)))
    assert raft.state.deadline_ms == 5500
    raft.step(5499, Tick())
    assert raft.is_leader
    raft.step(5500, Tick())
    assert isinstance(raft.state, Resigned)


def test_a_leader_makes_itself_known_until_it_is_fetched_from() -> None:
    raft = candidate()
    ready = raft.step(1502, Answered(2, Vote(ME, 6, 0, 0), Answer(OK, 6, -1, granted=True)))
    assert [(s.peer, s.request) for s in ready.sends] == [(2, BeginEpoch(1, 6, TWO)), (3, BeginEpoch(1, 6, THREE))]
    raft.step(1510, Answered(2, BeginEpoch(1, 6), Answer(OK, 6, 1)))
    raft.step(1510, Answered(3, BeginEpoch(1, 6), Answer(OK, 6, 1)))
    raft.step(2400, Asked("a", Fetch(TWO, 6, 0, 0)))
    assert [s.peer for s in raft.step(2510, Tick()).sends] == [3]


def test_r243_the_first_leader_writes_the_quorum_down_and_no_other() -> None:
    raft = RaftMachine(
        ME,
        VoterHistory([ME]),
        HardState(0),
        EpochChain(),
        lambda: 0.5,
        first_records=("version", "voters"),  # type: ignore[arg-type]
    )
    (append,) = raft.step(0, Start()).append
    assert (append.records_count, append.controls[1:]) == (3, ("version", "voters"))
    assert raft.chain.end == 3
    assert raft.first_records == ()


def test_a_leader_that_hears_of_a_higher_epoch_lets_go() -> None:
    for news in (BeginEpoch(2, 7), Vote(TWO, 7, 3, 10)):
        raft = led()
        answer(raft, news)
        assert not raft.is_leader
        assert raft.epoch == 7
    raft = led()
    raft.step(1600, Answered(2, BeginEpoch(1, 6), Answer(FENCED, 9, 3)))
    assert (raft.epoch, raft.leader_id) == (9, 3)


# ------------------------------------------------------------------ following (R222-R226, R235)


def fetching(**more: Any) -> tuple[RaftMachine, Fetch]:
    raft = unattached(**more)
    ready = raft.step(0, Asked("t", BeginEpoch(2, 5)))
    (send,) = ready.sends
    assert send.peer == 2
    assert isinstance(send.request, Fetch)
    return raft, send.request


def fetched(raft: RaftMachine, fetch: Fetch, *batches: Batch, now_ms: float = 100, **values: Any) -> Ready:
    said = FetchAnswer(OK, 5, 2, offset=fetch.offset)._replace(**values)
    return raft.step(now_ms, Answered(2, fetch, said, batches))


def test_r222_a_follower_says_where_its_log_ends() -> None:
    _, fetch = fetching(end=10, epoch=3)
    assert fetch == Fetch(ME, 5, 10, 3, -1, 500)
    _, fetch = fetching()
    assert (fetch.offset, fetch.last_epoch) == (0, 0)


def test_r225_what_was_fetched_is_on_the_disk_before_the_next_fetch() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    ready = fetched(raft, fetch, Batch(10, 12, 4, "raw"), high_watermark=11)
    assert [(a.first_offset, a.records_count, a.epoch, a.batch, a.verbatim) for a in ready.append] == [
        (10, 3, 4, "raw", True)
    ]
    assert ready.committed == 11
    assert not ready.sends
    assert raft.deadline_ms == 2100
    ready = raft.step(150, Synced(13))
    assert [s.request for s in ready.sends] == [Fetch(ME, 5, 13, 4, 11, 500)]
    assert not raft.step(160, Tick()).sends, "one at a time"


def test_r224_what_does_not_fit_is_left_out() -> None:
    for wrong in (Batch(14, 15, 4, "x"), Batch(12, 13, 4, "x"), Batch(13, 13, 2, "x"), Batch(13, 13, 6, "x")):
        raft, fetch = fetching(end=10, epoch=3)
        ready = fetched(raft, fetch, Batch(10, 12, 4, "raw"), wrong, Batch(13, 13, 4, "y"))
        assert [a.batch for a in ready.append] == ["raw"]
        assert raft.chain.end == 13


def test_r226_a_followers_high_watermark_never_passes_its_log() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    assert fetched(raft, fetch, high_watermark=50).committed == 10
    (fetch,) = (Fetch(ME, 5, 10, 3, 10, 500),)
    assert fetched(raft, fetch, high_watermark=4).committed is None
    assert raft.high_watermark == 10


@pytest.mark.parametrize(
    ("diverging", "end"),
    [
        ((3, 7), 7),
        ((3, 20), 10),
        ((4, 15), 15),
        ((4, 40), 20),
        ((2, 4), 0),  # our log has nothing of that epoch or of an older one
    ],
)
def test_r224_a_log_that_parts_is_cut(diverging: tuple[int, int], end: int) -> None:
    raft = RaftMachine(ME, VoterHistory([ME, TWO, THREE]), HardState(5), EpochChain(20, [(3, 0), (4, 10)]), lambda: 0.5)
    raft.step(0, Start())
    (send,) = raft.step(0, Asked("t", BeginEpoch(2, 5))).sends
    assert isinstance(send.request, Fetch)
    ready = fetched(raft, send.request, offset=-1, diverging=diverging)
    assert raft.chain.end == end
    assert ready.truncate == (end if end < 20 else None)
    assert [s.request.offset for s in ready.sends if isinstance(s.request, Fetch)] == [end]


def test_r224_what_is_committed_is_never_cut() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    fetched(raft, fetch, high_watermark=10)
    with pytest.raises(AssertionError, match="below the high watermark"):
        fetched(raft, Fetch(ME, 5, 10, 3, 10, 500), offset=-1, diverging=(3, 7))


def test_r235_a_snapshot_takes_the_place_of_the_log() -> None:
    raft, fetch = fetching(end=10, epoch=3)
    ready = fetched(raft, fetch, offset=-1, snapshot=(90, 4))
    assert ready.load_snapshot == (90, 4)
    assert not ready.sends
    assert not raft.step(200, Tick()).sends
    ready = raft.step(300, SnapshotLoaded(90, 4))
    assert (raft.chain.start, raft.chain.end, raft.chain.last_epoch, raft.high_watermark) == (90, 90, 4, 90)
    assert [s.request for s in ready.sends] == [Fetch(ME, 5, 90, 4, 90, 500)]


def test_a_fetch_that_failed_is_asked_again_shortly() -> None:
    for said in (Unreachable, None):
        raft, fetch = fetching()
        event: Event = Unreachable(2, fetch)
        if said is None:
            event = Answered(2, fetch, FetchAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, 5, 2))
        assert not raft.step(100, event).sends
        assert raft.deadline_ms == 120
        assert len(raft.step(120, Tick()).sends) == 1


def test_r209_an_answer_that_names_another_leader_is_followed() -> None:
    for error in (FENCED, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        raft, fetch = fetching()
        raft.step(100, Answered(2, fetch, FetchAnswer(error, 8, 3)))
        assert (raft.epoch, raft.leader_id) == (8, 3)
    raft, fetch = fetching()
    raft.step(100, Answered(2, fetch, FetchAnswer(FENCED, 8, -1)))
    assert (raft.epoch, raft.leader_id) == (8, -1)
    raft, fetch = fetching()
    raft.step(100, Answered(2, fetch, FetchAnswer(ErrorCode.UNKNOWN_LEADER_EPOCH, 4, -1)))
    assert (raft.epoch, raft.leader_id) == (5, 2)


def test_elections_are_counted() -> None:
    election = Election({1: True, 2: False, 3: False})
    assert not election.won(2)
    assert election.won(1)
    assert election.lost(3, 2)
    assert not election.lost(5, 3)
    assert isinstance(led().state, Leader)
