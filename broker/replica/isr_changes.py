"""The way a leader's ISR changes take: AlterPartition to the active controller, one request at a time with all of them.

Source: ``AlterPartitionManager.java``, ``Partition.submitAlterPartition`` (apache/kafka 4.3.1); KIP-497.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio

from ottla.broker.replica.partition import Answered, IsrAnswer, PendingExpand
from ottla.broker.replica.replica import Asked
from ottla.broker.replica.replicas import Replicas
from ottla.broker.turn import BESIDE_MS, Turn
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import alter_partition as ap
from ottla.world.env import Env

logger = logging.getLogger("ottla.isr")
VERSION = 3
RETRY_S = 0.05
RECOVERING = 1
NAMED = 5
"""So many partitions are named when their ISR changes; after a node's return it may be all of its thousands."""
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
            turn = Turn(self._env, BESIDE_MS)
            for replica in list(self._replicas):
                if replica.is_leader and not replica.is_alone:
                    replica.shrink(self._env.now_ms())
                await turn.step()

    async def _send(self, sent: dict[Key, Asked]) -> bool:
        """One request; False where all of it must be sent again (R333)."""
        request = _request(self._node_id, self._broker_epoch(), sent)
        try:
            answer: ap.AlterPartitionResponse = await self._controller.submit(request, VERSION)
        except (ProtocolError, OSError) as error:
            logger.info("the ISR could not be changed yet: %s", error)
            return False
        if answer.error_code:
            logger.warning("the controller takes no ISR change: error %d", answer.error_code)
            return False
        rows = {(t.topic_id, p.partition_index): p for t in answer.topics for p in t.partitions}
        turn = Turn(self._env, BESIDE_MS)
        told: list[str] = []
        for key, asked in sent.items():
            row = rows.get(key)
            if row is None or self._take(asked, row, told) is Answered.AGAIN:
                self._unsent.setdefault(key, asked)
            await turn.step()
        if told:
            more = f", and {len(told) - NAMED} more" if len(told) > NAMED else ""
            logger.info("in sync now: %s%s", "; ".join(told[:NAMED]), more)
        return True

    def _take(self, asked: Asked, row: ap.AlterPartitionResponsePartitionData, told: list[str]) -> Answered:
        """What the controller said of one partition."""
        replica = asked.replica
        recovering = row.leader_recovery_state == RECOVERING
        answer = IsrAnswer(row.error_code, row.leader_epoch, row.partition_epoch, tuple(row.isr), recovering)
        outcome = replica.answered(asked, answer, self._env.now_ms())
        if outcome is Answered.TAKEN:
            if isinstance(asked.pending, PendingExpand):
                self._replicas.isr_expands += 1
            else:
                self._replicas.isr_shrinks += 1
            told.append(f"{replica.log.label} {', '.join(map(str, row.isr))}")
        elif outcome is not Answered.IGNORED:
            self._replicas.isr_failures += 1
            logger.info("%s: no other ISR, error %d: %s", replica.log.label, row.error_code, outcome.value)
        return outcome


def _request(node_id: int, broker_epoch: int, sent: dict[Key, Asked]) -> ap.AlterPartitionRequest:
    topics: dict[bytes, ap.AlterPartitionRequestTopicData] = {}
    for (topic_id, number), asked in sent.items():
        change = asked.change
        known = zip(change.isr, change.broker_epochs, strict=True)
        members = [ap.BrokerState(i, broker_epoch if i == node_id else epoch) for i, epoch in known]
        row = ap.AlterPartitionRequestPartitionData(
            number, change.leader_epoch, new_isr_with_epochs=members, partition_epoch=change.partition_epoch
        )
        topics.setdefault(topic_id, ap.AlterPartitionRequestTopicData(topic_id)).partitions.append(row)
    return ap.AlterPartitionRequest(node_id, broker_epoch, list(topics.values()))
