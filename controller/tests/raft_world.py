"""Raft machines brought into each state, to be asked directly."""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.chain import EpochChain, VoterHistory, voter_keys
from ottla.controller.raft.events import (
    Answer,
    Answered,
    Asked,
    BeginEpoch,
    Fetch,
    HardState,
    Ready,
    ReplicaKey,
    Resign,
    Start,
    Synced,
    Tick,
    Vote,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import Candidate, Follower, Prospective, Resigned
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl

OK, FENCED, INVALID, KEY = (
    ErrorCode.NONE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_VOTER_KEY,
)

KEYS = {i: ReplicaKey(i, bytes([i] * 16)) for i in (1, 2, 3, 4, 5)}
ME, TWO, THREE = KEYS[1], KEYS[2], KEYS[3]


def machine(hard: HardState = HardState(0), count: int = 3, end: int = 0, epoch: int = 0) -> RaftMachine:  # noqa: B008
    """Replica 1 of several, its log of ``end`` records of one epoch; not started."""
    chain = EpochChain(end, [(epoch, 0)] if end else [])
    return RaftMachine(ME, VoterHistory(KEYS[i] for i in range(1, count + 1)), hard, chain, lambda: 0.5)


def entry(number: int, port: int = 9093, least: int = 0, most: int = 1) -> ctl.VotersRecordVoter:
    """A replica as it stands among the voters."""
    places = [ctl.Endpoint("CONTROLLER", f"host{number}", port)]
    return ctl.VotersRecordVoter(number, KEYS[number].directory_id, places, ctl.KRaftVersionFeature(least, most))


def record(*numbers: int) -> ctl.VotersRecord:
    """These replicas are the voters."""
    return ctl.VotersRecord(0, [entry(n) for n in numbers])


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


def led(end: int = 10, **more: Any) -> RaftMachine:
    """Leader of epoch 6 over ``end`` records of epoch 3 and its own first one, which is on its disk."""
    raft = leader(end=end, epoch=3, **more)
    raft.step(1503, Synced(end + 1))
    return raft


def leads(*numbers: int, level: int = 1, commits: bool = True) -> RaftMachine:
    """Replica 1 leads epoch 1 over these voters, whose record stands at offset 0 (at kraft.version 1)."""
    first = record(*numbers)
    history = VoterHistory([ReplicaKey(n) for n in numbers])
    chain = EpochChain()
    if level:
        chain.append(0, 1)
        history = VoterHistory(voter_keys(first), first, 0)
    raft = RaftMachine(ME, history, HardState(0), chain, lambda: 0.5, entry=entry(1))
    raft.step(0, Start())
    if len(numbers) > 1:
        raft.step(1500, Tick())
    for pre in (True, False):
        for peer in numbers[1:]:
            vote = Vote(ME, raft.epoch, 0, chain.end, pre)
            raft.step(1500, Answered(peer, vote, Answer(OK, raft.epoch, -1, granted=True)))
    assert raft.is_leader
    raft.step(1510, Synced(chain.end))
    if commits:
        for number in numbers[1:]:
            fetched(raft, number, 1510)
        assert raft.told_high_watermark == chain.end
    return raft


def fetched(raft: RaftMachine, number: int, now_ms: float, offset: int = -1, key: ReplicaKey | None = None) -> Ready:
    """A replica fetches, from the end where nothing else is said."""
    at = raft.chain.end if offset < 0 else offset
    epoch, _ = raft.chain.end_of(raft.epoch) if at == raft.chain.end else (1, 0)
    return raft.step(now_ms, Asked("fetch", Fetch(key or KEYS[number], raft.epoch, at, epoch)))
