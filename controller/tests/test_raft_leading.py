"""Epochs of others, and what a leader does (R209-R221, R227, R228, R243)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.answers import successor_wait_ms
from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import (
    Answer,
    Answered,
    Asked,
    BeginEpoch,
    EndEpoch,
    Fetch,
    HardState,
    Propose,
    ReplicaKey,
    Resign,
    Start,
    Synced,
    Tick,
    Unreachable,
    Vote,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import Prospective, Resigned
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
    led,
    prospective,
    record,
    unattached,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl

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
    doubt = raft.step(2001, Asked("t", BeginEpoch(3, 5))).doubt
    assert doubt is not None
    assert "two leaders in epoch 5" in doubt
    assert (raft.leader_id, raft.hard.leader_id) == (-1, 2)


@pytest.mark.parametrize(
    ("places", "wait"),
    [
        ([True], 0),
        ([], 0),  # a leader that started again knows no successor
        ([False, False], 1000),
        ([False, True], 500),
        ([False, True, False], 250),
        ([False, False, True], 500),
        ([False, False, False, True], 500),
    ],
)
def test_r215_successors_wait_by_their_place(places: list[bool], wait: float) -> None:
    assert successor_wait_ms(places, 1000) == wait


def test_r215_only_who_follows_the_leader_that_goes_hurries() -> None:
    for raft in (unattached(), prospective(), candidate(), led()):
        state, deadline = raft.state, raft.state.deadline_ms
        answer(raft, EndEpoch(THREE.id if raft.epoch == 5 else 2, raft.epoch - 1, (ME,)), 10)
        assert (raft.state, raft.state.deadline_ms) == (state, deadline)
    raft = follower()
    deadline = raft.deadline_ms
    raft.step(10, Asked("t", EndEpoch(THREE.id, 5, (ME,))))
    assert (raft.leader_id, raft.deadline_ms) == (2, deadline), "another one's end is nothing to it"
    raft = led()
    answer(raft, EndEpoch(2, 6, (ME,)), 10)
    assert raft.is_leader


def test_r215_the_first_successor_tries_at_once() -> None:
    for successors, deadline in (((ME, THREE), 10), ((THREE, ME), 510), ((THREE,), 1010), ((), 10)):
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
    for key in (KEYS[5], ReplicaKey(2, bytes([9] * 16)), ReplicaKey(2), ReplicaKey(-1)):
        raft.step(1600, Asked("a", Fetch(key, 6, 11, 6)))
    assert raft.high_watermark == -1
    raft.step(1600, Asked("a", Fetch(TWO, 6, 11, 6)))
    assert raft.high_watermark == 11


def test_r201_an_entry_without_directory_means_any() -> None:
    """kraft.version 0: the voters are known by their ids alone."""
    raft = led()
    raft.voters = VoterHistory(map(ReplicaKey, (1, 2, 3)))
    raft.step(1600, Asked("a", Fetch(TWO, 6, 11, 6)))
    raft.step(1600, Synced(11))
    assert raft.high_watermark == 11


def test_who_uses_the_leaders_id_gets_nothing() -> None:
    raft = led()
    for key in (ME, ReplicaKey(1, bytes([9] * 16))):
        (reply,) = raft.step(1600, Asked("a", Fetch(key, 6, 4, 3))).replies
        assert (reply.answer.error, reply.answer.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    raft.step(1600, Asked("a", Fetch(TWO, 6, 11, 6)))
    assert raft.high_watermark == 11, "what this node has itself still counts"


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


def test_a_fetch_that_waits_is_answered_once_when_its_leader_goes() -> None:
    raft = led()
    raft.step(1600, Asked("f", Fetch(TWO, 6, 11, 6, 11, 500)))
    raft.step(1601, Asked("g", Fetch(THREE, 6, 11, 6, 11, 500)))
    replies = raft.step(1650, Asked("b", BeginEpoch(2, 7))).replies
    told = [(r.ticket, r.answer.error) for r in replies if r.ticket != "b"]
    assert told == [(ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER) for ticket in "fg"]
    assert not raft.parked
    for now in (2200, 4000, 6000):
        assert not raft.step(now, Tick()).replies


def test_r228_a_leader_nobody_listens_to_resigns() -> None:
    raft = led(count=5)
    deadline = raft.state.deadline_ms
    assert deadline == 1502 + 3000
    raft.step(2000, Asked("a", Fetch(TWO, 6, 10, 3)))
    raft.step(2001, Asked("a", Fetch(TWO, 6, 10, 3)))
    raft.step(2001, Asked("a", Fetch(ReplicaKey(3, bytes([9] * 16)), 6, 10, 3)))
    raft.step(2002, Asked("a", Fetch(THREE, 6, 12, 5)))
    assert raft.state.deadline_ms == deadline, "two others are needed, and their logs must fit"
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
    raft.step(2520, Unreachable(3, BeginEpoch(1, 6)))
    assert 3 not in [s.peer for s in raft.step(3519, Tick()).sends], "no hurry: who lives asks by itself"
    assert [s.peer for s in raft.step(3520, Tick()).sends] == [3]


def test_r243_the_first_leader_writes_the_quorum_down_and_no_other() -> None:
    raft = RaftMachine(
        ME,
        VoterHistory([ME]),
        HardState(0),
        EpochChain(),
        lambda: 0.5,
        first_records=(ctl.KRaftVersionRecord(0, 1), record(1)),
    )
    (append,) = raft.step(0, Start()).append
    assert (append.records_count, append.controls[1:]) == (3, (ctl.KRaftVersionRecord(0, 1), record(1)))
    assert raft.chain.end == 3
    assert raft.first_records == ()
    assert (raft.voters.offset, raft.voters.record, raft.voters.kraft_version) == (2, record(1), 1)


def test_a_leader_that_hears_of_a_higher_epoch_lets_go() -> None:
    for news in (BeginEpoch(2, 7), Vote(TWO, 7, 3, 10)):
        raft = led()
        answer(raft, news)
        assert not raft.is_leader
        assert raft.epoch == 7
    raft = led()
    raft.step(1600, Answered(2, BeginEpoch(1, 6), Answer(FENCED, 9, 3)))
    assert (raft.epoch, raft.leader_id) == (9, 3)
