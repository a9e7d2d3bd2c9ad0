"""A broker's life as the controller sees it: it registers, leads, hands its leaderships back, and goes.

Source: ``BrokerLifecycleManager.java`` (apache/kafka 4.3.1).

Registration and heartbeats: KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.config import NodeConfig
from ottla.broker.metadata.applier import Applier
from ottla.broker.metadata.cache import LISTENER_NAME
from ottla.broker.replica.storage import Storage
from ottla.controller.driver import Controller
from ottla.wire.messages.metadata_records import BrokerEndpoint


class Lifecycle:
    """The registration this process holds."""

    def __init__(self, config: NodeConfig, controller: Controller, applier: Applier, storage: Storage) -> None:
        self._config = config
        self._controller = controller
        self._applier = applier
        self._storage = storage
        self.port = config.port
        """Where this node really listens."""
        self.broker_epoch = -1
        self.on_registered: list[Callable[[int], None]] = []
        """Called with the broker epoch once this node leads what it shall under it."""

    async def register(self) -> None:
        """Make this broker known, and wait until this node leads what the controller gave it.

        Raises:
            OSError: the metadata log could not be written.
        """
        config = self._config
        host, port = config.advertised() or (config.host or "localhost", self.port)
        self.broker_epoch = await self._controller.register_broker(
            self._storage.online_ids,
            [BrokerEndpoint(LISTENER_NAME, host, port, 0)],
            config.values.get("broker.rack"),
        )
        await self._applier.caught_up()
        for callback in self.on_registered:
            callback(self.broker_epoch)

    async def resign(self) -> None:
        """Hand every leadership back, and be fenced: a controlled shutdown.

        Raises:
            OSError: the metadata log could not be written.
        """
        await self._controller.resign_broker()
        await self._applier.caught_up()
