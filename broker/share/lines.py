"""Connections of share groups to other brokers: one to each, with one call at a time."""

from __future__ import annotations

from typing import Any, Protocol

import trio

from ottla.broker.coordinator.patience import while_there
from ottla.controller.image import Image
from ottla.peers.access import Access
from ottla.peers.client import Standing
from ottla.wire.schema import Message
from ottla.world.env import Env

TIMEOUT_S = 30.0


class Around(Protocol):
    """What share groups have of their node where they speak to others."""

    @property
    def env(self) -> Env:
        """Clock and network."""

    @property
    def node_id(self) -> int:
        """Whose coordinator is in this process."""

    def image(self) -> Image:
        """The newest metadata."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Where a broker listens for others."""

    def access(self) -> Access:
        """What other brokers want of those who speak to them."""

    def create_state_topic(self) -> None:
        """Have `__share_group_state` made."""


class Lines:
    """To each broker the one connection, made with the first call."""

    def __init__(self, around: Around, client_id: str) -> None:
        self._around = around
        self._client_id = client_id
        self._lines: dict[int, tuple[Standing, trio.Lock]] = {}

    async def call(self, broker_id: int, request: Message, version: int | None = None) -> Any:
        """A broker's answer, once those before have theirs; one that leaves the cluster is not waited for.

        Raises:
            OSError, WireError: there is none.
        """
        if broker_id not in self._lines:
            line = Standing(self._around.env, self._client_id, TIMEOUT_S, access=self._around.access())
            self._lines[broker_id] = line, trio.Lock()
        line, free = self._lines[broker_id]
        async with free:
            address = self._around.address(broker_id)

            async def ask() -> Any:
                channel = await line.to(address, f"broker {broker_id}")
                return await channel.call(request, version)

            return await while_there(self._around.env, lambda: self._around.address(broker_id) == address, ask)

    def close(self) -> None:
        """Hang up everywhere."""
        for line, _ in self._lines.values():
            line.close()
