"""The transaction coordinator: which partition of `__transaction_state` holds an id, on every coordinator's runtime.

Source: ``TransactionCoordinator.scala``, ``TransactionStateManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from ottla.broker.config import NodeConfig
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde, Shard
from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.coordinator import partition_of
from ottla.broker.replica.replica import HostedPartition
from ottla.broker.replica.storage import DiskErrorHandler
from ottla.broker.txn import records as tr
from ottla.broker.txn.events import Marked, MarkersDue
from ottla.broker.txn.initialising import Fresh
from ottla.broker.txn.machine import TxnMachine, TxnSettings
from ottla.broker.txn.markers import Around, Markers
from ottla.broker.txn.records import TransactionRecord
from ottla.log.machine import StateMachine
from ottla.wire.errors import ProtocolError
from ottla.world.env import Env

TOPIC = "__transaction_state"
WRITE_TIMEOUT_MS = 60_000
"""What a record may take to be committed: a transaction's timeout where a producer does not set it."""


class TransactionCoordinator:
    """All transactional ids whose partition this node leads."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        count: Callable[[], int],
        level: Callable[[], int],
        fresh: Fresh,
        around: Around,
    ) -> None:
        """``count``: partitions of the topic, 0 for none; ``level``: the finalized transaction.version."""
        self._count = count
        self._fresh = fresh
        self.level = level
        self._partitions = config.number("transaction.state.log.num.partitions")
        """As long as there is no topic that says otherwise."""
        self.settings = TxnSettings(
            config.number("transaction.max.timeout.ms"),
            config.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            config.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            config.number("transactional.id.expiration.ms"),
        )
        self._markers = Markers(env, around, self._epoch_of, self._take)
        self._runtime: CoordinatorRuntime[TransactionRecord] = CoordinatorRuntime(
            env,
            timers,
            fail,
            TOPIC,
            self._machine,
            Serde(lambda record: tr.encode(record, level()), tr.decode, tr.form, base_sequence=-1),
            WRITE_TIMEOUT_MS,
            acks_all=True,
        )
        self.resign = self._runtime.resign
        self.shards = self._runtime.served

    def _machine(self) -> StateMachine[TransactionRecord]:
        return TxnMachine(self.settings, self._fresh, self.level, self._markers)

    async def run(self) -> None:
        """Load shards and send markers until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._runtime.run)
            nursery.start_soon(self._markers.run)

    # ------------------------------------------------------------------ leadership

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that holds an id."""
        return partition_of(transactional_id, self._count() or self._partitions)

    def lead(self, replica: HostedPartition) -> None:
        """Begin to serve a partition's ids."""
        if replica.topic == TOPIC:
            self._runtime.lead(replica)

    def advance(self, replica: HostedPartition) -> None:
        """A partition's high watermark has moved."""
        if replica.topic == TOPIC:
            self._runtime.advance(replica)

    # ------------------------------------------------------------------ requests

    def ask(self, transactional_id: str, event_of: Callable[[Ticket], Any]) -> Ticket:
        """Hand in an event about an id that carries a ticket; a refusal is an answer too: a `ProtocolError`."""
        return self._runtime.ask(self.partition_for(transactional_id), event_of)

    def shard_of(self, transactional_id: str) -> Shard[TransactionRecord]:
        """The shard of an id: for reading, with `machine_of`.

        Raises:
            ProtocolError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._runtime.shard(self.partition_for(transactional_id))

    # ------------------------------------------------------------------ markers

    def _ending(self, due: MarkersDue | Marked) -> Shard[TransactionRecord] | None:
        """The shard that ends a transaction; None where that is not this node's business any more.

        It is the one its id belongs to, unless the topic has got more partitions since.
        """
        name, pending = due.transactional_id, due.pending
        with suppress(ProtocolError):
            shard = self.shard_of(name)
            if machine_of(shard).pending.get(name) is pending:
                return shard
        for shard in self._runtime:
            if machine_of(shard).pending.get(name) is pending and self._runtime.is_served(shard):
                return shard
        return None

    def _epoch_of(self, due: MarkersDue) -> int | None:
        """The leader epoch markers are sent under; None where nobody here ends the transaction any more."""
        shard = self._ending(due)
        return None if shard is None else shard.replica.leader_epoch

    def _take(self, marked: Marked) -> None:
        shard = self._ending(marked)
        if shard is not None:  # else whoever leads the partition now sends them again
            shard.hand_in(marked)


def machine_of(shard: Shard[TransactionRecord]) -> TxnMachine:
    """A shard's transactions, to be read."""
    assert isinstance(shard.machine, TxnMachine)
    return shard.machine
