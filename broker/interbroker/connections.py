"""Connections of share groups to other brokers: one to each, with one call at a time.

Where one gets no answer, those who stand behind it get none either: a host that is cut off takes its time to fail, and
they would wait it out one after the other. Whoever comes later tries anew.

Source: ``InterBrokerSendThread.checkDisconnects`` (apache/kafka 4.3.1), which gives up all that is unsent the same way.
"""

from __future__ import annotations

from typing import Any, Protocol

import trio

from ottla.broker.interbroker.request_cancellation import cancel_if_broker_gone
from ottla.client.channel import Disconnected, ReconnectingConnection
from ottla.client.connection_security import ConnectionSecurity
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.wire.codec.schema import Message

TIMEOUT_S = 30.0


class InterBrokerDependencies(Protocol):
    """What share groups have of their node where they speak to others."""

    @property
    def env(self) -> Env:
        """Clock and network."""

    @property
    def node_id(self) -> int:
        """Whose coordinator is in this process."""

    def image(self) -> MetadataImage:
        """The newest metadata."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Where a broker listens for others."""

    def access(self) -> ConnectionSecurity:
        """What other brokers want of those who speak to them."""

    def create_state_topic(self) -> None:
        """Have `__share_group_state` made."""


class _BrokerConnection:
    """One connection, and whoever waits for it."""

    def __init__(self, standing: ReconnectingConnection) -> None:
        self.connection = standing
        self.lock = trio.Lock()
        self.failure_count = 0
        """How many calls were not answered."""
        self.last_failure = ""
        """What became of the last of them."""


class BrokerConnections:
    """To each broker the one connection, made with the first call."""

    def __init__(self, around: InterBrokerDependencies, client_id: str) -> None:
        self._dependencies = around
        self._client_id = client_id
        self._connections: dict[int, _BrokerConnection] = {}

    async def call(self, broker_id: int, request: Message, version: int | None = None) -> Any:
        """A broker's answer, once those before have theirs; one that leaves the cluster is not waited for.

        Raises:
            OSError, WireError: there is none; Disconnected: nor for the one before.
        """
        line = self._connections.get(broker_id)
        if line is None:
            made = ReconnectingConnection(
                self._dependencies.env, self._client_id, TIMEOUT_S, access=self._dependencies.access()
            )
            line = self._connections[broker_id] = _BrokerConnection(made)
        losses = line.failure_count
        async with line.lock:
            if line.failure_count != losses:
                raise Disconnected(line.last_failure)
            try:
                return await self._send(line.connection, broker_id, request, version)
            except OSError as error:
                line.failure_count += 1
                line.last_failure = str(error)
                raise

    async def _send(self, line: ReconnectingConnection, broker_id: int, request: Message, version: int | None) -> Any:
        address = self._dependencies.address(broker_id)

        async def ask() -> Any:
            channel = await line.channel_to(address, f"broker {broker_id}")
            return await channel.call(request, version)

        return await cancel_if_broker_gone(
            self._dependencies.env, lambda: self._dependencies.address(broker_id) == address, ask
        )

    def close(self) -> None:
        """Hang up everywhere."""
        for line in self._connections.values():
            line.connection.close()
