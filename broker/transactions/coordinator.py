"""Transaction coordinator of a broker: submits events to the shard of a transactional id, runs the marker sender.

Source: ``TransactionCoordinator.scala``, ``TransactionStateManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.broker.transactions import records
from ottla.broker.transactions.events import MarkersRequested, MarkersWritten
from ottla.broker.transactions.init_producer_id import NewProducerId
from ottla.broker.transactions.marker_sender import MarkerSenderDependencies, TxnMarkerSender
from ottla.broker.transactions.records import TransactionRecord
from ottla.broker.transactions.state_machine import TransactionSettings, TransactionStateMachine
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.jobs.state_machine import StateMachine
from ottla.wire.errors import ProtocolError

TOPIC = "__transaction_state"
WRITE_TIMEOUT_MS = 60_000
"""Time within which an appended record must be committed, before its request fails."""


class TransactionCoordinator(CoordinatorRuntime[TransactionRecord]):
    """Transaction coordinator of this broker, for the transactional ids whose partition of its log it leads."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        image: Callable[[], MetadataImage],
        level: Callable[[], int],
        fresh: NewProducerId,
        around: MarkerSenderDependencies,
    ) -> None:
        """Initialize without shards.

        Args:
            env: environment (clock, disk, network).
            config: configuration of the node.
            timers: timers of the node.
            fail: called with a disk error of a log.
            image: returns the newest metadata image of this broker.
            level: returns the finalized transaction.version.
            fresh: returns a new producer id.
            around: dependencies of the marker sender.
        """
        self._new_producer_id = fresh
        self.transaction_version = level
        self.settings = TransactionSettings(
            config.number("transaction.max.timeout.ms"),
            config.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            config.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            config.number("transactional.id.expiration.ms"),
        )
        self._markers = TxnMarkerSender(env, around, self._epoch_of, self._on_markers_written)
        super().__init__(
            env,
            timers,
            fail,
            TOPIC,
            image,
            config.number("transaction.state.log.num.partitions"),
            self._new_state_machine,
            Serde(lambda record: records.encode(record, level()), records.decode, records.form, base_sequence=-1),
            WRITE_TIMEOUT_MS,
            acks_all=True,
        )

    def _new_state_machine(self) -> StateMachine[TransactionRecord]:
        return TransactionStateMachine(self.settings, self._new_producer_id, self.transaction_version, self._markers)

    async def run(self) -> None:
        """Load shards and send transaction markers until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().run)
            nursery.start_soon(self._markers.run)

    def _shard_ending(self, due: MarkersRequested | MarkersWritten) -> Shard[TransactionRecord] | None:
        """Return the shard that completes a transaction; None if this broker no longer coordinates it.

        It is the shard of its transactional id, unless partitions were added to `__transaction_state` since.
        """
        name, pending = due.transactional_id, due.pending_transition
        with suppress(ProtocolError):
            shard = self.shard_for(name)
            if state_machine_of(shard).pending_transitions.get(name) is pending:
                return shard
        for shard in self:
            if state_machine_of(shard).pending_transitions.get(name) is pending and self.is_served(shard):
                return shard
        return None

    def _epoch_of(self, due: MarkersRequested) -> int | None:
        """Return the coordinator epoch for markers: the leader epoch of the `__transaction_state` partition.

        None if this broker no longer coordinates the transaction.
        """
        shard = self._shard_ending(due)
        return None if shard is None else shard.replica.leader_epoch

    def _on_markers_written(self, marked: MarkersWritten) -> None:
        shard = self._shard_ending(marked)
        if shard is not None:  # otherwise the new leader of the partition sends them again
            shard.enqueue(marked)


def state_machine_of(shard: Shard[TransactionRecord]) -> TransactionStateMachine:
    """Return the state machine of a shard, for reading its transactions."""
    assert isinstance(shard.machine, TransactionStateMachine)
    return shard.machine
