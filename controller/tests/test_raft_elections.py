"""Starts, elections and votes (R203-R212): the machine asked directly, row by row."""

from __future__ import annotations

import pytest

from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import (
    Answer,
    Answered,
    Asked,
    BeginEpoch,
    EndEpoch,
    Fetch,
    Gone,
    HardState,
    Refused,
    ReplicaKey,
    Start,
    Tick,
    Unreachable,
    Vote,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.controller.tests.raft_world import (
    FENCED,
    INVALID,
    KEY,
    KEYS,
    ME,
    OK,
    THREE,
    TWO,
    answer,
    candidate,
    follower,
    leader,
    machine,
    prospective,
    resigned,
    unattached,
)
from ottla.wire.errors import ErrorCode

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
        (HardState(3, 2, ME), 3, Follower, 3, 2),
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
    raft.step(9000, Tick())
    assert isinstance(raft.state, Follower)
    assert [type(s.request) for s in raft.step(9020, Tick()).sends] == [Fetch]


# ------------------------------------------------------------------ elections


def test_who_is_no_voter_asks_the_leader_it_knows_again_and_again() -> None:
    raft = RaftMachine(KEYS[4], VoterHistory([ME, TWO, THREE]), HardState(5, 2), EpochChain(), lambda: 0.5)
    (send,) = raft.step(0, Start()).sends
    assert (send.peer, raft.deadline_ms) == (2, 2000)
    for now in (2000, 4020):
        assert not raft.step(now, Tick()).sends
        assert raft.deadline_ms == now + 20
        (send,) = raft.step(now + 20, Tick()).sends
        assert (send.peer, raft.deadline_ms) == (2, now + 2000)


def test_r209_who_leads_is_believed_with_any_error_but_of_who_is_behind() -> None:
    """``maybeHandleCommonResponse``: the epoch is ours, and no leader of it was known."""
    for error in (ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY, ErrorCode.NOT_LEADER_OR_FOLLOWER, FENCED):
        raft = prospective()
        raft.step(1600, Answered(2, Vote(ME, 5, 0, 0, pre=True), Answer(error, 5, 3)))
        assert raft.leader_id == 3
    raft = prospective()
    raft.step(1600, Answered(2, Vote(ME, 5, 0, 0, pre=True), Answer(ErrorCode.UNKNOWN_LEADER_EPOCH, 5, 3)))
    assert raft.leader_id == -1


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
    raft = prospective()
    at = raft.deadline_ms
    raft.step(at, Tick())
    assert isinstance(raft.state, Prospective), "none of its time remains: it asks again"
    assert raft.deadline_ms == at + 1500
    raft = prospective()
    for peer in (2, 3):
        raft.step(1600, Answered(peer, vote, no))
    assert raft.deadline_ms == 3100, "who was refused waits anew"


def test_who_refused_and_now_asks_itself_is_asked_again() -> None:
    """It still heard the leader then; now it does not. Unless it can win: then it shall, or both would try."""
    vote = Vote(ME, 5, 3, 10, pre=True)
    raft = prospective(end=10, epoch=3)
    raft.step(1600, Answered(2, vote, Answer(ErrorCode.NONE, 5, -1)))
    assert not raft.step(1610, Tick()).sends
    ready = raft.step(1620, Asked("t", Vote(TWO, 5, 3, 9, pre=True)))
    assert [r.answer.granted for r in ready.replies] == [False]  # type: ignore[union-attr]
    assert [(s.peer, s.request) for s in ready.sends] == [(2, vote._replace(voter=TWO))]
    assert not raft.step(1630, Asked("t", Vote(TWO, 5, 3, 9, pre=True))).sends, "its answer is under way"
    raft.step(1640, Answered(2, vote, Answer(ErrorCode.NONE, 5, -1, granted=True)))
    assert isinstance(raft.state, Candidate)
    raft = prospective(end=10, epoch=3)
    raft.step(1600, Answered(2, vote, Answer(ErrorCode.NONE, 5, -1)))
    ready = raft.step(1620, Asked("t", Vote(TWO, 5, 3, 10, pre=True)))
    assert [r.answer.granted for r in ready.replies] == [True]  # type: ignore[union-attr]
    assert not ready.sends


def test_nobody_goes_back_to_a_leader_whose_process_is_gone() -> None:
    raft = follower()
    raft.step(100, Gone(2))
    assert isinstance(raft.state, Prospective)
    raft.step(raft.state.deadline_ms, Tick())
    assert isinstance(raft.state, Prospective), "it asks again"
    answer(raft, BeginEpoch(3, 6), 5000)
    raft.step(7000, Tick())
    raft.step(raft.state.deadline_ms, Tick())
    assert isinstance(raft.state, Follower), "of another one it knows nothing of the kind"


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
    assert not raft.step(1600, Answered(2, Vote(ME, 5, 0, 0, pre=True), wrong)).sends
    assert isinstance(raft.state, Prospective)
    assert raft.state.election.answers == {1: True}, "neither a yes nor a no"
    assert [s.peer for s in raft.step(1620, Tick()).sends] == [2], "asked again shortly"
    old = Answer(ErrorCode.NONE, 5, -1, granted=True)
    raft.step(1600, Answered(3, Vote(ME, 4, 0, 0, pre=True), old))
    assert isinstance(raft.state, Prospective)


def test_a_candidate_that_is_beaten_asks_no_more() -> None:
    raft = candidate(count=5)
    for peer in (2, 3, 4):
        ready = raft.step(1600, Answered(peer, Vote(ME, 6, 0, 0), Answer(ErrorCode.NONE, 6, -1)))
    raft.step(1600, Unreachable(5, Vote(ME, 6, 0, 0)))
    ready = raft.step(1620, Tick())
    assert not ready.sends


def test_r207_who_cannot_be_asked_for_a_pre_vote_is_asked_for_its_vote() -> None:
    raft = prospective()
    pre = Vote(ME, 5, 0, 0, pre=True)
    assert not raft.step(1600, Refused(2, pre, ErrorCode.UNKNOWN_SERVER_ERROR)).sends
    assert isinstance(raft.state, Prospective)
    ready = raft.step(1620, Refused(2, pre, ErrorCode.UNSUPPORTED_VERSION))
    assert isinstance(raft.state, Candidate)
    assert ready.hard_state == HardState(6, -1, ME)
    assert [s.request for s in ready.sends] == [Vote(ME, 6, 0, 0, voter=TWO), Vote(ME, 6, 0, 0, voter=THREE)]
    raft.step(1630, Refused(2, pre, ErrorCode.UNSUPPORTED_VERSION))
    assert raft.epoch == 6, "an old refusal"


def test_what_got_no_answer_is_asked_again_shortly() -> None:
    raft = prospective()
    assert not raft.step(1501, Tick()).sends, "a request is under way to each"
    assert not raft.step(1510, Unreachable(2, Vote(ME, 5, 0, 0, pre=True))).sends
    assert raft.deadline_ms == 1530
    assert [s.peer for s in raft.step(1530, Tick()).sends] == [2]


# ------------------------------------------------------------------ votes (R211, R212)


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
        (Vote(ReplicaKey(-1), 4, 3, 9), FENCED),
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
    assert not answer(raft, Vote(ReplicaKey(2), 6, 0, 0)).granted
    assert not answer(raft, Vote(ReplicaKey(2, bytes([8] * 16)), 6, 0, 0)).granted


def test_nobody_votes_for_another_that_has_its_own_id() -> None:
    raft = unattached()
    assert not answer(raft, Vote(ReplicaKey(1, bytes([9] * 16)), 6, 0, 0)).granted
    assert raft.hard == HardState(6)


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
