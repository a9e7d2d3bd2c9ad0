"""Simulation of Raft state machines with lossy network, failing disks and a clock, all from one seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState
from ottla.controller.raft.state_machine.events import (
    AddVoter,
    BeginEpoch,
    Fetch,
    FetchedRaftBatch,
    FetchSnapshot,
    KRaftVersionsResponse,
    LogFlushed,
    PeerConnectionRefused,
    Propose,
    QueryKRaftVersions,
    RaftEvent,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RaftRequest,
    RaftStarted,
    Ready,
    RemoveVoter,
    ReplicaKey,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    SnapshotCreated,
    SnapshotLoaded,
    Tick,
    UpgradeKRaftVersion,
    VoterChangeResponse,
)
from ottla.controller.raft.tests.raft_invariants import RaftInvariants
from ottla.controller.raft.tests.simulated_hosts import LogEntry, SimulatedHost
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import VotersRecord

SNAPSHOT_BYTES = 3
"""Every snapshot has three chunks of one byte."""
OPERATOR = "operator"


class InFlightEvent(NamedTuple):
    due_ms: float
    order: int
    to: int
    event: RaftEvent
    incarnation: int
    """Process of the receiver that the message is for; 0 for any."""


class SimulatedQuorum:
    """Several hosts; every invariant of Raft is checked at each step."""

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
        """Create the hosts; ``fixed``: a new quorum of static voters."""
        self.has_static_voters = fixed
        self.random = random.Random(seed)
        self.hosts = {i: SimulatedHost(i) for i in range(1, count + observers + 1)}
        voters = [self.hosts[i] for i in range(1, count + 1)]
        record = VotersRecord(0, [h.voter_entry for h in voters]) if kraft_version else None
        for host in self.hosts.values():
            host.initial_keys = [h.key if kraft_version else ReplicaKey(h.key.id) for h in voters]
            host.initial_voters_record = record
            host.auto_join = auto_join
        for host in voters if fixed else ():
            host.has_static_voters = True
            host.format()
        self.now_ms = 0.0
        self.loss = loss
        self.repeats = repeats
        """Share of messages delivered once more, up to five seconds later."""
        self.torn_probability = torn
        """Probability of a crash in the middle of a step's actions."""
        self.sync_ms = 30.0
        self.isolated_hosts: set[int] = set()
        self.blocked_links: set[tuple[int, int]] = set()
        """(from, to): blocked directions."""
        self.in_flight: list[InFlightEvent] = []
        self.order = 0
        self.invariants = RaftInvariants(self.hosts)
        self.voter_responses: list[VoterChangeResponse] = []
        """Responses to the operator's requests."""
        self.proposed = 0
        self.accepts_proposals = True

    # ------------------------------------------------------------------ processes

    def start(self, number: int) -> None:
        host = self.hosts[number]
        host.open(self.invariants.committed, self.random.random, tuple(self.hosts))
        self.step(number, RaftStarted())

    def start_all(self) -> None:
        for number in self.hosts:
            self.start(number)

    def crash(self, number: int) -> None:
        self.hosts[number].crash(self.random)

    def wipe(self, number: int) -> None:
        """Wipe the disk of a host; the id stays, the directory id changes."""
        self.hosts[number].wipe()

    # ------------------------------------------------------------------ steps

    def step(self, number: int, event: RaftEvent) -> None:
        host = self.hosts[number]
        assert host.machine is not None
        self._learn_address(host, event)
        ready = host.machine.step(self.now_ms, event)
        host.deadline_ms = host.machine.deadline_ms
        assert ready.protocol_violation is None, ready.protocol_violation
        deeds = self._ready_actions(host, ready)
        stop = len(deeds)
        if self.torn_probability and self.random.random() < self.torn_probability:
            stop = self.random.randint(0, len(deeds))
        for deed in deeds[:stop]:
            deed()
        if stop < len(deeds):
            self.crash(number)
            return
        self.invariants.check_host(host)

    @staticmethod
    def _learn_address(host: SimulatedHost, event: RaftEvent) -> None:
        """Record the address of a leader in a message."""
        assert host.machine is not None
        match event:
            case (
                RequestReceived(request=BeginEpoch(leader_id))
                | ResponseReceived(response=RaftFetchResponse(leader_id=leader_id))
            ):
                host.machine.reachable_replicas.add(leader_id)
            case ResponseReceived(response=answer):
                host.machine.reachable_replicas.add(answer.leader_id)
            case _:
                pass

    def _ready_actions(self, host: SimulatedHost, ready: Ready) -> list[Callable[[], None]]:
        """Return the actions of a step in order."""
        out: list[Callable[[], None]] = []
        hard, cut, over, end = ready.hard_state, ready.truncate, ready.truncate_to_snapshot, ready.committed
        if hard is not None:
            out.append(lambda: self.invariants.on_hard_state(host, hard))
        if cut is not None:
            out.append(lambda: host.truncate(cut))
        if over is not None:
            out.append(lambda: host.truncate_to_snapshot(over))
        for append in ready.appends:
            entries = [
                LogEntry(append.epoch, append.batch if append.batch is not None else append.controls[index])
                for index in range(append.records_count)
            ]
            out.append(lambda at=append.first_offset, entries_to_append=entries: host.append(at, entries_to_append))  # type: ignore[misc]
        if ready.appends:
            out.append(lambda: self._schedule_flush(host))
        if end is not None:
            out.append(lambda: self.invariants.on_commit(host, end))
        out += [lambda send=send: self._send(host, send.peer, send.request) for send in ready.sends]  # type: ignore[misc]
        out += [lambda reply=reply: self._reply(host, reply.pending_request, reply.response) for reply in ready.replies]  # type: ignore[misc]
        if ready.load_snapshot is not None:
            out.append(lambda: self._load(host, 0))
        return out

    def _schedule_flush(self, host: SimulatedHost) -> None:
        self._schedule(
            host.key.id, LogFlushed(host.log.end_offset), 1 + self.random.random() * self.sync_ms, host.incarnation
        )

    # ------------------------------------------------------------------ network

    def _schedule(self, to: int, event: RaftEvent, delay_ms: float, incarnation: int = 0) -> None:
        self.order += 1
        heapq.heappush(self.in_flight, InFlightEvent(self.now_ms + delay_ms, self.order, to, event, incarnation))

    def _lost(self, one: int, other: int) -> bool:
        cut = one in self.isolated_hosts or other in self.isolated_hosts or (one, other) in self.blocked_links
        return cut or self.random.random() < self.loss

    def _send(self, host: SimulatedHost, peer: int, request: RaftRequest) -> None:
        if self._lost(host.key.id, peer):
            self._schedule(host.key.id, RequestFailed(peer, request), 100, host.incarnation)
            return
        pending = (host.key.id, host.incarnation, request)
        if isinstance(request, QueryKRaftVersions):
            alive = self.hosts[peer].machine is not None
            answered = ResponseReceived(peer, request, KRaftVersionsResponse(ErrorCode.NONE, 0, 1))
            self._schedule(host.key.id, answered if alive else RequestFailed(peer, request), 20, host.incarnation)
            return
        self._deliver(peer, RequestReceived(pending, request), 0)

    def _reply(self, host: SimulatedHost, pending: Any, answer: Any) -> None:
        self.invariants.on_response(host, pending, answer)
        if pending == OPERATOR:
            self.voter_responses.append(answer)
            return
        asker, incarnation, request = pending
        if self._lost(host.key.id, asker):
            self._schedule(asker, RequestFailed(host.key.id, request), 100, incarnation)
            return
        batches: tuple[FetchedRaftBatch, ...] = ()
        if isinstance(request, Fetch) and isinstance(answer, RaftFetchResponse) and answer.offset >= 0:
            upto = min(host.log.end_offset, answer.offset + self.random.randint(1, 5))
            batches = tuple(_batch(n, host.log[n]) for n in range(answer.offset, upto))
            answer = answer if batches else answer._replace(offset=-1)
        self._deliver(asker, ResponseReceived(host.key.id, request, answer, batches), incarnation)

    def _deliver(self, to: int, event: RaftEvent, incarnation: int) -> None:
        self._schedule(to, event, self.random.random() * 40, incarnation)
        if self.random.random() < self.repeats:
            self._schedule(to, event, self.random.random() * 5_000, incarnation)

    # ------------------------------------------------------------------ time

    def run(self, until_ms: float, fault_probability: float = 0.0) -> None:
        """Advance the time; ``fault_probability`` is the probability of a fault at each event."""
        while self.now_ms < until_ms:
            self._next(until_ms)
            if self.random.random() < fault_probability:
                self._inject_fault()

    def run_until(self, reached: Callable[[], bool], within_ms: float = 60_000) -> None:
        """Advance the time until a condition holds."""
        until = self.now_ms + within_ms
        while not reached():
            assert self.now_ms < until, f"not reached within {within_ms} ms"
            self._next(until)

    def _next(self, until_ms: float) -> None:
        deadlines = [(max(h.deadline_ms, self.now_ms), i) for i, h in self.hosts.items() if h.machine is not None]
        flight = self.in_flight[0] if self.in_flight else None
        due, number = min(deadlines, default=(until_ms, 0))
        if flight is not None and flight.due_ms <= due:
            heapq.heappop(self.in_flight)
            self.now_ms = max(self.now_ms, flight.due_ms)
            self._arrive(flight)
        elif due < until_ms:
            self.now_ms = due + 0.01
            self.step(number, Tick())
        else:
            self.now_ms = min(until_ms, self.now_ms + 50)  # no event is pending: a single leader waits for requests
            for leader in self.leaders() if self.accepts_proposals else ():
                self.propose(leader)

    def _arrive(self, flight: InFlightEvent) -> None:
        host, event = self.hosts[flight.to], flight.event
        if host.machine is None or flight.incarnation not in (0, host.incarnation):
            if isinstance(event, RequestReceived) and event.pending_request != OPERATOR:
                asker, incarnation, request = event.pending_request
                self._schedule(asker, RequestFailed(flight.to, request), 50, incarnation)
            return
        if isinstance(event, LogFlushed):
            event = LogFlushed(min(event.end_offset, host.log.end_offset))
            host.flushed_offset = max(host.flushed_offset, event.end_offset)
        if isinstance(event, RequestReceived) and isinstance(event.request, FetchSnapshot):
            size = SNAPSHOT_BYTES if event.request.snapshot in host.snapshots else -1
            event = RequestReceived(event.pending_request, event.request._replace(size_bytes=size))
        self.step(flight.to, event)
        if isinstance(event, ResponseReceived | RequestFailed) and isinstance(event.request, FetchSnapshot):
            self._continue_loading(host, event)
        if host.machine is None:
            return
        behind = host.log.end_offset - host.committed
        if self.accepts_proposals and host.machine.is_leader and behind < 20 and self.random.random() < 0.3:
            self.propose(flight.to)

    def _load(self, host: SimulatedHost, position: int) -> None:
        machine = host.machine
        snapshot = None if machine is None else machine.requests.loading_snapshot
        if machine is None or snapshot is None or not isinstance(machine.state, RaftFollowerState):
            return
        request = FetchSnapshot(host.key, machine.epoch, snapshot, position, 1)
        self._send(host, machine.state.leader_id, request)

    def _continue_loading(self, host: SimulatedHost, event: ResponseReceived | RequestFailed) -> None:
        machine, request = host.machine, event.request
        assert isinstance(request, FetchSnapshot)
        if machine is None or machine.requests.loading_snapshot != request.snapshot or machine.epoch != request.epoch:
            return
        if isinstance(event, RequestFailed) or event.response.error != ErrorCode.NONE:
            self._load(host, request.position)
            return
        assert isinstance(event.response, RaftFetchSnapshotResponse)
        if request.position + 1 < event.response.size_bytes:
            self._load(host, request.position + 1)
            return
        end, epoch = request.snapshot
        self.step(host.key.id, SnapshotLoaded(end, epoch, host.voters_below(end, self.invariants.committed)))

    # ------------------------------------------------------------------ operator and faults

    def propose(self, number: int) -> None:
        self.proposed += 1
        self.step(number, Propose(f"record {self.proposed}", self.random.randint(1, 3)))

    def resign(self, number: int) -> None:
        """Resign the leadership before a stop."""
        self.step(number, Resign())

    def change_voters(self, request: AddVoter | RemoveVoter | UpgradeKRaftVersion) -> None:
        """Send a request of the operator to the leader."""
        for number, host in self.hosts.items():
            if host.machine is not None and host.machine.is_leader:
                self.step(number, RequestReceived(OPERATOR, request))

    def snapshot(self, number: int) -> None:
        """Write a snapshot of the committed records of a host, and remove its log below."""
        host = self.hosts[number]
        if host.machine is None or host.committed <= max(0, *(end for end, _ in host.snapshots), host.log.start):
            return
        host.write_snapshot()
        self.step(number, SnapshotCreated(host.log.start, tuple(host.snapshots)))

    def leaders(self) -> list[int]:
        """Return the leaders among the running hosts."""
        return [i for i, h in self.hosts.items() if h.machine is not None and h.machine.is_leader]

    def alive(self) -> Iterable[SimulatedHost]:
        return [h for h in self.hosts.values() if h.machine is not None]

    def reached(self, end: int, numbers: Iterable[int] | None = None) -> bool:
        """Return True if all running hosts, or these, have committed everything below an offset."""
        hosts = self.alive() if numbers is None else [self.hosts[n] for n in numbers]
        return all(h.committed >= end for h in hosts)

    def _inject_fault(self) -> None:
        number = self.random.choice(list(self.hosts))
        host = self.hosts[number]
        other = self.hosts[self.random.choice(list(self.hosts))]
        leaders = self.leaders()
        if leaders and self.random.random() < 0.3:
            number = leaders[0]  # faults prefer the leader
            host = self.hosts[number]
        match self.random.randrange(11):
            case 0 | 1 if host.machine is not None:
                self.crash(number)
                self.refuse_connections(number)
            case 2:
                self.isolated_hosts ^= {number}
            case 3 if host.machine is not None:
                self.resign(number)
            case 4:
                self.blocked_links ^= {(number, other.key.id)}
            case 5:
                self.snapshot(number)
            case 6:
                self.sync_ms = self.random.choice([1, 30, 300])
            case 7:
                self.change_voters(AddVoter(host.key, tuple(host.voter_entry.endpoints), self.random.random() < 0.5))
            case 8 if not self.has_static_voters:
                self.change_voters(self.random.choice([RemoveVoter(host.key), UpgradeKRaftVersion(1)]))
            case 9:
                self.refuse_connections(number)  # the host itself keeps running
            case _ if host.machine is None:
                self.start(number)
            case _:
                pass

    def refuse_connections(self, number: int) -> None:
        """Report to some of the others that a host refuses connections."""
        for other in self.hosts:
            if other != number and self.random.random() < 0.7:
                self._schedule(
                    other, PeerConnectionRefused(number), self.random.random() * 60, self.hosts[other].incarnation
                )

    def remove_faults(self) -> None:
        self.isolated_hosts.clear()
        self.blocked_links.clear()
        self.loss = self.repeats = self.torn_probability = 0
        self.sync_ms = 30
        for number, host in self.hosts.items():
            if host.machine is None:
                self.start(number)


def _batch(offset: int, entry: LogEntry) -> FetchedRaftBatch:
    voters = entry.value if isinstance(entry.value, VotersRecord) else None
    return FetchedRaftBatch(offset, offset, entry.epoch, entry.value, voters)
