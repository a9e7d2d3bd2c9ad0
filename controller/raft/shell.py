"""The raft machine with its files, clock and peers: one task steps it and does what each step wants, in its order.

The log is synced beside it, one sync at a time, while further events are taken: a leader answers fetches meanwhile.
Who may vote some day syncs what it appends; a broker only need not (R225).

Source: ``KafkaRaftClient.poll``, ``KafkaRaftClientDriver.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import trio

from ottla.controller.quorum_config import Endpoint, QuorumConfig
from ottla.controller.raft import events
from ottla.controller.raft.addresses import Addresses
from ottla.controller.raft.events import (
    Event,
    FetchAnswer,
    FetchSnapshot,
    Ready,
    ReplicaKey,
    Request,
    Send,
)
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.replies import Answered, answer_with_records
from ottla.controller.raft.shortage import retried, retried_call
from ottla.controller.raft.states import Leader
from ottla.controller.raft.store import MetadataStore
from ottla.controller.snapshots import Snapshot, SnapshotId
from ottla.controller.ticket import Ticket
from ottla.log.directory import MetaProperties
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import control_records as ctl
from ottla.world.env import Env, Lane

logger = logging.getLogger("ottla.controller")

LEAST_WAIT_MS = 2
"""Between two ticks: a machine whose time is over and that can do nothing yet is not asked all the time."""

KRAFT_VERSIONS = (0, 1)
"""What this node can follow."""

Job = Callable[[], Event | None]
"""Done between two steps; gives the event it makes."""


def first_of(error: BaseException) -> OSError:
    """The OSError in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, OSError)
    return error


def _entry(me: ReplicaKey, quorum: QuorumConfig) -> ctl.VotersRecordVoter | None:
    """The node as it stands among the voters, or would; None for a broker only."""
    if not quorum.endpoints:
        return None
    places = [ctl.Endpoint(*e) for e in quorum.endpoints]
    return ctl.VotersRecordVoter(me.id, me.directory_id, places, ctl.KRaftVersionFeature(*KRAFT_VERSIONS))


class Raft:
    """One replica of the metadata log, alive."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        identity: MetaProperties,
        quorum: QuorumConfig,
        fail: Callable[[OSError], None],
        on_change: Callable[[], None],
    ) -> None:
        self._env = env
        self._store = store
        self._identity = identity
        self._quorum = quorum
        self._fail = fail
        self._on_change = on_change
        self.addresses = Addresses(identity.node_id, quorum, lambda: store.quorum.voters)
        self.machine = RaftMachine(
            store.me,
            store.voters(quorum),
            store.hard_state(quorum),
            store.chain(),
            env.random,
            quorum.timeouts,
            store.first_records(quorum),
            self.addresses.bootstrap,
            _entry(store.me, quorum),
            listener=quorum.listener,
            auto_join=quorum.auto_join,
        )
        self.machine.synced = min(self.machine.synced, store.log.recovery_point)  # a killed process left what is beyond
        self.leader_goal = -1
        """The first high watermark the leader we follow told: who has come so far is up to date (R308)."""
        self._won = (-1, -1)
        """The newest epoch this node led, and how far it was committed while it led."""
        self._speaking: Any = None
        self._loads = 0
        """How many snapshots of leaders were asked for: only the last one is wanted."""
        self._load_lock = trio.Lock()
        self._loaded: Snapshot | None = None
        """A snapshot of the leader's, before the machine has said what becomes of it."""
        self._jobs: list[Job] = []
        self._bell = trio.Event()
        self._changed = trio.Event()
        self._ticked_ms = float("-inf")
        self._committed = -1
        """The machine's high watermark as of the last step whose records were written: it is ahead until they are."""
        self._syncing = False
        self._nursery: trio.Nursery
        self.failure: OSError | None = None
        """Why nothing happens any more."""

    # ------------------------------------------------------------------ what others see

    @property
    def led_epoch(self) -> int:
        """The epoch this node leads; -1 where it does not."""
        return self.machine.epoch if self.machine.is_leader else -1

    @property
    def epoch_start(self) -> int:
        """Where the epoch this node leads begins in the log."""
        assert isinstance(self.machine.state, Leader)
        return self.machine.state.epoch_start

    @property
    def high_watermark(self) -> int:
        """Everything below is committed, and in the log here; -1 where nothing is known."""
        return self._committed

    @property
    def monotonic_ms(self) -> float:
        """The machine's clock."""
        return self._env.monotonic_ms()

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return len(self.machine.voters.current) == 1 and self.machine.voters.has(self.machine.me)

    @property
    def _may_vote(self) -> bool:
        return bool(self._quorum.endpoints) or self.machine.voters.has(self.machine.me)

    # ------------------------------------------------------------------ what others want

    def hand_in(self, event: Event) -> None:
        """Something happened."""
        self.between(lambda: event)

    def between(self, job: Job) -> None:
        """Do something to the log between two steps, so that machine and log never differ."""
        self._jobs.append(job)
        self._bell.set()

    async def propose(self, epoch: int, batch: bytearray, count: int) -> int:
        """Append a batch as the leader of ``epoch``; gives the offset of its first record.

        Raises:
            ProtocolError: NOT_CONTROLLER: this node does not lead in that epoch any more.
            OSError: the disk failed, and the node ends.
        """
        ticket = Ticket(None)

        def append() -> Event | None:
            if self.failure is not None or self.led_epoch != epoch:
                ticket.fail(self.failure or ProtocolError(ErrorCode.NOT_CONTROLLER))
                return None
            ticket.give(self.machine.chain.end)
            return events.Propose(batch, count)

        self.between(append)
        if self.failure is not None:
            append()
        offset: int = await ticket.wait()
        return offset

    async def committed(self, epoch: int, end_offset: int) -> None:
        """Wait until everything below ``end_offset``, appended as the leader of ``epoch``, is committed.

        Raises:
            ProtocolError: NOT_CONTROLLER: leadership was lost before; what was appended may yet be committed.
            OSError: the disk failed, and the node ends.
        """
        if self.machine.synced < end_offset:
            self.between(self._sync)
        while self._won[0] != epoch or self._won[1] < end_offset:
            if self.failure is not None or self.led_epoch != epoch:
                raise self.failure or ProtocolError(ErrorCode.NOT_CONTROLLER)
            await self._changed.wait()

    async def ask(self, request: Request) -> Answered:
        """What this node answers to another one's request; a Fetch may have to wait for it."""
        if isinstance(request, FetchSnapshot):
            request = request._replace(size_bytes=self._store.snapshot_bytes(SnapshotId(*request.snapshot)))
        ticket = Ticket(request)
        self.hand_in(events.Asked(ticket, request))
        answered: Answered = await ticket.wait()
        return answered

    async def changed(self) -> None:
        """Wait for news of the leader or the high watermark."""
        await self._changed.wait()

    # ------------------------------------------------------------------ life

    async def run(self) -> None:
        """Step the machine until cancelled, or until the disk fails: then the node is told, and nothing is any more."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._jobs.insert(0, events.Start)
                while True:
                    while self._jobs:
                        event = await retried_call(self._env, self._jobs.pop(0))
                        if event is not None:
                            await self._take(event)
                    await self._rest()
        except* OSError as errors:
            self._end(first_of(errors))

    def _end(self, failure: OSError) -> None:
        self.failure = failure
        for job in self._jobs:
            job()
        self._news()
        self._fail(failure)

    async def _rest(self) -> None:
        """Wait for an event, or for the time of the next tick."""
        due_ms = max(self.machine.deadline_ms, self._ticked_ms + LEAST_WAIT_MS)
        with self._env.timeout(max(0.0, due_ms - self._env.monotonic_ms()) / 1000) as deadline:
            await self._bell.wait()
            self._bell = trio.Event()
        if deadline.cancelled_caught:
            self._ticked_ms = self._env.monotonic_ms()
            self._jobs.append(events.Tick)

    async def _take(self, event: Event) -> None:
        """Take the machine a step on, and do what it wants done, in its order."""
        machine, store = self.machine, self._store
        before = machine.leader_id, machine.epoch, machine.high_watermark
        ready = machine.step(self._env.monotonic_ms(), event)
        if ready.doubt is not None:
            logger.warning("what another controller says cannot be: %s", ready.doubt)
        if ready.news is not None:
            logger.log(*ready.news)
        if ready.hard_state is not None:
            write_state = store.begin_state(ready.hard_state, machine.voters)
            await retried(self._env, lambda: self._env.in_thread(write_state, Lane.RAFT))
        await self._write(ready)
        self._committed = machine.high_watermark
        if ready.committed is not None:
            store.committed(ready.committed)
        if machine.is_leader:
            self._won = machine.epoch, machine.high_watermark
        for reply in ready.replies:
            reply.ticket.give(answer_with_records(store, reply))
        for send in ready.sends:
            self._send(send)
        if ready.load_snapshot is not None:
            self._nursery.start_soon(self._load, SnapshotId(*ready.load_snapshot))
        if not isinstance(event, events.Propose):  # more of them may follow: who waits for them says when they are all
            self._sync()
        if (machine.leader_id, machine.epoch) != before[:2]:
            self.leader_goal = -1
        if (machine.leader_id, machine.epoch, machine.high_watermark) != before:
            self._news()

    def _news(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
        self._on_change()

    async def _write(self, ready: Ready) -> None:
        """Bring the log where the machine has its mirror of it."""
        store, now_ms = self._store, self._env.now_ms()
        if ready.truncate is not None:
            await retried_call(self._env, partial(store.truncate, ready.truncate, now_ms))
        if ready.start_over is not None:
            assert self._loaded is not None
            name, loaded = SnapshotId(*ready.start_over), self._loaded
            await retried_call(self._env, partial(store.start_over, name, loaded, now_ms))
            self._loaded = None
        for append in ready.append:
            await retried_call(self._env, partial(store.append, append, now_ms))
        news = ready.truncate is not None or ready.start_over is not None
        if news or any(a.controls or a.verbatim for a in ready.append):
            self.machine.first_records = store.first_records(self._quorum)

    def _sync(self) -> None:
        """Make what was appended durable, unless that goes on already."""
        end = self._store.log.log_end_offset
        if self._syncing or end <= self.machine.synced or self.failure is not None:
            return
        if not self._may_vote:
            self.hand_in(events.Synced(end))
            return
        self._syncing = True
        self._nursery.start_soon(self._synced)

    async def _synced(self) -> None:
        job = await retried_call(self._env, self._store.begin_sync)
        await retried(self._env, lambda: self._env.in_thread(job, Lane.RAFT))

        def done() -> Event:
            self._syncing = False
            return events.Synced(self._store.finish_sync(job))

        self.between(done)

    # ------------------------------------------------------------------ words

    def _send(self, send: Send) -> None:
        if isinstance(send.request, events.AskVersions):
            self.addresses.tell(send.peer, [Endpoint(e.name, e.host, e.port) for e in send.request.endpoints])
        self._speak().say(send, self._key_of(send.peer))

    def _speak(self) -> Any:
        """Where words for others go; what it takes is loaded when the first are said."""
        if self._speaking is None:
            module = import_module("ottla.controller.raft.speaking")
            self._speaking = module.Speaking(
                self._env, self._identity, self._quorum, self.addresses.of, self._heard, self.hand_in
            )
            self._nursery.start_soon(self._speaking.run)
        return self._speaking

    def _key_of(self, peer: int) -> ReplicaKey:
        return self.machine.voters.find(peer) or ReplicaKey(peer)

    async def _load(self, name: SnapshotId) -> None:
        """Fetch a snapshot of the leader's; then the machine says whether it takes the log's place."""
        machine, store, leader_id = self.machine, self._store, self.machine.leader_id

        async def ask(request: FetchSnapshot) -> Any:
            return await self._speak().fetch_snapshot(leader_id, self._key_of(leader_id), request)

        number = self._loads = self._loads + 1

        def is_wanted() -> bool:
            return self._loads == number and machine.loading == name and machine.leader_id == leader_id

        module = import_module("ottla.controller.raft.snapshot_fetch")
        fetches_as = import_module("ottla.controller.raft.newborn").fetches_as
        async with self._load_lock:  # one that is not wanted any more ends before the next begins
            about = (fetches_as(machine), machine.epoch, name, ask, is_wanted)
            fetch = partial(module.fetch_snapshot, self._env, store.directory, *about)
            found: Snapshot | None = await retried(self._env, fetch)
        if found is None:
            return

        def done() -> Event:
            self._loaded = found
            return events.SnapshotLoaded(name.end_offset, name.epoch, found.voters)

        self.between(done)

    def _heard(self, answer: events.AnyAnswer, leader: Endpoint | None) -> None:
        self.tell(answer.epoch, answer.leader_id, leader)
        if isinstance(answer, FetchAnswer) and answer.epoch == self.machine.epoch and self.leader_goal < 0:
            self.leader_goal = answer.high_watermark

    def tell(self, epoch: int, leader_id: int, *endpoints: Endpoint | None) -> None:
        """Somebody says where the leader of an epoch is reached."""
        if epoch >= self.machine.epoch:
            self.addresses.tell(leader_id, [e for e in endpoints if e is not None])
            self.machine.addressed |= self.addresses.told
