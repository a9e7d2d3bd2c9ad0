"""Start and stop of the web console's HTTP listener, together with the node in whose process it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

import trio

from ottla.broker.components.http_endpoints import allowed_hosts
from ottla.broker.config.limits import CONSOLE_TIMEOUT_S, MAX_CONSOLE_BODY_BYTES, MAX_CONSOLE_CONNECTIONS
from ottla.broker.config.listener_config import ConfigException, parse_listener
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.network.http.http_server import HttpLimits, HttpServer
from ottla.broker.node import Node
from ottla.broker.security.authn.listener_security import listener_tls
from ottla.client.http_client import is_http_url
from ottla.client.security_config import InvalidSecurityConfig
from ottla.console.console_app import LISTENER_NAME, Console
from ottla.controller.config.config_keys import CONSOLE_LISTENER, CONSOLE_SCHEMA_REGISTRY
from ottla.env.env import SYSTEM_BUFFERS, StreamListener
from ottla.env.hosts import format_address
from ottla.env.tls import TlsConfig
from ottla.jobs.supervision import supervise

logger = logging.getLogger("ottla.console")

LIMITS = HttpLimits(MAX_CONSOLE_CONNECTIONS, MAX_CONSOLE_BODY_BYTES, CONSOLE_TIMEOUT_S)


class ConsoleListener:
    """Listener of the console: parsed setting, and the socket once it is bound."""

    def __init__(self, config: NodeConfig) -> None:
        """Parse ``ottla.console.listener``.

        Raises:
            ConfigException: the setting is not an address, or ``ottla.console.schema.registry`` is not a URL.
        """
        text = config.values[CONSOLE_LISTENER]
        scheme, self.host, self.port = parse_listener(text)
        if "://" in text and scheme not in ("HTTP", "HTTPS"):
            raise ConfigException(f"{CONSOLE_LISTENER}={text}: HOST:PORT or https://HOST:PORT expected")
        registry = config.values.get(CONSOLE_SCHEMA_REGISTRY)
        if registry and not is_http_url(registry):
            raise ConfigException(f"{CONSOLE_SCHEMA_REGISTRY} must be a URL http://HOST:PORT or https://HOST:PORT")
        self.is_secure = scheme == "HTTPS"
        self._config = config
        self.tls: TlsConfig | None = None
        self.listener: StreamListener | None = None

    @property
    def address(self) -> str:
        """URL of the console for browsers."""
        port = self.port if self.listener is None else self.listener.port
        return f"{'https' if self.is_secure else 'http'}://{format_address(self.host or 'localhost', port)}/"

    async def bind(self, node: Node) -> None:
        """Bind the address; if that fails, or the TLS settings are invalid, log a warning and leave `listener` None."""
        try:
            if self.is_secure:
                self.tls = listener_tls(self._config.values, LISTENER_NAME, "SSL")
            net = node.env.net
            self.listener = await net.listen(self.host, self.port, SYSTEM_BUFFERS, self.tls)
        except (OSError, InvalidSecurityConfig) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            where = format_address(self.host or "*", self.port)
            logger.warning("Console is not available: cannot bind to %s: %s", where, reason)


async def run_with_console(
    node: Node, config: NodeConfig, ready: Callable[[Node], None] | None = None, stop: trio.Event | None = None
) -> None:
    """Run a node as `Node.run` does, and serve its console while the node serves.

    The node runs without a console if it has no listener for clients, or the console's address cannot be bound.

    Args:
        node: node that was not started.
        config: settings of the node.
        ready: called once when the node serves.
        stop: event that stops the console, after its pending requests, and then the node; None: it is not stopped so.

    Raises:
        ConfigException: ``ottla.console.listener`` or ``ottla.console.schema.registry`` is invalid. Others as
            `Node.run`, within an ExceptionGroup.
    """
    console_listener, node_stop = ConsoleListener(config), trio.Event()
    if config.client_listeners:
        await console_listener.bind(node)
    else:
        logger.warning("Console is not available: the node has no listener for clients")
    serving, is_idle = trio.CancelScope(), trio.Event()
    is_idle.set()

    async def serve(running: Node) -> None:
        try:
            with serving:
                await _serve(running, console_listener)
        finally:
            is_idle.set()

    async with trio.open_nursery() as nursery:

        def node_ready(running: Node) -> None:
            nonlocal is_idle
            if console_listener.listener is not None:
                is_idle = trio.Event()
                nursery.start_soon(serve, running)
            if ready is not None:
                ready(running)

        async def stop_console_first() -> None:
            """Stop the console, wait for its pending requests, then stop the node."""
            assert stop is not None
            await stop.wait()
            serving.cancel()
            await is_idle.wait()
            node_stop.set()

        if stop is not None:
            nursery.start_soon(stop_console_first)
        try:
            await node.run(node_ready, node_stop)
        finally:
            if console_listener.listener is not None:
                console_listener.listener.close()
        nursery.cancel_scope.cancel()


async def _serve(node: Node, console_listener: ConsoleListener) -> None:
    """Serve the console of a started node, and sample its traffic and its groups, until cancelled."""
    listener, components, env = console_listener.listener, node.components, node.env
    assert listener is not None
    assert components is not None
    console = Console(env, components, listener.port, tls=console_listener.tls)
    hosts = allowed_hosts(node.config, CONSOLE_LISTENER)
    server = HttpServer(env, console.find_handler, hosts, LIMITS, is_secure=console_listener.is_secure)
    logger.info("Console: %s", console_listener.address)
    unsubscribe = components.publisher.subscribe(console.node.metadata_changes.publish)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, env, "console", partial(server.serve, listener))
            nursery.start_soon(supervise, env, "traffic history of the console", console.node.traffic.run)
            nursery.start_soon(supervise, env, "rebalance history of the console", console.node.rebalances.run)
            nursery.start_soon(supervise, env, "long polls of the console", console.node.leader_polls.run)
    finally:
        unsubscribe()
        console.node.local.close()
