"""Builders of the replication subsystem: replica manager, creation of logs, fetchers and changes of the ISR.

Source: ``ReplicaManager.scala``, ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.components.metadata import MetadataComponents
from ottla.broker.components.storage import StorageComponents
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.interbroker.controller_channel import ControllerChannel
from ottla.broker.replication.alter_partition_sender import AlterPartitionSender
from ottla.broker.replication.fetcher.fetcher_manager import ReplicaFetcherManager
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env


def create_replica_manager(
    env: Env,
    config: NodeConfig,
    log_dirs: LogDirs,
    purgatory: Purgatory,
    storage: StorageComponents,
    failure_handler: LogDirFailureHandler,
) -> tuple[ReplicaManager, LogCreator]:
    """Return the manager of the hosted partitions, without any, and the creator of their logs, not started."""
    fail, flush_due = failure_handler.handle_failure, storage.log_maintenance.request_flush
    replicas = ReplicaManager(env, config, log_dirs, purgatory.check_and_complete, flush_due, fail)
    replicas.on_delete_scheduled.append(storage.deleted_log_remover.schedule)
    failure_handler.on_logs_offline.append(replicas.mark_logs_offline)
    return replicas, LogCreator(env, config, log_dirs, replicas, fail)


def create_fetchers(
    env: Env,
    config: NodeConfig,
    replicas: ReplicaManager,
    metadata: MetadataComponents,
    channel: ControllerChannel,
    failure_handler: LogDirFailureHandler,
) -> tuple[ReplicaFetcherManager, AlterPartitionSender]:
    """Return the fetchers of followed partitions, and the sender of ISR changes of led ones over ``channel``.

    Neither is started. They follow the roles of the partitions in ``replicas`` from now on.
    """
    lifecycle, directories = metadata.lifecycle, metadata.directory_assignments
    epoch = lambda: lifecycle.broker_epoch  # noqa: E731 - one line says it
    fetchers = ReplicaFetcherManager(
        env, config, replicas, epoch, failure_handler.handle_failure, config.inter_broker_listener
    )
    sender = AlterPartitionSender(
        env, config.node_id, channel, replicas, epoch, config.number("replica.lag.time.max.ms")
    )

    def stop_fetching(replica: HostedPartition) -> None:
        """Stop fetching a partition that this node leads now, or no longer hosts."""
        fetchers.remove_partition((replica.topic, replica.partition))

    replicas.on_leader.append(stop_fetching)
    replicas.on_resigned.append(stop_fetching)
    replicas.on_follower.append(fetchers.add_partition)
    replicas.on_isr_change.append(sender.submit)
    replicas.on_directory_changed = directories.assign
    failure_handler.on_logs_offline.append(lambda _: directories.wake())
    return fetchers, sender
