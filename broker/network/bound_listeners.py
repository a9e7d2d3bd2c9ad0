"""Listening sockets of a node, and the error of binding them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.config.listener_config import DEFAULT_LISTENER, ListenerAddress, parse_listener
from ottla.broker.config.node_config import NodeConfig
from ottla.controller.config.config_keys import METRICS_LISTENER
from ottla.controller.raft.quorum_config import ListenerEndpoint
from ottla.env.env import Env, StreamListener
from ottla.env.hosts import format_address

if TYPE_CHECKING:
    from ottla.env.tls import TlsConfig

METRICS_LISTENER_NAME = "METRICS"


class BindError(Exception):
    """Raised when a listener cannot be bound; the message has its address, or its name and a file, and the reason."""


class BoundListeners:
    """Listening sockets for clients and brokers, for controllers and for metrics; the console only uses `bind`."""

    def __init__(self, env: Env, config: NodeConfig) -> None:
        self._env, self._config = env, config
        self.clients: dict[str, StreamListener] = {}
        """Broker listeners by name, in the order of ``listeners``; empty on a node that is only a controller."""
        self.controllers: dict[str, StreamListener] = {}
        """Controller listeners by name, in the order of ``controller.listener.names``; empty without that role."""
        self.metrics: StreamListener | None = None

    @property
    def ports(self) -> dict[str, int]:
        """Ports of the broker listeners, by listener name."""
        return {name: x.port for name, x in self.clients.items()}

    @property
    def controller_ports(self) -> tuple[int, ...]:
        """Ports of the controller listeners, in their order."""
        return tuple(x.port for x in self.controllers.values())

    async def bind_clients(self) -> None:
        """Bind the listeners for clients and other brokers.

        Raises:
            BindError: as `bind`; sockets that are bound already stay open until `close`.
        """
        for at in self._config.client_listeners:
            self.clients[at.name] = await self.bind(at.host, at.port, at.name)

    async def bind_metrics(self) -> None:
        """Bind the metrics listener, if configured.

        Raises:
            BindError: as `bind`.
        """
        address = self._config.values.get(METRICS_LISTENER)
        if address:
            _, host, port = parse_listener(address)
            self.metrics = await self.bind(host, port, METRICS_LISTENER_NAME)

    async def bind_controllers(self, kept: Sequence[ListenerEndpoint] = ()) -> None:
        """Bind the controller listeners; for a configured port 0 the port of ``kept`` is used again if it is free.

        ``kept``: controller endpoints of this node at its last start.

        Raises:
            BindError: as `bind`.
        """
        ports = {x.name: x.port for x in kept}
        for at in self._config.controller_listeners:
            self.controllers[at.name] = await self._bind_previous_port(at, ports.get(at.name, 0))

    async def _bind_previous_port(self, at: ListenerAddress, before: int) -> StreamListener:
        if at.port == 0 and before:
            try:
                return await self.bind(at.host, before, at.name)
            except BindError:
                pass  # another port is chosen and sent to the other voters
        return await self.bind(at.host, at.port, at.name)

    async def bind(self, host: str, port: int, name: str = DEFAULT_LISTENER) -> StreamListener:
        """Bind a socket with the settings of the listener ``name``; the caller has to store and close it.

        Raises:
            BindError: The address is in use or not local, or the keys, the certificates or the Kerberos keytab of the
                listener cannot be used.
        """
        net, buffers = self._env.net, self._config.socket_buffers
        try:
            tls = self._tls(name)
            self._check_keytab(name)
            return await (net.listen(host, port, buffers) if tls is None else net.listen(host, port, buffers, tls))
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            if error.filename is not None:
                raise BindError(f"listener {name}: {error.filename}: {why}") from None
            raise BindError(f"Socket server failed to bind to {format_address(host or '*', port)}: {why}") from None

    def _check_keytab(self, name: str) -> None:
        """Check the Kerberos keytab of a listener with GSSAPI. Raises `BindError`."""
        protocol = self._config.security_protocol(name)
        if protocol.startswith("SASL"):
            # lazy: 16.2 ms, 349 kB
            from ottla.broker.security.authn.listener_security import check_keytab
            from ottla.env.kerberos import InvalidKeytab

            try:
                check_keytab(self._config.values, name, protocol, self._env)
            except InvalidKeytab as error:
                raise BindError(f"listener {name}: {error}") from None

    def _tls(self, name: str) -> TlsConfig | None:
        """Return the TLS settings of a listener; None without TLS. Raises `BindError`."""
        protocol = self._config.security_protocol(name)
        if not protocol.endswith("SSL"):
            return None
        # lazy: 15.8 ms, 349 kB: only with TLS
        from ottla.broker.security.authn.listener_security import listener_tls
        from ottla.client.security_config import InvalidSecurityConfig

        try:
            return listener_tls(self._config.values, name, protocol)
        except InvalidSecurityConfig as error:
            raise BindError(f"listener {name}: {error}") from None

    def close(self) -> None:
        """Close all listening sockets of this object, not those that callers of `bind` store."""
        every = [*self.clients.values(), *self.controllers.values()]
        for listener in [*every, *([self.metrics] if self.metrics is not None else [])]:
            listener.close()
