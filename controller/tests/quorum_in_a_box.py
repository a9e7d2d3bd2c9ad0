"""A quorum of raft machines, a network that loses and reorders, disks that forget, and a clock: all from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import (
    Answered,
    Asked,
    Batch,
    Event,
    Fetch,
    FetchAnswer,
    HardState,
    Propose,
    Ready,
    ReplicaKey,
    Request,
    Resign,
    Start,
    Synced,
    Tick,
    Unreachable,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.states import Leader


class Entry(NamedTuple):
    epoch: int
    what: Any


class Flying(NamedTuple):
    due_ms: float
    order: int
    to: int
    event: Event
    life: int
    """Which life of the receiver it is for; 0 for any."""


@dataclass
class Host:
    key: ReplicaKey
    hard: HardState = field(default_factory=lambda: HardState(0))
    log: list[Entry] = field(default_factory=list)
    synced: int = 0
    machine: RaftMachine | None = None
    life: int = 0
    committed: int = -1


class Box:
    """Several hosts. Every promise of raft is checked at each step."""

    def __init__(self, seed: int, count: int, loss: float = 0.1, repeats: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.hosts = {i: Host(ReplicaKey(i, bytes([i] * 16))) for i in range(1, count + 1)}
        self.now_ms = 0.0
        self.loss = loss
        self.repeats = repeats
        """How many messages arrive once more, up to five seconds later."""
        self.cut: set[int] = set()
        self.flying: list[Flying] = []
        self.order = 0
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.proposed = 0

    def start(self, number: int) -> None:
        host = self.hosts[number]
        host.life += 1
        del host.log[max(host.synced, 0) :]
        epochs: list[tuple[int, int]] = []
        for offset, entry in enumerate(host.log):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, offset))
        voters = VoterHistory(h.key for h in self.hosts.values())
        chain = EpochChain(len(host.log), epochs)
        bootstrap = tuple(self.hosts)
        host.machine = RaftMachine(host.key, voters, host.hard, chain, self.chance.random, bootstrap=bootstrap)
        host.committed = -1
        self.step(number, Start())

    def crash(self, number: int) -> None:
        host = self.hosts[number]
        host.machine = None
        host.synced = self.chance.randint(host.synced, len(host.log)) if host.log else 0

    def step(self, number: int, event: Event) -> None:
        host = self.hosts[number]
        assert host.machine is not None
        ready = host.machine.step(self.now_ms, event)
        self._perform(host, ready)
        state = host.machine.state
        if isinstance(state, Leader):
            known = self.leaders.setdefault(host.machine.epoch, number)
            assert known == number, f"two leaders in epoch {host.machine.epoch}"

    def _perform(self, host: Host, ready: Ready) -> None:
        if ready.hard_state is not None:
            assert ready.hard_state.epoch >= host.hard.epoch
            same = ready.hard_state.epoch == host.hard.epoch
            if same and host.hard.voted is not None and ready.hard_state.voted is not None:
                assert ready.hard_state.voted == host.hard.voted, "one vote an epoch"
            host.hard = ready.hard_state
        if ready.truncate is not None:
            assert ready.truncate >= host.committed, "what is committed is never cut"
            del host.log[ready.truncate :]
            host.synced = min(host.synced, ready.truncate)
        for append in ready.append:
            assert append.first_offset == len(host.log)
            for index in range(append.records_count):
                what = append.batch if append.batch is not None else append.controls[index]
                host.log.append(Entry(append.epoch, what))
        if ready.append:
            self._later(host.key.id, Synced(len(host.log)), 1 + self.chance.random() * 30, host.life)
        if ready.committed is not None:
            self._commit(host, ready.committed)
        for send in ready.sends:
            self._send(host, send.peer, send.request)
        for reply in ready.replies:
            self._reply(host, reply.ticket, reply.answer)

    def _commit(self, host: Host, end: int) -> None:
        assert end > host.committed
        assert end <= len(host.log)
        host.committed = end
        known = min(end, len(self.committed))
        assert host.log[:known] == self.committed[:known], "a committed record changed"
        self.committed += host.log[known:end]

    def _later(self, to: int, event: Event, delay_ms: float, life: int = 0) -> None:
        self.order += 1
        self.flying.append(Flying(self.now_ms + delay_ms, self.order, to, event, life))

    def _lost(self, one: int, other: int) -> bool:
        return one in self.cut or other in self.cut or self.chance.random() < self.loss

    def _send(self, host: Host, peer: int, request: Request) -> None:
        if self._lost(host.key.id, peer):
            self._later(host.key.id, Unreachable(peer, request), 100, host.life)
            return
        ticket = (host.key.id, host.life, request)
        self._deliver(peer, Asked(ticket, request), 0)

    def _reply(self, host: Host, ticket: Any, answer: Any) -> None:
        asker, life, request = ticket
        if self._lost(host.key.id, asker):
            self._later(asker, Unreachable(host.key.id, request), 100, life)
            return
        batches: tuple[Batch, ...] = ()
        if isinstance(request, Fetch) and isinstance(answer, FetchAnswer) and answer.offset >= 0:
            upto = min(len(host.log), answer.offset + self.chance.randint(1, 5))
            batches = tuple(Batch(n, n, host.log[n].epoch, host.log[n].what) for n in range(answer.offset, upto))
        event = Answered(host.key.id, request, answer, batches)
        self._deliver(asker, event, life)

    def _deliver(self, to: int, event: Event, life: int) -> None:
        self._later(to, event, self.chance.random() * 40, life)
        if self.chance.random() < self.repeats:
            self._later(to, event, self.chance.random() * 5_000, life)

    def run(self, until_ms: float, trouble: float = 0.0) -> None:
        """Let time pass; ``trouble`` is the chance of a mishap at each event."""
        while self.now_ms < until_ms:
            deadlines = [
                (max(h.machine.deadline_ms, self.now_ms), i) for i, h in self.hosts.items() if h.machine is not None
            ]
            flight = min(self.flying, default=None)
            due, number = min(deadlines, default=(until_ms, 0))
            if flight is not None and flight.due_ms <= due:
                self.flying.remove(flight)
                self.now_ms = max(self.now_ms, flight.due_ms)
                self._arrive(flight)
            elif due < until_ms:
                self.now_ms = due + 0.01
                self.step(number, Tick())
            else:
                self.now_ms = until_ms
            if self.chance.random() < trouble:
                self._mishap()

    def _arrive(self, flight: Flying) -> None:
        host = self.hosts[flight.to]
        if host.machine is None or flight.life not in (0, host.life):
            if isinstance(flight.event, Asked):
                asker, life, request = flight.event.ticket
                self._later(asker, Unreachable(flight.to, request), 50, life)
            return
        if isinstance(flight.event, Synced):
            end = min(flight.event.end_offset, len(host.log))
            host.synced = max(host.synced, end)
        self.step(flight.to, flight.event)
        behind = len(host.log) - host.committed
        if host.machine.is_leader and behind < 20 and self.chance.random() < 0.3:
            self.propose(flight.to)

    def propose(self, number: int) -> None:
        self.proposed += 1
        self.step(number, Propose(f"record {self.proposed}", self.chance.randint(1, 3)))

    def _mishap(self) -> None:
        number = self.chance.choice(list(self.hosts))
        host = self.hosts[number]
        match self.chance.randrange(5):
            case 0 | 1 if host.machine is not None:
                self.crash(number)
            case 2:
                self.cut ^= {number}
            case 3 if host.machine is not None:
                self.step(number, Resign())
            case _ if host.machine is None:
                self.start(number)
            case _:
                pass

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.repeats = 0
        for number, host in self.hosts.items():
            if host.machine is None:
                self.start(number)
