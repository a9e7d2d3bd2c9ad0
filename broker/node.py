"""One node, broker and controller in one: how it starts, what runs beside the connections, how it stops.

Start: listen, lock the directory, format it if it is new, read the metadata, lead it, open the partitions, register,
serve. A clean stop goes the other way and leaves the mark that makes the next start quick. A disk that fails ends
the node at once and leaves no mark.

Source: ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from ottla.broker.config import NodeConfig, parse_listener
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.metadata.admin import Admin
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.replica.replicas import Replicas
from ottla.broker.replica.storage import Storage, WrongDirectory
from ottla.broker.server import metrics
from ottla.broker.server.acceptor import Acceptor
from ottla.broker.server.dispatch import Dispatcher
from ottla.broker.server.purgatory import Purgatory
from ottla.broker.server.sessions import Sessions
from ottla.broker.services import Services
from ottla.broker.upkeep.cleaner import Cleaner
from ottla.broker.upkeep.flusher import Flusher
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.controller.brokers import Assign, DirectoriesOffline
from ottla.controller.config_keys import METRICS_LISTENER, SCRUB_RATE
from ottla.controller.decision import Defaults
from ottla.controller.delta import Delta
from ottla.controller.format import Endpoint, format_directory
from ottla.controller.image import Image
from ottla.controller.shell import Controller
from ottla.log.directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages.metadata_records import BrokerEndpoint
from ottla.world.disk import is_passing
from ottla.world.env import FOREVER_S, Env, Lane, Listener

logger = logging.getLogger("ottla.node")
LISTENER_NAME = "PLAINTEXT"
RETRY_S = 1.0


class StartRefused(Exception):
    """The node cannot start as it was asked to; the message is one line for the user. Nothing was changed."""


class StorageFailed(Exception):
    """A data directory failed; the node has stopped."""


class Node:
    """A running node: it wires the parts together, and lives."""

    def __init__(self, env: Env, config: NodeConfig) -> None:
        self.env = env
        self.config = config
        self.port = config.port
        self.purgatory = Purgatory(env)
        self.timers = Timers(env)
        self.sessions = Sessions(env, config.number("max.incremental.fetch.session.cache.slots"))
        self.storage = Storage(env.disk, config.data_dirs, config.metadata_dir)
        self.controller: Controller
        self.replicas: Replicas
        self.groups: GroupCoordinator
        self.producer_ids: ProducerIds
        self.services: Services
        self._metadata: MetadataCache
        self._listener: Listener | None = None
        self._metrics: Listener | None = None
        self._nursery: trio.Nursery | None = None
        self._failure: OSError | None = None
        self._broker_epoch = -1

    @property
    def image(self) -> Image:
        """The newest committed metadata."""
        return self.controller.image

    def fail(self, error: OSError, where: LogDirectory | PartitionLog | None = None) -> None:
        """A data directory failed; without ``where`` the one with the metadata log. Nothing more is acknowledged there.

        It goes out of service, or the node stops where it cannot be without it. What only says that the process is
        short of something (descriptors) has changed nothing: the client is told, and may try again.
        """
        storage = self.storage
        if where is not None and is_passing(error):
            logger.error("%s", error)
            return
        directory = storage.metadata if where is None else where
        if isinstance(directory, PartitionLog):
            directory = storage.of(directory)
        if storage.can_lose(directory):
            lost = storage.take_out(directory, error)
            if lost:
                self.replicas.lose(lost)
            self._beside(self._tell_what_is_online)
        elif self._failure is None:
            self._failure = error
            logger.critical("the data directory %s failed: %s", directory.path, error)
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    async def _tell_what_is_online(self) -> None:
        with contextlib.suppress(OSError):  # the controller has failed the node already
            await self.controller.submit(DirectoriesOffline(self.config.node_id, self.storage.online_ids))

    async def _tell_places(self) -> None:
        """Tell the controller where replicas were put, and try again where one could not be made."""
        if self.replicas.unmade:
            await self.env.sleep(RETRY_S)
            self.replicas.publish(Image(), self.image)
        places = list(self.replicas.places.items())
        self.replicas.places.clear()
        if places:
            with contextlib.suppress(OSError):
                await self.controller.submit(Assign(self.config.node_id, places))

    def _offsets_partitions(self) -> int:
        """How many partitions `__consumer_offsets` has; 0 while there is none."""
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the connections; once the node stops, a clean stop syncs everything anyway."""
        if self._nursery is not None:
            self._nursery.start_soon(work)

    # ------------------------------------------------------------------ life

    async def run(self, ready: Callable[[Node], None] | None = None, stop: trio.Event | None = None) -> None:
        """Serve until ``stop`` is set, then stop cleanly. Cancelled, it stops as a crash would.

        Raises:
            StartRefused, OSError, DirectoryInUse, CorruptFile, NotOurQuorum: it could not start.
            StorageFailed: the disk failed while it ran.
        """
        self._listener = await self.env.net.listen(self.config.host, self.config.port, self.config.socket_buffers)
        self.port = self._listener.port
        try:
            address = self.config.values.get(METRICS_LISTENER)
            if address:
                _, host, port = parse_listener(address)
                self._metrics = await self.env.net.listen(host, port)
            self.storage.lock()
            await self._start()
            await self._serve(ready, stop)
            if self._failure is None:
                await self._stop()
        except BaseException:
            if self._failure is None:
                raise
        finally:
            self._listener.close()
            if self._metrics is not None:
                self._metrics.close()
            self.storage.unlock()
        if self._failure is not None:
            raise StorageFailed(f"a data directory failed: {self._failure}")

    async def _start(self) -> None:
        config, env = self.config, self.env
        controller_endpoint = Endpoint("CONTROLLER", "localhost", 9093)
        try:
            identity = self.storage.identify(config.node_id, config.cluster_id)
        except WrongDirectory as error:
            raise StartRefused(str(error)) from None
        if identity is None:
            identity = format_directory(
                self.storage.metadata, config.node_id, config.cluster_id, controller_endpoint, env.now_ms(), env.uuid
            )
        self.storage.begin(identity, env.now_ms(), env.uuid)
        defaults = Defaults(
            config.number("num.partitions"), config.number("default.replication.factor"), broker=config.values
        )
        self.controller = Controller(env, self.storage.metadata, identity, defaults, self.fail)
        self.controller.load()
        self._metadata = MetadataCache(config, identity.cluster_id, self.controller.kraft_version)
        self.groups = GroupCoordinator(env, config, self.timers, self.fail, self._offsets_partitions)
        self.flusher = Flusher(
            env,
            self.storage,
            config.number("log.retention.check.interval.ms"),
            config.number("producer.id.expiration.ms"),
            self.fail,
            self._beside,
        )
        self.replicas = Replicas(env, config, self.storage, self.purgatory.wake, self.flusher.flush_due, self.fail)
        self.cleaner = Cleaner(env, self.storage, lambda name: config.current(self.image, name) or "", self.fail)
        self.scrubber = Scrubber(env, self.storage, lambda: int(config.current(self.image, SCRUB_RATE) or 0))
        self.flusher.on_flushed.append(self.groups.flushed)
        self.replicas.on_leader.append(self.groups.lead)
        self.replicas.on_removed.append(self.groups.resign)
        self.replicas.on_doomed.append(self._remove_later)
        self.replicas.on_placed = partial(self._beside, self._tell_places)
        self.producer_ids = ProducerIds(self.controller, config.node_id)
        await self.controller.lead(controller_endpoint)
        self.replicas.load(self.image)
        self._publish(self.image, Delta.everything(self.image))
        self.controller.listeners += [self._publish, self.groups.publish]
        await self._register()
        await self._tell_places()
        self.services = self._services()

    def _publish(self, image: Image, delta: Delta) -> None:
        """Follow committed metadata: handlers see the new image once the replicas are as it says."""
        self.replicas.publish(self._metadata.image, image)
        self._metadata.image = image

    def _services(self) -> Services:
        return Services(
            self.env,
            self.config,
            self._metadata,
            Admin(self.controller, self.config, self._beside),
            self.controller,
            self.replicas,
            self.storage,
            self.purgatory,
            self.sessions,
            self.groups,
            self.producer_ids,
            self.config.number("fetch.max.bytes"),
            self.fail,
            self.register_again,
        )

    async def _register(self) -> None:
        """Make this broker known to the controller."""
        config = self.config
        host, port = config.advertised() or (config.host or "localhost", self.port)
        self._broker_epoch = await self.controller.register_broker(
            self.storage.online_ids,
            [BrokerEndpoint(LISTENER_NAME, host, port, 0)],
            config.values.get("broker.rack"),
        )
        self.producer_ids.broker_epoch = self._broker_epoch

    def register_again(self) -> None:
        """The controller has forgotten this broker: come back under a new epoch, and lead again."""

        async def come_back() -> None:
            await self._register()
            await self.groups.load_all()

        self._beside(come_back)

    async def _serve(self, ready: Callable[[Node], None] | None, stop: trio.Event | None) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.timers.run)
            nursery.start_soon(self.groups.load_all)
            nursery.start_soon(self.flusher.run)
            nursery.start_soon(self.scrubber.run)
            if self._metrics is not None:
                nursery.start_soon(metrics.serve, self, self._metrics)
            if self.config.flag("log.cleaner.enable"):
                nursery.start_soon(self.cleaner.run)
            assert self._listener is not None
            nursery.start_soon(Acceptor(Dispatcher(self.services, listener=LISTENER_NAME)).run, self._listener)
            if ready is not None:
                ready(self)
            if stop is None:
                await self.env.sleep(FOREVER_S)
            else:
                await stop.wait()
            nursery.cancel_scope.cancel()

    def _remove_later(self, path: str) -> None:
        """Remove a renamed directory after ``file.delete.delay.ms``: readers may still be sending from it."""
        delay = self.config.number("log.segment.delete.delay.ms")
        nursery = self._nursery
        if nursery is not None:
            at = self.env.now_ms() + delay
            self.timers.arm(("remove", path), at, partial(nursery.start_soon, self._remove, path))

    async def _remove(self, path: str) -> None:
        try:
            await self.env.in_thread(partial(self.env.disk.rmtree, path), Lane.REMOVAL)
        except OSError as error:
            logger.warning("%s could not be removed: %s", path, error)

    async def _stop(self) -> None:
        """Give leadership back, flush and seal everything, leave the mark of a clean stop."""
        try:
            await self.controller.resign_broker()
            await self.env.in_thread(partial(self.storage.close, self._broker_epoch))
            self.controller.close()
        except OSError as error:
            self.fail(error)
