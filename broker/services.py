"""Services of a node that its request handlers use, without its life cycle."""

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
    from ottla.broker.storage.tiered.remote_reads import RemoteReads
    from ottla.broker.transactions.coordinator import TransactionCoordinator
    from ottla.broker.transactions.verification import TransactionVerifier


@dataclass(slots=True)
class QuotaHolder:
    """Holder of this broker's quota managers, updated when quotas change; empty while no client quota is configured."""

    quotas: QuotaManagers | None = None
    """Managers of the client quotas; None if no quota is configured."""
    times_requests: bool = False
    """True if processing times of requests are recorded, as a request quota is configured."""


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """Components of the node for its request handlers; created once at startup."""

    env: Env
    config: NodeConfig
    metadata: MetadataCache
    controller_forwarder: ControllerForwarder
    controller: QuorumController
    """Controller of this process, for requests about the metadata quorum."""
    replica_manager: ReplicaManager
    log_creator: LogCreator
    """Creator of missing logs, with the pending creations."""
    log_dirs: LogDirs
    purgatory: Purgatory
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    producer_ids: ProducerIdManager
    fetch_max_bytes: int
    """Value of ``fetch.max.bytes``, cached for Fetch."""
    fail: DiskErrorHandler
    liveness_probe: Callable[[], BrokerLivenessProbe]
    """Function that returns the probe of the brokers' heartbeat connections, created on first use."""
    transaction_verifier: Callable[[], TransactionVerifier]
    """Function that returns the verifier of transactions with their coordinators, created on first use."""
    transactions_provider: Callable[[], TransactionCoordinator]
    """Function that returns the transaction coordinator, created on first use."""
    shares_provider: Callable[[], SharePartitionManager]
    """Function that returns the share partition manager, created on first use."""
    moves_provider: Callable[[], AlterLogDirs]
    """Function that returns the handler of moves between log directories, created on first use."""
    authorizer: Authorizer | None = None
    """Authorizer; None: all operations are allowed."""
    audit: AuditLog | None = None
    """Audit log of authentication and authorization; None if disabled."""
    quota_holder: QuotaHolder = field(default_factory=QuotaHolder)
    client_metrics_provider: Callable[[], ClientMetricsManager] | None = None
    """Function that returns the client metrics manager, created on first use."""
    decompression_limiter: DecompressionLimiter = field(default_factory=DecompressionLimiter)
    """Limiter of concurrent decompressions that need much memory."""
    remote_reads: RemoteReads | None = None
    """Reads from the remote tier; None without tiered storage."""

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """Transaction coordinator of this broker, created on first use."""
        return self.transactions_provider()

    @property
    def client_metrics(self) -> ClientMetricsManager:
        """Manager of client metrics (KIP-714), created on first use."""
        assert self.client_metrics_provider is not None, "each broker has it"
        return self.client_metrics_provider()

    @property
    def share_partition_manager(self) -> SharePartitionManager:
        """Manager of share partitions, created on first use."""
        return self.shares_provider()

    @property
    def alter_log_dirs(self) -> AlterLogDirs:
        """Handler of moves of replicas between log directories, created on first use."""
        return self.moves_provider()
