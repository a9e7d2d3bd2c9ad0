"""Raft state machines in each state."""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    ResignedState,
)
from ottla.controller.raft.state_machine.events import (
    BeginEpoch,
    Fetch,
    HardState,
    LogFlushed,
    RaftResponse,
    RaftStarted,
    Ready,
    ReplicaKey,
    RequestReceived,
    Resign,
    ResponseReceived,
    Tick,
    Vote,
)
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory, voter_keys
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter

OK, FENCED, INVALID, INVALID_KEY = (
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_VOTER_KEY,
)

KEYS = {i: ReplicaKey(i, bytes([i] * 16)) for i in (1, 2, 3, 4, 5)}
FIRST, SECOND, THIRD = KEYS[1], KEYS[2], KEYS[3]


def new_machine(hard: HardState = HardState(0), count: int = 3, end: int = 0, epoch: int = 0) -> RaftStateMachine:  # noqa: B008
    """Return replica 1 of several, with a log of ``end`` records of one epoch; not started."""
    chain = LogSummary(end, [(epoch, 0)] if end else [])
    return RaftStateMachine(FIRST, VoterSetHistory(KEYS[i] for i in range(1, count + 1)), hard, chain, lambda: 0.5)


def voter_entry(number: int, port: int = 9093, least: int = 0, most: int = 1) -> VotersRecordVoter:
    """Return the entry of a replica in the voters record."""
    endpoints = [Endpoint("CONTROLLER", f"host{number}", port)]
    return VotersRecordVoter(number, KEYS[number].directory_id, endpoints, KRaftVersionFeature(least, most))


def voters_record(*numbers: int) -> VotersRecord:
    """Return the voters record of these replicas."""
    return VotersRecord(0, [voter_entry(n) for n in numbers])


def response_to(raft: RaftStateMachine, request: Any, now_ms: float = 0) -> Any:
    (reply,) = raft.step(now_ms, RequestReceived("t", request)).replies
    assert reply.pending_request == "t"
    return reply.response


def unattached(hard: HardState = HardState(5), **more: Any) -> RaftStateMachine:  # noqa: B008
    raft = new_machine(hard, **more)
    raft.step(0, RaftStarted())
    return raft


def prospective(**more: Any) -> RaftStateMachine:
    raft = unattached(**more)
    raft.step(1500, Tick())
    assert isinstance(raft.state, ProspectiveState)
    return raft


def candidate(**more: Any) -> RaftStateMachine:
    raft = prospective(**more)
    vote = Vote(FIRST, raft.epoch, raft.log_summary.last_epoch, raft.log_summary.end_offset, pre_vote=True)
    for peer in (2, 3)[: raft.voters.majority_size - 1]:
        raft.step(1501, ResponseReceived(peer, vote, RaftResponse(ErrorCode.NONE, raft.epoch, -1, vote_granted=True)))
    assert isinstance(raft.state, CandidateState)
    return raft


def leader(**more: Any) -> RaftStateMachine:
    raft = candidate(**more)
    vote = Vote(FIRST, raft.epoch, raft.log_summary.last_epoch, raft.log_summary.end_offset)
    for peer in (2, 3)[: raft.voters.majority_size - 1]:
        raft.step(1502, ResponseReceived(peer, vote, RaftResponse(ErrorCode.NONE, raft.epoch, -1, vote_granted=True)))
    assert raft.is_leader
    return raft


def follower(fetched: bool = False, **more: Any) -> RaftStateMachine:
    raft = unattached(**more)
    response_to(raft, BeginEpoch(2, raft.epoch))
    assert isinstance(raft.state, RaftFollowerState)
    raft.state.has_fetched_from_leader = fetched
    return raft


def resigned() -> RaftStateMachine:
    raft = leader()
    raft.step(1503, Resign())
    assert isinstance(raft.state, ResignedState)
    return raft


def leader_with_log(end: int = 10, **more: Any) -> RaftStateMachine:
    """Return the leader of epoch 6 with ``end`` records of epoch 3 and its own flushed first record."""
    raft = leader(end=end, epoch=3, **more)
    raft.step(1503, LogFlushed(end + 1))
    return raft


def leader_of_voters(*numbers: int, level: int = 1, commits: bool = True) -> RaftStateMachine:
    """Return the leader of epoch 1 with these voters and their record at offset 0 (at kraft.version 1)."""
    first = voters_record(*numbers)
    history = VoterSetHistory([ReplicaKey(n) for n in numbers])
    chain = LogSummary()
    if level:
        chain.append(0, 1)
        history = VoterSetHistory(voter_keys(first), first, 0)
    raft = RaftStateMachine(FIRST, history, HardState(0), chain, lambda: 0.5, entry=voter_entry(1))
    raft.step(0, RaftStarted())
    if len(numbers) > 1:
        raft.step(1500, Tick())
    for pre in (True, False):
        for peer in numbers[1:]:
            vote = Vote(FIRST, raft.epoch, 0, chain.end_offset, pre)
            raft.step(1500, ResponseReceived(peer, vote, RaftResponse(OK, raft.epoch, -1, vote_granted=True)))
    assert raft.is_leader
    raft.step(1510, LogFlushed(chain.end_offset))
    if commits:
        for number in numbers[1:]:
            replica_fetches(raft, number, 1510)
        assert raft.advertised_high_watermark == chain.end_offset
    return raft


def replica_fetches(
    raft: RaftStateMachine, number: int, now_ms: float, offset: int = -1, key: ReplicaKey | None = None
) -> Ready:
    """Fetch by a replica, from the log end unless an offset is given."""
    at = raft.log_summary.end_offset if offset < 0 else offset
    epoch, _ = raft.log_summary.end_offset_for_epoch(raft.epoch) if at == raft.log_summary.end_offset else (1, 0)
    return raft.step(now_ms, RequestReceived("fetch", Fetch(key or KEYS[number], raft.epoch, at, epoch)))
