"""The parts of a node, made and joined: who hears of what. Nothing runs here.

Source: ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.metadata.admin import SHARE_TOPIC, TRANSACTIONS_TOPIC, Admin
from ottla.broker.metadata.applier import Applier
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.channel import REGISTRATION_S, ControllerChannel
from ottla.broker.metadata.directories import Directories
from ottla.broker.metadata.lifecycle import Lifecycle
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.replica.fetchers import Fetchers
from ottla.broker.replica.isr_changes import IsrChanges
from ottla.broker.replica.losses import Losses
from ottla.broker.replica.making import Making
from ottla.broker.replica.replica import Replica
from ottla.broker.replica.replicas import Replicas
from ottla.broker.replica.storage import Fail, Storage
from ottla.broker.server.observer import Counts
from ottla.broker.server.purgatory import Purgatory
from ottla.broker.server.sessions import Sessions
from ottla.broker.services import Metering, Services
from ottla.broker.upkeep.cleaner import Cleaner
from ottla.broker.upkeep.flusher import Flusher
from ottla.broker.upkeep.removals import Removals
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.broker.upkeep.supervise import attempt, supervise
from ottla.controller.config_keys import AUDIT_LOG, METRICS_LISTENER, SCRUB_RATE
from ottla.controller.decision import ControllerDefaults
from ottla.controller.delta import MetadataDelta
from ottla.controller.driver import QuorumController
from ottla.controller.image import MetadataImage
from ottla.controller.quorum_config import QuorumConfig
from ottla.log.directory import MetaProperties
from ottla.world.env import FOREVER_S, Env

if TYPE_CHECKING:
    from ottla.broker.auth.audit import Audit
    from ottla.broker.auth.authorizer import Authorizer
    from ottla.broker.auth.quotas import Quotas
    from ottla.broker.metadata.controller_registration import ControllerRegistration
    from ottla.broker.metadata.watch import BrokerWatch
    from ottla.broker.replica.moves import Moves
    from ottla.broker.server.acceptor import Acceptor
    from ottla.broker.share.shares import Shares
    from ottla.broker.telemetry.pushed import Pushed
    from ottla.broker.telemetry.telemetry import Telemetry
    from ottla.broker.txn.coordinator import TransactionCoordinator
    from ottla.broker.txn.verification import Verifier
    from ottla.peers.access import Access

Work = Callable[[], Awaitable[None]]


class Parts:
    """What a running node consists of, over directories that know whose they are; the metadata is read.

    Raises:
        NotOurQuorum, CorruptFile, WireError, OSError: the metadata cannot be read, or not be led from here.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: Storage,
        losses: Losses,
        identity: MetaProperties,
        quorum: QuorumConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._env, self._config, self._nursery = env, config, nursery
        quorum = quorum._replace(access=self._to_controllers)
        self.storage = storage
        fail = losses.fail
        defaults = ControllerDefaults(
            config.number("num.partitions"), config.number("default.replication.factor"), static_config=config.values
        )
        self.controller = QuorumController(env, storage.metadata, identity, defaults, fail, quorum)
        self.controller.load()
        self.cache = MetadataCache(config, identity.cluster_id, lambda: self.controller.kraft_version)
        self.timers, self.purgatory = Timers(env), Purgatory(env)
        retain_ms = config.number("log.retention.check.interval.ms")
        expire_ms = config.number("producer.id.expiration.ms")
        self.flusher = Flusher(env, storage, retain_ms, expire_ms, fail, nursery.start_soon)
        self.replicas = Replicas(env, config, storage, self.purgatory.wake, self.flusher.flush_due, fail)
        self.counts = Counts()
        self.acceptors: list[Acceptor] = []
        """Those of all listeners, once they serve."""
        self.making = Making(env, config, storage, self.replicas, fail)
        self.applier = Applier(env, config, self.cache, self.replicas, self.making)
        way = partial(ControllerChannel, env, config.node_id, self.controller, quorum.listener, access=quorum.access)
        forwarding, heartbeats = way(), way(config.number("broker.session.timeout.ms") / 2000)
        self.admin = Admin(forwarding, config, self._once, self.applier.settled)
        newest = lambda: self.controller.image  # noqa: E731 - one line says it
        self.lifecycle = Lifecycle(env, config, heartbeats, self.cache, self.applier, storage, newest)
        epoch = lambda: self.lifecycle.broker_epoch  # noqa: E731
        lag_max_ms = config.number("replica.lag.time.max.ms")
        self.fetchers = Fetchers(env, config, self.replicas, epoch, fail, config.inter_broker_listener)
        self.isr_changes = IsrChanges(env, config.node_id, way(FOREVER_S), self.replicas, epoch, lag_max_ms)
        self._way, self._quorum = way, quorum
        self._watch: BrokerWatch | None = None
        self._verifier: Verifier | None = None
        self._transactions: TransactionCoordinator | None = None
        self._shares: Shares | None = None
        self._moves: Moves | None = None
        self._telemetry: Telemetry | None = None
        self._joined = trio.Event()
        self.directories = Directories(env, config.node_id, way(), self.cache, storage)
        self.removals = Removals(env, config.number("log.segment.delete.delay.ms"))
        self.groups = GroupCoordinator(env, config, self.timers, fail, self._offsets_partitions)
        self.producer_ids = ProducerIds(forwarding, config.node_id, self._once)
        self.cleaner = Cleaner(env, storage, lambda name: config.current(self.cache.image, name) or "", fail)
        self.scrubber = Scrubber(env, storage, lambda: int(config.current(self.cache.image, SCRUB_RATE) or 0))
        self._join(losses)
        self.services = self._services(fail)

    def _to_controllers(self) -> Access:
        """What the controllers' listener wants; asked when one is spoken to that is elsewhere."""
        from ottla.broker.auth.ways import to_controllers

        return to_controllers(self._config)

    async def enrol(self) -> None:
        """Wait for the quorum, and become one of its brokers as far as it and this node's metadata say so."""
        await self.controller.wait_ready()
        await self.lifecycle.register()

    async def open(self, image: MetadataImage) -> None:
        """Open what lies in the directories; then moves between them go on.

        Raises:
            CorruptFile: a partition cannot be read, or lies in two directories; OSError: no directory is left.
        """
        await self.replicas.load(image)
        if self.replicas.copies_left:
            from ottla.broker.replica.unfinished import take_up  # a move is seldom under way when a process ends

            await take_up(self._env, self._config, self.replicas, self.storage, image)

    def registration(self) -> ControllerRegistration:
        """What registers this node's controller; one that stands alone does it with its first records."""
        from ottla.broker.metadata.controller_registration import ControllerRegistration

        node_id, way, controller = self._config.node_id, self._way(REGISTRATION_S), self.controller
        return ControllerRegistration(self._env, node_id, controller.incarnation_id, self._quorum.endpoints, way)

    def watch(self) -> BrokerWatch:
        """What looks after brokers elsewhere, made when it is first needed."""
        if self._watch is None:
            from ottla.broker.metadata.watch import BrokerWatch

            self._watch = BrokerWatch(self._env, self._config.node_id, self.controller)
            self.controller.listeners.append(self._watch.publish)
        return self._watch

    def verifier(self) -> Verifier:
        """What asks transactions' coordinators, made when there is the first of them."""
        if self._verifier is None:
            from ottla.broker.txn.adding import add_partitions
            from ottla.broker.txn.verification import Ground, Verifier

            partition_for, add = self.transactions().partition_for, partial(add_partitions, self.services)
            self._verifier = Verifier(Ground(self._env, self._config, self.cache, self.replicas, partition_for, add))
        return self._verifier

    def transactions(self) -> TransactionCoordinator:
        """The coordinator of transactions, made when there is the first of them, or a partition that may hold some."""
        if self._transactions is None:
            from ottla.broker.txn.making import make_coordinator

            services, replicas = self.services, self.replicas
            made = self._transactions = make_coordinator(services, self.timers, self._config.inter_broker_listener)
            self.flusher.on_flushed.append(made.advance)
            replicas.on_committed.append(made.advance)
            replicas.on_resigned.append(made.resign)
            self._nursery.start_soon(made.run)
        return self._transactions

    def _lead_transactions(self, replica: Replica) -> None:
        if replica.topic == TRANSACTIONS_TOPIC:
            self.transactions().lead(replica)

    def shares(self) -> Shares:
        """What serves share groups, made with the first of them, or a partition that may remember some."""
        if self._shares is None:
            from ottla.broker.share.making import make_shares

            start, listener = self._nursery.start_soon, self._config.inter_broker_listener
            made = self._shares = make_shares(self.services, self.timers, listener, start)
            coordinator = made.coordinator
            self.flusher.on_flushed.append(coordinator.advance)
            self.replicas.on_committed.append(coordinator.advance)
            self.replicas.on_resigned.append(coordinator.resign)
            self.applier.followers.append(coordinator.publish)
            start(made.run)
        return self._shares

    def moves(self) -> Moves:
        """What moves replicas between directories, made when there is something to move."""
        if self._moves is None:
            from ottla.broker.replica.mover import Mover
            from ottla.broker.replica.moves import Moves

            env, storage, replicas, fail = self._env, self.storage, self.replicas, self.services.fail
            mover = Mover(env, self._config, storage, replicas, fail)
            self._moves = Moves(env, storage, replicas, mover, self.making.prefer, fail)
            self.applier.followers.append(mover.publish)
            replicas.on_future = mover.go_on
            self._nursery.start_soon(supervise, env, "moves between directories", mover.run)
        return self._moves

    def _go_on_moving(self, replica: Replica) -> None:
        """The first copy of an earlier process was found."""
        self.moves()
        self.replicas.on_future(replica)

    def telemetry(self) -> Telemetry:
        """What takes clients' own metrics, made when the first of them asks."""
        if self._telemetry is None:
            from ottla.broker.telemetry.telemetry import Telemetry

            made = self._telemetry = Telemetry(self._env, bool(self._config.values.get(METRICS_LISTENER)))
            made.publish(self.controller.image, MetadataDelta.from_empty(self.controller.image))
            self.controller.listeners.append(made.publish)
        return self._telemetry

    @property
    def pushed(self) -> Pushed | None:
        """What clients have pushed, if any did."""
        return None if self._telemetry is None else self._telemetry.pushed

    def _lead_shares(self, replica: Replica) -> None:
        if replica.topic == SHARE_TOPIC:
            self.shares().coordinator.lead(replica)

    async def look_after(self) -> None:
        """Look after other brokers, once there are any."""
        await self._joined.wait()
        await self.watch().run()

    def _notice(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if any(broker_id != self._config.node_id for broker_id in delta.brokers):
            self._joined.set()

    def _offsets_partitions(self) -> int:
        """How many partitions `__consumer_offsets` has; 0 while there is none."""
        topic = self.replicas.image.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def _join(self, losses: Losses) -> None:
        """Who hears of what."""
        replicas, groups, directories = self.replicas, self.groups, self.directories
        losses.on_lost += [replicas.lose, lambda _: directories.changed()]
        self.flusher.on_flushed.append(groups.advance)
        replicas.on_committed.append(groups.advance)
        replicas.on_leader += [self._forget, groups.lead, self._lead_transactions, self._lead_shares]
        replicas.on_resigned += [self._forget, groups.resign]
        replicas.on_following.append(self.fetchers.follow)
        replicas.on_isr_change.append(self.isr_changes.ask)
        replicas.on_doomed.append(self.removals.remove_later)
        replicas.on_place = directories.place
        replicas.on_future = self._go_on_moving
        self.applier.followers += [groups.publish, self.lifecycle.publish]
        self.controller.listeners.append(self._notice)
        self.lifecycle.on_registered += [self.producer_ids.registered, lambda _: directories.changed()]

    def _forget(self, replica: Replica) -> None:
        """A partition is led from here, or gone: it follows nobody."""
        self.fetchers.forget((replica.topic, replica.partition))

    def _once(self, work: Work) -> None:
        """Something nobody waits for."""
        self._nursery.start_soon(attempt, "making a topic", work)

    def _services(self, fail: Fail) -> Services:
        env, config = self._env, self._config
        return Services(
            env,
            config,
            self.cache,
            self.admin,
            self.controller,
            self.replicas,
            self.making,
            self.storage,
            self.purgatory,
            Sessions(env, config.number("max.incremental.fetch.session.cache.slots")),
            self.groups,
            self.producer_ids,
            config.number("fetch.max.bytes"),
            fail,
            self.watch,
            self.verifier,
            self.transactions,
            self.shares,
            self.moves,
            self._authorizer(),
            self._audit(),
            self._metering(),
            self.telemetry,
        )

    def _audit(self) -> Audit | None:
        """Who writes down what was decided, where that is wanted."""
        level = self._config.values.get(AUDIT_LOG)
        if level is None:
            return None
        from ottla.broker.auth.audit import Audit

        return Audit.of(self._env, level)

    def _metering(self) -> Metering:
        """Who counts what clients bring and take, once there is a quota."""
        out, controller = Metering(), self.controller
        made: list[Quotas] = []

        def publish(image: MetadataImage, delta: MetadataDelta) -> None:
            if any(about[0] == "quota" for about in delta.others):
                if not made:
                    from ottla.broker.auth.quotas import Quotas

                    made.append(Quotas(self._env))
                made[0].publish(image, delta)
                out.quotas = made[0] if made[0].is_on else None
                out.times_requests = made[0].times_requests

        publish(controller.image, MetadataDelta.from_empty(controller.image))
        controller.listeners.append(publish)
        return out

    def _authorizer(self) -> Authorizer | None:
        """Who decides who may do what; it hears of the rules as soon as they are committed."""
        if not self._config.text("authorizer.class.name"):
            return None
        from ottla.broker.auth.authorizer import Authorizer

        made, controller = Authorizer.of(self._config), self.controller
        made.publish(controller.image, MetadataDelta.from_empty(controller.image))
        controller.listeners.append(made.publish)
        return made

    def upkeep(self) -> Iterator[tuple[str, Work]]:
        """What goes on beside the requests, by name."""
        yield "heartbeats", self.lifecycle.run
        yield "following", self.fetchers.run
        yield "changes of the ISR", self.isr_changes.run
        yield "the look for who is behind", self.isr_changes.shrink_now_and_then
        yield "telling of directories", self.directories.run
        yield "the look round the files", self.flusher.run
        yield "retention", self.flusher.retain_now_and_then
        yield "removal", self.removals.run
        yield "scrubbing", self.scrubber.run
        if self._config.flag("log.cleaner.enable"):
            yield "compaction", self.cleaner.run
