"""Connections of share groups to other brokers: one to each, with one call at a time.

Where one gets no answer, those who stand behind it get none either: a host that is cut off takes its time to fail, and
they would wait it out one after the other. Whoever comes later tries anew.

Source: ``InterBrokerSendThread.checkDisconnects`` (apache/kafka 4.3.1), which gives up all that is unsent the same way.
"""

from __future__ import annotations

from typing import Any, Protocol

import trio

from ottla.broker.coordinator.patience import while_there
from ottla.controller.image import MetadataImage
from ottla.peers.access import Access
from ottla.peers.client import Disconnected, Standing
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

    def image(self) -> MetadataImage:
        """The newest metadata."""

    def address(self, broker_id: int) -> tuple[str, int] | None:
        """Where a broker listens for others."""

    def access(self) -> Access:
        """What other brokers want of those who speak to them."""

    def create_state_topic(self) -> None:
        """Have `__share_group_state` made."""


class _Line:
    """One connection, and whoever waits for it."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.free = trio.Lock()
        self.losses = 0
        """How many calls were not answered."""
        self.why = ""
        """What became of the last of them."""


class Lines:
    """To each broker the one connection, made with the first call."""

    def __init__(self, around: Around, client_id: str) -> None:
        self._around = around
        self._client_id = client_id
        self._lines: dict[int, _Line] = {}

    async def call(self, broker_id: int, request: Message, version: int | None = None) -> Any:
        """A broker's answer, once those before have theirs; one that leaves the cluster is not waited for.

        Raises:
            OSError, WireError: there is none; Disconnected: nor for the one before.
        """
        line = self._lines.get(broker_id)
        if line is None:
            made = Standing(self._around.env, self._client_id, TIMEOUT_S, access=self._around.access())
            line = self._lines[broker_id] = _Line(made)
        losses = line.losses
        async with line.free:
            if line.losses != losses:
                raise Disconnected(line.why)
            try:
                return await self._ask(line.standing, broker_id, request, version)
            except OSError as error:
                line.losses += 1
                line.why = str(error)
                raise

    async def _ask(self, line: Standing, broker_id: int, request: Message, version: int | None) -> Any:
        address = self._around.address(broker_id)

        async def ask() -> Any:
            channel = await line.to(address, f"broker {broker_id}")
            return await channel.call(request, version)

        return await while_there(self._around.env, lambda: self._around.address(broker_id) == address, ask)

    def close(self) -> None:
        """Hang up everywhere."""
        for line in self._lines.values():
            line.standing.close()
