"""Waits of a request that end when its client disconnects."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import trio

from ottla.broker.requests.peer import Peer

T = TypeVar("T")


class PeerDisconnectedError(Exception):
    """Client disconnected while its request waited: no response is needed."""


async def wait_while_connected(peer: Peer, awaitable: Awaitable[T]) -> T:
    """Wait for ``awaitable`` and return its result, unless the client disconnects first.

    The connection never cancels a handler: a handler ends only in the waits that it wraps in this function.

    Raises:
        PeerDisconnectedError: the client has disconnected. The wait is cancelled.
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
