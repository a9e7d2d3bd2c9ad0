"""A request that is given up once whoever is asked is known to be gone.

A host that is cut off or without power answers nothing and refuses nothing: a connection to it takes minutes to fail,
an answer half a minute. The controller knows after a session, and what waits here is somebody else's by then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ottla.client.channel import Disconnected
from ottla.env.env import Env
from ottla.wire.errors import WireError

T = TypeVar("T")
LIVENESS_CHECK_INTERVAL_S = 1.0


async def cancel_if_broker_gone(env: Env, is_there: Callable[[], bool], ask: Callable[[], Awaitable[T]]) -> T:
    """What comes of asking. It is looked now and then whether it may still come.

    Raises:
        OSError, WireError: as ``ask``; Disconnected: they are gone, and it was broken off.
    """
    out: list[T] = []
    failed: OSError | WireError = Disconnected("it is not in the cluster any more")
    async with trio.open_nursery() as nursery:

        async def look() -> None:
            while is_there():
                await env.sleep(LIVENESS_CHECK_INTERVAL_S)
            nursery.cancel_scope.cancel()

        nursery.start_soon(look)
        try:
            out.append(await ask())
        except (OSError, WireError) as error:
            failed = error
        nursery.cancel_scope.cancel()
    if not out:
        raise failed
    return out[0]
