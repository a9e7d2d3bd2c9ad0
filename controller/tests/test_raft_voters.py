"""Changes of the voters (R242-R249): the leader asked directly, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.events import (
    AddVoter,
    Answered,
    Asked,
    AskVersions,
    BeginEpoch,
    EndEpoch,
    RaiseVersion,
    Ready,
    RemoveVoter,
    ReplicaKey,
    Resign,
    Send,
    Synced,
    Tick,
    Unreachable,
    UpdateVoter,
    VersionsAnswer,
    VoterAnswer,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import FOREVER_MS, Leader, Resigned, Unattached
from ottla.controller.tests.raft_world import KEYS, ME, OK, THREE, TWO, entry, fetched, leads, record
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl

E = ErrorCode
FOUR = KEYS[4]
PLACES = (ctl.Endpoint("CONTROLLER", "host4", 9093),)
ADD = AddVoter(FOUR, PLACES)
STRANGER = ReplicaKey(2, bytes([9] * 16))
SPEAKS = VersionsAnswer(OK, 0, 1)


def said(ready: Ready, ticket: str = "t") -> list[Any]:
    return [r.answer for r in ready.replies if r.ticket == ticket]


def error(raft: RaftMachine, request: Any, now_ms: float = 2000) -> ErrorCode | None:
    """What a wish is answered at once; None where it waits."""
    found = said(raft.step(now_ms, Asked("t", request)))
    return found[0].error if found else None


def asks(ready: Ready) -> list[AskVersions]:
    return [s.request for s in ready.sends if isinstance(s.request, AskVersions)]


def adding(raft: RaftMachine, request: AddVoter = ADD) -> AskVersions:
    fetched(raft, request.voter.id, 1600)
    (ask,) = asks(raft.step(2000, Asked("t", request)))
    return ask


# ------------------------------------------------------------------ the checks in their order (above R246)


def pending() -> RaftMachine:
    raft = leads(1, 2, 3)
    adding(raft)
    return raft


def appended() -> RaftMachine:
    """The record of a change stands in the log, and the one who wished it has been answered."""
    raft = leads(1, 2, 3)
    ask = adding(raft, ADD._replace(ack_when_committed=False))
    raft.step(2010, Answered(4, ask, SPEAKS))
    raft.state.change = None  # type: ignore[union-attr]
    return raft


def following() -> RaftMachine:
    raft = leads(1, 2, 3)
    raft.step(1600, Asked("t", BeginEpoch(2, 2)))
    return raft


@pytest.mark.parametrize(
    ("make", "request_", "expected"),
    [
        (following, ADD, E.NOT_LEADER_OR_FOLLOWER),
        (following, AddVoter(ReplicaKey(-1), ()), E.NOT_LEADER_OR_FOLLOWER),
        (following, RemoveVoter(TWO), E.NOT_LEADER_OR_FOLLOWER),
        (pending, AddVoter(ReplicaKey(4), PLACES), E.INVALID_REQUEST),
        (pending, AddVoter(ReplicaKey(-1, FOUR.directory_id), PLACES), E.INVALID_REQUEST),
        (pending, AddVoter(FOUR, ()), E.INVALID_REQUEST),
        (pending, AddVoter(FOUR, (ctl.Endpoint("OTHER", "host4", 9093),)), E.INVALID_REQUEST),
        (pending, RemoveVoter(ReplicaKey(2)), E.INVALID_REQUEST),
        (pending, ADD, E.REQUEST_TIMED_OUT),
        (pending, RemoveVoter(TWO), E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2, 3, commits=False), ADD, E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2, 3, commits=False), RemoveVoter(TWO), E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2, 3, commits=False, level=0), ADD, E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2, 3, level=0), ADD, E.UNSUPPORTED_VERSION),
        (lambda: leads(1, 2, 3, level=0), RemoveVoter(TWO), E.UNSUPPORTED_VERSION),
        (appended, AddVoter(KEYS[5], PLACES), E.REQUEST_TIMED_OUT),
        (appended, RemoveVoter(TWO), E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2, 3), AddVoter(TWO, PLACES), E.DUPLICATE_VOTER),
        (lambda: leads(1, 2, 3), AddVoter(STRANGER, PLACES), E.DUPLICATE_VOTER),
        (lambda: leads(1, 2, 3), AddVoter(FOUR, (ctl.Endpoint("controller", "h", 1),)), None),
        (lambda: leads(1, 2, 3), RemoveVoter(STRANGER), E.VOTER_NOT_FOUND),
        (lambda: leads(1, 2, 3), RemoveVoter(FOUR), E.VOTER_NOT_FOUND),
        (lambda: leads(1), RemoveVoter(ME), E.VOTER_NOT_FOUND),
        (lambda: leads(1, 2, 3), RemoveVoter(TWO), None),
    ],
)
def test_r246_a_wish_is_checked_in_order(make: Any, request_: Any, expected: ErrorCode | None) -> None:
    raft = make()
    before = raft.voters.current
    assert error(raft, request_) == expected
    if expected is not None:
        assert raft.voters.current == before


def test_a_refusal_names_the_replica_and_all_voters() -> None:
    key = "ReplicaKey(id={}, directoryId={})".format
    stranger, voters = key(2, "CQ" + "kJCQ" * 5), f"[{key(1, 'AQEB' * 5 + 'AQ')}, {key(2, 'AgIC' * 5 + 'Ag')}]"
    for request, message in (
        (AddVoter(STRANGER, PLACES), f"The voter id for {stranger} is already part of the set of voters {voters}."),
        (RemoveVoter(STRANGER), f"Cannot remove voter {stranger} from the set of voters {voters}"),
    ):
        assert said(leads(1, 2).step(2000, Asked("t", request)))[0].message == message


# ------------------------------------------------------------------ adding (R247, R248)


def test_r248_the_new_voter_is_asked_what_it_speaks_and_then_added() -> None:
    raft = leads(1, 2, 3)
    ask = adding(raft)
    assert ask == AskVersions(FOUR, PLACES)
    end = raft.chain.end
    ready = raft.step(2010, Answered(4, ask, SPEAKS))
    (append,) = ready.append
    assert append.controls == (record(1, 2, 3, 4),)
    assert (raft.voters.offset, raft.voters.record) == (end, record(1, 2, 3, 4))
    assert raft.voters.has(FOUR), "it counts from now on (R242)"
    assert not said(ready)
    raft.step(2020, Synced(end + 1))
    assert not said(fetched(raft, 2, 2030)), "two of four are no majority"
    ready = fetched(raft, 4, 2040)
    assert raft.high_watermark == end + 1
    assert said(ready) == [VoterAnswer(OK, 1, 1)]
    assert error(raft, RemoveVoter(TWO), 2050) is None, "the next one may come"


def test_a_new_voter_that_does_not_fetch_hears_who_leads() -> None:
    raft = leads(1, 2, 3)
    raft.step(2010, Answered(4, adding(raft), SPEAKS))
    assert Send(4, BeginEpoch(1, 1, FOUR)) not in raft.step(3009, Tick()).sends
    assert Send(4, BeginEpoch(1, 1, FOUR)) in raft.step(3010, Tick()).sends


def test_r247_who_does_not_want_to_wait_is_answered_at_the_append() -> None:
    raft = leads(1, 2, 3)
    ask = adding(raft, ADD._replace(ack_when_committed=False))
    ready = raft.step(2010, Answered(4, ask, SPEAKS))
    assert said(ready) == [VoterAnswer(OK, 1, 1)]
    assert error(raft, RemoveVoter(TWO), 2020) == E.REQUEST_TIMED_OUT, "it is not committed yet"
    raft.step(2020, Synced(raft.chain.end))
    fetched(raft, 2, 2030)
    assert not said(fetched(raft, 3, 2030)), "not twice"


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (VersionsAnswer(E.UNSUPPORTED_VERSION, 0, 1), E.REQUEST_TIMED_OUT),
        (VersionsAnswer(OK), E.INVALID_REQUEST),
        (VersionsAnswer(OK, 0, 0), E.INVALID_REQUEST),
        (VersionsAnswer(OK, 2, 3), E.INVALID_REQUEST),
        (VersionsAnswer(OK, 1, 1), None),
    ],
)
def test_r248_what_the_new_voter_speaks_must_fit(versions: VersionsAnswer, expected: ErrorCode | None) -> None:
    raft = leads(1, 2, 3)
    ready = raft.step(2010, Answered(4, adding(raft), versions))
    assert [a.error for a in said(ready)] == ([] if expected is None else [expected])
    assert raft.voters.has(FOUR) == (expected is None)
    if expected is not None:
        assert error(raft, RemoveVoter(TWO), 2020) is None, "the way is free again"


def test_r248_who_cannot_be_asked_is_not_added() -> None:
    raft = leads(1, 2, 3)
    ready = raft.step(2010, Unreachable(4, adding(raft)))
    assert [a.error for a in said(ready)] == [E.REQUEST_TIMED_OUT]
    assert not raft.voters.has(FOUR)


def test_r248_who_has_not_all_or_is_long_gone_is_not_added() -> None:
    hour = 3_600_000
    for fetches, fits in (
        ([], False),
        ([(1600, 0)], False),  # not caught up
        ([(1600, -1)], True),
        ([(1600, -1), (1700, 0)], True),  # once is enough
        ([(1999 - hour, -1)], False),
    ):
        raft = leads(1, 2, 3)
        for at, offset in fetches:
            fetched(raft, 4, at, offset)
        (ask,) = asks(raft.step(2000, Asked("t", ADD)))
        ready = raft.step(2000, Answered(4, ask, SPEAKS))
        assert [a.error for a in said(ready)] == ([] if fits else [E.REQUEST_TIMED_OUT]), fetches
        assert raft.voters.has(FOUR) == fits
    raft = leads(1, 2, 3)
    fetched(raft, 4, 1600, key=ReplicaKey(4, bytes([9] * 16)))
    (ask,) = asks(raft.step(2000, Asked("t", ADD)))
    raft.step(2000, Answered(4, ask, SPEAKS))
    assert not raft.voters.has(FOUR), "another directory's log is not its own"


def test_r247_a_change_that_takes_too_long_is_answered_and_may_still_be_committed() -> None:
    raft = leads(1, 2, 3)
    ask = adding(raft)
    assert not said(raft.step(3999, Tick()))
    assert raft.deadline_ms <= 4000
    assert said(raft.step(4000, Tick())) == [VoterAnswer(E.REQUEST_TIMED_OUT, 1, 1)]
    raft.step(4010, Answered(4, ask, SPEAKS))
    assert not raft.voters.has(FOUR), "its answer came too late"
    raft = leads(1, 2, 3)
    raft.step(2010, Answered(4, adding(raft), SPEAKS))
    assert said(raft.step(4010, Tick())) == [VoterAnswer(E.REQUEST_TIMED_OUT, 1, 1)]
    assert raft.voters.has(FOUR)


def test_r247_a_change_ends_with_its_leader() -> None:
    for ends in (Resign(), Asked("b", BeginEpoch(2, 2))):
        raft = leads(1, 2, 3)
        ask = adding(raft)
        assert [a.error for a in said(raft.step(2010, ends))] == [E.NOT_LEADER_OR_FOLLOWER]
        raft.step(2020, Answered(4, ask, SPEAKS))
        assert not raft.voters.has(FOUR)


def test_r242_a_lone_leader_needs_the_new_voter_from_the_append_on() -> None:
    raft = leads(1)
    assert raft.state.deadline_ms == FOREVER_MS
    raft.step(2010, Answered(4, adding(raft), SPEAKS))
    assert raft.state.deadline_ms == 2010 + 3000, "somebody has to listen to it now"
    raft.step(2020, Synced(raft.chain.end))
    assert raft.high_watermark < raft.chain.end
    assert said(fetched(raft, 4, 2030)) == [VoterAnswer(OK, 1, 1)]


# ------------------------------------------------------------------ removing (R242)


def test_r242_a_removed_voter_does_not_count_any_more() -> None:
    raft = leads(1, 2, 3)
    end = raft.chain.end
    ready = raft.step(2000, Asked("t", RemoveVoter(THREE)))
    assert [a.controls for a in ready.append] == [(record(1, 2),)]
    raft.step(2010, Synced(end + 1))
    fetched(raft, 3, 2020)
    assert raft.high_watermark == end, "it is an observer"
    assert said(fetched(raft, 2, 2030)) == [VoterAnswer(OK, 1, 1)]
    raft.step(2040, Asked("t", RemoveVoter(TWO)))
    assert raft.state.deadline_ms == FOREVER_MS, "alone again"
    assert said(raft.step(2050, Synced(end + 2))) == [VoterAnswer(OK, 1, 1)]


def test_r242_removing_a_slow_voter_commits_what_the_others_have() -> None:
    raft = leads(1, 2, 3, commits=False)
    fetched(raft, 2, 1520)
    assert raft.high_watermark == raft.chain.end
    raft = leads(1, 2)
    assert said(raft.step(2000, Asked("t", RemoveVoter(TWO)))) == []
    assert raft.high_watermark < raft.chain.end, "not before this node has it on its disk"
    assert said(raft.step(2010, Synced(raft.chain.end))) == [VoterAnswer(OK, 1, 1)]


def test_r242_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    raft = leads(1, 2, 3)
    end = raft.chain.end
    raft.step(2000, Asked("t", RemoveVoter(ME)))
    assert raft.is_leader
    raft.step(2010, Synced(end + 1))
    fetched(raft, 2, 2020)
    assert raft.high_watermark == end, "one of two, for it does not count itself"
    ready = fetched(raft, 3, 2030)
    assert said(ready) == [VoterAnswer(OK, 1, 1)]
    assert isinstance(raft.state, Resigned)
    assert [(s.peer, s.request) for s in ready.sends] == [(i, EndEpoch(1, 1, (TWO, THREE))) for i in (2, 3)]
    raft.step(raft.state.deadline_ms, Tick())
    assert (raft.state, raft.epoch) == (Unattached(FOREVER_MS), 2)


def test_r228_a_leader_that_removed_itself_is_no_part_of_the_majority_that_listens() -> None:
    raft = leads(1, 2, 3)
    raft.step(2000, Asked("t", RemoveVoter(ME)))
    deadline = raft.state.deadline_ms
    fetched(raft, 2, 2500, 1)
    assert raft.state.deadline_ms == deadline
    fetched(raft, 3, 2600, 1)
    assert raft.state.deadline_ms == 5600


# ------------------------------------------------------------------ kraft.version 0 to 1 (R244)


def update(number: int, epoch: int = 1, **changes: Any) -> UpdateVoter:
    places = tuple(entry(number).endpoints)
    return UpdateVoter(KEYS[number], epoch, places, 0, 1)._replace(**changes)


def test_r244_the_version_is_raised_once_every_voter_is_known_to_speak_it() -> None:
    raft = leads(1, 2, 3, level=0)
    assert error(raft, RaiseVersion(1)) == E.INVALID_UPDATE_VERSION
    assert error(raft, update(2)) == OK
    assert error(raft, RaiseVersion(1)) == E.INVALID_UPDATE_VERSION
    assert error(raft, update(3, max_version=0)) == OK
    assert error(raft, RaiseVersion(1)) == E.INVALID_UPDATE_VERSION
    assert error(raft, update(3)) == OK
    assert not raft.step(2010, Asked("t", RaiseVersion(1, validate_only=True))).append
    assert raft.voters.kraft_version == 0
    ready = raft.step(2020, Asked("t", RaiseVersion(1)))
    assert [a.error for a in said(ready)] == [OK]
    assert [a.controls for a in ready.append] == [(ctl.KRaftVersionRecord(0, 1), record(1, 2, 3))]
    assert (raft.voters.kraft_version, raft.voters.current) == (1, (ME, TWO, THREE))
    raft.step(2030, Synced(raft.chain.end))
    fetched(raft, 2, 2030)
    assert raft.high_watermark == raft.chain.end, "what was known of the voters is kept"


@pytest.mark.parametrize(
    ("level", "to", "expected"),
    [(0, 0, OK), (1, 1, OK), (1, 0, E.INVALID_UPDATE_VERSION), (1, 2, E.INVALID_UPDATE_VERSION)],
)
def test_r244_there_is_no_way_back(level: int, to: int, expected: ErrorCode) -> None:
    raft = leads(1, level=level)
    assert not raft.step(2000, Asked("t", RaiseVersion(to))).append
    assert error(raft, RaiseVersion(to)) == expected
    assert error(following(), RaiseVersion(1)) == E.NOT_LEADER_OR_FOLLOWER


def test_r244_only_fixed_voters_are_kept_in_memory_the_leader_first() -> None:
    for level, told in ((0, {1: entry(1)}), (1, {})):
        state = leads(1, 2, level=level).state
        assert isinstance(state, Leader)
        assert state.told == told


def test_r244_a_lone_voter_can_be_raised_at_once() -> None:
    raft = leads(1, level=0)
    assert error(raft, RaiseVersion(1)) == OK
    assert raft.voters.record == record(1)


# ------------------------------------------------------------------ what a voter says of itself (R249)


@pytest.mark.parametrize(
    ("make", "request_", "expected"),
    [
        (lambda: leads(1, 2), update(2, 0), E.FENCED_LEADER_EPOCH),
        (lambda: leads(1, 2), update(2, 2), E.UNKNOWN_LEADER_EPOCH),
        (following, update(2, 2), E.NOT_LEADER_OR_FOLLOWER),
        (pending, update(2, voter=ReplicaKey(2)), E.INVALID_REQUEST),
        (pending, update(2, voter=ReplicaKey(-1, bytes([2] * 16))), E.INVALID_REQUEST),
        (pending, update(2, endpoints=()), E.INVALID_REQUEST),
        (pending, update(2, min_version=-1), E.INVALID_REQUEST),
        (pending, update(2, min_version=2), E.INVALID_REQUEST),
        (pending, update(2), E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2, commits=False), update(2), E.REQUEST_TIMED_OUT),
        (appended, update(2), E.REQUEST_TIMED_OUT),
        (lambda: leads(1, 2), update(4, max_version=0), E.INVALID_REQUEST),
        (lambda: leads(1, 2), update(4), E.VOTER_NOT_FOUND),
        (lambda: leads(1, 2), update(2, voter=STRANGER), E.VOTER_NOT_FOUND),
        (lambda: leads(1, 2), update(2), OK),
        (lambda: leads(1, 2, level=0), update(2, min_version=1), E.INVALID_REQUEST),
        (lambda: leads(1, 2, level=0), update(4), E.VOTER_NOT_FOUND),
        (lambda: leads(1, 2, level=0), update(2), OK),
    ],
)
def test_r249_an_update_is_checked_in_order(make: Any, request_: Any, expected: ErrorCode) -> None:
    assert error(make(), request_) == expected


def test_r249_an_update_is_answered_at_once_and_written() -> None:
    raft = leads(1, 2)
    ready = raft.step(2000, Asked("t", update(2, endpoints=(ctl.Endpoint("CONTROLLER", "host2", 5),))))
    assert said(ready) == [VoterAnswer(OK, 1, 1)]
    (append,) = ready.append
    assert append.controls == (ctl.VotersRecord(0, [entry(1), entry(2, 5)]),)
    assert raft.voters.current == (ME, TWO)
    assert raft.state.deadline_ms == 5000, "it is a sign of life (R228)"
    assert error(raft, RemoveVoter(TWO)) == E.REQUEST_TIMED_OUT, "it has to be committed first"
