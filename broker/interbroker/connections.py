"""Connections to other brokers for transactions, share groups, `__remote_log_metadata` and the console.

Each user has a `BrokerConnections` of its own, with one connection to each broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from ottla.client.channel import Channel
from ottla.client.connection_security import ConnectionSecurity
from ottla.client.node_connection import NodeConnection
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.wire.codec.schema import Message

T = TypeVar("T")
TIMEOUT_S = 30.0
LIVENESS_CHECK_INTERVAL_S = 1.0
"""Interval in seconds of checks whether a broker that owes a response is still in the cluster."""


class InterBrokerDependencies(Protocol):
    """Clock, metadata and addresses of brokers that requests of share groups to other brokers need."""

    @property
    def env(self) -> Env:
        """Environment of this node: clock, disk and network."""

    @property
    def node_id(self) -> int:
        """``node.id`` of this broker, to which no request is sent over a connection."""

    def image(self) -> MetadataImage:
        """Return the newest metadata image that this broker has begun to apply."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Return host and port of a broker's inter-broker listener; None while it is fenced or unknown."""

    def access(self) -> ConnectionSecurity:
        """Return the security settings of the inter-broker listener."""

    def create_state_topic(self) -> None:
        """Start the creation of `__share_group_state` in the background."""


class BrokerConnections:
    """Connections to other brokers, each opened by its first request, with one request at a time.

    Requests to a broker that leaves fail.
    """

    def __init__(
        self,
        env: Env,
        client_id: str,
        address: Callable[[int], tuple[str, int] | None],
        access: Callable[[], ConnectionSecurity | None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Create the object without connections.

        ``address`` returns a broker's address, None while it is fenced or unknown; ``access`` returns the security
        settings of the connections; ``timeout_s`` is the maximum time to connect, and of each wait for bytes of a
        response.
        """
        self._env = env
        self._client_id = client_id
        self._address = address
        self._access = access
        self._timeout_s = timeout_s
        self._connections: dict[int, NodeConnection] = {}

    async def call(self, broker_id: int, request: Message, version: int | None = None) -> Any:
        """Send a request to a broker and return its response; ``version`` None: the newest that both support.

        Raises:
            OSError, WireError, ProtocolError: See `NodeConnection.exchange`.
        """
        return await self.exchange(broker_id, lambda channel: channel.call(request, version))

    async def exchange(self, broker_id: int, send: Callable[[Channel], Awaitable[T]]) -> T:
        """Call ``send`` with the connection to a broker and return its result.

        Raises:
            OSError, WireError, ProtocolError: See `NodeConnection.exchange`.
        """
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = NodeConnection(
                self._env,
                self._client_id,
                f"broker {broker_id}",
                partial(self._address, broker_id),
                self._timeout_s,
                access=self._access,
                check_interval_s=LIVENESS_CHECK_INTERVAL_S,
            )
        return await connection.exchange(send)

    def close(self) -> None:
        """Close the connections to all brokers; a later request opens one again."""
        for connection in self._connections.values():
            connection.close()
