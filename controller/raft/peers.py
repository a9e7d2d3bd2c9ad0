"""Connections to the other controllers: one each, one request under way, versions asked for first.

Source: ``KafkaNetworkChannel.java``, ``RequestManager.java``, ``KafkaRaftManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from ottla.peers.access import Access
from ottla.peers.client import Channel, Standing
from ottla.wire.apis import ApiKey
from ottla.wire.errors import WireError
from ottla.wire.schema import Message
from ottla.world.env import Env

logger = logging.getLogger("ottla.controller")

BACKOFF_S = 0.05
BACKOFF_MAX_S = 0.5
"""Between two tries to connect (``reconnect.backoff``)."""

Encode = Callable[[int], Message]
"""Makes the request in a version."""
Done = Callable[[Any], None]
"""Hears the answer, or the OSError or WireError there was instead of one."""
Wanted = tuple[ApiKey, Encode, Done]


class Gone(OSError):
    """A peer refuses to be connected to: nobody listens there."""


class Unspoken(WireError):
    """The other side speaks no version that can say this."""


class _Peer:
    """One destination."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.wanted: list[Wanted] = []
        self.bell = trio.Event()
        self.failures = 0


async def _call(channel: Channel, key: ApiKey, encode: Encode) -> Any:
    """The answer, or `Unspoken`: then the connection is as good as before."""
    try:
        version = channel.version_for(key)
        message = encode(version)
    except WireError as error:
        return Unspoken(str(error))
    return await channel.call(message, version)


class Peers:
    """The other controllers, as they are dialled."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        timeout_ms: float,
        address_of: Callable[[int], tuple[str, int] | None],
        access: Callable[[], Access | None] = lambda: None,
    ) -> None:
        """``access``: what their listener wants."""
        self._env = env
        self._access = access
        self._client_id = f"raft-client-{node_id}"
        self._timeout_s = timeout_ms / 1000
        self._address_of = address_of
        self._peers: dict[int, _Peer] = {}
        self._new: list[int] = []
        self._bell = trio.Event()

    def ask(self, to: int, key: ApiKey, encode: Encode, done: Done) -> None:
        """Send a request when the one before is answered. One that waits behind another is replaced, and told so."""
        peer = self._peers.get(to)
        if peer is None:
            peer = self._peers[to] = _Peer(self._standing())
            self._new.append(to)
            self._bell.set()
        replaced, peer.wanted = peer.wanted, [(key, encode, done)]
        for _, _, told in replaced:
            told(OSError("another request was more urgent"))
        peer.bell.set()

    def _standing(self) -> Standing:
        return Standing(self._env, self._client_id, self._timeout_s, access=self._access())

    async def run(self) -> None:
        """Speak with whoever there is to speak with, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for to in self._new:
                    nursery.start_soon(self._speak, to, self._peers[to])
                self._new.clear()
                await self._bell.wait()
                self._bell = trio.Event()

    async def _speak(self, to: int, peer: _Peer) -> None:
        try:
            while True:
                await peer.bell.wait()
                peer.bell = trio.Event()
                while peer.wanted:
                    key, encode, done = peer.wanted.pop()
                    done(await self._answer(to, peer, key, encode))
                    if peer.failures:
                        await self._env.sleep(min(BACKOFF_S * 2 ** min(peer.failures - 1, 8), BACKOFF_MAX_S))
        finally:
            peer.standing.close()

    async def _answer(self, to: int, peer: _Peer, key: ApiKey, encode: Encode) -> Any:
        """The answer, or what went wrong. A connection that broke while it rested is made anew once."""
        rested = peer.standing.is_open
        for again in (rested, False):
            try:
                with self._env.timeout(self._timeout_s) as deadline:
                    channel = await peer.standing.to(self._address_of(to), f"controller {to}")
                    peer.failures = 0
                    return await _call(channel, key, encode)
                assert deadline.cancelled_caught
                error: Exception = OSError(f"no answer within {self._timeout_s:g} s")
                again = False
            except (OSError, WireError) as failed:
                error = Gone(str(failed)) if isinstance(failed, ConnectionRefusedError) else failed
            peer.standing.close()
            if not again:
                break
        if peer.failures == 0:
            logger.info("controller %d does not answer: %s", to, error)
        peer.failures += 1
        return error
