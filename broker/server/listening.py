"""Addresses to listen at, and what is said where one cannot be had."""

from __future__ import annotations

import os

from ottla.world.env import Env, Listener, SocketBuffers


class CannotListen(Exception):
    """An address cannot be listened at; the message names it and says why. Nothing was changed."""


async def listen(env: Env, host: str, port: int, buffers: SocketBuffers) -> Listener:
    """Listen at an address; port 0 takes a free one. ``buffers``: of each connection.

    Raises:
        CannotListen: it is taken, or not this machine's.
    """
    try:
        return await env.net.listen(host, port, buffers)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise CannotListen(f"cannot listen at {host or '*'}:{port}: {why}") from None
