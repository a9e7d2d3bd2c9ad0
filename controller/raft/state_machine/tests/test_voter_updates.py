"""UpdateVoter, and upgrade of kraft.version (R-244, R-249)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.raft.state_machine.epoch_states import (
    RaftLeaderState,
)
from ottla.controller.raft.state_machine.events import (
    LogFlushed,
    RemoveVoter,
    ReplicaKey,
    RequestReceived,
    UpdateVoter,
    UpgradeKRaftVersion,
    VoterChangeResponse,
)
from ottla.controller.raft.state_machine.tests.test_voter_changes import (
    OTHER_DIRECTORY,
    appended,
    error,
    following,
    pending,
    responses,
)
from ottla.controller.raft.tests.raft_fixture import (
    FIRST,
    KEYS,
    OK,
    SECOND,
    THIRD,
    leader_of_voters,
    replica_fetches,
    voter_entry,
    voters_record,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import Endpoint, KRaftVersionRecord, VotersRecord

# ------------------------------------------------------------------ kraft.version 0 to 1


def update(number: int, epoch: int = 1, **changes: Any) -> UpdateVoter:
    endpoints = tuple(voter_entry(number).endpoints)
    return UpdateVoter(KEYS[number], epoch, endpoints, 0, 1)._replace(**changes)


@pytest.mark.behaviour("R-244")
def test_upgrade_kraft_version_requires_support_of_every_voter() -> None:
    raft = leader_of_voters(1, 2, 3, level=0)
    assert error(raft, UpgradeKRaftVersion(1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert error(raft, update(2)) == OK
    assert error(raft, UpgradeKRaftVersion(1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert error(raft, update(3, max_version=0)) == OK
    assert error(raft, UpgradeKRaftVersion(1)) == ErrorCode.INVALID_UPDATE_VERSION
    assert error(raft, update(3)) == OK
    assert not raft.step(2010, RequestReceived("t", UpgradeKRaftVersion(1, validate_only=True))).appends
    assert raft.voters.kraft_version == 0
    ready = raft.step(2020, RequestReceived("t", UpgradeKRaftVersion(1)))
    assert [a.error for a in responses(ready)] == [OK]
    assert [a.controls for a in ready.appends] == [(KRaftVersionRecord(0, 1), voters_record(1, 2, 3))]
    assert (raft.voters.kraft_version, raft.voters.current) == (1, (FIRST, SECOND, THIRD))
    raft.step(2030, LogFlushed(raft.log_summary.end_offset))
    replica_fetches(raft, 2, 2030)
    assert raft.high_watermark == raft.log_summary.end_offset, "replica states of the voters are kept"


@pytest.mark.behaviour("R-244")
@pytest.mark.parametrize(
    ("level", "to", "expected"),
    [(0, 0, OK), (1, 1, OK), (1, 0, ErrorCode.INVALID_UPDATE_VERSION), (1, 2, ErrorCode.INVALID_UPDATE_VERSION)],
)
def test_upgrade_kraft_version_rejects_downgrade_and_unknown_version(level: int, to: int, expected: ErrorCode) -> None:
    raft = leader_of_voters(1, level=level)
    assert not raft.step(2000, RequestReceived("t", UpgradeKRaftVersion(to))).appends
    assert error(raft, UpgradeKRaftVersion(to)) == expected
    assert error(following(), UpgradeKRaftVersion(1)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.behaviour("R-244")
def test_voter_updates_are_retained_only_for_static_voters() -> None:
    for level, updates in ((0, {1: voter_entry(1)}), (1, {})):
        state = leader_of_voters(1, 2, level=level).state
        assert isinstance(state, RaftLeaderState)
        assert state.voter_updates == updates


@pytest.mark.behaviour("R-244")
def test_upgrade_kraft_version_of_single_voter_succeeds() -> None:
    raft = leader_of_voters(1, level=0)
    assert error(raft, UpgradeKRaftVersion(1)) == OK
    assert raft.voters.record == voters_record(1)


# ------------------------------------------------------------------ UpdateVoter


@pytest.mark.behaviour("R-249")
@pytest.mark.parametrize(
    ("make", "request_", "expected"),
    [
        (lambda: leader_of_voters(1, 2), update(2, 0), ErrorCode.FENCED_LEADER_EPOCH),
        (lambda: leader_of_voters(1, 2), update(2, 2), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (following, update(2, 2), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (pending, update(2, voter=ReplicaKey(2)), ErrorCode.INVALID_REQUEST),
        (pending, update(2, voter=ReplicaKey(-1, bytes([2] * 16))), ErrorCode.INVALID_REQUEST),
        (pending, update(2, endpoints=()), ErrorCode.INVALID_REQUEST),
        (pending, update(2, min_version=-1), ErrorCode.INVALID_REQUEST),
        (pending, update(2, min_version=2), ErrorCode.INVALID_REQUEST),
        (pending, update(2), ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2, commits=False), update(2), ErrorCode.REQUEST_TIMED_OUT),
        (appended, update(2), ErrorCode.REQUEST_TIMED_OUT),
        (lambda: leader_of_voters(1, 2), update(4, max_version=0), ErrorCode.INVALID_REQUEST),
        (lambda: leader_of_voters(1, 2), update(4), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2), update(2, voter=OTHER_DIRECTORY), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2), update(2), OK),
        (lambda: leader_of_voters(1, 2, level=0), update(2, min_version=1), ErrorCode.INVALID_REQUEST),
        (lambda: leader_of_voters(1, 2, level=0), update(4), ErrorCode.VOTER_NOT_FOUND),
        (lambda: leader_of_voters(1, 2, level=0), update(2), OK),
    ],
)
def test_update_voter_is_validated_in_kafkas_order(make: Any, request_: Any, expected: ErrorCode) -> None:
    assert error(make(), request_) == expected


@pytest.mark.behaviour("R-249")
def test_update_voter_is_answered_at_once_and_appended() -> None:
    raft = leader_of_voters(1, 2)
    ready = raft.step(2000, RequestReceived("t", update(2, endpoints=(Endpoint("CONTROLLER", "host2", 5),))))
    assert responses(ready) == [VoterChangeResponse(OK, 1, 1)]
    (append,) = ready.appends
    assert append.controls == (VotersRecord(0, [voter_entry(1), voter_entry(2, 5)]),)
    assert raft.voters.current == (FIRST, SECOND)
    assert raft.state.deadline_ms == 5000, "the request resets the fetch timeout (R-228)"
    assert error(raft, RemoveVoter(SECOND)) == ErrorCode.REQUEST_TIMED_OUT, "the previous change is not committed"
