"""Transaction coordinator of a broker: submits events about a transactional id to the shard that holds it.

Source: ``TransactionCoordinator.scala``, ``TransactionStateManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import trio

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Serde, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.coordinator import partition_for_key
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.broker.transactions import records
from ottla.broker.transactions.events import MarkersRequested, MarkersWritten
from ottla.broker.transactions.init_producer_id import NewProducerId
from ottla.broker.transactions.marker_sender import MarkerSenderDependencies, TxnMarkerSender
from ottla.broker.transactions.records import TransactionRecord
from ottla.broker.transactions.state_machine import TransactionSettings, TransactionStateMachine
from ottla.env.env import Env
from ottla.jobs.state_machine import StateMachine
from ottla.wire.errors import ProtocolError

TOPIC = "__transaction_state"
WRITE_TIMEOUT_MS = 60_000
"""Time within which an appended record must be committed, before its request fails."""


class TransactionCoordinator:
    """Transaction coordinator of this broker, for the transactional ids whose partition of its log it leads."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        timers: Timers,
        fail: DiskErrorHandler,
        count: Callable[[], int],
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
            count: returns the number of partitions of `__transaction_state`, 0 while it does not exist.
            level: returns the finalized transaction.version.
            fresh: returns a new producer id.
            around: dependencies of the marker sender.
        """
        self._partition_count = count
        self._new_producer_id = fresh
        self.transaction_version = level
        self._partitions = config.number("transaction.state.log.num.partitions")
        """Number of partitions of `__transaction_state` while the topic does not exist."""
        self.settings = TransactionSettings(
            config.number("transaction.max.timeout.ms"),
            config.number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            config.number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            config.number("transactional.id.expiration.ms"),
        )
        self._markers = TxnMarkerSender(env, around, self._epoch_of, self._on_markers_written)
        self._runtime: CoordinatorRuntime[TransactionRecord] = CoordinatorRuntime(
            env,
            timers,
            fail,
            TOPIC,
            self._new_state_machine,
            Serde(lambda record: records.encode(record, level()), records.decode, records.form, base_sequence=-1),
            WRITE_TIMEOUT_MS,
            acks_all=True,
        )
        self.on_resignation = self._runtime.on_resignation
        self.active_shards = self._runtime.active_shards

    def _new_state_machine(self) -> StateMachine[TransactionRecord]:
        return TransactionStateMachine(self.settings, self._new_producer_id, self.transaction_version, self._markers)

    async def run(self) -> None:
        """Load shards and send transaction markers until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._runtime.run)
            nursery.start_soon(self._markers.run)

    # ------------------------------------------------------------------ leadership

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that holds a transactional id."""
        return partition_for_key(transactional_id, self._partition_count() or self._partitions)

    def on_election(self, replica: HostedPartition) -> None:
        """Load the transactional ids of a partition of `__transaction_state` that this broker now leads.

        Ignore other topics.
        """
        if replica.topic == TOPIC:
            self._runtime.on_election(replica)

    def on_high_watermark_updated(self, replica: HostedPartition) -> None:
        """Send the replies of a partition of `__transaction_state` whose records are now committed."""
        if replica.topic == TOPIC:
            self._runtime.on_high_watermark_updated(replica)

    # ------------------------------------------------------------------ requests

    def submit(self, transactional_id: str, event_of: Callable[[PendingBrokerRequest], Any]) -> PendingBrokerRequest:
        """Submit the event that ``event_of`` builds from a new pending request to the id's shard; return the request.

        On rejection (such as NOT_COORDINATOR), the pending request completes with a `ProtocolError`.
        """
        return self._runtime.submit(self.partition_for(transactional_id), event_of)

    def shard_for(self, transactional_id: str) -> Shard[TransactionRecord]:
        """Return the shard of a transactional id, to read with `state_machine_of`.

        Raises:
            ProtocolError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._runtime.shard(self.partition_for(transactional_id))

    # ------------------------------------------------------------------ markers

    def _shard_ending(self, due: MarkersRequested | MarkersWritten) -> Shard[TransactionRecord] | None:
        """Return the shard that completes a transaction; None if this broker no longer coordinates it.

        It is the shard of its transactional id, unless partitions were added to `__transaction_state` since.
        """
        name, pending = due.transactional_id, due.pending_transition
        with suppress(ProtocolError):
            shard = self.shard_for(name)
            if state_machine_of(shard).pending_transitions.get(name) is pending:
                return shard
        for shard in self._runtime:
            if state_machine_of(shard).pending_transitions.get(name) is pending and self._runtime.is_served(shard):
                return shard
        return None

    def shards(self) -> list[Shard[TransactionRecord]]:
        """Return all shards of this broker, including those that are still being loaded."""
        return list(self._runtime)

    def _epoch_of(self, due: MarkersRequested) -> int | None:
        """Return the coordinator epoch for markers (leader epoch of the shard's partition).

        None if no longer coordinator.
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
