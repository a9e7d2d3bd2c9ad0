"""Builders of the metadata subsystem: controller, metadata cache, publisher, broker lifecycle and forwarding.

Source: ``SharedServer.scala``, ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.interbroker.controller_channel import ControllerChannel
from ottla.broker.metadata.broker_lifecycle import BrokerLifecycleManager
from ottla.broker.metadata.cache import MetadataCache
from ottla.broker.metadata.controller_forwarder import ControllerForwarder, StartInBackground
from ottla.broker.metadata.directory_assignments import DirectoryAssignments
from ottla.broker.metadata.producer_id_manager import ProducerIdManager
from ottla.broker.metadata.publisher import BrokerMetadataPublisher
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.log_dirs import LogDirs
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.quorum_controller import QuorumController
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.env.env import Env, steady_env
from ottla.log.directory.meta_properties import MetaProperties


class ControllerComponents(NamedTuple):
    """Controller of this process, and what its broker reads from it and sends to the active controller."""

    controller: QuorumController
    cache: MetadataCache
    create_channel: partial[ControllerChannel]
    """Builder of a channel to the active controller; its only argument is the timeout of the requests in seconds."""


def load_controller(
    env: Env,
    config: NodeConfig,
    storage: LogDirs,
    identity: MetaProperties,
    quorum: QuorumConfig,
    fail: Callable[[OSError], None],
) -> ControllerComponents:
    """Return the controller with the metadata of its log loaded; it does not run yet.

    Raises:
        IncompatibleQuorum, CorruptFile, WireError, OSError: the metadata cannot be read, or belongs to another quorum.
    """
    defaults = ControllerDefaults(
        config.number("num.partitions"), config.number("default.replication.factor"), static_config=config.values
    )
    controller = QuorumController(steady_env(env), storage.metadata, identity, defaults, fail, quorum)
    controller.load()
    cache = MetadataCache(config, identity.cluster_id, lambda: controller.kraft_version)
    channel = partial(ControllerChannel, env, config.node_id, controller, quorum.listener, access=quorum.access)
    return ControllerComponents(controller, cache, channel)


class MetadataComponents(NamedTuple):
    """Components that apply metadata on this broker, and that change it through the active controller."""

    publisher: BrokerMetadataPublisher
    controller_forwarder: ControllerForwarder
    lifecycle: BrokerLifecycleManager
    directory_assignments: DirectoryAssignments
    producer_ids: ProducerIdManager


def create_metadata(
    env: Env,
    config: NodeConfig,
    controlled: ControllerComponents,
    storage: LogDirs,
    replicas: ReplicaManager,
    log_creator: LogCreator,
    start: StartInBackground,
) -> MetadataComponents:
    """Return the metadata components; ``start`` starts the creation of internal topics and of producer id blocks."""
    controller, cache, create_channel = controlled
    publisher = BrokerMetadataPublisher(env, config, cache, replicas, log_creator)
    forwarding, heartbeats = create_channel(), create_channel(config.number("broker.session.timeout.ms") / 2000)
    lifecycle = BrokerLifecycleManager(env, config, heartbeats, cache, publisher, storage, lambda: controller.image)
    directories = DirectoryAssignments(env, config.node_id, create_channel(), cache, storage)
    producer_ids = ProducerIdManager(forwarding, config.node_id, start)
    publisher.subscribe(lifecycle.publish)
    lifecycle.on_registered += [producer_ids.set_broker_epoch, lambda _: directories.wake()]
    forwarder = ControllerForwarder(forwarding, config, start, publisher.wait_applied_and_created)
    return MetadataComponents(publisher, forwarder, lifecycle, directories, producer_ids)
