"""Follows committed metadata on this node: each publication in the order of its offset, step by step.

Two lanes. Here: what goes, epochs and leaders of what is open, settings; then handlers see the image. Behind it, in
`broker.replica.making`: files of partitions that are not there yet. A publication that touches many partitions lets
others run in between, and the next one waits for it.

Source: ``BrokerMetadataPublisher.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import deque

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.plan import Follow, Make, Remove, Settle, Step, steps_of
from ottla.broker.replica.making import Making
from ottla.broker.replica.replicas import Replicas
from ottla.broker.turn import BACKGROUND_SLICE_MS, TimeSlice
from ottla.controller.delta import MetadataDelta, MetadataListener
from ottla.controller.image import MetadataImage
from ottla.world.env import Env

WAITED_FOR = 128
"""So many partitions at most are waited for before a request that made them is answered."""
PATIENCE_S = 1.0


class Applier:
    """The queue of publications, and the task that works it off. An error in it is ours, and ends the node."""

    def __init__(self, env: Env, config: NodeConfig, cache: MetadataCache, replicas: Replicas, making: Making) -> None:
        self._env = env
        self._config = config
        self._cache = cache
        self._replicas = replicas
        self._making = making
        self._waiting: deque[tuple[MetadataImage, MetadataDelta]] = deque()
        self._published = 0
        self._applied = 0
        self._more = trio.Event()
        self._progress = trio.Event()
        self.followers: list[MetadataListener] = []
        """Called with each publication once the partitions are as it says."""

    @property
    def offset(self) -> int:
        """The newest record that is applied: what heartbeats name."""
        return self._cache.image.offset

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Metadata was committed."""
        self._waiting.append((image, delta))
        self._published += 1
        self._more.set()

    async def run(self) -> None:
        """Apply what is published, until cancelled."""
        while True:
            while self._waiting:
                await self.apply(*self._waiting.popleft())
                self._applied += 1
                self._progress.set()
                self._progress = trio.Event()
            self._more = trio.Event()
            await self._more.wait()

    async def caught_up(self) -> None:
        """Wait until everything that is published by now is applied."""
        target = self._published
        while self._applied < target:
            await self._progress.wait()

    async def settled(self) -> None:
        """Wait until it is applied, and the few partitions it asks for are there; for many nobody waits."""
        await self.caught_up()
        await self._making.all_made(WAITED_FOR, PATIENCE_S)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Make this node as the image says, in slices."""
        self._replicas.image = image
        turn = TimeSlice(self._env, BACKGROUND_SLICE_MS)
        for step in steps_of(delta, self._config.node_id, self._replicas.id_of):
            await self._do(step, image, turn)
            await turn.maybe_yield()
        self._making.starting = False
        self._cache.image = image
        for follower in self.followers:
            follower(image, delta)

    async def _do(self, step: Step, image: MetadataImage, turn: TimeSlice) -> None:
        match step:
            case Remove(at):
                self._making.forget(at)
                self._replicas.remove(at)
            case Follow(at, told):
                self._replicas.follow(at, told)
            case Make(at, topic_id, told):
                self._making.want(at, topic_id, told)
            case Settle(None):
                for name in list(image.topics):
                    await self._settle(image, name, turn)
            case Settle(str(name)):
                await self._settle(image, name, turn)

    async def _settle(self, image: MetadataImage, name: str, turn: TimeSlice) -> None:
        """Give a topic's logs its settings; they hold from the next batch on."""
        topic = image.topics.get(name)
        if topic is None:
            return
        settings = self._config.log_settings(image, name)
        for number in topic.partitions:
            replica = self._replicas.get(name, number)
            if replica is not None and replica.log.config != settings:
                replica.log.update_config(settings)
            await turn.maybe_yield()
