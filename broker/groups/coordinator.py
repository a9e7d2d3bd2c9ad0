"""The shell around the group machines: one shard for each partition of `__consumer_offsets` this node leads.

It finds the shard of a group, hands events in, appends the records that come out, replays them once they are
committed, and only then lets the answers go.

Source: ``CoordinatorRuntime.java``, ``GroupCoordinatorService.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups import records as gr
from ottla.broker.groups.machine import Fired, GroupMachine, Loaded, TopicsGone
from ottla.broker.groups.rebalance import Fx, GroupSettings
from ottla.broker.replica.replica import Replica
from ottla.broker.replica.storage import Fail
from ottla.controller.delta import Delta
from ottla.controller.image import Image
from ottla.log.machine import Arm, Reply
from ottla.log.validate import Origin
from ottla.wire import records as r
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.world.env import Env

logger = logging.getLogger("ottla.groups")
TOPIC = "__consumer_offsets"


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, in 32 signed bits."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


@lru_cache(maxsize=65536)
def partition_of(key: str, partitions: int) -> int:
    """The partition that holds a group: ``Utils.abs`` maps the one number without a positive twin to 0."""
    value = java_hash(key)
    return (0 if value == -0x80000000 else abs(value)) % partitions


class Ticket:
    """A place to wait for one answer."""

    __slots__ = ("answer", "event", "patient")

    def __init__(self, *, patient: bool = True) -> None:
        self.patient = patient
        """Whether the answer may wait for the disk."""
        self.event: trio.Event | None = None
        self.answer: Any = None

    def give(self, answer: Any) -> None:
        """The answer is there."""
        self.answer = answer
        if self.event is not None:
            self.event.set()

    async def wait(self) -> Any:
        """Wait for the answer."""
        if self.answer is None:
            self.event = trio.Event()
            await self.event.wait()
        return self.answer


class Shard:
    """One partition's machine and the log it is a fold of."""

    def __init__(self, replica: Replica, settings: GroupSettings) -> None:
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.machine = GroupMachine(settings)
        self.loading = True
        self.held: list[tuple[int, list[Reply]]] = []
        """Answers that wait for the disk: (log end, answers), where ``flush.messages`` asks for it."""
        self.gone: frozenset[str] = frozenset()
        """Topics deleted while the log was being read."""


class GroupCoordinator:
    """All shards of this node."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: Fail,
        count: Callable[[], int],
    ) -> None:
        self._count = count
        self._env = env
        self._timers = timers
        self._fail = fail
        self._shards: dict[int, Shard] = {}
        self.partitions = config.number("offsets.topic.num.partitions")
        """How many partitions `__consumer_offsets` has: what the topic says, once it exists."""
        self.settings = GroupSettings(
            config.number("group.initial.rebalance.delay.ms"),
            config.number("group.min.session.timeout.ms"),
            config.number("group.max.session.timeout.ms"),
            config.number("group.max.size"),
            config.number("offset.metadata.max.bytes"),
            config.number("offsets.retention.minutes") * 60_000,
            config.number("offsets.retention.check.interval.ms"),
        )

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds a group."""
        return partition_of(group_id, self.partitions)

    def lead(self, replica: Replica) -> None:
        """Begin to serve a partition's groups; one with records is read first."""
        if replica.topic != TOPIC:
            return
        self.partitions = self._count() or self.partitions
        shard = self._shards[replica.partition] = Shard(replica, self.settings)
        if replica.log.log_end_offset == replica.log.log_start_offset:
            self._start(shard)

    def resign(self, replica: Replica) -> None:
        """Stop serving a partition's groups."""
        if replica.topic == TOPIC:
            shard = self._shards.pop(replica.partition, None)
            for _, replies in shard.held if shard is not None else ():
                for reply in replies:
                    reply.ticket.give(ProtocolError(ErrorCode.NOT_COORDINATOR))

    async def load_all(self) -> None:
        """Read every shard that has something to read; a turn of the loop between two of them."""
        for shard in list(self._shards.values()):
            if shard.loading:
                try:
                    self._load(shard)
                except WireError as error:
                    logger.error("%s-%d cannot be read: %s", TOPIC, shard.replica.partition, error)
                    continue
                self._start(shard)
                await trio.lowlevel.checkpoint()

    def _load(self, shard: Shard) -> None:
        log = shard.replica.log
        for header, raw in log.batches(log.log_start_offset):
            if header.is_control:
                continue
            for record in r.iterate(raw, header):
                decoded = gr.decode(record.key, record.value)
                if decoded is not None:
                    shard.machine.replay(record.offset, decoded)

    def _start(self, shard: Shard) -> None:
        shard.loading = False
        self._apply(shard, shard.machine.handle(self._env.now_ms(), Loaded()))
        if shard.gone:
            self._apply(shard, shard.machine.handle(self._env.now_ms(), TopicsGone(shard.gone)))

    @property
    def loading(self) -> bool:
        """Whether some shard is still being read."""
        return any(s.loading for s in self._shards.values())

    def shard_of(self, group_id: str) -> Shard:
        """The shard of a group.

        Raises:
            ProtocolError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        shard = self._shards.get(self.partition_for(group_id))
        if shard is None or not shard.replica.is_leader:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if shard.loading:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def publish(self, image: Image, delta: Delta) -> None:
        """Follow the image: positions go with their topic. A shard that is still being read learns of it afterwards."""
        gone = frozenset(topic.name for topic in delta.removed())
        if not gone:
            return
        for shard in list(self._shards.values()):
            if shard.loading:
                shard.gone |= gone
            elif shard.replica.is_leader:
                self._apply(shard, shard.machine.handle(self._env.now_ms(), TopicsGone(gone)))

    def shards(self) -> Iterator[Shard]:
        """Every shard that can be read."""
        return (s for s in self._shards.values() if not s.loading)

    def handle(self, group_id: str, event: Any) -> None:
        """Hand an event to a group's shard; its ticket gets the answer.

        Raises:
            ProtocolError: this node cannot serve the group now.
        """
        shard = self.shard_of(group_id)
        self._apply(shard, shard.machine.handle(self._env.now_ms(), event))

    def ask(self, group_id: str, event_of: Callable[[Ticket], Any], *, patient: bool = True) -> Ticket:
        """Hand in an event that carries a ticket; a refusal is an answer too: a `ProtocolError` in the ticket."""
        ticket = Ticket(patient=patient)
        try:
            self.handle(group_id, event_of(ticket))
        except ProtocolError as error:
            ticket.give(error)
        return ticket

    def _apply(self, shard: Shard, fx: Fx) -> None:
        """Append, replay, arm, answer: in that order."""
        if fx.records:
            try:
                self._append(shard, fx)
            except ProtocolError as error:
                for reply in fx.replies:
                    reply.ticket.give(error)
                fx.replies.clear()
            except OSError as error:
                self._fail(error, shard.replica.log)
                return
        partition = shard.replica.partition
        for timer in fx.timers:
            key = (TOPIC, partition, *timer.key)
            if isinstance(timer, Arm):
                self._timers.arm(key, timer.at_ms, self._fire(shard, timer.key))
            else:
                self._timers.cancel(key)
        if fx.records and shard.replica.flushing and all(reply.ticket.patient for reply in fx.replies):
            shard.held.append((shard.replica.log.log_end_offset, fx.replies))
            return
        for reply in fx.replies:
            reply.ticket.give(reply.message)

    def flushed(self, replica: Replica) -> None:
        """Let answers go whose records are on the disk now."""
        shard = self._shards.get(replica.partition) if replica.topic == TOPIC else None
        while shard is not None and shard.held and shard.held[0][0] <= replica.log.high_watermark:
            for reply in shard.held.pop(0)[1]:
                reply.ticket.give(reply.message)

    def _append(self, shard: Shard, fx: Fx) -> None:
        now = self._env.now_ms()
        batch = r.build([r.NewRecord(*gr.encode(x), now) for x in fx.records], base_sequence=0)
        done = shard.replica.append(bytearray(batch), now, Origin.COORDINATOR)
        for index, record in enumerate(fx.records):
            shard.machine.replay(done.first_offset + index, record)

    def _fire(self, shard: Shard, key: tuple[str, ...]) -> Callable[[], None]:
        def fire() -> None:
            if self._shards.get(shard.replica.partition) is shard:
                self._apply(shard, shard.machine.handle(self._env.now_ms(), Fired(key)))

        return fire
