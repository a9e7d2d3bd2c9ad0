"""A node's directories, hosted partitions and what follows the metadata, over a disk in memory and in virtual time."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from ottla.broker.config import NodeConfig
from ottla.broker.metadata.applier import Applier
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.replica.losses import Losses
from ottla.broker.replica.making import Making
from ottla.broker.replica.replicas import Replicas
from ottla.broker.replica.storage import Storage
from ottla.broker.tests.world import NOW_MS, VirtualEnv
from ottla.controller.delta import MetadataDelta, TopicDelta
from ottla.controller.directories import UNASSIGNED
from ottla.controller.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.log.directory import MetaProperties
from ottla.world.env import Lane

ME = 1
MAKES_S = 0.001
"""What making one batch takes, in virtual time."""


class SlowEnv(VirtualEnv):
    """Work in threads takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.in_threads = 0
        self.is_beside = False
        """Whether somebody works beside the loop just now."""

    async def in_thread(self, work: Callable[[], Any], lane: Any = Lane.FILES) -> Any:
        self.in_threads += 1
        await trio.sleep(MAKES_S)
        self.is_beside = True
        try:
            return work()
        finally:
            self.is_beside = False


def topic(name: str, count: int, topic_id: bytes | None = None, **told: Any) -> TopicImage:
    """A topic whose partitions this node leads, alone."""
    state: dict[str, Any] = {"replicas": (ME,), "isr": (ME,), "leader": ME, "leader_epoch": 0, "partition_epoch": 0}
    state.update(told)
    partition = PartitionRegistration(directories=(UNASSIGNED,) * len(state["replicas"]), **state)
    return TopicImage(name, topic_id or name.encode().ljust(16, b"-"), dict.fromkeys(range(count), partition))


class Ground:
    """Everything between the controller's listener and the disk."""

    def __init__(self, directories: str = "/a", *, env: Any = None, **settings: str) -> None:
        """``env``: of another one before, which let its directories go."""
        self.env: Any = env or SlowEnv()
        self.config = NodeConfig({k.replace("_", "."): v for k, v in settings.items()}, directories, ME)
        self.storage = Storage(self.env.disk, self.config.data_dirs)
        self.storage.lock()
        ids = iter(bytes([9, n]) * 8 for n in range(10))
        identity = self.storage.identify(ME, None) or MetaProperties("c", ME, next(ids))
        self.storage.begin(identity, NOW_MS, lambda: next(ids))
        self.ended = 0
        self.losses = Losses(self.storage, self._end)
        self.woken: list[Any] = []
        self.replicas = Replicas(
            self.env, self.config, self.storage, self.woken.append, lambda replica: None, self.losses.fail
        )
        self.losses.on_lost.append(self.replicas.lose)
        self.making = Making(self.env, self.config, self.storage, self.replicas, self.losses.fail)
        self.cache = MetadataCache(self.config, "c", lambda: 1)
        self.applier = Applier(self.env, self.config, self.cache, self.replicas, self.making)
        self.places: list[tuple[bytes, int, bytes]] = []
        self.replicas.on_place = lambda *x: self.places.append(x)
        self.doomed: list[str] = []
        self.replicas.on_doomed.append(self.doomed.append)
        self.led: list[tuple[str, int]] = []
        self.replicas.on_leader.append(lambda r: self.led.append((r.topic, r.partition)))
        self.image = MetadataImage()

    def _end(self) -> None:
        self.ended += 1

    def say(self, *topics: TopicImage, gone: tuple[str, ...] = (), **more: Any) -> None:
        """The controller commits topics as they are now, and others' end."""
        now = {name: t for name, t in self.image.topics.items() if name not in gone}
        now.update((t.name, t) for t in topics)
        image = MetadataImage(
            self.image.offset + 1, topics=now, topic_names={t.id: t.name for t in now.values()}, **more
        )
        old = self.image.topics
        touched = {
            name: TopicDelta(old.get(name), now.get(name), frozenset(now[name].partitions if name in now else ()))
            for name in [t.name for t in topics] + list(gone)
        }
        self.image = image
        self.applier.publish(image, MetadataDelta(touched, configs=frozenset(more.get("configs", ()))))

    def play(self, story: Callable[[], Awaitable[None]], *, workers: int = 1) -> None:
        """Run a story beside the node's own tasks."""

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.applier.run)
                for _ in range(workers):
                    nursery.start_soon(self.making.run)
                with trio.fail_after(600):
                    await story()
                nursery.cancel_scope.cancel()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    def hosted(self) -> set[tuple[str, int]]:
        """What is open."""
        return {(r.topic, r.partition) for r in self.replicas}

    def break_disk(self, where: str, number: int = errno.EIO, *, times: int = 10**9) -> None:
        """Calls that name a path with ``where`` in it fail, so often."""
        left = [times]

        def fault(_: str, path: str) -> OSError | None:
            if where in path and left[0] > 0:
                left[0] -= 1
                return OSError(number, "injected", path)
            return None

        self.env.disk.fault = fault

    def watch_disk(self) -> list[tuple[str, str]]:
        """Calls that wait for the disk while nobody else runs, from now on: there should be none."""
        waited: list[tuple[str, str]] = []

        def fault(what: str, path: str) -> OSError | None:
            if what in ("fsync", "fsync_dir") and not self.env.is_beside:
                waited.append((what, path))
            return None

        self.env.disk.fault = fault
        return waited

    def heal_disk(self) -> None:
        """No call fails any more."""
        self.env.disk.fault = None


def told(ground: Ground, name: str, number: int) -> PartitionRegistration:
    """What the image says of a partition."""
    return ground.image.topics[name].partitions[number]
