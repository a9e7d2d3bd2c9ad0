"""Builder of the group coordinator, and the connection of each coordinator to the partitions of its internal topic.

The other coordinators are created on first use by `transactions` and `share_groups`, beside this module.

Source: ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.metadata.publisher import BrokerMetadataPublisher
from ottla.broker.replication.log_maintenance import LogMaintenance
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.env.env import Env


def connect_coordinator(
    coordinator: CoordinatorRuntime[Any], replicas: ReplicaManager, log_maintenance: LogMaintenance
) -> None:
    """Subscribe a coordinator to high watermarks, flushes and lost leaderships, but not to elections."""
    log_maintenance.on_flushed.append(coordinator.on_high_watermark_updated)
    replicas.on_high_watermark_moved.append(coordinator.on_high_watermark_updated)
    replicas.on_resigned.append(coordinator.on_resignation)


def create_group_coordinator(
    env: Env,
    config: NodeConfig,
    timers: Timers,
    replicas: ReplicaManager,
    log_maintenance: LogMaintenance,
    publisher: BrokerMetadataPublisher,
    fail: DiskErrorHandler,
) -> GroupCoordinator:
    """Return the group coordinator, not started, without shards until this broker leads a partition of its topic.

    It is subscribed to elections, high watermarks and applied metadata.
    """
    groups = GroupCoordinator(env, config, timers, fail, lambda: replicas.image)
    replicas.on_leader.append(groups.on_election)
    connect_coordinator(groups, replicas, log_maintenance)
    publisher.subscribe(groups.publish)
    return groups
