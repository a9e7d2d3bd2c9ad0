"""Builder of tiered storage (KIP-405), on a broker with ``remote.log.storage.system.enable``.

Source: ``BrokerServer.createRemoteLogManager`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.broker.config.listener_config import ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.interbroker.connections import BrokerConnections
from ottla.broker.interbroker.credentials import inter_broker_access
from ottla.broker.metadata.controller_forwarder import ControllerForwarder, StartInBackground
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.broker.storage.tiered.chunk_cache import ReadAhead
from ottla.broker.storage.tiered.metadata_topic_client import MetadataTopicClient
from ottla.broker.storage.tiered.remote_log_manager import RemoteLogDependencies, RemoteLogManager
from ottla.broker.storage.tiered.remote_log_manager_config import (
    InvalidMetadataTopicConfig,
    RemoteLogMetadataTopicConfig,
    parse_metadata_topic_config,
    remote_log_manager_config,
)
from ottla.broker.storage.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC
from ottla.broker.storage.tiered.remote_storage import RemoteStorage
from ottla.broker.storage.tiered.topic_based_metadata_manager import TopicBasedRemoteLogMetadataManager
from ottla.env.env import Env
from ottla.log.partition_log import PartitionLog

OpenStorage = Callable[[], RemoteStorage]
STANDALONE_TOPIC = RemoteLogMetadataTopicConfig(replication_factor=1, min_isr=1)
"""Defaults of the metadata topic on a single node, as for the other internal topics."""


def create_remote_log_manager(
    env: Env,
    config: NodeConfig,
    setting: Callable[[str], str],
    storage: LogDirs,
    replicas: ReplicaManager,
    purgatory: Purgatory,
    forwarder: ControllerForwarder,
    fail: DiskErrorHandler,
    start: StartInBackground,
) -> RemoteLogManager:
    """Return the manager, without partitions.

    Args:
        env: Environment.
        config: Settings of the node.
        setting: Function that returns the current value of a broker setting, "" if unset.
        storage: Log directories.
        replicas: Partitions that this broker hosts; the manager subscribes to their changes.
        purgatory: Delayed operations of the broker.
        forwarder: Creator of the metadata topic.
        fail: Handler of disk errors.
        start: Function that starts a task in the background.

    Raises:
        ConfigException: A setting of the metadata topic is invalid.
    """
    settings = partial(remote_log_manager_config, setting)
    listener = settings().metadata_listener or config.inter_broker_listener

    def address(broker_id: int) -> tuple[str, int] | None:
        return replicas.image.unfenced_broker_address(broker_id, listener)

    def connect(client_id: str) -> BrokerConnections:
        return BrokerConnections(env, client_id, address, partial(inter_broker_access, config))

    defaults = STANDALONE_TOPIC if config.is_standalone else RemoteLogMetadataTopicConfig()
    try:
        topic = parse_metadata_topic_config(config.values, settings().metadata_prefix, defaults)
    except InvalidMetadataTopicConfig as error:
        raise ConfigException(str(error)) from None
    client = MetadataTopicClient(
        env, config.node_id, replicas, purgatory, fail, connect, config.number("request.timeout.ms")
    )
    create = partial(
        forwarder.create_topic,
        REMOTE_LOG_METADATA_TOPIC,
        topic.num_partitions,
        topic.replication_factor,
        topic.topic_configs,
    )
    metadata = TopicBasedRemoteLogMetadataManager(env, client, topic, create)

    async def persist_log_start(log: PartitionLog) -> None:
        """Write the log start offset of a log to its checkpoint. Raises OSError."""
        directory = storage.directory_of(log)
        try:
            directory.checkpoints.write_log_start_offsets([log])
        except OSError as error:
            fail(error, directory)
            raise

    made = RemoteLogManager(
        RemoteLogDependencies(
            env,
            config.node_id,
            replicas,
            metadata,
            partial(_open_storage, env, config, settings().storage_prefix),
            settings,
            persist_log_start,
            fail,
            start,
        )
    )
    replicas.on_leader.append(made.on_leader)
    replicas.on_follower.append(made.on_follower)
    replicas.on_resigned.append(made.on_resigned)
    return made


def _open_storage(env: Env, config: NodeConfig, prefix: str, read_ahead: ReadAhead) -> RemoteStorage:
    """Open the remote store of the settings.

    A simulated environment has a store of its own (`open_remote_storage`).

    Raises:
        ConfigException: A setting is invalid; OSError: the cache directory cannot be used.
    """
    simulated: OpenStorage | None = getattr(env, "open_remote_storage", None)
    if simulated is not None:
        return simulated()
    # lazy: 20 ms, 600 kB
    from ottla.broker.storage.tiered.cloud_store import InvalidStoreError
    from ottla.broker.storage.tiered.store_settings import open_remote_storage, parse_store_settings, store_values

    try:
        return open_remote_storage(parse_store_settings(store_values(config.values, prefix)), env.disk, read_ahead)
    except InvalidStoreError as error:
        raise ConfigException(str(error)) from None
