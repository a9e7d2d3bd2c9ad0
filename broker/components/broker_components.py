"""Composition root of a node: creates the components and connects them, but starts none.

Source: ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

import trio

from ottla.broker.components import security
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.interbroker.controller_channel import ControllerChannel
from ottla.broker.metadata.broker_lifecycle import BrokerLifecycleManager
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC, TRANSACTIONS_TOPIC, ControllerForwarder
from ottla.broker.metadata.directory_assignments import DirectoryAssignments
from ottla.broker.metadata.producer_id_manager import ProducerIdManager
from ottla.broker.metadata.publisher import BrokerMetadataPublisher
from ottla.broker.replication.alter_partition_sender import AlterPartitionSender
from ottla.broker.replication.fetcher.fetcher_manager import ReplicaFetcherManager
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.log_maintenance import LogMaintenance
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.services import BrokerServices
from ottla.broker.storage.deleted_logs import DeletedLogRemover
from ottla.broker.storage.log_cleaner import LogCleaner
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.broker.storage.scrubber import Scrubber
from ottla.controller.config.config_keys import METRICS_LISTENER, SCRUB_RATE
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.env.env import FOREVER_S, Env, steady_env
from ottla.jobs.supervision import run_logging_failure, supervise
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.meta_properties import MetaProperties

if TYPE_CHECKING:
    from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe
    from ottla.broker.network.acceptor import Acceptor
    from ottla.broker.observability.client_metrics_manager import ClientMetricsManager
    from ottla.broker.observability.client_metrics_store import ClientMetricsStore
    from ottla.broker.observability.request_observers import RequestObserver
    from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
    from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
    from ottla.broker.share_state.coordinator import ShareCoordinator
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.broker.transactions.verification import TransactionVerifier

    Coordinator = GroupCoordinator | ShareCoordinator | TransactionCoordinator

BackgroundTask = Callable[[], Awaitable[None]]


class BrokerComponents:
    """Components of a node with formatted log directories; the constructor loads the metadata.

    Raises:
        IncompatibleQuorum, CorruptFile, WireError, OSError: the metadata cannot be read, or belongs to another quorum.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: LogDirs,
        failure_handler: LogDirFailureHandler,
        identity: MetaProperties,
        quorum: QuorumConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._env, self._config, self._nursery = env, config, nursery
        quorum = quorum._replace(access=partial(security.create_controller_access, config))
        self.log_dirs = storage
        fail = failure_handler.handle_failure
        defaults = ControllerDefaults(
            config.number("num.partitions"), config.number("default.replication.factor"), static_config=config.values
        )
        self.controller = QuorumController(steady_env(env), storage.metadata, identity, defaults, fail, quorum)
        self.controller.load()
        self.cache = MetadataCache(config, identity.cluster_id, lambda: self.controller.kraft_version)
        self.timers, self.purgatory = Timers(env), Purgatory(env)
        retain_ms = config.number("log.retention.check.interval.ms")
        expire_ms = config.number("producer.id.expiration.ms")
        self.log_maintenance = LogMaintenance(env, storage, retain_ms, expire_ms, fail, nursery.start_soon)
        wake, flush_due = self.purgatory.check_and_complete, self.log_maintenance.request_flush
        self.replica_manager = replicas = ReplicaManager(env, config, storage, wake, flush_due, fail)
        self.request_observers: list[RequestObserver] = []
        """Observers of all requests to this node, in order; set before its listeners start to serve."""
        self.acceptors: list[Acceptor] = []
        """Acceptors of all listeners, added when a listener starts to serve."""
        self.log_creator = LogCreator(env, config, storage, replicas, fail)
        self.publisher = BrokerMetadataPublisher(env, config, self.cache, replicas, self.log_creator)
        way = partial(ControllerChannel, env, config.node_id, self.controller, quorum.listener, access=quorum.access)
        forwarding, heartbeats = way(), way(config.number("broker.session.timeout.ms") / 2000)
        self.controller_forwarder = ControllerForwarder(
            forwarding, config, self._start_once, self.publisher.wait_applied_and_created
        )
        newest = lambda: self.controller.image  # noqa: E731 - one line says it
        self.lifecycle = BrokerLifecycleManager(env, config, heartbeats, self.cache, self.publisher, storage, newest)
        epoch = lambda: self.lifecycle.broker_epoch  # noqa: E731
        lag_max_ms = config.number("replica.lag.time.max.ms")
        self.fetchers = ReplicaFetcherManager(env, config, replicas, epoch, fail, config.inter_broker_listener)
        sender = AlterPartitionSender(env, config.node_id, way(FOREVER_S), replicas, epoch, lag_max_ms)
        self.alter_partition_sender = sender
        self.create_channel, self.quorum = way, quorum
        self.transactions: TransactionCoordinator | None = None
        self._client_metrics: ClientMetricsManager | None = None
        self._other_broker_registered = trio.Event()
        self.directory_assignments = DirectoryAssignments(env, config.node_id, way(), self.cache, storage)
        self.deleted_log_remover = DeletedLogRemover(env, config.number("log.segment.delete.delay.ms"))
        self.groups = GroupCoordinator(env, config, self.timers, fail, self._offsets_partition_count)
        self.producer_ids = ProducerIdManager(forwarding, config.node_id, self._start_once)
        self.cleaner = LogCleaner(env, storage, lambda name: config.effective_value(self.cache.image, name) or "", fail)
        self.scrubber = Scrubber(env, storage, lambda: int(config.effective_value(self.cache.image, SCRUB_RATE) or 0))
        self._connect_components(failure_handler)
        self.services = self._services(fail)

    async def register_broker(self) -> None:
        """Wait until the metadata quorum has a leader, then register as a broker."""
        await self.controller.wait_ready()
        await self.lifecycle.register()

    async def open_partitions(self, image: MetadataImage) -> None:
        """Open the logs that the image assigns to this node; then recover future logs of moves between directories.

        Raises:
            CorruptFile: a partition cannot be read, or is in two directories.
            OSError: no log directory is online.
        """
        await run_in_background(self._env, self.replica_manager.load(image))
        if self.replica_manager.has_leftover_future_logs:
            # lazy: 2.7 ms, 70 kB: only where a move between log directories was under way
            from ottla.broker.replication.alter_log_dirs.future_log_recovery import recover_future_logs

            steps = recover_future_logs(self._env, self._config, self.replica_manager, self.log_dirs, image)
            await run_in_background(self._env, steps)

    @cached_property
    def liveness_probe(self) -> BrokerLivenessProbe:
        """Probe of other brokers' heartbeat connections for the controller, created on first use."""
        # lazy: 8.4 ms, 186 kB
        from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe

        made = BrokerLivenessProbe(self._env, self._config.node_id, self.controller)
        self.controller.subscribe(made.publish)
        return made

    @cached_property
    def transaction_verifier(self) -> TransactionVerifier:
        """Verifier of transactions with their coordinators, created on first use."""
        # lazy: 13.9 ms, 387 kB
        from ottla.broker.components.transactions import create_transaction_verifier

        return create_transaction_verifier(self.services)

    def transaction_coordinator(self) -> TransactionCoordinator:
        """Return the transaction coordinator; created for the first transaction or `__transaction_state` partition."""
        if self.transactions is None:
            # lazy: 16.2 ms, 480 kB
            from ottla.broker.components.transactions import create_transaction_coordinator

            listener = self._config.inter_broker_listener
            self.transactions = create_transaction_coordinator(self.services, self.timers, listener)
            self._connect_coordinator(self.transactions)
            self._nursery.start_soon(self.transactions.run)
        return self.transactions

    def _connect_coordinator(self, coordinator: Coordinator) -> None:
        """Subscribe a coordinator to high watermarks and lost leaderships of its partitions."""
        self.log_maintenance.on_flushed.append(coordinator.on_high_watermark_updated)
        self.replica_manager.on_high_watermark_moved.append(coordinator.on_high_watermark_updated)
        self.replica_manager.on_resigned.append(coordinator.on_resignation)

    def _on_coordinator_leader(self, replica: HostedPartition) -> None:
        if replica.topic == TRANSACTIONS_TOPIC:
            self.transaction_coordinator().on_election(replica)
        elif replica.topic == SHARE_TOPIC:
            self.share_partition_manager.coordinator.on_election(replica)

    @cached_property
    def share_partition_manager(self) -> SharePartitionManager:
        """Manager of share partitions, created for the first share group or `__share_group_state` partition."""
        # lazy: 24.7 ms, 933 kB
        from ottla.broker.components.share_groups import create_share_partition_manager

        start, listener = self._nursery.start_soon, self._config.inter_broker_listener
        made = create_share_partition_manager(self.services, self.timers, listener, start)
        self._connect_coordinator(made.coordinator)
        self.publisher.subscribe(made.coordinator.publish)
        start(made.run)
        return made

    @cached_property
    def alter_log_dirs(self) -> AlterLogDirs:
        """Handler of moves of replicas between log directories, created on first use."""
        # lazy: 3.7 ms, 151 kB
        from ottla.broker.components.log_dir_moves import create_alter_log_dirs

        made, mover = create_alter_log_dirs(self.services)
        self.publisher.subscribe(mover.publish)
        self.replica_manager.on_future_log_resumed = mover.start_copy
        self._nursery.start_soon(supervise, self._env, "moves between directories", mover.run)
        return made

    def _resume_moves(self, replica: HostedPartition) -> None:
        """Create the handler of moves and resume the copy of a future log of an earlier process."""
        _ = self.alter_log_dirs
        self.replica_manager.on_future_log_resumed(replica)

    def client_metrics(self) -> ClientMetricsManager:
        """Return the manager of client metrics (KIP-714), created on first use."""
        if self._client_metrics is None:
            # lazy: 9.4 ms, 367 kB
            from ottla.broker.observability.client_metrics_manager import ClientMetricsManager

            made = self._client_metrics = ClientMetricsManager(
                self._env, bool(self._config.values.get(METRICS_LISTENER))
            )
            self.controller.subscribe(made.publish)
        return self._client_metrics

    @property
    def client_metrics_store(self) -> ClientMetricsStore | None:
        """Store of pushed client metrics; None before the first push."""
        return None if self._client_metrics is None else self._client_metrics.store

    async def run_liveness_probe(self) -> None:
        """Run the probe of other brokers once another broker is registered, until cancelled."""
        await self._other_broker_registered.wait()
        await self.liveness_probe.run()

    def _on_metadata_change(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if any(broker_id != self._config.node_id for broker_id in delta.brokers):
            self._other_broker_registered.set()

    def _offsets_partition_count(self) -> int:
        """Return the number of partitions of `__consumer_offsets`; 0 if it does not exist."""
        topic = self.replica_manager.image.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def _connect_components(self, failure_handler: LogDirFailureHandler) -> None:
        """Register the components' callbacks with each other."""
        replicas, groups, directories = self.replica_manager, self.groups, self.directory_assignments
        failure_handler.on_logs_offline += [replicas.mark_logs_offline, lambda _: directories.wake()]
        replicas.on_leader += [self._stop_following, groups.on_election, self._on_coordinator_leader]
        replicas.on_resigned.append(self._stop_following)
        self._connect_coordinator(groups)
        replicas.on_follower.append(self.fetchers.add_partition)
        replicas.on_isr_change.append(self.alter_partition_sender.submit)
        replicas.on_delete_scheduled.append(self.deleted_log_remover.schedule)
        replicas.on_directory_changed = directories.assign
        replicas.on_future_log_resumed = self._resume_moves
        self.publisher.subscribe(groups.publish)
        self.publisher.subscribe(self.lifecycle.publish)
        self.controller.subscribe(self._on_metadata_change)
        self.lifecycle.on_registered += [self.producer_ids.set_broker_epoch, lambda _: directories.wake()]

    def _stop_following(self, replica: HostedPartition) -> None:
        """Stop fetching a partition that this node leads now, or no longer hosts."""
        self.fetchers.remove_partition((replica.topic, replica.partition))

    def _start_once(self, work: BackgroundTask) -> None:
        """Start a task of the node in the background; a failure is logged."""
        self._nursery.start_soon(run_logging_failure, "making a topic", work)

    def _services(self, fail: DiskErrorHandler) -> BrokerServices:
        env, config = self._env, self._config
        return BrokerServices(
            env,
            config,
            self.cache,
            self.controller_forwarder,
            self.controller,
            self.replica_manager,
            self.log_creator,
            self.log_dirs,
            self.purgatory,
            FetchSessionCache(env, config.number("max.incremental.fetch.session.cache.slots")),
            self.groups,
            self.producer_ids,
            config.number("fetch.max.bytes"),
            fail,
            lambda: self.liveness_probe,
            lambda: self.transaction_verifier,
            self.transaction_coordinator,
            lambda: self.share_partition_manager,
            lambda: self.alter_log_dirs,
            security.create_authorizer(config, self.controller),
            security.create_audit_log(env, config),
            security.create_quota_holder(env, self.controller),
            self.client_metrics,
        )

    def background_tasks(self) -> Iterator[tuple[str, BackgroundTask]]:
        """Yield name and function of each task that runs in the background while clients are served."""
        yield "heartbeats", self.lifecycle.run
        yield "following", self.fetchers.run
        yield "changes of the ISR", self.alter_partition_sender.run
        yield "the look for who is behind", self.alter_partition_sender.run_isr_expiration
        yield "telling of directories", self.directory_assignments.run
        yield "the look round the files", self.log_maintenance.run
        yield "retention", self.log_maintenance.run_retention
        yield "removal", self.deleted_log_remover.run
        yield "scrubbing", self.scrubber.run
        if self._config.flag("log.cleaner.enable"):
            yield "compaction", self.cleaner.run
