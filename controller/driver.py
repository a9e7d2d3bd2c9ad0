"""The controller's driver: one task that decides, appends, syncs, publishes and answers, turn by turn.

A turn takes everything that waits. Each request is decided on the latest image, which holds what was decided before
it, committed or not; its batch goes to the log at once. One sync makes the whole turn durable; when the high watermark
has passed, listeners hear of the new image and what changed in it, and only then the answers go out. Who asked may be
gone by then: a turn belongs to nobody.

Source: ``QuorumController.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

import trio

from ottla.controller import heartbeats, startup
from ottla.controller.brokers import SUPPORTED_FEATURES
from ottla.controller.decision import PAUSE_EVERY, Decision, Defaults
from ottla.controller.delta import Listener
from ottla.controller.image import Image, records_of
from ottla.controller.machine import ControllerMachine
from ottla.controller.quorum_config import Endpoint
from ottla.controller.raft import events
from ottla.controller.raft.machine import RaftMachine
from ottla.controller.raft.store import MetadataStore, NotOurQuorum, StoreSettings
from ottla.controller.records import METADATA_VERSION, NEWEST_METADATA_VERSION, BatchWriter
from ottla.controller.snapshots import SnapshotId, snapshot_steps
from ottla.log.directory import Identity, LogDirectory
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import broker_heartbeat as bh
from ottla.wire.messages import broker_registration as br
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message
from ottla.world.env import Env, Lane

logger = logging.getLogger("ottla.controller")

RESIGN_BEATS = 10
"""Alone it takes two: one takes the leaderships, the next one fences. A stop waits for nothing else."""

T = TypeVar("T")
Writing = tuple[SnapshotId, Generator[None, None, bytes]]
"""A snapshot that is being written: its name, and the steps that give its bytes."""

__all__ = ["Controller", "NotOurQuorum", "Ticket"]


class Ticket:
    """A request on its way through the controller, and its answer once there is one."""

    def __init__(self, request: Any, version: int) -> None:
        self.request = request
        self.version = version
        self._done = trio.Event()
        self._answer: Any = None
        self._error: Exception | None = None

    def give(self, answer: Any) -> None:
        """The answer may leave."""
        self._answer = answer
        self._done.set()

    def fail(self, error: Exception) -> None:
        """There will be no answer but this error."""
        self._error = error
        self._done.set()

    async def wait(self) -> Any:
        """The answer, once everything it says is committed.

        Raises:
            ProtocolError: NOT_CONTROLLER, leadership was lost.
            OSError: the metadata log could not be written; the node stops.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return self._answer


class Controller:
    """The active controller of a quorum whose only voter is this node."""

    def __init__(
        self,
        env: Env,
        directory: LogDirectory,
        identity: Identity,
        defaults: Defaults,
        fail: Callable[[OSError], None],
    ) -> None:
        self._env = env
        self._fail = fail
        self._directory = directory
        self._identity = identity
        self.machine = ControllerMachine(defaults, env.uuid, identity.node_id, identity.cluster_id, env.random)
        self.listeners: list[Listener] = []
        """Called with the image and its delta after each commit, before the answers leave."""
        settings = StoreSettings.of(defaults.broker)
        self._store = MetadataStore(env.disk, directory.path, identity, env.now_ms(), settings)
        self._raft: RaftMachine
        self._waiting: list[Ticket] = []
        self._bell = trio.Event()
        self._stopped: Exception | None = None
        """Why nothing is decided any more."""
        self._nursery: trio.Nursery | None = None
        self._written: list[SnapshotId] = []
        """Snapshots written since the last turn."""
        self._snapshotting = False

    @property
    def image(self) -> Image:
        """The newest committed image."""
        return self.machine.image

    @property
    def node_id(self) -> int:
        """The sole voter."""
        return self._identity.node_id

    @property
    def directory_id(self) -> bytes:
        """Where the sole voter keeps the metadata log."""
        return self._identity.directory_id

    @property
    def epoch(self) -> int:
        """The quorum's leader epoch."""
        return self._raft.epoch

    @property
    def kraft_version(self) -> int:
        """0 where the voters are fixed by configuration, 1 where they are records."""
        return self._store.kraft_version

    @property
    def log_end_offset(self) -> int:
        """End of the metadata log."""
        return self._store.log.log_end_offset

    @property
    def _level(self) -> int:
        return self.machine.latest.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)

    # ------------------------------------------------------------------ start

    def load(self) -> None:
        """Read snapshot and log.

        Raises:
            NotOurQuorum: this node may not lead alone, or the metadata version is not known to it.
            CorruptFile, WireError: the metadata cannot be read.
        """
        store = self._store
        startup.replay(self.machine, store)
        voters = store.voters()
        startup.check_level(self.machine.image)
        self.machine.kraft_version = store.kraft_version
        self._raft = RaftMachine(
            store.me, voters, store.hard, store.chain(), self._env.random, first_records=store.first_records()
        )

    async def lead(self, controller: Endpoint) -> None:
        """Take over leadership, end an open metadata transaction, write the first records of a new cluster.

        Other brokers that are not fenced (the directory comes from a larger cluster) are fenced at once: they have no
        way to be heard by a controller that stands alone, and nothing may wait for them.
        """
        self._step(events.Start())
        assert self._raft.is_leader
        await self._commit()
        path = self._directory.path
        for records in startup.first_records(self.machine, self._env, path, self._identity, controller):
            await self._append(records)
            await self._commit()
        for broker_id in startup.unheard(self.machine.latest, self.node_id):
            fenced = heartbeats.fence(self.machine.latest, broker_id, self.machine.defaults.broker)
            await self._append((await self._paced(fenced)).records)
            await self._commit()

    async def run(self) -> None:
        """Take turns until the end, or until the disk fails. What goes wrong behind an append is raised from here."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._take_turns()

    # ------------------------------------------------------------------ turns

    def hand_in(self, request: Any, version: int = 0) -> Ticket:
        """Hand in a request or event; the ticket gets its answer."""
        ticket = Ticket(request, version)
        if self._stopped is not None:
            ticket.fail(self._stopped)
        else:
            self._waiting.append(ticket)
            self._bell.set()
        return ticket

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Hand in a request or event and wait for its answer: everything it changed is committed by then.

        Raises:
            ProtocolError, OSError: as `Ticket.wait`.
        """
        return await self.hand_in(request, version).wait()

    async def _take_turns(self) -> None:
        while self._stopped is None:
            await self._bell.wait()
            self._bell = trio.Event()
            while self._written:
                self._store.wrote_snapshot(self._written.pop(0), self._env.now_ms())
                self._step(self._store.covered())
            waiting, self._waiting = self._waiting, []
            if waiting:
                await self._turn(waiting)

    async def _turn(self, waiting: list[Ticket]) -> None:
        answers: list[tuple[Ticket, Any]] = []
        try:
            for ticket in waiting:
                try:
                    decision = await self._decide(ticket)
                except Exception as error:
                    ticket.fail(error)
                    continue
                if decision.records:
                    await self._append(decision.records)
                answers.append((ticket, decision.response))
            await self._commit()
        except OSError as error:
            # What is on disk now is not known: nothing may be decided on top of it.
            self._stop(error, waiting)
            self._fail(error)
            return
        for ticket, answer in answers:
            ticket.give(answer)

    async def _decide(self, ticket: Ticket) -> Decision:
        decision = self.machine.decide(ticket.request, ticket.version, self._raft.chain.end, self._env.monotonic_ms())
        return await self._paced(decision) if isinstance(decision, Generator) else decision

    async def _append(self, records: list[Message]) -> None:
        """Append records as one batch, so that all of them count or none, and go on from what they make."""
        level = self._level
        writer = BatchWriter(self._env.now_ms())
        async for record in self._slowly(records):
            writer.add_message(record, level)
        offset = self._raft.chain.end
        self._step(events.Propose(writer.done(), writer.count))
        async for record in self._slowly(records):
            self.machine.replay(offset, record)
        await self._paced(self.machine.appending(offset + len(records) - 1, self._raft.epoch))

    async def _commit(self) -> None:
        """Sync, and once the high watermark has passed, let everybody see it."""
        if self._store.log.log_end_offset > self._raft.synced:
            job = self._store.begin_sync()
            await self._env.in_thread(job, Lane.RAFT)
            self._step(events.Synced(self._store.finish_sync(job)))
        if self.machine.latest is self.machine.image:
            return
        assert self._raft.high_watermark > self.machine.latest.offset
        image, delta = await self._paced(self.machine.publishing())
        for listener in self.listeners:
            listener(image, delta)
        if self._store.wants_snapshot(self._env.now_ms()) and self._nursery is not None and not self._snapshotting:
            self._snapshotting = True
            self._nursery.start_soon(self._snapshot, self.begin_snapshot())

    def _step(self, event: events.Event) -> None:
        """Take the raft machine a step on, and do what it wants done, in its order."""
        ready = self._raft.step(self._env.monotonic_ms(), event)
        assert not ready.sends, "the only voter has nobody to ask"
        assert ready.truncate is None
        assert ready.start_over is None
        if ready.hard_state is not None:
            self._store.write_state(ready.hard_state)
        for append in ready.append:
            self._store.append(append, self._env.now_ms())
        if ready.committed is not None:
            self._store.committed(ready.committed)

    @staticmethod
    async def _slowly(records: Iterable[Message]) -> AsyncIterator[Message]:
        """One after the other; the loop goes round now and then."""
        for number, record in enumerate(records, 1):
            yield record
            if number % PAUSE_EVERY == 0:
                await trio.lowlevel.checkpoint()

    @staticmethod
    async def _paced(steps: Generator[None, None, T]) -> T:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------ snapshots

    def begin_snapshot(self) -> Writing:
        """Begin a snapshot of the committed image; it is written while turns go on.

        Raises:
            OSError: the disk failed.
        """
        image = self.image
        name, around = self._store.begin_snapshot(image.offset + 1, self._env.now_ms())
        level = image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
        steps = snapshot_steps(around, records_of(image), name.epoch, self._env.now_ms(), level)
        return name, steps

    async def finish_snapshot(self, writing: Writing) -> None:
        """Write a snapshot that was begun; what it makes superfluous goes with the next turn.

        Raises:
            OSError: the disk failed.
        """
        name, steps = writing
        raw = await self._paced(steps)
        await self._env.in_thread(partial(self._store.write_snapshot, name, raw), Lane.FILES)
        logger.info("metadata snapshot at offset %d", name.end_offset)
        self._written.append(name)
        self._bell.set()

    async def _snapshot(self, writing: Writing) -> None:
        try:
            await self.finish_snapshot(writing)
        except OSError as error:
            self._stop(error, [])
            self._fail(error)
        finally:
            self._snapshotting = False

    # ------------------------------------------------------------------ end

    def _stop(self, why: Exception, waiting: list[Ticket]) -> None:
        """Nothing is decided any more: what was not committed never was, and whoever waits is told."""
        self._stopped = why
        self.machine.revert()
        waiting, self._waiting = [*waiting, *self._waiting], []
        for ticket in waiting:
            ticket.fail(why)
        self._bell.set()

    async def register_broker(
        self, directory_ids: list[bytes], endpoints: list[m.BrokerEndpoint], rack: str | None
    ) -> int:
        """Register this node's broker with the directories it can use, and let it lead; gives its broker epoch.

        Its former process counts as stopped cleanly: what it led nobody else could lead meanwhile.

        Raises:
            ProtocolError: it is refused; OSError: the metadata log could not be written.
        """
        known = self.machine.latest.brokers.get(self.node_id)
        request = br.BrokerRegistrationRequest(
            self.node_id,
            self._identity.cluster_id,
            self._env.uuid(),
            [br.Listener(e.name, e.host, e.port, e.security_protocol) for e in endpoints],
            [br.Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            rack,
            log_dirs=sorted(directory_ids),
            previous_broker_epoch=-1 if known is None else known.broker_epoch,
        )
        answer = await self.submit(request)
        if answer.error_code:
            raise ProtocolError(ErrorCode(answer.error_code))
        epoch: int = answer.broker_epoch
        await self._beat(epoch)
        return epoch

    async def _beat(self, epoch: int, *, want_shut_down: bool = False) -> bh.BrokerHeartbeatResponse:
        request = bh.BrokerHeartbeatRequest(self.node_id, epoch, self.image.offset, False, want_shut_down)
        answer: bh.BrokerHeartbeatResponse = await self.submit(request)
        return answer

    async def resign_broker(self) -> None:
        """Controlled shutdown of this node's broker: its leaderships go first, then it is fenced."""
        known = self.machine.latest.brokers.get(self.node_id)
        for _ in range(RESIGN_BEATS if known is not None else 0):
            assert known is not None
            answer = await self._beat(known.broker_epoch, want_shut_down=True)
            if answer.should_shut_down or answer.error_code:
                return

    def close(self) -> None:
        """Give leadership up, flush and close the metadata log, as a clean stop does."""
        self._step(events.Resign())
        self._stop(ProtocolError(ErrorCode.NOT_CONTROLLER), [])
        self._store.close()
