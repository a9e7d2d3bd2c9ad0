"""Sender of a leader's ISR changes: one AlterPartition request at a time to the active controller.

Source: ``AlterPartitionManager.java``, ``Partition.submitAlterPartition`` (apache/kafka 4.3.1); KIP-497.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio

from ottla.broker.replication.hosted_partition import PendingIsrChange
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import ErrorCode, ProtocolError

logger = logging.getLogger("ottla.isr")
RETRY_S = 0.05
PartitionKey = tuple[bytes, int]


class AlterPartitionSubmitter(Protocol):
    """Interface of the channel to the active controller, in this process or over the network."""

    async def submit(self, request: Any, version: int = 0) -> Any:
        """Send a request to the active controller; return its response, once the changes are committed.

        ``version``: the newest version to use; 0 means the newest that both sides support.

        Raises:
            ProtocolError: REQUEST_TIMED_OUT without a response in time, or the request is rejected; in both cases its
                changes may be committed all the same.
            OSError: the metadata log of this node could not be written.
        """


class AlterPartitionSender:
    """Sender of pending ISR changes, at most one for each partition; it also checks for lagging ISR members."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        controller: AlterPartitionSubmitter,
        replicas: ReplicaManager,
        broker_epoch: Callable[[], int],
        lag_max_ms: int,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._controller = controller
        self._replica_manager = replicas
        self._broker_epoch = broker_epoch
        self._expiration_interval_s = lag_max_ms / 2 / 1000
        self._unsent: dict[PartitionKey, PendingIsrChange] = {}
        self._wakeup = trio.Event()

    def submit(self, pending: PendingIsrChange) -> None:
        """Enqueue an ISR change for the task of `run`, replacing an unsent one of the same partition."""
        self._unsent[pending.replica.topic_id, pending.replica.partition] = pending
        self._wakeup.set()

    async def run(self) -> None:
        """Send the queued ISR changes, until cancelled: all of them in one request, and one request at a time.

        Changes that a newer leader state replaced are dropped. A failed request is repeated after `RETRY_S`.
        """
        while True:
            if not self._unsent:
                self._wakeup = trio.Event()
                await self._wakeup.wait()
            sent = {key: pending for key, pending in self._unsent.items() if pending.is_current}
            self._unsent = {}
            if sent and not await self._send(sent):
                for key, pending in sent.items():
                    self._unsent.setdefault(key, pending)
                self._wakeup.set()
            if self._unsent:
                await self._env.sleep(RETRY_S)

    async def run_isr_expiration(self) -> None:
        """Request the removal of lagging members from the ISRs of led partitions, until cancelled (R-331).

        Checks every half ``replica.lag.time.max.ms``.
        """
        while True:
            await self._env.sleep(self._expiration_interval_s)
            await run_in_background(self._env, self._maybe_shrink_isrs())

    def _maybe_shrink_isrs(self) -> Job[None]:
        for replica in list(self._replica_manager):
            if replica.is_leader and not replica.is_sole_replica:
                replica.maybe_shrink_isr(self._env.now_ms())
            yield None

    async def _send(self, sent: dict[PartitionKey, PendingIsrChange]) -> bool:
        """Send one AlterPartition request and apply its response; return False if all must be sent again (R-333).

        Then nothing was applied. Single changes that must be sent again are enqueued here.
        """
        # lazy: 1.2 ms, 33 kB: only in a cluster
        from ottla.broker.replication import alter_partition_messages as asking

        request = asking.build_alter_partition_request(self._node_id, self._broker_epoch(), sent)
        try:
            answer = await self._controller.submit(request, asking.ALTER_PARTITION_VERSION)
        except (ProtocolError, OSError) as error:
            logger.info("Failed to send AlterPartition to the controller, retrying: %s", error)
            return False
        if answer.error_code:
            logger.warning("Failed to update ISR: the controller returned %s", ErrorCode(answer.error_code).name)
            return False
        applied = asking.apply_alter_partition_response(answer, sent, self._replica_manager, self._env.now_ms())
        again = await run_in_background(self._env, applied)
        for key in again:
            self._unsent.setdefault(key, sent[key])
        return True
