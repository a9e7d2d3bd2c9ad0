"""Group coordinator of a broker: submits events about a group to the shard of its `__consumer_offsets` partition.

Source: ``GroupCoordinatorService.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups import records
from ottla.broker.groups.records import GroupRecord
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.jobs.state_machine import StateMachine

if TYPE_CHECKING:
    from ottla.broker.groups.classic.rebalance import GroupSettings
    from ottla.broker.groups.state_machine import GroupStateMachine

TOPIC = "__consumer_offsets"
MAX_CACHED_KEY_CHARS = 64
"""Longest key whose partition is cached: it bounds the memory of the cache, which has a fixed number of entries."""


def java_string_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 code units, as a signed 32-bit integer."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def partition_for_key(key: str, partitions: int) -> int:
    """Return the partition of a group or transactional id among ``partitions``.

    ``Utils.abs`` maps the minimum int32 to 0.
    """
    return (
        _cached_partition_for_key(key, partitions)
        if len(key) <= MAX_CACHED_KEY_CHARS
        else _partition_for_key(key, partitions)
    )


def _partition_for_key(key: str, partitions: int) -> int:
    value = java_string_hash(key)
    return (0 if value == -0x80000000 else abs(value)) % partitions


_cached_partition_for_key = lru_cache(maxsize=8192)(_partition_for_key)


class GroupCoordinator:
    """Group coordinator of this broker, for all groups whose partition of `__consumer_offsets` it leads.

    The modules of the group protocols are imported with the first such partition: most nodes start without one.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        count: Callable[[], int],
    ) -> None:
        self._partition_count = count
        self._partitions = config.number("offsets.topic.num.partitions")
        """Number of partitions of `__consumer_offsets` while the topic does not exist."""
        self._config = config
        self._image = MetadataImage()
        self._runtime: CoordinatorRuntime[GroupRecord] = CoordinatorRuntime(
            env,
            timers,
            fail,
            TOPIC,
            self._new_state_machine,
            Serde(records.encode, records.decode, records.form, encode_job=records.encode_job),
            config.number("offsets.commit.timeout.ms"),
        )
        self.run = self._runtime.run
        self.on_resignation = self._runtime.on_resignation
        self.on_high_watermark_updated = self._runtime.on_high_watermark_updated
        self.active_shards = self._runtime.active_shards

    @cached_property
    def settings(self) -> GroupSettings:
        """Group coordinator settings of this broker, from its configuration."""
        # lazy: 6.5 ms, 264 kB
        from ottla.broker.groups.classic.rebalance import GroupSettings
        from ottla.broker.groups.settings import (
            read_consumer_group_settings,
            read_share_group_settings,
            read_streams_group_settings,
        )

        config = self._config
        return GroupSettings(
            config.number("group.initial.rebalance.delay.ms"),
            config.number("group.min.session.timeout.ms"),
            config.number("group.max.session.timeout.ms"),
            config.number("group.max.size"),
            config.number("offset.metadata.max.bytes"),
            config.number("offsets.retention.minutes") * 60_000,
            config.number("offsets.retention.check.interval.ms"),
            read_consumer_group_settings(config),
            read_share_group_settings(config),
            read_streams_group_settings(config),
        )

    def _new_state_machine(self) -> StateMachine[GroupRecord]:
        # lazy: 12.1 ms, 602 kB
        from ottla.broker.groups.state_machine import GroupStateMachine

        return GroupStateMachine(self.settings, self._image)

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that holds a group."""
        return partition_for_key(group_id, self._partition_count() or self._partitions)

    def on_election(self, replica: HostedPartition) -> None:
        """Load the groups of a partition of `__consumer_offsets` that this broker now leads; ignore other topics."""
        if replica.topic == TOPIC:
            self._runtime.on_election(replica)

    def submit(self, group_id: str, event_of: Callable[[PendingBrokerRequest], Any]) -> PendingBrokerRequest:
        """Submit the event that ``event_of`` builds from a new pending request to a group's shard; return the request.

        On rejection (such as NOT_COORDINATOR), the pending request completes with a `ProtocolError`.
        """
        return self._runtime.submit(self.partition_for(group_id), event_of)

    def submit_to_partition(
        self, partition: int, event_of: Callable[[PendingBrokerRequest], Any]
    ) -> PendingBrokerRequest:
        """Submit an event to the shard of a partition of `__consumer_offsets`, as `submit` does."""
        return self._runtime.submit(partition, event_of)

    def on_disconnect(self, group_id: str, pending: PendingBrokerRequest) -> None:
        """Notify the shard of a group that the client of a pending request has disconnected."""
        self._runtime.on_disconnect(self.partition_for(group_id), group_id, pending)

    def shards(self) -> list[Shard[GroupRecord]]:
        """Return all shards of this broker, including those that are still being loaded."""
        return list(self._runtime)

    def shard_for(self, group_id: str) -> Shard[GroupRecord]:
        """Return the shard of a group, to read with `state_machine_of` and then `Shard.read_barrier`.

        Raises:
            ProtocolError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._runtime.shard(self.partition_for(group_id))

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Submit a new metadata image to all shards: groups are checked, offsets of deleted topics are deleted."""
        self._image = image
        if not self._runtime.has_shards():
            return
        # lazy: 11.9 ms, 602 kB
        from ottla.broker.groups.state_machine import TopicMetadataChanged

        gone = {topic.name: topic.id for topic in delta.deleted_topics()}
        has_new = any(True for _ in delta.created_topics())
        self._runtime.submit_to_all(TopicMetadataChanged(image, frozenset(delta.topics), has_new, gone))


def state_machine_of(shard: Shard[GroupRecord]) -> GroupStateMachine:
    """Return the state machine of a shard, for reading its groups and committed offsets."""
    # lazy: 11.9 ms, 602 kB
    from ottla.broker.groups.state_machine import GroupStateMachine

    assert isinstance(shard.machine, GroupStateMachine)
    return shard.machine
