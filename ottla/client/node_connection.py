"""Client connection from one node of a cluster to another: opened by the first request, reopened after a failure.

Source: ``NetworkClient.java``, ``InterBrokerSendThread.java``, ``BrokerBlockingSender.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from ottla.client.channel import Channel, ChannelTraffic, Disconnected, connect, open_channel
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.env.env import FOREVER_S, Env
from ottla.env.hosts import format_address
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ProtocolError, WireError

T = TypeVar("T")
Address = tuple[str, int]
MAX_IDLE_MS = 540_000
"""Idle time in ms after which a connection is not reused: ``connections.max.idle.ms`` of Kafka's clients.

Listeners close idle connections one minute later by default, and a request sent then would fail.
"""


class NodeConnection:
    """Connection to one node, whose address may change. Requests are sent one at a time.

    When a request fails with an OSError, the requests queued behind it fail too, as
    ``InterBrokerSendThread.checkDisconnects`` fails unsent requests: otherwise each would wait for the timeout of an
    unreachable host. A later request reconnects.
    """

    def __init__(
        self,
        env: Env,
        client_id: str,
        name: str,
        address: Callable[[], Address | None],
        timeout_s: float,
        *,
        access: Callable[[], ConnectionSecurity | None] = lambda: None,
        negotiates: bool = True,
        check_interval_s: float = FOREVER_S,
        traffic: ChannelTraffic | None = None,
    ) -> None:
        """Create a connection, which the first request opens.

        Args:
            env: Clock and network.
            client_id: Client id of the requests.
            name: Name of the node in error messages.
            address: Returns the current (host, port) of the node; None while it is unknown, or no request may be sent.
            timeout_s: Maximum time to connect (including ApiVersions and authentication), and of each wait for bytes of
                a response.
            access: Returns the security settings of the node's listener; None: plaintext without SASL.
            negotiates: True to send ApiVersions first; else each request has an explicit version, and ApiVersions is
                only sent before a SASL login.
            check_interval_s: Interval of checks of ``address`` during a request, which fails when the address changes:
                an unreachable host sends no error, but the cluster detects it after the session timeout. By default
                there are none: only the next request connects to a new address.
            traffic: Counters of requests and bytes, which several connections may share; by default its own.
        """
        self._env = env
        self._client_id = client_id
        self._name = name
        self._address = address
        self._timeout_s = timeout_s
        self._access = access
        self._negotiates = negotiates
        self._check_interval_s = check_interval_s
        self.traffic = traffic or ChannelTraffic()
        self._channel: Channel | None = None
        self._channel_address: Address | None = None
        self._last_used_ms = 0.0
        self._lock = trio.Lock()
        self._failure_count = 0
        self._last_failure = ""

    @property
    def is_open(self) -> bool:
        """True if the connection is open; a disconnection that no request has noticed yet does not count."""
        return self._channel is not None and not self._channel.closed

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return its response; ``version`` None: the newest that both nodes support.

        Raises:
            OSError, WireError: as `exchange`.
        """
        return await self.exchange(lambda channel: channel.call(request, version))

    async def exchange(self, send: Callable[[Channel], Awaitable[T]]) -> T:
        """Call ``send`` with the open connection, after requests that were queued before, and return its result.

        Raises:
            Disconnected: the address is unknown, a check found that it has changed during the request, or a request
                that was queued before failed.
            OSError, WireError, ProtocolError: as `open_channel` or ``send``.
        """
        if self._lock.locked():
            failure_count = self._failure_count
            await self._lock.acquire()
        else:
            failure_count = self._failure_count
            self._lock.acquire_nowait()
        try:
            if self._failure_count != failure_count:
                raise Disconnected(self._last_failure)
            try:
                result = await self._exchange(send)
            except OSError as error:
                self._failure_count += 1
                self._last_failure = str(error)
                raise
            self._last_used_ms = self._env.monotonic_ms()
            return result
        finally:
            self._lock.release()

    async def _exchange(self, send: Callable[[Channel], Awaitable[T]]) -> T:
        address = self._address()
        if address is None:
            self.close()
            raise Disconnected(f"the address of {self._name} is not known")
        if self._check_interval_s == FOREVER_S:
            return await send(await self._connect(address))
        out: list[T] = []
        failure: Exception = Disconnected(f"{self._name} is no longer at {format_address(*address)}")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_moved, address, nursery.cancel_scope)
            try:
                out.append(await send(await self._connect(address)))
            except (OSError, WireError, ProtocolError) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if not out:
            raise failure
        return out[0]

    async def _cancel_when_moved(self, address: Address, scope: trio.CancelScope) -> None:
        while self._address() == address:
            await self._env.sleep(self._check_interval_s)
        scope.cancel()

    async def _connect(self, address: Address) -> Channel:
        """Return the open connection to ``address``; open it if it is closed, idle too long or to another one.

        Raises:
            OSError, WireError: as `open_channel`; `Disconnected` after the timeout.
        """
        if (
            self._channel is not None
            and not self._channel.closed
            and self._channel_address == address
            and self._env.monotonic_ms() - self._last_used_ms < MAX_IDLE_MS
        ):
            return self._channel
        self.close()
        with self._env.timeout(self._timeout_s):
            access = self._access() or NO_SECURITY
            if self._negotiates or access.login is not None:
                channel = await open_channel(self._env, address, self._client_id, self._timeout_s, access, self.traffic)
            else:
                stream = await connect(self._env, address, self._timeout_s, access)
                channel = Channel(stream, self._client_id, self._timeout_s, self.traffic)
            self._channel, self._channel_address = channel, address
            self._last_used_ms = self._env.monotonic_ms()
            return channel
        raise Disconnected(f"{self._name} did not answer in time")

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
