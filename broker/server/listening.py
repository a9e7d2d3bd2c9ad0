"""Addresses to listen at, and what is said where one cannot be had."""

from __future__ import annotations

import os

from ottla.broker.addresses import parse_listener
from ottla.broker.config import NodeConfig
from ottla.controller.config_keys import METRICS_LISTENER
from ottla.world.env import Env, Listener, SocketBuffers


class CannotListen(Exception):
    """An address cannot be listened at; the message names it and says why. Nothing was changed."""


async def listen(env: Env, config: NodeConfig, listeners: list[Listener]) -> None:
    """Listen for clients, and for whoever reads the metrics where that is configured; adds to the listeners.

    Raises:
        CannotListen: an address is taken, or not this machine's.
    """
    listeners.append(await _listen(env, config.host, config.port, config.socket_buffers))
    address = config.values.get(METRICS_LISTENER)
    if address:
        _, host, port = parse_listener(address)
        listeners.append(await _listen(env, host, port, config.socket_buffers))


async def _listen(env: Env, host: str, port: int, buffers: SocketBuffers) -> Listener:
    try:
        return await env.net.listen(host, port, buffers)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise CannotListen(f"cannot listen at {host or '*'}:{port}: {why}") from None
