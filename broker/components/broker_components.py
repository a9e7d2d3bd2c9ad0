"""Composition root of a node: creates the components and connects them, but starts none.

Components that few nodes need are created, and then started, on first use.

Source: ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

import trio

from ottla.broker.components import security
from ottla.broker.components.coordinators import connect_coordinator, create_group_coordinator
from ottla.broker.components.metadata import create_metadata, load_controller
from ottla.broker.components.replication import create_fetchers, create_replica_manager
from ottla.broker.components.storage import create_storage
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.timers import Timers
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.metadata.controller_forwarder import SHARE_TOPIC, TRANSACTIONS_TOPIC
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.services import BrokerServices
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.controller.config.config_keys import METRICS_LISTENER
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.env.env import FOREVER_S, Env
from ottla.jobs.supervision import run_logging_failure, supervise
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.meta_properties import MetaProperties

if TYPE_CHECKING:
    from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe
    from ottla.broker.network.acceptor import Acceptor
    from ottla.broker.observability.client_metrics_manager import ClientMetricsManager
    from ottla.broker.observability.client_metrics_store import ClientMetricsStore
    from ottla.broker.observability.request_observers import RequestObserver
    from ottla.broker.remote_log.remote_log_manager import RemoteLogManager
    from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
    from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
    from ottla.broker.storage.tiered.remote_reads import RemoteReads
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.broker.transactions.verification import TransactionVerifier

TIERED_STORAGE = "remote.log.storage.system.enable"
BackgroundTask = Callable[[], Awaitable[None]]


class BrokerComponents:
    """Components of a node with formatted log directories; the constructor loads the metadata.

    Raises:
        IncompatibleQuorum, CorruptFile, WireError, OSError: the metadata cannot be read, or belongs to another quorum.
        ConfigException: a setting of the authorizer or of tiered storage is invalid.
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
        fail, start = failure_handler.handle_failure, self._start_once
        self.log_dirs = storage
        self.quorum = quorum._replace(access=partial(security.create_controller_access, config))
        controlled = load_controller(env, config, storage, identity, self.quorum, fail)
        self.controller, self.cache, self.create_channel = controlled
        self.timers, self.purgatory = Timers(env), Purgatory(env)
        stored = create_storage(env, config, storage, self._dynamic_value, fail, nursery.start_soon)
        self.log_maintenance, self.deleted_log_remover, self.cleaner, self.scrubber = stored
        replicas, log_creator = create_replica_manager(env, config, storage, self.purgatory, stored, failure_handler)
        self.replica_manager, self.log_creator = replicas, log_creator
        applied = create_metadata(env, config, controlled, storage, replicas, log_creator, start)
        self.publisher, self.controller_forwarder, self.lifecycle, self.directory_assignments, self.producer_ids = (
            applied
        )
        self.fetchers, self.alter_partition_sender = create_fetchers(
            env, config, replicas, applied, self.create_channel(FOREVER_S), failure_handler
        )
        self.groups = create_group_coordinator(
            env, config, self.timers, replicas, self.log_maintenance, self.publisher, fail
        )
        replicas.on_leader.append(self._on_coordinator_leader)
        replicas.on_future_log_resumed = self._resume_moves
        self.request_observers: list[RequestObserver] = []
        """Observers of all requests to this node, in order; set before its listeners start to serve."""
        self.acceptors: list[Acceptor] = []
        """Acceptors of all listeners, added when a listener starts to serve."""
        self.transactions: TransactionCoordinator | None = None
        self._client_metrics: ClientMetricsManager | None = None
        self._other_broker_registered = trio.Event()
        self.remote_log_manager = self._create_remote_log_manager(fail) if config.flag(TIERED_STORAGE) else None
        """Manager of tiered storage; None if it is not enabled."""
        self.controller.subscribe(self._on_metadata_change)
        self.services = self._services(fail)

    async def register_broker(self) -> None:
        """Open tiered storage, wait until the image has reached the quorum leader's high watermark, then register.

        It returns once the committed metadata of this node contains the registration as a broker.

        Raises:
            RegistrationRejected: as `BrokerLifecycleManager.register`.
            ConfigException, OSError: the remote store cannot be opened, or the metadata log could not be written.
        """
        if self.remote_log_manager is not None:
            await self.remote_log_manager.open()
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
        """Probe of brokers whose heartbeat connection to this controller was lost, created on first use."""
        # lazy: 8.4 ms, 186 kB
        from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe

        made = BrokerLivenessProbe(self._env, self._config.node_id, self.controller)
        self.controller.subscribe(made.publish)
        return made

    @cached_property
    def transaction_verifier(self) -> TransactionVerifier:
        """Verifier of transactions with their coordinators, created on first use."""
        # lazy: 14.0 ms, 484 kB
        from ottla.broker.components.transactions import create_transaction_verifier

        return create_transaction_verifier(self.services)

    def transaction_coordinator(self) -> TransactionCoordinator:
        """Return the transaction coordinator; the first call creates it and starts its task.

        The first call is for the first request about transactions, or the first led partition of
        `__transaction_state`.
        """
        if self.transactions is None:
            # lazy: 16.2 ms, 480 kB
            from ottla.broker.components.transactions import create_transaction_coordinator

            listener = self._config.inter_broker_listener
            self.transactions = create_transaction_coordinator(self.services, self.timers, listener)
            connect_coordinator(self.transactions, self.replica_manager, self.log_maintenance)
            self._nursery.start_soon(self.transactions.run)
        return self.transactions

    def _on_coordinator_leader(self, replica: HostedPartition) -> None:
        if replica.topic == TRANSACTIONS_TOPIC:
            self.transaction_coordinator().on_election(replica)
        elif replica.topic == SHARE_TOPIC:
            self.share_partition_manager.coordinator.on_election(replica)

    @cached_property
    def share_partition_manager(self) -> SharePartitionManager:
        """Manager of share partitions, created and started on first use.

        That is the first request about share groups, or the first led partition of `__share_group_state`.
        """
        # lazy: 24.7 ms, 933 kB
        from ottla.broker.components.share_groups import create_share_partition_manager

        start, listener = self._nursery.start_soon, self._config.inter_broker_listener
        made = create_share_partition_manager(self.services, self.timers, listener, start)
        connect_coordinator(made.coordinator, self.replica_manager, self.log_maintenance)
        self.publisher.subscribe(made.coordinator.publish)
        start(made.run)
        return made

    @cached_property
    def alter_log_dirs(self) -> AlterLogDirs:
        """Handler of moves of replicas between log directories; created, and its copier started, on first use."""
        # lazy: 3.7 ms, 151 kB
        from ottla.broker.components.log_dir_moves import create_alter_log_dirs

        made, mover = create_alter_log_dirs(self.services)
        self.publisher.subscribe(mover.publish)
        self.replica_manager.on_future_log_resumed = mover.start_copy
        self._nursery.start_soon(supervise, self._env, "moves between directories", mover.run)
        return made

    def _resume_moves(self, replica: HostedPartition) -> None:
        """Resume the copy of a replica's future log of an earlier process; create the handler of moves for it."""
        _ = self.alter_log_dirs
        self.replica_manager.on_future_log_resumed(replica)

    def client_metrics(self) -> ClientMetricsManager:
        """Return the manager of client metrics (KIP-714), created and subscribed to the metadata on first use."""
        if self._client_metrics is None:
            # lazy: 9.4 ms, 367 kB
            from ottla.broker.observability.client_metrics_manager import ClientMetricsManager

            made = self._client_metrics = ClientMetricsManager(
                self._env, bool(self._config.values.get(METRICS_LISTENER))
            )
            self.controller.subscribe(made.publish)
        return self._client_metrics

    def _create_remote_log_manager(self, fail: DiskErrorHandler) -> RemoteLogManager:
        # lazy: 24.5 ms, 923 kB: only with tiered storage
        from ottla.broker.components.tiered_storage import TieredStorageDependencies, create_remote_log_manager

        around = TieredStorageDependencies(
            self._env,
            self._config,
            self._dynamic_value,
            self.log_dirs,
            self.replica_manager,
            self.purgatory,
            self.controller_forwarder,
            fail,
            self._start_remote_log_task,
        )
        made = create_remote_log_manager(around)
        self.publisher.subscribe(made.publish)
        self.fetchers.set_remote_log(made)
        return made

    def _create_remote_reads(self, manager: RemoteLogManager | None) -> RemoteReads | None:
        if manager is None:
            return None
        # lazy: 11.8 ms, 384 kB: only with tiered storage
        from ottla.broker.storage.tiered.remote_reads import RemoteReads

        return RemoteReads(self._env, manager, self._nursery.start_soon, self.purgatory.check_and_complete)

    def _start_remote_log_task(self, work: BackgroundTask) -> None:
        self._nursery.start_soon(supervise, self._env, "tiered storage", work)

    @property
    def client_metrics_store(self) -> ClientMetricsStore | None:
        """Store of pushed client metrics; None before the first request about them, and without a metrics listener."""
        return None if self._client_metrics is None else self._client_metrics.store

    async def run_liveness_probe(self) -> None:
        """Run the probe of other brokers once another broker is registered, until cancelled."""
        await self._other_broker_registered.wait()
        await self.liveness_probe.run()

    def _on_metadata_change(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if any(broker_id != self._config.node_id for broker_id in delta.brokers):
            self._other_broker_registered.set()

    def _dynamic_value(self, name: str) -> str:
        """Return the effective value of a broker setting, dynamic, static or default; "" if it is unset."""
        return self._config.effective_value(self.cache.image, name) or ""

    def _start_once(self, work: BackgroundTask) -> None:
        """Start a task in the background that is not restarted; a failure is logged."""
        self._nursery.start_soon(run_logging_failure, "request to the controller", work)

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
            remote_reads=self._create_remote_reads(self.remote_log_manager),
        )

    def background_tasks(self) -> Iterator[tuple[str, BackgroundTask]]:
        """Yield name (for the log) and function of each background task of a broker that is restarted if it fails."""
        yield "heartbeats", self.lifecycle.run
        yield "replica fetchers", self.fetchers.run
        yield "ISR changes", self.alter_partition_sender.run
        yield "ISR expiration", self.alter_partition_sender.run_isr_expiration
        yield "directory assignments", self.directory_assignments.run
        yield "log maintenance", self.log_maintenance.run
        yield "retention", self.log_maintenance.run_retention
        yield "removal", self.deleted_log_remover.run
        yield "scrubbing", self.scrubber.run
        if self.remote_log_manager is not None:
            yield "tiered storage", self.remote_log_manager.run
        if self._config.flag("log.cleaner.enable"):
            yield "compaction", self.cleaner.run
