"""Share coordinator of a broker: submits events to the shard of a share partition's state, and prunes its log.

Source: ``ShareCoordinatorService.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import CoordinatorState, Serde, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC as TOPIC
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.share_state import records
from ottla.broker.share_state.records import ShareRecord
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.share_state.state_machine import ShareCoordinatorSettings, ShareStateMachine, TopicsDeleted
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.jobs.state_machine import StateMachine

logger = logging.getLogger("ottla.share")
PRUNE_INTERVAL_MS = 300_000
"""``share.coordinator.state.topic.prune.interval.ms``, an internal setting with a fixed value here."""


def as_coordinator_key(key: SharePartitionKey) -> str:
    """Return ``group:topicId:partition``, the key of a share partition for its coordinator and FindCoordinator."""
    topic_id = urlsafe_b64encode(key.topic_id).rstrip(b"=").decode()
    return f"{key.group_id}:{topic_id}:{key.partition}"


class ShareCoordinator(CoordinatorRuntime[ShareRecord]):
    """Share coordinator of this broker, for share partitions whose `__share_group_state` partition it leads."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        image: Callable[[], MetadataImage],
        storage: LogDirs,
    ) -> None:
        self._storage = storage
        self._settings = ShareCoordinatorSettings(
            config.number("share.coordinator.snapshot.update.records.per.snapshot")
        )
        super().__init__(
            env,
            timers,
            fail,
            TOPIC,
            image,
            config.number("share.coordinator.state.topic.num.partitions"),
            self._new_state_machine,
            Serde(records.encode, records.decode, records.form),
            config.number("share.coordinator.write.timeout.ms"),
        )

    def _new_state_machine(self) -> StateMachine[ShareRecord]:
        return ShareStateMachine(self._settings, self._topic_partition_count)

    def _topic_partition_count(self, topic_id: bytes) -> int:
        image = self._latest_image()
        topic = image.topics.get(image.topic_names.get(topic_id, ""))
        return 0 if topic is None else len(topic.partitions)

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Submit the deletion of the states of deleted topics to all shards."""
        gone = frozenset(topic.id for topic in delta.deleted_topics())
        if gone:
            self.submit_to_all(TopicsDeleted(gone))

    async def prune_periodically(self) -> None:
        """Every `PRUNE_INTERVAL_MS` (5 min), delete the obsolete records of `__share_group_state`, until cancelled."""
        while True:
            await self._env.sleep(PRUNE_INTERVAL_MS / 1000)
            for shard in list(self):
                self._prune(shard)

    def _prune(self, shard: Shard[ShareRecord]) -> None:
        """Delete the records of a shard's log before the oldest snapshot needed, unless it has uncommitted records.

        Do nothing for a shard that is not active. Only whole segments are deleted from the disk.
        """
        if shard.state is not CoordinatorState.ACTIVE or not shard.is_committed or not shard.replica.is_leader:
            return
        needed = state_machine_of(shard).states.lowest_needed_offset()
        if needed is not None:
            self._delete_records_before(shard.replica, needed)

    def _delete_records_before(self, replica: HostedPartition, offset: int) -> None:
        log = replica.log
        try:
            if log.maybe_increment_log_start_offset(offset):
                self._storage.directory_of(log).checkpoints.write_log_start_offsets([log])
                for _ in log.delete_segments_below_start_job(self._env.now_ms()):
                    pass
                replica.notify_waiters()
        except OSError as error:
            self._fail(error, log)


def state_machine_of(shard: Shard[ShareRecord]) -> ShareStateMachine:
    """Return the state machine of a shard, for reading its share partition states."""
    assert isinstance(shard.machine, ShareStateMachine)
    return shard.machine
