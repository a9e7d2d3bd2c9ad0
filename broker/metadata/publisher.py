"""Publisher of committed metadata on this node: applies each publication in the order of its offset.

A publication first removes partitions, then updates leaders and epochs of hosted ones, and settings; then request
handlers get the image. The logs of new partitions are created later by `ottla.broker.replication.log_creator`. Applying
many partitions yields to other tasks, and the next publication waits for it.

Source: ``BrokerMetadataPublisher.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.publication_plan import (
    CreatePartitionLog,
    PartitionAction,
    RemovePartition,
    UpdatePartition,
    UpdateTopicConfig,
    plan_actions,
)
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.controller.metadata.delta import MetadataDelta, MetadataListener
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.subscriptions import MetadataSubscriptions
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background

MAX_AWAITED_PARTITIONS = 128
"""Maximum number of pending log creations that the response to a forwarded request waits for."""
CREATION_WAIT_S = 1.0


class BrokerMetadataPublisher:
    """Queue of metadata publications, and the task that applies them. An error in it stops the node."""

    def __init__(
        self, env: Env, config: NodeConfig, cache: MetadataCache, replicas: ReplicaManager, log_creator: LogCreator
    ) -> None:
        self._env = env
        self._config = config
        self._cache = cache
        self._replica_manager = replicas
        self._log_creator = log_creator
        self._queue: deque[tuple[MetadataImage, MetadataDelta]] = deque()
        self._published = 0
        self._applied = 0
        self._wakeup = trio.Event()
        self._progress = trio.Event()
        self._subscriptions = MetadataSubscriptions(lambda: cache.image)

    @property
    def offset(self) -> int:
        """Offset of the last applied metadata record, as sent in heartbeats."""
        return self._cache.image.offset

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Queue a publication of committed metadata, which `run` applies later."""
        self._queue.append((image, delta))
        self._published += 1
        self._wakeup.set()

    def subscribe(self, listener: MetadataListener) -> Callable[[], None]:
        """Call ``listener`` with the applied image now, if there is one, and after each publication is applied.

        The contract is that of `MetadataSubscriptions.subscribe`; the returned function ends the subscription.
        """
        return self._subscriptions.subscribe(listener)

    async def run(self) -> None:
        """Apply queued publications until cancelled."""
        while True:
            while self._queue:
                await self.apply(*self._queue.popleft())
                self._applied += 1
                self._progress.set()
                self._progress = trio.Event()
            self._wakeup = trio.Event()
            await self._wakeup.wait()

    async def wait_applied(self) -> None:
        """Wait until all publications that are queued at the time of the call are applied."""
        target = self._published
        while self._applied < target:
            await self._progress.wait()

    async def wait_applied_and_created(self) -> None:
        """Wait until all queued publications are applied, then at most 1 s for log creations, if few are pending."""
        await self.wait_applied()
        await self._log_creator.wait_all_created(MAX_AWAITED_PARTITIONS, CREATION_WAIT_S)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Apply an image and its delta, yielding between actions; then publish it to handlers and subscribers."""
        self._replica_manager.image = image
        await run_in_background(self._env, self._apply_actions(image, delta))
        self._log_creator.is_starting = False
        self._cache.image = image
        self._subscriptions.publish(image, delta)

    def _apply_actions(self, image: MetadataImage, delta: MetadataDelta) -> Job[None]:
        for step in plan_actions(delta, self._config.node_id, self._replica_manager.topic_id_of):
            yield from self._apply_action(step, image)
            yield None

    def _apply_action(self, step: PartitionAction, image: MetadataImage) -> Job[None]:
        match step:
            case RemovePartition(at):
                self._log_creator.cancel(at)
                self._replica_manager.remove(at)
            case UpdatePartition(at, registration):
                self._replica_manager.apply_partition_state(at, registration)
            case CreatePartitionLog(at, topic_id, registration):
                self._log_creator.request_log(at, topic_id, registration)
            case UpdateTopicConfig(None):
                for name in list(image.topics):
                    yield from self._update_topic_config(image, name)
            case UpdateTopicConfig(str(name)):
                yield from self._update_topic_config(image, name)

    def _update_topic_config(self, image: MetadataImage, name: str) -> Job[None]:
        """Set the configuration of a topic's logs, as a job; it applies from the next batch on."""
        topic = image.topics.get(name)
        if topic is None:
            return
        settings = self._config.log_settings(image, name)
        for number in topic.partitions:
            replica = self._replica_manager.get(name, number)
            if replica is not None and replica.log.config != settings:
                replica.log.update_config(settings)
            yield None
