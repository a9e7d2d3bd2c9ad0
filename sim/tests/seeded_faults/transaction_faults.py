"""Bugs planted in transactions: in their coordinator, in markers, in the visibility of records."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Shard
from ottla.broker.groups.committed_offsets import CommittedOffsets
from ottla.broker.groups.pending_offsets import PendingTransactionalOffsets
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.transactions import end_transitions, end_txn_rules, init_producer_id
from ottla.broker.transactions.coordinator import TOPIC
from ottla.broker.transactions.end_txn_rules import EndTxnDecision
from ottla.broker.transactions.marker_sender import TxnMarkerSender
from ottla.broker.transactions.state_machine import TransactionStateMachine
from ottla.broker.transactions.verification import TransactionVerifier, VerificationResult
from ottla.jobs.state_machine import Effects
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.wire.errors import ErrorCode
from sim.tests.seeded_faults import controller_faults
from sim.tests.seeded_faults.seeding import patch


def send_markers_before_commit() -> None:
    """Markers and the response are sent before the decision is committed."""
    real = Shard.is_committed.fget  # type: ignore[attr-defined]
    Shard.is_committed = property(  # type: ignore[assignment,method-assign]
        lambda self: self.replica.topic == TOPIC or real(self)
    )


def ignore_open_transactions() -> None:
    """The last stable offset ignores open transactions."""
    PartitionLog.last_stable_offset = property(lambda self: self.high_watermark)  # type: ignore[assignment,method-assign]


def skip_epoch_bump() -> None:
    """The producer epoch is not bumped, in version 2, either; a leader does not check the epoch of a marker."""

    def make(real: Any) -> Any:
        def prepared(txn: Any, now_ms: int, fresh: Any, *, commits: bool) -> Any:
            return real(txn, now_ms, fresh, commits=commits)._replace(producer_epoch=txn.producer_epoch)

        return prepared

    patch(end_transitions, "prepare_abort_or_commit_with_epoch_bump", make)
    ProducerStateManager.check_marker = lambda *_: None  # type: ignore[method-assign]


def skip_verification() -> None:
    """A leader accepts transactional batches without verification by the coordinator."""

    async def verify(self: TransactionVerifier, wanted: Any) -> VerificationResult:
        return VerificationResult({}, dict.fromkeys(wanted.sequences, TxnAppendContext(VERIFICATION_DISABLED)))

    TransactionVerifier.verify = TransactionVerifier.verify_once = verify  # type: ignore[method-assign]


def reject_repeated_end_txn() -> None:
    """A repeated EndTxn is rejected with an invalid state."""
    end_txn_rules.RETRY_DECISIONS = dict.fromkeys(end_txn_rules.RETRY_DECISIONS, ErrorCode.INVALID_TXN_STATE)


def omit_aborted_transactions() -> None:
    """Fetch responses contain no aborted transactions."""
    PartitionLog.aborted_txns_in_slice = lambda *_: []  # type: ignore[method-assign]


def write_commit_markers_for_aborts() -> None:
    """Every marker is a commit marker."""

    def make(real: Any) -> Any:
        def request(self: TxnMarkerSender, letters: Any) -> Any:
            made = real(self, letters)
            for marker in made.markers:
                marker.transaction_result = True
            return made

        return request

    patch(TxnMarkerSender, "_request", make)


def drop_single_marker() -> None:
    """The marker for one partition of a transaction is not sent."""

    def make(real: Any) -> Any:
        def deliver(self: TxnMarkerSender, due: Any) -> None:
            partitions = sorted(due.pending_transition.remaining_partitions)
            if len(partitions) > 1:
                due.pending_transition.remaining_partitions.discard(partitions[-1])
            real(self, due)

        return deliver

    patch(TxnMarkerSender, "deliver", make)


def complete_after_first_marker() -> None:
    """A transaction is complete after the first marker."""

    def make(real: Any) -> Any:
        def on_markers_written(self: TransactionStateMachine, event: Any) -> Any:
            return real(self, event._replace(partitions=tuple(event.pending_transition.remaining_partitions)))

        return on_markers_written

    patch(TransactionStateMachine, "_on_markers_written", make)


def forget_decided_transactions() -> None:
    """A coordinator that moved does not complete decided transactions."""

    def make(real: Any) -> Any:
        def loaded(self: TransactionStateMachine, now_ms: int) -> Any:
            self._prepared.clear()
            return real(self, now_ms)

        return loaded

    patch(TransactionStateMachine, "_on_loaded", make)


def skip_transaction_timeout() -> None:
    """Transactions never time out."""
    TransactionStateMachine._abort_timed_out = lambda *_: iter(())  # type: ignore[method-assign]


def skip_fencing() -> None:
    """InitProducerId returns the epoch of the previous producer."""

    def make(real: Any) -> Any:
        def prepared(txn: Any, *rest: Any) -> Any:
            made = real(txn, *rest)
            return made._replace(producer_epoch=max(txn.producer_epoch, 0)) if txn.producer_epoch >= 0 else made

        return prepared

    patch(init_producer_id, "prepare_init_producer_id", make)


def forget_open_transactions() -> None:
    """A new leader has no open transactions."""

    def make(real: Any) -> Any:
        def follow_image(self: HostedPartition, *rest: Any) -> bool:
            begins = bool(real(self, *rest))
            if begins:
                self.log.producers.ongoing_txns.clear()
            return begins

        return follow_image

    patch(HostedPartition, "apply_partition_state", make)


def append_a_batch_twice() -> None:
    """A duplicate batch of a transaction is appended again."""

    def make(real: Any) -> Any:
        def check(self: ProducerStateManager, header: Any, *rest: Any, client: bool) -> Any:
            found = real(self, header, *rest, client=client)
            return None if found is not None else found

        return check

    patch(ProducerStateManager, "check_transactional", make)


def skip_loading_coordinator() -> None:
    """A transaction coordinator that moved starts without loading its partition."""
    real = CoordinatorRuntime._start_shard
    controller_faults.skip_loading_coordinator()
    planted = CoordinatorRuntime._start_shard

    def begin(self: CoordinatorRuntime[Any], replica: Any) -> None:
        (planted if replica.topic == TOPIC else real)(self, replica)

    CoordinatorRuntime._start_shard = begin  # type: ignore[method-assign]


def skip_epoch_check_on_end() -> None:
    """EndTxn is accepted with any epoch of the producer id."""

    def with_bump(txn: Any, producer_id: int, epoch: int, *, commits: bool, is_pending: bool) -> EndTxnDecision:
        return end_txn_rules.decide_without_epoch_bump(
            txn, producer_id, txn.producer_epoch, commits=commits, is_pending=is_pending
        )

    end_txn_rules.decide_with_epoch_bump = with_bump


def respond_before_commit_decision() -> None:
    """Some EndTxn requests, by the time, succeed without a record."""

    def make(real: Any) -> Any:
        def end(self: TransactionStateMachine, event: Any, now_ms: int) -> Any:
            found = real(self, event, now_ms)
            if found.records and now_ms % 5 == 0:
                self.pending_transitions.pop(event.transactional_id, None)
                return Effects(replies=found.replies)
            return found

        return end

    patch(TransactionStateMachine, "_end", make)


def expose_pending_offsets() -> None:
    """An offset counts as soon as it is sent to a transaction, committed or not."""
    patch(
        CommittedOffsets,
        "replay_pending",
        lambda _: lambda self, offset, pid, key, value: self.replay(offset, key, value),
    )


def drop_offsets_at_commit() -> None:
    """The offsets of a committed transaction are dropped."""
    patch(CommittedOffsets, "replay_end", lambda real: lambda self, pid, *, commits: real(self, pid, commits=False))


def keep_aborted_offsets() -> None:
    """The offsets of an aborted transaction count."""
    patch(CommittedOffsets, "replay_end", lambda real: lambda self, pid, *, commits: real(self, pid, commits=True))


def read_unstable_offsets() -> None:
    """OffsetFetch with require_stable returns unstable offsets."""
    PendingTransactionalOffsets.producers_by_partition = lambda *_: {}  # type: ignore[method-assign]
