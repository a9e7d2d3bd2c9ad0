"""What a handler may touch: everything a node offers to requests, and nothing of how the node lives."""

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
    """Who counts what clients bring and take."""

    quotas: QuotaManagers | None = None
    """None: there is no quota, and nothing is counted."""
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
    """Who hears of the connections heartbeats come over; made when there is another broker."""
    transaction_verifier: Callable[[], TransactionVerifier]
    """Who asks transactions' coordinators for the leaders here; made when there is a transaction."""
    transactions_provider: Callable[[], TransactionCoordinator]
    """Makes the coordinator of transactions, the first time anybody wants it."""
    shares_provider: Callable[[], SharePartitionManager]
    """Makes what serves share groups, the first time anybody wants it."""
    moves_provider: Callable[[], AlterLogDirs]
    """Makes what moves replicas between directories, the first time anybody wants it."""
    authorizer: Authorizer | None = None
    """Who may do what; None: everybody everything."""
    audit: AuditLog | None = None
    """Who writes down what was decided; None: nobody."""
    quota_holder: QuotaHolder = field(default_factory=QuotaHolder)
    client_metrics_provider: Callable[[], ClientMetricsManager] | None = None
    """Makes what takes clients' own metrics, the first time anybody wants it."""
    decompression_limiter: DecompressionLimiter = field(default_factory=DecompressionLimiter)
    """Whose turn it is to unpack much of what others sent."""

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The coordinator of transactions."""
        return self.transactions_provider()

    @property
    def client_metrics(self) -> ClientMetricsManager:
        """What takes clients' own metrics."""
        assert self.client_metrics_provider is not None, "each broker has it"
        return self.client_metrics_provider()

    @property
    def share_partition_manager(self) -> SharePartitionManager:
        """What serves share groups."""
        return self.shares_provider()

    @property
    def alter_log_dirs(self) -> AlterLogDirs:
        """What moves replicas between directories."""
        return self.moves_provider()
