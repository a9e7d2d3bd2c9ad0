"""Factory of the components that move replicas between log directories, created on first use.

Source: ``ReplicaManager.alterReplicaLogDirs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.replication.alter_log_dirs.alter_log_dirs import AlterLogDirs
from ottla.broker.replication.alter_log_dirs.future_replica_copier import FutureReplicaCopier
from ottla.broker.services import BrokerServices


def create_alter_log_dirs(services: BrokerServices) -> tuple[AlterLogDirs, FutureReplicaCopier]:
    """Return the handler of AlterReplicaLogDirs, and the copier of the records to the future logs, not started."""
    env, storage, replicas, fail = services.env, services.log_dirs, services.replica_manager, services.fail
    mover = FutureReplicaCopier(env, services.config, storage, replicas, fail)
    return AlterLogDirs(env, storage, replicas, mover, services.log_creator.set_preferred_directory, fail), mover
