"""One node, broker and controller in one: how it starts, what runs beside the connections, how it stops.

Start: listen, lock the directory, format it if it is new, read the metadata, lead it, open the partitions, register,
serve. A clean stop goes the other way and leaves the mark that makes the next start quick. A disk that fails ends
the node at once and leaves no mark.

Source: ``BrokerServer.scala``, ``ControllerServer.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from ottla.broker.cleaner import Cleaner
from ottla.broker.config import SINGLE_NODE, NodeConfig
from ottla.broker.connection import Connection
from ottla.broker.dispatch import Client
from ottla.broker.flusher import Flusher
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.purgatory import Purgatory
from ottla.broker.replicas import Replicas
from ottla.broker.sessions import Sessions
from ottla.broker.timers import Timers
from ottla.controller.decision import Defaults
from ottla.controller.format import Endpoint, format_directory
from ottla.controller.image import Image
from ottla.controller.shell import Controller
from ottla.log.directory import Identity, LogDirectory
from ottla.log.env import Env, Listener, Stream
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.metadata_records import BrokerEndpoint

logger = logging.getLogger("ottla.node")
LISTENER_NAME = "PLAINTEXT"

NodeEndpoint = tuple[int, str, int, str | None]


class StartRefused(Exception):
    """The node cannot start as it was asked to; the message is one line for the user. Nothing was changed."""


class StorageFailed(Exception):
    """A data directory failed; the node has stopped."""


class Node:
    """A running node: what handlers reach through their context."""

    def __init__(self, env: Env, config: NodeConfig) -> None:
        self.env = env
        self.config = config
        self.port = config.port
        self.purgatory = Purgatory()
        self.timers = Timers(env)
        self.sessions = Sessions(env, config.number("max.incremental.fetch.session.cache.slots"))
        self.fetch_max_bytes = config.number("fetch.max.bytes")
        self.static_config: Mapping[str, str] = {**SINGLE_NODE, **config.values}
        self.directory = LogDirectory(env.disk, config.data_dir)
        self.controller: Controller
        self.replicas: Replicas
        self.groups: GroupCoordinator
        self.producer_ids: ProducerIds
        self.cluster_id = ""
        self.kraft_version = 1
        self._listener: Listener | None = None
        self._nursery: trio.Nursery | None = None
        self._failure: OSError | None = None
        self._creating: set[str] = set()
        self._connections: set[Connection] = set()
        self._broker_epoch = -1

    @property
    def image(self) -> Image:
        """The newest committed metadata."""
        return self.controller.image

    def endpoints(self, client: Client, *, fenced: bool = False) -> list[NodeEndpoint]:
        """Brokers as this client shall reach them: by default at the address it dialled itself."""
        out: list[NodeEndpoint] = []
        for broker_id, broker in sorted(self.image.brokers.items()):
            if (broker.fenced or broker.in_controlled_shutdown) and not fenced:
                continue
            if broker_id == self.config.node_id:
                host, port = self.config.advertised() or client.local
            else:
                end = next(iter(broker.end_points))
                host, port = end.host, end.port
            out.append((broker_id, host, port, broker.rack))
        return out

    def fail(self, error: OSError) -> None:
        """A data directory failed: nothing more is acknowledged from here on, and the node stops."""
        if self._failure is None:
            self._failure = error
            logger.critical("the data directory %s failed: %s", self.config.data_dir, error)
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    # ------------------------------------------------------------------ topics made on the way

    def auto_create(self, name: str) -> None:
        """Have a topic created in the background; one request at a time for each name."""
        if name == OFFSETS_TOPIC:
            self.create_offsets_topic()
        else:
            self._create(CreatableTopic(name, -1, -1))

    def create_offsets_topic(self) -> None:
        """Have `__consumer_offsets` created."""
        config = self.config
        settings = {
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": config.text("offsets.topic.segment.bytes"),
        }
        topic = CreatableTopic(
            OFFSETS_TOPIC,
            config.number("offsets.topic.num.partitions"),
            config.number("offsets.topic.replication.factor"),
            configs=[CreatableTopicConfig(k, v) for k, v in settings.items()],
        )
        self._create(topic)

    def _offsets_partitions(self) -> int:
        """How many partitions `__consumer_offsets` has; 0 while there is none."""
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def _create(self, topic: CreatableTopic) -> None:
        if topic.name not in self._creating and self._nursery is not None:
            self._creating.add(topic.name)
            self._nursery.start_soon(self._create_now, topic)

    def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something beside the connections; once the node stops, a clean stop syncs everything anyway."""
        if self._nursery is not None:
            self._nursery.start_soon(work)

    async def _create_now(self, topic: CreatableTopic) -> None:
        try:
            response = await self.controller.submit(CreateTopicsRequest([topic], 60_000), 7)
            row = response.topics[0]
            if row.error_code:
                logger.warning("topic %s was not created: %s", topic.name, row.error_message)
        except OSError:
            pass  # the controller has failed the node already
        finally:
            self._creating.discard(topic.name)

    # ------------------------------------------------------------------ life

    async def run(self, ready: Callable[[Node], None] | None = None, stop: trio.Event | None = None) -> None:
        """Serve until ``stop`` is set, then stop cleanly. Cancelled, it stops as a crash would.

        Raises:
            StartRefused, OSError, DirectoryInUse, CorruptFile, NotOurQuorum: it could not start.
            StorageFailed: the disk failed while it ran.
        """
        self._listener = await self.env.net.listen(self.config.host, self.config.port)
        self.port = self._listener.port
        try:
            self.directory.lock()
            await self._start()
            await self._serve(ready, stop)
            if self._failure is None:
                await self._stop()
        except BaseException:
            if self._failure is None:
                raise
        finally:
            self._listener.close()
            self.directory.unlock()
        if self._failure is not None:
            raise StorageFailed(f"the data directory {self.config.data_dir} failed: {self._failure}")

    async def _start(self) -> None:
        config, env = self.config, self.env
        controller_endpoint = Endpoint("CONTROLLER", "localhost", 9093)
        identity = self.directory.identity()
        if identity is None:
            identity = format_directory(
                self.directory, config.node_id, config.cluster_id, controller_endpoint, env.now_ms(), env.uuid
            )
        self._check_identity(identity)
        self.cluster_id = identity.cluster_id
        self.directory.begin()
        defaults = Defaults(
            config.number("num.partitions"), config.number("default.replication.factor"), broker=config.values
        )
        self.controller = Controller(env, self.directory, identity, defaults, self.fail)
        self.controller.load()
        self.kraft_version = self.controller.kraft_version
        self.groups = GroupCoordinator(env, config, self.timers, self.fail, self._offsets_partitions)
        self.flusher = Flusher(
            env,
            self.directory,
            config.number("log.retention.check.interval.ms"),
            config.number("producer.id.expiration.ms"),
            self.fail,
            self._beside,
        )
        self.replicas = Replicas(env, config, self.directory, self.purgatory.wake, self.flusher.flush_due)
        self.cleaner = Cleaner(env, self.directory, lambda name: config.current(self.image, name) or "", self.fail)
        self.flusher.on_flushed.append(self.groups.flushed)
        self.replicas.on_leader.append(self.groups.lead)
        self.replicas.on_removed.append(self.groups.resign)
        self.replicas.on_doomed.append(self._remove_later)
        self.producer_ids = ProducerIds(self.controller, config.node_id)
        await self.controller.lead(controller_endpoint)
        self.replicas.load(self.image)
        self.replicas.publish(Image(), self.image)
        self.controller.listeners += [self.replicas.publish, self.groups.publish]
        await self._register()

    async def _register(self) -> None:
        """Make this broker known to the controller."""
        config = self.config
        host, port = config.advertised() or (config.host or "localhost", self.port)
        self._broker_epoch = await self.controller.register_broker(
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

    def _check_identity(self, identity: Identity) -> None:
        config = self.config
        if identity.node_id != config.node_id:
            raise StartRefused(
                f"{config.data_dir} belongs to node {identity.node_id}, not {config.node_id}: give --node-id"
            )
        if config.cluster_id is not None and identity.cluster_id != config.cluster_id:
            raise StartRefused(f"{config.data_dir} belongs to cluster {identity.cluster_id}, not {config.cluster_id}")

    async def _serve(self, ready: Callable[[Node], None] | None, stop: trio.Event | None) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.timers.run)
            nursery.start_soon(self.groups.load_all)
            nursery.start_soon(self.flusher.run)
            if self.config.flag("log.cleaner.enable"):
                nursery.start_soon(self.cleaner.run)
            nursery.start_soon(self._hang_up_on_the_silent)
            nursery.start_soon(self._accept, nursery)
            if ready is not None:
                ready(self)
            if stop is None:
                await trio.sleep_forever()
            else:
                await stop.wait()
            nursery.cancel_scope.cancel()

    async def _accept(self, nursery: trio.Nursery) -> None:
        assert self._listener is not None
        while True:
            stream = await self._listener.accept()
            nursery.start_soon(self._connection, stream)

    async def _connection(self, stream: Stream) -> None:
        connection = Connection(self, stream)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    async def _hang_up_on_the_silent(self) -> None:
        """One look at all connections now and then costs less than a deadline for every wait."""
        limit_ms = self.config.number("connections.max.idle.ms")
        while True:
            await trio.sleep(min(max(limit_ms / 4000, 0.05), 10))
            now = self.env.monotonic_ms()
            for connection in list(self._connections):
                since = connection.silent_since_ms
                if since is not None and now - since > limit_ms:
                    connection.close()

    def _remove_later(self, path: str) -> None:
        """Remove a renamed directory after ``file.delete.delay.ms``: readers may still be sending from it."""
        delay = self.config.number("log.segment.delete.delay.ms")
        nursery = self._nursery
        if nursery is not None:
            at = self.env.now_ms() + delay
            self.timers.arm(("remove", path), at, partial(nursery.start_soon, self._remove, path))

    async def _remove(self, path: str) -> None:
        try:
            await self.env.in_thread(partial(self.env.disk.rmtree, path))
        except OSError as error:
            logger.warning("%s could not be removed: %s", path, error)

    async def _stop(self) -> None:
        """Give leadership back, flush and seal everything, leave the mark of a clean stop."""
        try:
            await self.controller.resign_broker()
            await self.env.in_thread(partial(self.directory.close, self._broker_epoch))
            self.controller.close()
        except OSError as error:
            self.fail(error)
