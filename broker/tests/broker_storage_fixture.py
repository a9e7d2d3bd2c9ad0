"""Log directories, hosted partitions and metadata publication of a node, with an in-memory disk in virtual time."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.publisher import BrokerMetadataPublisher
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.tests.handler_fixture import NOW_MS, VirtualEnv
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.directory_id import UNASSIGNED
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.env.env import ThreadPool
from ottla.log.directory.meta_properties import MetaProperties

NODE_ID = 1
THREAD_WORK_S = 0.001
"""Virtual time for creating one batch of logs."""


class SlowEnv(VirtualEnv):
    """Environment in which work in threads takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.in_threads = 0
        self.is_beside = False
        """Whether somebody works beside the loop just now."""

    async def in_thread(self, work: Callable[[], Any], lane: Any = ThreadPool.FILES) -> Any:
        self.in_threads += 1
        await trio.sleep(THREAD_WORK_S)
        self.is_beside = True
        try:
            return work()
        finally:
            self.is_beside = False


def led_topic(name: str, count: int, topic_id: bytes | None = None, **expected: Any) -> TopicImage:
    """Return a topic with partitions that this node leads as their only replica."""
    state: dict[str, Any] = {
        "replicas": (NODE_ID,),
        "isr": (NODE_ID,),
        "leader": NODE_ID,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    state.update(expected)
    partition = PartitionRegistration(directories=(UNASSIGNED,) * len(state["replicas"]), **state)
    return TopicImage(name, topic_id or name.encode().ljust(16, b"-"), dict.fromkeys(range(count), partition))


class BrokerStorageFixture:
    """Components between the controller listener and the disk."""

    def __init__(self, directories: str = "/a", *, env: Any = None, **settings: str) -> None:
        """Create the components. ``env``: environment of an earlier instance that released its directories."""
        self.env: Any = env or SlowEnv()
        self.config = NodeConfig({k.replace("_", "."): v for k, v in settings.items()}, directories, NODE_ID)
        self.log_dirs = LogDirs(self.env.disk, self.config.data_dirs)
        self.log_dirs.lock()
        ids = iter(bytes([9, n]) * 8 for n in range(10))
        identity = self.log_dirs.identify(NODE_ID, None) or MetaProperties("c", NODE_ID, next(ids))
        self.log_dirs.initialize(identity, NOW_MS, lambda: next(ids))
        self.ended = 0
        self.failure_handler = LogDirFailureHandler(self.log_dirs, self._end)
        self.woken: list[Any] = []
        self.replica_manager = ReplicaManager(
            self.env,
            self.config,
            self.log_dirs,
            self.woken.append,
            lambda replica: None,
            self.failure_handler.handle_failure,
        )
        self.failure_handler.on_logs_offline.append(self.replica_manager.mark_logs_offline)
        self.log_creator = LogCreator(
            self.env, self.config, self.log_dirs, self.replica_manager, self.failure_handler.handle_failure
        )
        self.cache = MetadataCache(self.config, "c", lambda: 1)
        self.publisher = BrokerMetadataPublisher(
            self.env, self.config, self.cache, self.replica_manager, self.log_creator
        )
        self.reported_directories: list[tuple[bytes, int, bytes]] = []
        self.replica_manager.on_directory_changed = lambda *x: self.reported_directories.append(x)
        self.scheduled_deletes: list[str] = []
        self.replica_manager.on_delete_scheduled.append(self.scheduled_deletes.append)
        self.led: list[tuple[str, int]] = []
        self.replica_manager.on_leader.append(lambda r: self.led.append((r.topic, r.partition)))
        self.image = MetadataImage()

    def _end(self) -> None:
        self.ended += 1

    def commit_topics(self, *topics: TopicImage, gone: tuple[str, ...] = (), **more: Any) -> None:
        """Commit topics in their current state, and the deletion of others."""
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
        self.publisher.publish(image, MetadataDelta(touched, configs=frozenset(more.get("configs", ()))))

    def run(self, scenario: Callable[[], Awaitable[None]], *, workers: int = 1) -> None:
        """Run a scenario beside the node's own tasks."""

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.publisher.run)
                for _ in range(workers):
                    nursery.start_soon(self.log_creator.run)
                with trio.fail_after(600):
                    await scenario()
                nursery.cancel_scope.cancel()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    def hosted(self) -> set[tuple[str, int]]:
        """Return the open partitions."""
        return {(r.topic, r.partition) for r in self.replica_manager}

    def break_disk(self, where: str, number: int = errno.EIO, *, times: int = 10**9) -> None:
        """Let calls fail that have ``where`` in their path, up to a number of times."""
        left = [times]

        def fault(_: str, path: str) -> OSError | None:
            if where in path and left[0] > 0:
                left[0] -= 1
                return OSError(number, "injected", path)
            return None

        self.env.disk.fault = fault

    def watch_disk(self) -> list[tuple[str, str]]:
        """Return a list of the later calls that wait for the disk on the event loop: there should be none."""
        waited: list[tuple[str, str]] = []

        def fault(call: str, path: str) -> OSError | None:
            if call in ("fsync", "fsync_dir") and not self.env.is_beside:
                waited.append((call, path))
            return None

        self.env.disk.fault = fault
        return waited

    def repair_disk(self) -> None:
        """Let all calls succeed again."""
        self.env.disk.fault = None


def partition_of(fixture: BrokerStorageFixture, name: str, number: int) -> PartitionRegistration:
    """Return a partition of the image."""
    return fixture.image.topics[name].partitions[number]
