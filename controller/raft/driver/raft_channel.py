"""Network connections to the other controllers: one to each, with one request in flight, after ApiVersions.

Source: ``KafkaNetworkChannel.java``, ``RequestManager.java``, ``KafkaRaftManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from ottla.client.channel import Channel, ChannelTraffic
from ottla.client.connection_security import ConnectionSecurity
from ottla.client.node_connection import NodeConnection
from ottla.env.env import Env
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError

logger = logging.getLogger("ottla.controller")

BACKOFF_S = 0.05
BACKOFF_MAX_S = 0.5
"""Maximum backoff between two attempts to connect (``reconnect.backoff.max.ms``); the first is `BACKOFF_S`."""

EncodeRequest = Callable[[int], Message]
"""Function that creates the request message for an API version."""
OnResponse = Callable[[Any], None]
"""Callback with the response message, or with the OSError or WireError of the request."""
QueuedRequest = tuple[ApiKey, EncodeRequest, OnResponse]


class PeerConnectionRefusedError(OSError):
    """Error of a request: the connection to the controller was refused, as no process listens on its port."""


class UnsupportedByPeer(WireError):
    """Error of a request: no API version of the other controller supports it."""


class _PeerQueue:
    """Connection to one controller, and the request (at most one) that waits for it."""

    def __init__(self, connection: NodeConnection) -> None:
        self.connection = connection
        self.queued_requests: list[QueuedRequest] = []
        self.wakeup = trio.Event()
        self.failures = 0


async def _send_request(peer: _PeerQueue, key: ApiKey, encode: EncodeRequest, channel: Channel) -> Any:
    """Send a request on the open connection ``channel`` and return the response message.

    `UnsupportedByPeer` is returned, not raised: the connection is still usable.
    """
    peer.failures = 0
    try:
        version = channel.version_for(key)
        message = encode(version)
    except WireError as error:
        return UnsupportedByPeer(str(error))
    return await channel.call(message, version)


class RaftChannel:
    """Connections to the other controllers, each opened at the first request to its node id."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        timeout_ms: float,
        address_of: Callable[[int], tuple[str, int] | None],
        access: Callable[[], ConnectionSecurity | None] = lambda: None,
    ) -> None:
        """Create the channel without connections.

        ``timeout_ms``: maximum time of a request, with the time to connect. ``address_of``: returns host and port of a
        node id, None if unknown. ``access``: returns the security settings (TLS, SASL) of the controller listener, None
        for plaintext.
        """
        self._env = env
        self._access = access
        self._client_id = f"raft-client-{node_id}"
        self._timeout_s = timeout_ms / 1000
        self._address_of = address_of
        self.traffic = ChannelTraffic()
        """Requests and bytes of all connections since the start (``raft-channel-metrics``)."""
        self._peers: dict[int, _PeerQueue] = {}
        self._new_peers: list[int] = []
        self._wakeup = trio.Event()

    def send(self, to: int, key: ApiKey, encode: EncodeRequest, done: OnResponse) -> None:
        """Queue a request to node ``to``, sent after its previous one; ``done`` is called with the outcome.

        A request that still waits in the queue of that node is replaced, and fails with an OSError.
        """
        peer = self._peers.get(to)
        if peer is None:
            peer = self._peers[to] = _PeerQueue(self._create_connection(to))
            self._new_peers.append(to)
            self._wakeup.set()
        replaced, peer.queued_requests = peer.queued_requests, [(key, encode, done)]
        for _, _, callback in replaced:
            callback(OSError("superseded by a more urgent request"))
        peer.wakeup.set()

    def _create_connection(self, to: int) -> NodeConnection:
        address = partial(self._address_of, to)
        return NodeConnection(
            self._env,
            self._client_id,
            f"controller {to}",
            address,
            self._timeout_s,
            access=self._access,
            traffic=self.traffic,
        )

    async def run(self) -> None:
        """Connect to each node that has a request and send its requests, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for to in self._new_peers:
                    nursery.start_soon(self._run_peer, to, self._peers[to])
                self._new_peers.clear()
                await self._wakeup.wait()
                self._wakeup = trio.Event()

    async def _run_peer(self, to: int, peer: _PeerQueue) -> None:
        try:
            while True:
                await peer.wakeup.wait()
                peer.wakeup = trio.Event()
                while peer.queued_requests:
                    key, encode, done = peer.queued_requests.pop()
                    done(await self._request(to, peer, partial(_send_request, peer, key, encode)))
                    if peer.failures:
                        await self._env.sleep(min(BACKOFF_S * 2 ** min(peer.failures - 1, 8), BACKOFF_MAX_S))
        finally:
            peer.connection.close()

    async def _request(self, to: int, peer: _PeerQueue, send: Callable[[Channel], Awaitable[Any]]) -> Any:
        """Return the response or the error; if an idle connection turns out to be broken, reconnect and retry once."""
        rested = peer.connection.is_open
        for again in (rested, False):
            try:
                with self._env.timeout(self._timeout_s) as deadline:
                    return await peer.connection.exchange(send)
                assert deadline.cancelled_caught
                error: Exception = OSError(f"no response within {self._timeout_s:g} s")
                again = False
            except (OSError, WireError) as failed:
                error = (
                    PeerConnectionRefusedError(str(failed)) if isinstance(failed, ConnectionRefusedError) else failed
                )
            peer.connection.close()
            if not again:
                break
        if peer.failures == 0:
            logger.info("Connection to node %d could not be established or was lost: %s", to, error)
        peer.failures += 1
        return error
