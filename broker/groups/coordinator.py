"""The group coordinator: which partition of `__consumer_offsets` holds a group, on the runtime of all coordinators.

Source: ``GroupCoordinatorService.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ottla.broker.config import NodeConfig
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde, Shard
from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups import records as gr
from ottla.broker.groups.records import GroupRecord
from ottla.broker.replica.replica import HostedPartition
from ottla.broker.replica.storage import DiskErrorHandler
from ottla.controller.delta import MetadataDelta
from ottla.controller.image import MetadataImage
from ottla.log.machine import StateMachine
from ottla.world.env import Env

if TYPE_CHECKING:
    from ottla.broker.groups.machine import GroupMachine
    from ottla.broker.groups.rebalance import GroupSettings

TOPIC = "__consumer_offsets"
KEPT_KEY_CHARS = 64
"""Partitions of keys up to this length are remembered: what is remembered is bounded by size, not only by number."""


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, in 32 signed bits."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def partition_of(key: str, partitions: int) -> int:
    """The partition that holds a group: ``Utils.abs`` maps the one number without a positive twin to 0."""
    return _remembered(key, partitions) if len(key) <= KEPT_KEY_CHARS else _partition_of(key, partitions)


def _partition_of(key: str, partitions: int) -> int:
    value = java_hash(key)
    return (0 if value == -0x80000000 else abs(value)) % partitions


_remembered = lru_cache(maxsize=8192)(_partition_of)


class GroupCoordinator:
    """All groups whose partition this node leads.

    The rules of groups are loaded with the first partition of theirs: most nodes start without one.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        count: Callable[[], int],
    ) -> None:
        self._count = count
        self._partitions = config.number("offsets.topic.num.partitions")
        """Of `__consumer_offsets`, as long as there is no topic that says otherwise."""
        self._config = config
        self._image = MetadataImage()
        self._runtime: CoordinatorRuntime[GroupRecord] = CoordinatorRuntime(
            env,
            timers,
            fail,
            TOPIC,
            self._machine,
            Serde(gr.encode, gr.decode, gr.form),
            config.number("offsets.commit.timeout.ms"),
        )
        self.run = self._runtime.run
        self.resign = self._runtime.resign
        self.advance = self._runtime.advance
        self.shards = self._runtime.served

    @cached_property
    def settings(self) -> GroupSettings:
        """What groups live by on this node."""
        from ottla.broker.groups.rebalance import GroupSettings
        from ottla.broker.groups.settings import consumer_settings, share_settings, streams_settings

        config = self._config
        return GroupSettings(
            config.number("group.initial.rebalance.delay.ms"),
            config.number("group.min.session.timeout.ms"),
            config.number("group.max.session.timeout.ms"),
            config.number("group.max.size"),
            config.number("offset.metadata.max.bytes"),
            config.number("offsets.retention.minutes") * 60_000,
            config.number("offsets.retention.check.interval.ms"),
            consumer_settings(config),
            share_settings(config),
            streams_settings(config),
        )

    def _machine(self) -> StateMachine[GroupRecord]:
        from ottla.broker.groups.machine import GroupMachine

        return GroupMachine(self.settings, self._image)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds a group."""
        return partition_of(group_id, self._count() or self._partitions)

    def lead(self, replica: HostedPartition) -> None:
        """Begin to serve a partition's groups."""
        if replica.topic == TOPIC:
            self._runtime.lead(replica)

    def ask(self, group_id: str, event_of: Callable[[Ticket], Any]) -> Ticket:
        """Hand in an event about a group that carries a ticket; a refusal is an answer too: a `ProtocolError`."""
        return self._runtime.ask(self.partition_for(group_id), event_of)

    def ask_partition(self, partition: int, event_of: Callable[[Ticket], Any]) -> Ticket:
        """Hand in an event about a partition of `__consumer_offsets`, as `ask`."""
        return self._runtime.ask(partition, event_of)

    def close(self, group_id: str, ticket: Ticket) -> None:
        """The connection is gone whose request about a group waits with this ticket."""
        self._runtime.close(self.partition_for(group_id), group_id, ticket)

    def shard_of(self, group_id: str) -> Shard[GroupRecord]:
        """The shard of a group: for reading, with `machine_of`, before a `Shard.read`.

        Raises:
            ProtocolError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._runtime.shard(self.partition_for(group_id))

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Follow the image: groups look at their topics anew, and positions go with theirs."""
        self._image = image
        if not self._runtime.is_serving():
            return
        from ottla.broker.groups.machine import MetadataChanged

        gone = {topic.name: topic.id for topic in delta.deleted_topics()}
        has_new = any(True for _ in delta.created_topics())
        self._runtime.tell(MetadataChanged(image, frozenset(delta.topics), has_new, gone))


def machine_of(shard: Shard[GroupRecord]) -> GroupMachine:
    """A shard's groups and positions, to be read."""
    from ottla.broker.groups.machine import GroupMachine

    assert isinstance(shard.machine, GroupMachine)
    return shard.machine
