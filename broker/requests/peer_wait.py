"""Waits of a request that are cancelled when its client disconnects."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import trio

from ottla.broker.requests.peer import Peer

T = TypeVar("T")


class PeerDisconnectedError(Exception):
    """Raised when the client disconnected while its request waited: no response is needed."""


async def wait_while_connected(peer: Peer, awaitable: Awaitable[T]) -> T:
    """Wait for ``awaitable`` and return its result, unless the client disconnects first.

    The connection never cancels a handler: a handler is only interrupted in waits wrapped in this function.

    Raises:
        PeerDisconnectedError: The client has disconnected; the wait was cancelled.
    """
    watch, peer.watch_disconnect = peer.watch_disconnect, None
    if watch is not None:
        watch(peer.mark_disconnected)
    with trio.CancelScope() as scope:
        unsubscribe = peer.on_close(scope.cancel)
        try:
            return await awaitable
        finally:
            unsubscribe()
    raise PeerDisconnectedError
