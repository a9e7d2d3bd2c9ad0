"""Builder of tiered storage (KIP-405), on a broker with ``remote.log.storage.system.enable``.

Source: ``BrokerServer.createRemoteLogManager`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.interbroker.connections import BrokerConnections
from ottla.broker.interbroker.credentials import inter_broker_access
from ottla.broker.metadata.controller_forwarder import ControllerForwarder, StartInBackground
from ottla.broker.remote_log.metadata_topic_client import MetadataTopicClient
from ottla.broker.remote_log.remote_log_manager import RemoteLogDependencies, RemoteLogManager
from ottla.broker.remote_log.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.broker.storage.tiered.chunk_cache import ReadAhead
from ottla.broker.storage.tiered.remote_log_manager_config import (
    InvalidMetadataTopicConfig,
    RemoteLogManagerConfig,
    RemoteLogMetadataTopicConfig,
    parse_metadata_topic_config,
    remote_log_manager_config,
)
from ottla.broker.storage.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from ottla.broker.storage.tiered.remote_storage import RemoteStorage
from ottla.env.env import Env
from ottla.log.partition_log import PartitionLog

OpenStorage = Callable[[], RemoteStorage]
STANDALONE_TOPIC = RemoteLogMetadataTopicConfig(replication_factor=1, min_isr=1)
"""Defaults of the metadata topic on a single node, as for the other internal topics."""


class TieredStorageDependencies(NamedTuple):
    """Components of the broker that tiered storage uses."""

    env: Env
    config: NodeConfig
    setting: Callable[[str], str]
    """Function that returns the current value of a broker setting, "" if unset."""
    log_dirs: LogDirs
    replicas: ReplicaManager
    purgatory: Purgatory
    forwarder: ControllerForwarder
    fail: DiskErrorHandler
    start: StartInBackground


def create_remote_log_manager(around: TieredStorageDependencies) -> RemoteLogManager:
    """Return the manager, not started; it follows the partitions of the replica manager from now on.

    Raises:
        ConfigException: A setting of the metadata topic is invalid.
    """
    env, config, replicas = around.env, around.config, around.replicas
    settings = partial(remote_log_manager_config, around.setting)
    made = RemoteLogManager(
        RemoteLogDependencies(
            env,
            config.node_id,
            replicas,
            _create_metadata_manager(around, settings()),
            partial(_open_storage, env, config, settings().storage_prefix),
            settings,
            partial(_persist_log_start, around),
            around.fail,
            around.start,
        )
    )
    replicas.on_leader.append(made.on_leader)
    replicas.on_follower.append(made.on_follower)
    replicas.on_resigned.append(made.on_resigned)
    return made


def _create_metadata_manager(
    around: TieredStorageDependencies, settings: RemoteLogManagerConfig
) -> TopicBasedRemoteLogMetadataManager:
    """Return the reader and writer of `__remote_log_metadata`.

    Raises:
        ConfigException: A setting of the topic is invalid.
    """
    env, config, replicas = around.env, around.config, around.replicas
    listener = settings.metadata_listener or config.inter_broker_listener

    def address(broker_id: int) -> tuple[str, int] | None:
        return replicas.image.unfenced_broker_address(broker_id, listener)

    def connect(client_id: str) -> BrokerConnections:
        return BrokerConnections(env, client_id, address, partial(inter_broker_access, config))

    defaults = STANDALONE_TOPIC if config.is_standalone else RemoteLogMetadataTopicConfig()
    try:
        topic = parse_metadata_topic_config(config.values, settings.metadata_prefix, defaults)
    except InvalidMetadataTopicConfig as error:
        raise ConfigException(str(error)) from None
    client = MetadataTopicClient(
        env, config.node_id, replicas, around.purgatory, around.fail, connect, config.number("request.timeout.ms")
    )
    size = topic.num_partitions, topic.replication_factor
    create = partial(around.forwarder.create_topic, REMOTE_LOG_METADATA_TOPIC, *size, topic.topic_configs)
    return TopicBasedRemoteLogMetadataManager(env, client, topic, create)


async def _persist_log_start(around: TieredStorageDependencies, log: PartitionLog) -> None:
    """Write the log start offset of a log to its checkpoint, unsynced.

    Raises:
        OSError: it was not written, and the log directory is reported as failed.
    """
    directory = around.log_dirs.directory_of(log)
    try:
        directory.checkpoints.write_log_start_offsets([log])
    except OSError as error:
        around.fail(error, directory)
        raise


def _open_storage(env: Env, config: NodeConfig, prefix: str, read_ahead: ReadAhead) -> RemoteStorage:
    """Open the remote store of the settings.

    A simulated environment has a store of its own (`open_remote_storage`).

    Raises:
        ConfigException: A setting is invalid; OSError: the cache directory cannot be used.
    """
    simulated: OpenStorage | None = getattr(env, "open_remote_storage", None)
    if simulated is not None:
        return simulated()
    # lazy: 4.6 ms, 231 kB
    from ottla.broker.storage.tiered.cloud_store import InvalidStoreError
    from ottla.broker.storage.tiered.store_settings import open_remote_storage, parse_store_settings, store_values

    try:
        return open_remote_storage(parse_store_settings(store_values(config.values, prefix)), env.disk, read_ahead)
    except InvalidStoreError as error:
        raise ConfigException(str(error)) from None
