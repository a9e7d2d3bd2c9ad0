"""Factory of a node's share group components, created on first use.

Source: ``BrokerServer.startup`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.broker.coordinator.timers import Timers
from ottla.broker.interbroker.credentials import inter_broker_access
from ottla.broker.services import BrokerServices
from ottla.broker.share_partitions.partition_metadata_client import PartitionMetadataClient
from ottla.broker.share_partitions.share_partition_manager import SharePartitionManager
from ottla.broker.share_state.coordinator import ShareCoordinator
from ottla.broker.share_state.persister import Persister
from ottla.client.connection_security import ConnectionSecurity
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env


class _NodeInterBrokerDependencies:
    """Dependencies of the share state persister and the metadata client: clock, image, access to other brokers."""

    def __init__(self, services: BrokerServices, listener: str) -> None:
        self._services = services
        self._listener = listener

    @property
    def env(self) -> Env:
        return self._services.env

    @property
    def node_id(self) -> int:
        return self._services.config.node_id

    def image(self) -> MetadataImage:
        return self._services.replica_manager.image

    def address(self, broker_id: int) -> tuple[str, int] | None:
        return self.image().unfenced_broker_address(broker_id, self._listener)

    def access(self) -> ConnectionSecurity:
        return inter_broker_access(self._services.config)

    def create_state_topic(self) -> None:
        self._services.controller_forwarder.create_share_topic()


def create_share_partition_manager(
    services: BrokerServices, timers: Timers, listener: str, start: Callable[[Callable[[], Awaitable[None]]], None]
) -> SharePartitionManager:
    """Return a manager without share partitions, not started; ``listener``: name of the inter-broker listener.

    ``start`` starts a background task.
    """
    around = _NodeInterBrokerDependencies(services, listener)
    coordinator = ShareCoordinator(
        services.env, services.config, timers, services.fail, around.image, services.log_dirs
    )
    persister, latest = Persister(around, coordinator), PartitionMetadataClient(around, services.replica_manager)
    return SharePartitionManager(
        services.env,
        services.config,
        timers,
        services.replica_manager,
        persister,
        coordinator,
        latest,
        start,
        services.purgatory.check_and_complete,
        services.fail,
    )
