"""Composition root of a node: creates the components and connects them. Nothing runs here.

Source: ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.interbroker.controller_channel import REGISTRATION_TIMEOUT_S, ControllerChannel
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
from ottla.broker.services import BrokerServices, QuotaHolder
from ottla.broker.storage.deleted_logs import DeletedLogRemover
from ottla.broker.storage.log_cleaner import LogCleaner
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.broker.storage.scrubber import Scrubber
from ottla.controller.config.config_keys import AUDIT_LOG, METRICS_LISTENER, SCRUB_RATE
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.env.env import FOREVER_S, Env
from ottla.jobs.supervision import run_logging_failure, supervise
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.meta_properties import MetaProperties

if TYPE_CHECKING:
    from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe
    from ottla.broker.metadata.controller_registration import ControllerRegistration
    from ottla.broker.network.acceptor import Acceptor
    from ottla.broker.observability.client_metrics_manager import ClientMetricsManager
    from ottla.broker.observability.client_metrics_store import ClientMetricsStore
    from ottla.broker.observability.request_metrics import RequestMetrics
    from ottla.broker.quotas.client_quotas import QuotaManagers
    from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
    from ottla.broker.security.authz.audit_log import AuditLog
    from ottla.broker.security.authz.authorizer import Authorizer
    from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.broker.transactions.verification import TransactionVerifier
    from ottla.client.connection_security import ConnectionSecurity

BackgroundTask = Callable[[], Awaitable[None]]


class BrokerComponents:
    """Components of a running node, over formatted directories; loads the metadata.

    Raises:
        IncompatibleQuorum, CorruptFile, WireError, OSError: the metadata cannot be read, or belongs to another quorum.
    """

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        storage: LogDirs,
        losses: LogDirFailureHandler,
        identity: MetaProperties,
        quorum: QuorumConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._env, self._config, self._nursery = env, config, nursery
        quorum = quorum._replace(access=self._controller_access)
        self.log_dirs = storage
        fail = losses.handle_failure
        defaults = ControllerDefaults(
            config.number("num.partitions"), config.number("default.replication.factor"), static_config=config.values
        )
        self.controller = QuorumController(env, storage.metadata, identity, defaults, fail, quorum)
        self.controller.load()
        self.cache = MetadataCache(config, identity.cluster_id, lambda: self.controller.kraft_version)
        self.timers, self.purgatory = Timers(env), Purgatory(env)
        retain_ms = config.number("log.retention.check.interval.ms")
        expire_ms = config.number("producer.id.expiration.ms")
        self.log_maintenance = LogMaintenance(env, storage, retain_ms, expire_ms, fail, nursery.start_soon)
        wake, flush_due = self.purgatory.check_and_complete, self.log_maintenance.request_flush
        self.replica_manager = replicas = ReplicaManager(env, config, storage, wake, flush_due, fail)
        self.request_metrics: RequestMetrics | None = None
        self.acceptors: list[Acceptor] = []
        """Those of all listeners, once they serve."""
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
        self._create_channel, self._quorum = way, quorum
        self._liveness_probe: BrokerLivenessProbe | None = None
        self._verifier: TransactionVerifier | None = None
        self.transactions: TransactionCoordinator | None = None
        self._share_partition_manager: SharePartitionManager | None = None
        self._alter_log_dirs: AlterLogDirs | None = None
        self._client_metrics: ClientMetricsManager | None = None
        self._other_broker_registered = trio.Event()
        self.directory_assignments = DirectoryAssignments(env, config.node_id, way(), self.cache, storage)
        self.deleted_log_remover = DeletedLogRemover(env, config.number("log.segment.delete.delay.ms"))
        self.groups = GroupCoordinator(env, config, self.timers, fail, self._offsets_partition_count)
        self.producer_ids = ProducerIdManager(forwarding, config.node_id, self._start_once)
        self.cleaner = LogCleaner(env, storage, lambda name: config.effective_value(self.cache.image, name) or "", fail)
        self.scrubber = Scrubber(env, storage, lambda: int(config.effective_value(self.cache.image, SCRUB_RATE) or 0))
        self._connect_components(losses)
        self.services = self._services(fail)

    def _controller_access(self) -> ConnectionSecurity:
        """Return the security settings for the controllers' listener; called for the first remote connection."""
        # lazy: 6.8 ms, 98 kB
        from ottla.broker.interbroker.credentials import controller_access

        return controller_access(self._config)

    async def register_broker(self) -> None:
        """Wait for the quorum, and register as a broker."""
        await self.controller.wait_ready()
        await self.lifecycle.register()

    async def open_partitions(self, image: MetadataImage) -> None:
        """Open what lies in the directories; then moves between them go on.

        Raises:
            CorruptFile: a partition cannot be read, or lies in two directories; OSError: no directory is left.
        """
        await run_in_background(self._env, self.replica_manager.load(image))
        if self.replica_manager.has_leftover_future_logs:
            # lazy: 2.7 ms, 70 kB: only where a move between log directories was under way
            from ottla.broker.replication.alter_log_dirs.future_log_recovery import recover_future_logs

            steps = recover_future_logs(self._env, self._config, self.replica_manager, self.log_dirs, image)
            await run_in_background(self._env, steps)

    def controller_registration(self) -> ControllerRegistration:
        """Registration of this node's controller; a single node registers with its first records."""
        # lazy: 0.8 ms, 12 kB
        from ottla.broker.metadata.controller_registration import ControllerRegistration

        node_id, way, controller = self._config.node_id, self._create_channel(REGISTRATION_TIMEOUT_S), self.controller
        return ControllerRegistration(self._env, node_id, controller.incarnation_id, self._quorum.endpoints, way)

    def liveness_probe(self) -> BrokerLivenessProbe:
        """Probe of other brokers, created on first use."""
        if self._liveness_probe is None:
            # lazy: 8.4 ms, 186 kB
            from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe

            self._liveness_probe = BrokerLivenessProbe(self._env, self._config.node_id, self.controller)
            self.controller.subscribe(self._liveness_probe.publish)
        return self._liveness_probe

    def transaction_verifier(self) -> TransactionVerifier:
        """Verification of transactions with their coordinators, created on first use."""
        if self._verifier is None:
            # lazy: 13.9 ms, 387 kB
            from ottla.broker.handlers.transactions.batched_add_partitions import add_partitions
            from ottla.broker.transactions.verification import TransactionVerifier, TransactionVerifierDependencies

            partition_for, add = self.transaction_coordinator().partition_for, partial(add_partitions, self.services)
            self._verifier = TransactionVerifier(
                TransactionVerifierDependencies(
                    self._env, self._config, self.cache, self.replica_manager, partition_for, add
                )
            )
        return self._verifier

    def transaction_coordinator(self) -> TransactionCoordinator:
        """Return the coordinator of transactions, created for the first transaction or partition of its state."""
        if self.transactions is None:
            # lazy: 16.2 ms, 480 kB
            from ottla.broker.components.transactions import create_transaction_coordinator

            services, replicas = self.services, self.replica_manager
            made = self.transactions = create_transaction_coordinator(
                services, self.timers, self._config.inter_broker_listener
            )
            self.log_maintenance.on_flushed.append(made.on_high_watermark_updated)
            replicas.on_high_watermark_moved.append(made.on_high_watermark_updated)
            replicas.on_resigned.append(made.on_resignation)
            self._nursery.start_soon(made.run)
        return self.transactions

    def _on_transaction_leader(self, replica: HostedPartition) -> None:
        if replica.topic == TRANSACTIONS_TOPIC:
            self.transaction_coordinator().on_election(replica)

    def share_partition_manager(self) -> SharePartitionManager:
        """Return the manager of share partitions, created for the first share group or state partition."""
        if self._share_partition_manager is None:
            # lazy: 24.7 ms, 933 kB
            from ottla.broker.components.share_groups import create_share_partition_manager

            start, listener = self._nursery.start_soon, self._config.inter_broker_listener
            made = self._share_partition_manager = create_share_partition_manager(
                self.services, self.timers, listener, start
            )
            coordinator = made.coordinator
            self.log_maintenance.on_flushed.append(coordinator.on_high_watermark_updated)
            self.replica_manager.on_high_watermark_moved.append(coordinator.on_high_watermark_updated)
            self.replica_manager.on_resigned.append(coordinator.on_resignation)
            self.publisher.subscribe(coordinator.publish)
            start(made.run)
        return self._share_partition_manager

    def alter_log_dirs(self) -> AlterLogDirs:
        """Mover of replicas between directories, created on first use."""
        if self._alter_log_dirs is None:
            # lazy: 3.7 ms, 151 kB
            from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
            from ottla.broker.replication.alter_log_dirs.future_replica_copier import FutureReplicaCopier

            env, storage, replicas, fail = self._env, self.log_dirs, self.replica_manager, self.services.fail
            mover = FutureReplicaCopier(env, self._config, storage, replicas, fail)
            prefer = self.log_creator.set_preferred_directory
            self._alter_log_dirs = AlterLogDirs(env, storage, replicas, mover, prefer, fail)
            self.publisher.subscribe(mover.publish)
            replicas.on_future_log_resumed = mover.start_copy
            self._nursery.start_soon(supervise, env, "moves between directories", mover.run)
        return self._alter_log_dirs

    def _resume_moves(self, replica: HostedPartition) -> None:
        """Resume moves after a future log of an earlier process was found."""
        self.alter_log_dirs()
        self.replica_manager.on_future_log_resumed(replica)

    def client_metrics(self) -> ClientMetricsManager:
        """Return the manager of client metrics, created on first use."""
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

    def _on_share_leader(self, replica: HostedPartition) -> None:
        if replica.topic == SHARE_TOPIC:
            self.share_partition_manager().coordinator.on_election(replica)

    async def run_liveness_probe(self) -> None:
        """Look after other brokers, once there are any."""
        await self._other_broker_registered.wait()
        await self.liveness_probe().run()

    def _on_metadata_change(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if any(broker_id != self._config.node_id for broker_id in delta.brokers):
            self._other_broker_registered.set()

    def _offsets_partition_count(self) -> int:
        """Return the number of partitions of `__consumer_offsets`; 0 if it does not exist."""
        topic = self.replica_manager.image.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def _connect_components(self, losses: LogDirFailureHandler) -> None:
        """Connect the components by callbacks."""
        replicas, groups, directories = self.replica_manager, self.groups, self.directory_assignments
        losses.on_logs_offline += [replicas.mark_logs_offline, lambda _: directories.wake()]
        self.log_maintenance.on_flushed.append(groups.on_high_watermark_updated)
        replicas.on_high_watermark_moved.append(groups.on_high_watermark_updated)
        replicas.on_leader += [
            self._stop_following,
            groups.on_election,
            self._on_transaction_leader,
            self._on_share_leader,
        ]
        replicas.on_resigned += [self._stop_following, groups.on_resignation]
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
        """Stop following a partition that is led here or deleted."""
        self.fetchers.remove_partition((replica.topic, replica.partition))

    def _start_once(self, work: BackgroundTask) -> None:
        """Start a task without waiting for its result."""
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
            self.liveness_probe,
            self.transaction_verifier,
            self.transaction_coordinator,
            self.share_partition_manager,
            self.alter_log_dirs,
            self._authorizer(),
            self._audit(),
            self._quota_holder(),
            self.client_metrics,
        )

    def _audit(self) -> AuditLog | None:
        """Return the audit log of authorization decisions; None if it is disabled."""
        level = self._config.values.get(AUDIT_LOG)
        if level is None:
            return None
        # lazy: 1.4 ms, 31 kB
        from ottla.broker.security.authz.audit_log import AuditLog

        return AuditLog.from_level(self._env, level)

    def _quota_holder(self) -> QuotaHolder:
        """Return the holder of client quotas, which creates the managers with the first quota."""
        out = QuotaHolder()
        made: list[QuotaManagers] = []

        def publish(image: MetadataImage, delta: MetadataDelta) -> None:
            if any(about[0] == "quota" for about in delta.others):
                if not made:
                    # lazy: 4.4 ms, 203 kB
                    from ottla.broker.quotas.client_quotas import QuotaManagers

                    made.append(QuotaManagers(self._env))
                made[0].publish(image, delta)
                out.quotas = made[0] if made[0].is_enabled else None
                out.times_requests = made[0].times_requests

        self.controller.subscribe(publish)
        return out

    def _authorizer(self) -> Authorizer | None:
        """Return the authorizer, which follows committed ACLs; None if none is configured."""
        if not self._config.text("authorizer.class.name"):
            return None
        # lazy: 2.1 ms, 81 kB
        from ottla.broker.security.authz.authorizer import Authorizer

        made = Authorizer.from_config(self._config)
        self.controller.subscribe(made.publish)
        return made

    def background_tasks(self) -> Iterator[tuple[str, BackgroundTask]]:
        """Yield the background tasks with their names."""
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
