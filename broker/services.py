"""What a handler may touch: everything a node offers to requests, and nothing of how the node lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.config import NodeConfig
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.metadata.admin import ControllerForwarder
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.producer_ids import ProducerIdManager
from ottla.broker.replica.making import LogCreator
from ottla.broker.replica.replicas import ReplicaManager
from ottla.broker.replica.storage import DiskErrorHandler, LogDirs
from ottla.broker.server.purgatory import Purgatory
from ottla.broker.server.sessions import FetchSessionCache
from ottla.broker.unpacking import DecompressionLimiter
from ottla.controller.driver import QuorumController
from ottla.world.env import Env

if TYPE_CHECKING:
    from ottla.broker.auth.audit import AuditLog
    from ottla.broker.auth.authorizer import Authorizer
    from ottla.broker.auth.quotas import QuotaManagers
    from ottla.broker.metadata.watch import BrokerLivenessProbe
    from ottla.broker.replica.moves import AlterLogDirs
    from ottla.broker.share.shares import SharePartitionManager
    from ottla.broker.telemetry.telemetry import ClientMetricsManager
    from ottla.broker.txn.coordinator import TransactionCoordinator
    from ottla.broker.txn.verification import TransactionVerifier


@dataclass(slots=True)
class QuotaHolder:
    """Who counts what clients bring and take."""

    quotas: QuotaManagers | None = None
    """None: there is no quota, and nothing is counted."""
    times_requests: bool = False
    """Whether it counts how long requests take."""


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
