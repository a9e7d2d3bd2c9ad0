"""What a follower tells its leader of itself (R249, R250), and the voter sets in the log (R201)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.chain import EpochChain, VoterHistory, differs, voter_keys
from ottla.controller.raft.events import (
    AddVoter,
    Answer,
    Answered,
    Asked,
    Batch,
    BeginEpoch,
    Fetch,
    FetchAnswer,
    HardState,
    Refused,
    RemoveVoter,
    ReplicaKey,
    Start,
    Synced,
    Tick,
    Unreachable,
    UpdateVoter,
    Vote,
    VoterAnswer,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import FOREVER_MS, Prospective, Resigned, Unattached
from ottla.controller.tests.raft_world import ME, OK, THREE, TWO, entry, fetched, leads, record
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl

E = ErrorCode


def follows(mine: ctl.VotersRecordVoter | None, voters: ctl.VotersRecord | None, *, joins: bool = False) -> RaftMachine:
    """Replica 1 follows 2 in epoch 5 from time 0 on; its fetch is under way."""
    keys = [ReplicaKey(1), ReplicaKey(2)] if voters is None else voter_keys(voters)
    history = VoterHistory(keys, voters, 0 if voters else -1)
    raft = RaftMachine(ME, history, HardState(5, 2), EpochChain(), lambda: 0.5, entry=mine, auto_join=joins)
    raft.step(0, Start())
    assert raft.fetching is not None
    return raft


def next_asked(raft: RaftMachine, now_ms: float) -> Any:
    """What is sent once the fetch that is under way has brought nothing."""
    assert raft.fetching is not None
    (send,) = raft.step(now_ms, Answered(2, raft.fetching, FetchAnswer(OK, 5, 2, offset=0))).sends
    assert send.peer == 2
    return send.request


OWN = UpdateVoter(ME, 5, tuple(entry(1).endpoints), 0, 1)


def test_r249_a_voter_whose_entry_differs_tells_the_leader_each_fetch_timeout() -> None:
    raft = follows(entry(1), ctl.VotersRecord(0, [entry(1, 1), entry(2)]))
    assert isinstance(next_asked(raft, 1999), Fetch)
    own = next_asked(raft, 2000)
    assert own == OWN
    assert raft.fetching is None, "nothing is fetched meanwhile"
    (send,) = raft.step(2010, Answered(2, own, VoterAnswer(OK, 5, 2))).sends
    assert isinstance(send.request, Fetch)
    assert raft.state.deadline_ms == 4010, "the leader lives"
    assert isinstance(next_asked(raft, 3999), Fetch)
    assert next_asked(raft, 4000) == OWN, "it differs still"


@pytest.mark.parametrize(
    ("mine", "voters"),
    [
        (entry(1), record(1, 2)),
        (None, record(1, 2)),  # a broker only
        (entry(1), record(2, 3)),  # no voter
        (entry(1), ctl.VotersRecord(0, [ctl.VotersRecordVoter(1, bytes([9] * 16)), entry(2)])),
    ],
)
def test_r249_who_has_nothing_new_to_say_goes_on_fetching(mine: Any, voters: Any) -> None:
    raft = follows(mine, voters)
    assert isinstance(next_asked(raft, 1000), Fetch)
    assert isinstance(next_asked(raft, 2000), Fetch)


def test_r249_at_kraft_version_0_each_leader_is_told_once() -> None:
    for how in ("answered", "unsupported", "refused"):
        raft = follows(entry(1), None)
        next_asked(raft, 1000)
        own = next_asked(raft, 2000)
        assert own == OWN
        match how:
            case "answered":
                raft.step(2010, Answered(2, own, VoterAnswer(OK, 5, 2)))
            case "unsupported":
                raft.step(2010, Answered(2, own, VoterAnswer(E.UNSUPPORTED_VERSION, 5, 2)))
            case "refused":
                raft.step(2010, Refused(2, own, E.UNSUPPORTED_VERSION))
        for now in (3000, 4001, 5000):
            assert isinstance(next_asked(raft, now), Fetch), how
        raft.step(5100, Asked("t", BeginEpoch(2, 6)))
        raft.step(6000, Answered(2, raft.fetching, FetchAnswer(OK, 6, 2, offset=0)))  # type: ignore[arg-type]
        (send,) = raft.step(7100, Answered(2, raft.fetching, FetchAnswer(OK, 6, 2, offset=0))).sends  # type: ignore[arg-type]
        assert send.request == OWN._replace(epoch=6), "a new leader"


@pytest.mark.parametrize("how", ["timed out", "unreachable", "no answer"])
def test_r249_an_update_that_failed_is_said_again_in_its_turn(how: str) -> None:
    raft = follows(entry(1), None)
    next_asked(raft, 1000)
    own = next_asked(raft, 2000)
    match how:
        case "timed out":
            ready = raft.step(2010, Answered(2, own, VoterAnswer(E.REQUEST_TIMED_OUT, 5, 2)))
        case "unreachable":
            ready = raft.step(2010, Unreachable(2, own))
        case _:
            raft.state.deadline_ms = 9000
            assert raft.deadline_ms == 4000
            ready = raft.step(4000, Tick())
    assert not ready.sends
    rests = raft.deadline_ms
    (send,) = raft.step(rests, Tick()).sends
    assert isinstance(send.request, Fetch) == (how != "no answer")
    if how != "no answer":
        assert next_asked(raft, 4000) == OWN


def test_r249_an_update_answered_by_another_epoch_is_followed() -> None:
    raft = follows(entry(1), None)
    next_asked(raft, 1000)
    own = next_asked(raft, 2000)
    (send,) = raft.step(2010, Answered(2, own, VoterAnswer(E.FENCED_LEADER_EPOCH, 8, 2))).sends
    assert (raft.epoch, raft.leader_id) == (8, 2)
    assert isinstance(send.request, Fetch)


def test_r250_who_may_joins_by_itself() -> None:
    others = record(2, 3)
    raft = follows(entry(1), others, joins=True)
    next_asked(raft, 1000)
    wish = next_asked(raft, 2000)
    assert wish == AddVoter(ME, tuple(entry(1).endpoints), ack_when_committed=False)
    for error in (E.REQUEST_TIMED_OUT, E.DUPLICATE_VOTER, OK):
        (send,) = raft.step(2010, Answered(2, wish, VoterAnswer(error))).sends
        assert isinstance(send.request, Fetch)
        raft.offering = wish
        raft.fetching = None
    assert not raft.step(2020, Answered(2, wish, VoterAnswer(E.UNKNOWN_SERVER_ERROR))).sends, "the leader rests"
    (send,) = raft.step(2040, Tick()).sends
    assert isinstance(send.request, Fetch)
    assert next_asked(raft, 4000) == wish


def test_r250_an_entry_with_another_directory_is_removed_first() -> None:
    old = ctl.VotersRecordVoter(1, bytes([9] * 16))
    raft = follows(entry(1), ctl.VotersRecord(0, [old, entry(2)]), joins=True)
    next_asked(raft, 1000)
    wish = next_asked(raft, 2000)
    assert wish == RemoveVoter(ReplicaKey(1, bytes([9] * 16)))
    (send,) = raft.step(2010, Answered(2, wish, VoterAnswer(E.VOTER_NOT_FOUND))).sends
    assert isinstance(send.request, Fetch)


@pytest.mark.parametrize(
    ("mine", "voters", "joins"),
    [(entry(1), record(2, 3), False), (None, record(2, 3), True), (entry(1), None, True)],
)
def test_r250_others_do_not(mine: Any, voters: Any, joins: bool) -> None:
    raft = follows(mine, voters, joins=joins)
    if voters is None:
        raft.voters = VoterHistory([TWO, THREE])
    next_asked(raft, 1000)
    assert isinstance(next_asked(raft, 2000), Fetch)


@pytest.mark.parametrize(
    ("known", "differ"),
    [
        (entry(1), False),
        (entry(1, 1), True),
        (entry(1, most=0), True),
        (entry(2), False),
        (ctl.VotersRecordVoter(1, bytes([9] * 16)), False),
        (ctl.VotersRecordVoter(1, ME.directory_id, [ctl.Endpoint("controller", "HOST1", 9093)]), True),
    ],
)
def test_r249_what_counts_as_another_entry(known: ctl.VotersRecordVoter, differ: bool) -> None:
    assert differs([known], entry(1)) == differ


def test_r249_names_of_hosts_and_listeners_are_the_same_in_any_letters() -> None:
    other = entry(1)
    other.endpoints = [ctl.Endpoint("controller", "HOST1", 9093)]
    assert not differs([other], entry(1))


# ------------------------------------------------------------------ the set and the log (R201)


def test_r201_a_cut_takes_a_change_back() -> None:
    raft = follows(entry(1), record(1, 2))
    four = record(1, 2, 4)
    assert raft.fetching is not None
    said_ = FetchAnswer(OK, 5, 2, offset=0)
    raft.step(10, Answered(2, raft.fetching, said_, (Batch(0, 0, 4, "raw"), Batch(1, 1, 4, "raw", four))))
    assert (raft.voters.record, raft.voters.offset) == (four, 1)
    raft.step(20, Synced(2))
    assert raft.fetching is not None
    raft.step(30, Answered(2, raft.fetching, FetchAnswer(OK, 5, 2, diverging=(4, 1))))
    assert (raft.voters.record, raft.voters.offset) == (record(1, 2), 0)


def test_who_was_removed_by_what_may_not_be_committed_has_no_turn_to_wait_for() -> None:
    raft = follows(entry(1), record(1, 2, 3))
    raft.voters.add(5, [TWO, THREE], record(2, 3))
    assert raft.may_stand
    raft.step(2_000, Tick())
    assert isinstance(raft.state, Prospective)
    assert raft.state.election.answers == {}, "its own voice does not count"


def test_a_leader_that_removed_itself_and_died_is_elected_once_more_to_see_it_through() -> None:
    """Where nobody else can be: the other one of two voters does not have its record."""
    raft = leads(1, 2)
    end = raft.chain.end
    raft.step(2000, Asked("t", RemoveVoter(ME)))
    raft.step(2010, Synced(end + 1))
    history = VoterHistory(voter_keys(record(1, 2)), record(1, 2), 0)
    history.add(end, [TWO], record(2))
    again = RaftMachine(ME, history, HardState(1, 1), EpochChain(end + 1, [(1, 0)]), lambda: 0.5)
    again.step(0, Start())
    again.step(again.state.deadline_ms, Tick())
    for pre in (True, False):
        assert not again.is_leader, "it does not count itself"
        vote = Vote(ME, again.epoch, 1, end + 1, pre)
        again.step(1600, Answered(2, vote, Answer(OK, again.epoch, -1, granted=True)))
    assert (again.is_leader, again.epoch) == (True, 3)
    again.step(1610, Synced(end + 2))
    assert again.told_high_watermark == -1
    fetched(again, 2, 1620)
    assert isinstance(again.state, Resigned)
    again.step(again.state.deadline_ms, Tick())
    assert (again.state, again.may_stand) == (Unattached(FOREVER_MS), False)


@pytest.mark.parametrize(
    ("me", "leader", "epoch", "told"),
    [
        (9, 9, 6, True),
        (9, 2, 6, False),
        (9, 9, 5, False),  # in an epoch it knew of; it may have said so itself before it was removed
        (1, 1, 6, False),  # a voter: somebody has mixed something up, and the next answer is right
    ],
)
def test_that_another_node_with_its_id_leads_is_said_once_an_epoch(
    me: int, leader: int, epoch: int, told: bool
) -> None:
    """Else it would wait for ever for the metadata of a leader it takes for itself, and never say why."""
    history = VoterHistory([ReplicaKey(1), ReplicaKey(2)])
    key = ME if me == 1 else ReplicaKey(me, bytes([me] * 16))
    raft = RaftMachine(key, history, HardState(5), EpochChain(), lambda: 0.5, bootstrap=(-2,))
    (send,) = raft.step(0, Start()).sends
    said = []
    for turn in range(3):
        ready = raft.step(turn * 3000, Answered(send.peer, send.request, FetchAnswer(OK, epoch, leader, offset=0)))
        said.append(ready.news)
    assert [x for x in said if x is not None] == [x for x in said[:1] if told]
    if told:
        assert said[0] is not None
        assert said[0][1].startswith("a node 9 leads in epoch 6, and it is not this one")


def test_a_leader_that_is_asked_by_somebody_with_its_own_id_says_so_once_and_so_does_who_asked() -> None:
    raft = leads(1, 2, 3)
    stranger = ReplicaKey(ME.id, b"another one here")
    asked = Fetch(stranger, raft.epoch, 0, 0)
    readies = [raft.step(now_ms, Asked("t", asked)) for now_ms in (1600, 1601)]
    said = [ready.news for ready in readies]
    assert said[0] is not None
    assert said[0][1] == "somebody else asks for the metadata as node 1: each node needs an id of its own"
    assert said[1] is None
    (reply,) = readies[0].replies
    assert reply.answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    other = RaftMachine(stranger, VoterHistory([]), HardState(0), EpochChain(), lambda: 0.5, bootstrap=(-2,))
    (send,) = other.step(0, Start()).sends
    told = other.step(1, Answered(send.peer, send.request, reply.answer)).news
    assert told is not None
    assert told[1].startswith(f"the leader of epoch {raft.epoch} gives node 1 no metadata")
