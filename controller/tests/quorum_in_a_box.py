"""A quorum of raft machines, a network that loses and reorders, disks that forget, and a clock: all from one seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ottla.controller.raft.events import (
    AddVoter,
    Answered,
    Asked,
    AskVersions,
    Batch,
    BeginEpoch,
    Covered,
    Event,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Gone,
    Propose,
    RaiseVersion,
    Ready,
    RemoveVoter,
    ReplicaKey,
    Request,
    Resign,
    SnapshotAnswer,
    SnapshotLoaded,
    Start,
    Synced,
    Tick,
    Unreachable,
    VersionsAnswer,
    VoterAnswer,
)
from ottla.controller.raft.states import Follower
from ottla.controller.tests.quorum_hosts import Entry, Host
from ottla.controller.tests.quorum_promises import Promises
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl

SNAPSHOT_BYTES = 3
"""Every snapshot goes in three parts of one byte."""
OPERATOR = "operator"


class Flying(NamedTuple):
    due_ms: float
    order: int
    to: int
    event: Event
    life: int
    """Which life of the receiver it is for; 0 for any."""


class Box:
    """Several hosts. Every promise of raft is checked at each step."""

    def __init__(
        self,
        seed: int,
        count: int,
        loss: float = 0.1,
        repeats: float = 0.0,
        *,
        observers: int = 0,
        kraft_version: int = 0,
        torn: float = 0.0,
        auto_join: bool = False,
        fixed: bool = False,
    ) -> None:
        """``fixed``: the settings say who votes, for ever, and nobody has been anything before."""
        self.fixed = fixed
        self.chance = random.Random(seed)
        self.hosts = {i: Host(i) for i in range(1, count + observers + 1)}
        voters = [self.hosts[i] for i in range(1, count + 1)]
        record = ctl.VotersRecord(0, [h.entry for h in voters]) if kraft_version else None
        for host in self.hosts.values():
            host.first_keys = [h.key if kraft_version else ReplicaKey(h.key.id) for h in voters]
            host.first_record = record
            host.auto_join = auto_join
        for host in voters if fixed else ():
            host.is_fixed = True
            host.format()
        self.now_ms = 0.0
        self.loss = loss
        self.repeats = repeats
        """How many messages arrive once more, up to five seconds later."""
        self.torn = torn
        """How often a host dies in the middle of what a step wants done."""
        self.sync_ms = 30.0
        self.cut: set[int] = set()
        self.walls: set[tuple[int, int]] = set()
        """(from, to): nothing passes that way."""
        self.flying: list[Flying] = []
        self.order = 0
        self.promises = Promises(self.hosts)
        self.said: list[VoterAnswer] = []
        """What the operator was answered."""
        self.proposed = 0
        self.proposes = True

    # ------------------------------------------------------------------ lives

    def start(self, number: int) -> None:
        host = self.hosts[number]
        host.open(self.promises.committed, self.chance.random, tuple(self.hosts))
        self.step(number, Start())

    def start_all(self) -> None:
        for number in self.hosts:
            self.start(number)

    def crash(self, number: int) -> None:
        self.hosts[number].crash(self.chance)

    def wipe(self, number: int) -> None:
        """Its disk is lost with all that was on it; the id stays, the directory is another."""
        self.hosts[number].wipe()

    # ------------------------------------------------------------------ steps

    def step(self, number: int, event: Event) -> None:
        host = self.hosts[number]
        assert host.machine is not None
        self._meet(host, event)
        ready = host.machine.step(self.now_ms, event)
        host.deadline_ms = host.machine.deadline_ms
        assert ready.doubt is None, ready.doubt
        deeds = self._deeds(host, ready)
        stop = len(deeds)
        if self.torn and self.chance.random() < self.torn:
            stop = self.chance.randint(0, len(deeds))
        for deed in deeds[:stop]:
            deed()
        if stop < len(deeds):
            self.crash(number)
            return
        self.promises.look(host)

    @staticmethod
    def _meet(host: Host, event: Event) -> None:
        """Who is named as a leader is named with its address."""
        assert host.machine is not None
        match event:
            case Asked(request=BeginEpoch(leader_id)) | Answered(answer=FetchAnswer(leader_id=leader_id)):
                host.machine.addressed.add(leader_id)
            case Answered(answer=answer):
                host.machine.addressed.add(answer.leader_id)
            case _:
                pass

    def _deeds(self, host: Host, ready: Ready) -> list[Callable[[], None]]:
        """What a step wants done, in its order."""
        out: list[Callable[[], None]] = []
        hard, cut, over, end = ready.hard_state, ready.truncate, ready.start_over, ready.committed
        if hard is not None:
            out.append(lambda: self.promises.remember(host, hard))
        if cut is not None:
            out.append(lambda: host.truncate(cut))
        if over is not None:
            out.append(lambda: host.start_over(over))
        for append in ready.append:
            entries = [
                Entry(append.epoch, append.batch if append.batch is not None else append.controls[index])
                for index in range(append.records_count)
            ]
            out.append(lambda at=append.first_offset, what=entries: host.append(at, what))  # type: ignore[misc]
        if ready.append:
            out.append(lambda: self._sync_later(host))
        if end is not None:
            out.append(lambda: self.promises.commit(host, end))
        out += [lambda send=send: self._send(host, send.peer, send.request) for send in ready.sends]  # type: ignore[misc]
        out += [lambda reply=reply: self._reply(host, reply.ticket, reply.answer) for reply in ready.replies]  # type: ignore[misc]
        if ready.load_snapshot is not None:
            out.append(lambda: self._load(host, 0))
        return out

    def _sync_later(self, host: Host) -> None:
        self._later(host.key.id, Synced(host.log.end), 1 + self.chance.random() * self.sync_ms, host.life)

    # ------------------------------------------------------------------ network

    def _later(self, to: int, event: Event, delay_ms: float, life: int = 0) -> None:
        self.order += 1
        heapq.heappush(self.flying, Flying(self.now_ms + delay_ms, self.order, to, event, life))

    def _lost(self, one: int, other: int) -> bool:
        cut = one in self.cut or other in self.cut or (one, other) in self.walls
        return cut or self.chance.random() < self.loss

    def _send(self, host: Host, peer: int, request: Request) -> None:
        if self._lost(host.key.id, peer):
            self._later(host.key.id, Unreachable(peer, request), 100, host.life)
            return
        ticket = (host.key.id, host.life, request)
        if isinstance(request, AskVersions):
            alive = self.hosts[peer].machine is not None
            answered = Answered(peer, request, VersionsAnswer(ErrorCode.NONE, 0, 1))
            self._later(host.key.id, answered if alive else Unreachable(peer, request), 20, host.life)
            return
        self._deliver(peer, Asked(ticket, request), 0)

    def _reply(self, host: Host, ticket: Any, answer: Any) -> None:
        self.promises.said(host, ticket, answer)
        if ticket == OPERATOR:
            self.said.append(answer)
            return
        asker, life, request = ticket
        if self._lost(host.key.id, asker):
            self._later(asker, Unreachable(host.key.id, request), 100, life)
            return
        batches: tuple[Batch, ...] = ()
        if isinstance(request, Fetch) and isinstance(answer, FetchAnswer) and answer.offset >= 0:
            upto = min(host.log.end, answer.offset + self.chance.randint(1, 5))
            batches = tuple(_batch(n, host.log[n]) for n in range(answer.offset, upto))
            answer = answer if batches else answer._replace(offset=-1)
        self._deliver(asker, Answered(host.key.id, request, answer, batches), life)

    def _deliver(self, to: int, event: Event, life: int) -> None:
        self._later(to, event, self.chance.random() * 40, life)
        if self.chance.random() < self.repeats:
            self._later(to, event, self.chance.random() * 5_000, life)

    # ------------------------------------------------------------------ time

    def run(self, until_ms: float, trouble: float = 0.0) -> None:
        """Let time pass; ``trouble`` is the chance of a mishap at each event."""
        while self.now_ms < until_ms:
            self._next(until_ms)
            if self.chance.random() < trouble:
                self._mishap()

    def run_until(self, reached: Callable[[], bool], within_ms: float = 60_000) -> None:
        """Let time pass until something is so."""
        until = self.now_ms + within_ms
        while not reached():
            assert self.now_ms < until, f"not reached within {within_ms} ms"
            self._next(until)

    def _next(self, until_ms: float) -> None:
        deadlines = [(max(h.deadline_ms, self.now_ms), i) for i, h in self.hosts.items() if h.machine is not None]
        flight = self.flying[0] if self.flying else None
        due, number = min(deadlines, default=(until_ms, 0))
        if flight is not None and flight.due_ms <= due:
            heapq.heappop(self.flying)
            self.now_ms = max(self.now_ms, flight.due_ms)
            self._arrive(flight)
        elif due < until_ms:
            self.now_ms = due + 0.01
            self.step(number, Tick())
        else:
            self.now_ms = min(until_ms, self.now_ms + 50)  # nothing is under way: a lone leader waits for work
            for leader in self.leaders() if self.proposes else ():
                self.propose(leader)

    def _arrive(self, flight: Flying) -> None:
        host, event = self.hosts[flight.to], flight.event
        if host.machine is None or flight.life not in (0, host.life):
            if isinstance(event, Asked) and event.ticket != OPERATOR:
                asker, life, request = event.ticket
                self._later(asker, Unreachable(flight.to, request), 50, life)
            return
        if isinstance(event, Synced):
            event = Synced(min(event.end_offset, host.log.end))
            host.synced = max(host.synced, event.end_offset)
        if isinstance(event, Asked) and isinstance(event.request, FetchSnapshot):
            size = SNAPSHOT_BYTES if event.request.snapshot in host.snapshots else -1
            event = Asked(event.ticket, event.request._replace(size_bytes=size))
        self.step(flight.to, event)
        if isinstance(event, Answered | Unreachable) and isinstance(event.request, FetchSnapshot):
            self._go_on_loading(host, event)
        if host.machine is None:
            return
        behind = host.log.end - host.committed
        if self.proposes and host.machine.is_leader and behind < 20 and self.chance.random() < 0.3:
            self.propose(flight.to)

    def _load(self, host: Host, position: int) -> None:
        machine = host.machine
        if machine is None or machine.loading is None or not isinstance(machine.state, Follower):
            return
        request = FetchSnapshot(host.key, machine.epoch, machine.loading, position, 1)
        self._send(host, machine.state.leader_id, request)

    def _go_on_loading(self, host: Host, event: Answered | Unreachable) -> None:
        machine, request = host.machine, event.request
        assert isinstance(request, FetchSnapshot)
        if machine is None or machine.loading != request.snapshot or machine.epoch != request.epoch:
            return
        if isinstance(event, Unreachable) or event.answer.error != ErrorCode.NONE:
            self._load(host, request.position)
            return
        assert isinstance(event.answer, SnapshotAnswer)
        if request.position + 1 < event.answer.size_bytes:
            self._load(host, request.position + 1)
            return
        end, epoch = request.snapshot
        self.step(host.key.id, SnapshotLoaded(end, epoch, host.voters_below(end, self.promises.committed)))

    # ------------------------------------------------------------------ what people and mishaps do

    def propose(self, number: int) -> None:
        self.proposed += 1
        self.step(number, Propose(f"record {self.proposed}", self.chance.randint(1, 3)))

    def resign(self, number: int) -> None:
        """A host is told to stop: it lets go of leadership first."""
        self.step(number, Resign())

    def wish(self, request: AddVoter | RemoveVoter | RaiseVersion) -> None:
        """The operator asks whoever leads."""
        for number, host in self.hosts.items():
            if host.machine is not None and host.machine.is_leader:
                self.step(number, Asked(OPERATOR, request))

    def snapshot(self, number: int) -> None:
        """A host writes one of what it knows to be committed, and drops its log below it."""
        host = self.hosts[number]
        if host.machine is None or host.committed <= max(0, *(end for end, _ in host.snapshots), host.log.start):
            return
        host.take_snapshot()
        self.step(number, Covered(host.log.start, tuple(host.snapshots)))

    def leaders(self) -> list[int]:
        """Who leads, of those that live."""
        return [i for i, h in self.hosts.items() if h.machine is not None and h.machine.is_leader]

    def alive(self) -> Iterable[Host]:
        return [h for h in self.hosts.values() if h.machine is not None]

    def reached(self, end: int, numbers: Iterable[int] | None = None) -> bool:
        """Whether all that live, or these, know everything below an offset as committed."""
        hosts = self.alive() if numbers is None else [self.hosts[n] for n in numbers]
        return all(h.committed >= end for h in hosts)

    def _mishap(self) -> None:
        number = self.chance.choice(list(self.hosts))
        host = self.hosts[number]
        other = self.hosts[self.chance.choice(list(self.hosts))]
        leaders = self.leaders()
        if leaders and self.chance.random() < 0.3:
            number = leaders[0]  # trouble seeks who leads
            host = self.hosts[number]
        match self.chance.randrange(11):
            case 0 | 1 if host.machine is not None:
                self.crash(number)
                self.seem_gone(number)
            case 2:
                self.cut ^= {number}
            case 3 if host.machine is not None:
                self.resign(number)
            case 4:
                self.walls ^= {(number, other.key.id)}
            case 5:
                self.snapshot(number)
            case 6:
                self.sync_ms = self.chance.choice([1, 30, 300])
            case 7:
                self.wish(AddVoter(host.key, tuple(host.entry.endpoints), self.chance.random() < 0.5))
            case 8 if not self.fixed:
                self.wish(self.chance.choice([RemoveVoter(host.key), RaiseVersion(1)]))
            case 9:
                self.seem_gone(number)  # and is not
            case _ if host.machine is None:
                self.start(number)
            case _:
                pass

    def seem_gone(self, number: int) -> None:
        """Some of the others see a host's process gone."""
        for other in self.hosts:
            if other != number and self.chance.random() < 0.7:
                self._later(other, Gone(number), self.chance.random() * 60, self.hosts[other].life)

    def heal(self) -> None:
        self.cut.clear()
        self.walls.clear()
        self.loss = self.repeats = self.torn = 0
        self.sync_ms = 30
        for number, host in self.hosts.items():
            if host.machine is None:
                self.start(number)


def _batch(offset: int, entry: Entry) -> Batch:
    voters = entry.what if isinstance(entry.what, ctl.VotersRecord) else None
    return Batch(offset, offset, entry.epoch, entry.what, voters)
