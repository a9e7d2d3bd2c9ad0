"""The way a leader's ISR changes take: AlterPartition to the active controller, one request at a time with all of them.

Source: ``AlterPartitionManager.java``, ``Partition.submitAlterPartition`` (apache/kafka 4.3.1); KIP-497.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio

from ottla.broker.replica.replica import Asked
from ottla.broker.replica.replicas import Replicas
from ottla.broker.turn import BACKGROUND_SLICE_MS, TimeSlice
from ottla.wire.errors import ProtocolError
from ottla.world.env import Env

logger = logging.getLogger("ottla.isr")
RETRY_S = 0.05
Key = tuple[bytes, int]


class Submits(Protocol):
    """The active controller, wherever it is."""

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Hand in a request; the answer comes when what it changed is committed."""


class IsrChanges:
    """Changes that wait for the controller, one a partition, and the look for members that are behind."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        controller: Submits,
        replicas: Replicas,
        broker_epoch: Callable[[], int],
        lag_max_ms: int,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._controller = controller
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._every_s = lag_max_ms / 2 / 1000
        self._unsent: dict[Key, Asked] = {}
        self._more = trio.Event()

    def ask(self, asked: Asked) -> None:
        """Have the controller asked. What was asked for under an earlier epoch and not sent yet is not sent."""
        self._unsent[asked.replica.topic_id, asked.replica.partition] = asked
        self._more.set()

    async def run(self) -> None:
        """Ask for what is to be asked for, until cancelled."""
        while True:
            if not self._unsent:
                self._more = trio.Event()
                await self._more.wait()
            sent = {key: asked for key, asked in self._unsent.items() if asked.is_current}
            self._unsent = {}
            if sent and not await self._send(sent):
                for key, asked in sent.items():
                    self._unsent.setdefault(key, asked)
                self._more.set()
            if self._unsent:
                await self._env.sleep(RETRY_S)

    async def shrink_now_and_then(self) -> None:
        """Look for members that have been behind for too long, until cancelled (R331)."""
        while True:
            await self._env.sleep(self._every_s)
            turn = TimeSlice(self._env, BACKGROUND_SLICE_MS)
            for replica in list(self._replicas):
                if replica.is_leader and not replica.is_alone:
                    replica.shrink(self._env.now_ms())
                await turn.maybe_yield()

    async def _send(self, sent: dict[Key, Asked]) -> bool:
        """One request; False where all of it must be sent again (R333)."""
        from ottla.broker.replica import alter_partition as asking  # a node alone never asks

        request = asking.request_of(self._node_id, self._broker_epoch(), sent)
        try:
            answer = await self._controller.submit(request, asking.VERSION)
        except (ProtocolError, OSError) as error:
            logger.info("the ISR could not be changed yet: %s", error)
            return False
        if answer.error_code:
            logger.warning("the controller takes no ISR change: error %d", answer.error_code)
            return False
        turn = TimeSlice(self._env, BACKGROUND_SLICE_MS)
        again = await turn.run(asking.taking(answer, sent, self._replicas, self._env.now_ms()))
        for key in again:
            self._unsent.setdefault(key, sent[key])
        return True
