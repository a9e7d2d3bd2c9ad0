"""Group coordinator of a broker: submits events about a group to the shard of its `__consumer_offsets` partition.

Source: ``GroupCoordinatorService.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups import records
from ottla.broker.groups.records import GroupRecord
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.jobs.state_machine import StateMachine

if TYPE_CHECKING:
    from ottla.broker.groups.classic.rebalance import GroupSettings
    from ottla.broker.groups.state_machine import GroupStateMachine

TOPIC = "__consumer_offsets"


class GroupCoordinator(CoordinatorRuntime[GroupRecord]):
    """Group coordinator of this broker, for all groups whose partition of `__consumer_offsets` it leads.

    The state machine is imported with the first such partition: most nodes start without one.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._config = config
        self._image = MetadataImage()
        """Image that was last submitted to the shards."""
        super().__init__(
            env,
            timers,
            fail,
            TOPIC,
            image,
            config.number("offsets.topic.num.partitions"),
            self._new_state_machine,
            Serde(records.encode, records.decode, records.form, encode_job=records.encode_job),
            config.number("offsets.commit.timeout.ms"),
        )

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

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Submit a new metadata image to all loading or active shards.

        Affected groups are marked for a check at the next heartbeat; deleted topics are removed from committed offsets
        and from the state partition metadata of share groups.
        """
        self._image = image
        if not self._shards:
            return
        # lazy: 11.9 ms, 602 kB
        from ottla.broker.groups.state_machine import TopicMetadataChanged

        gone = {topic.name: topic.id for topic in delta.deleted_topics()}
        has_new = any(True for _ in delta.created_topics())
        self.submit_to_all(TopicMetadataChanged(image, frozenset(delta.topics), has_new, gone))


def state_machine_of(shard: Shard[GroupRecord]) -> GroupStateMachine:
    """Return the state machine of a shard, for reading its groups and committed offsets."""
    # lazy: 11.9 ms, 602 kB
    from ottla.broker.groups.state_machine import GroupStateMachine

    assert isinstance(shard.machine, GroupStateMachine)
    return shard.machine
