"""Services of a node for its request handlers, without its life cycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.controller_forwarder import ControllerForwarder
from ottla.broker.metadata.producer_id_manager import ProducerIdManager
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.controller.quorum_controller import QuorumController
from ottla.env.env import Env

if TYPE_CHECKING:
    from ottla.broker.interbroker.broker_liveness_probe import BrokerLivenessProbe
    from ottla.broker.observability.client_metrics_manager import ClientMetricsManager
    from ottla.broker.quotas.client_quotas import QuotaManagers
    from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
    from ottla.broker.security.authz.audit_log import AuditLog
    from ottla.broker.security.authz.authorizer import Authorizer
    from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.broker.transactions.verification import TransactionVerifier


@dataclass(slots=True)
class QuotaHolder:
    """Optional quota state of this broker."""

    quotas: QuotaManagers | None = None
    """None: no quota is configured."""
    times_requests: bool = False
    """True if it counts how long requests take."""


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """Made once the node has started; the parts change, the set of them does not."""

    env: Env
    config: NodeConfig
    metadata: MetadataCache
    controller_forwarder: ControllerForwarder
    controller: QuorumController
    """The controller in this process, for what is asked about the quorum itself."""
    replica_manager: ReplicaManager
    log_creator: LogCreator
    """Partitions that are still to be made; empty most of the time."""
    log_dirs: LogDirs
    purgatory: Purgatory
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    producer_ids: ProducerIdManager
    fetch_max_bytes: int
    """``fetch.max.bytes``, read once: every fetch asks for it."""
    fail: DiskErrorHandler
    liveness_probe: Callable[[], BrokerLivenessProbe]
    """Probe of the brokers' heartbeat connections; created when there is another broker."""
    transaction_verifier: Callable[[], TransactionVerifier]
    """Verifier of transactions with their coordinators; created on first use."""
    transactions_provider: Callable[[], TransactionCoordinator]
    """Factory of the transaction coordinator, called on first use."""
    shares_provider: Callable[[], SharePartitionManager]
    """Factory of the share partition manager, called on first use."""
    moves_provider: Callable[[], AlterLogDirs]
    """Factory of the mover of replicas between directories, called on first use."""
    authorizer: Authorizer | None = None
    """Authorizer; None: all operations are allowed."""
    audit: AuditLog | None = None
    """Audit log; None: disabled."""
    quota_holder: QuotaHolder = field(default_factory=QuotaHolder)
    client_metrics_provider: Callable[[], ClientMetricsManager] | None = None
    """Factory of the client metrics manager, called on first use."""
    decompression_limiter: DecompressionLimiter = field(default_factory=DecompressionLimiter)
    """Limiter of memory-heavy decompression."""

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        return self.transactions_provider()

    @property
    def client_metrics(self) -> ClientMetricsManager:
        """Manager of client metrics."""
        assert self.client_metrics_provider is not None, "each broker has it"
        return self.client_metrics_provider()

    @property
    def share_partition_manager(self) -> SharePartitionManager:
        """Manager of share partitions."""
        return self.shares_provider()

    @property
    def alter_log_dirs(self) -> AlterLogDirs:
        """Mover of replicas between directories."""
        return self.moves_provider()
