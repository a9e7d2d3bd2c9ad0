"""Bugs planted in transactions: in their coordinator, in how partitions hear of their end, in what readers are told."""

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
    """Partitions hear of the end, and its producer, before the decision is committed."""
    real = Shard.is_committed.fget  # type: ignore[attr-defined]
    Shard.is_committed = property(  # type: ignore[assignment,method-assign]
        lambda self: self.replica.topic == TOPIC or real(self)
    )


def ignore_open_transactions() -> None:
    """What is committed counts as stable, whoever has a transaction open there."""
    PartitionLog.last_stable_offset = property(lambda self: self.high_watermark)  # type: ignore[assignment,method-assign]


def skip_epoch_bump() -> None:
    """Each transaction has the epoch of the one before, in version 2, too."""

    def make(real: Any) -> Any:
        def prepared(txn: Any, now_ms: int, fresh: Any, *, commits: bool) -> Any:
            return real(txn, now_ms, fresh, commits=commits)._replace(producer_epoch=txn.producer_epoch)

        return prepared

    patch(end_transitions, "prepare_abort_or_commit_with_epoch_bump", make)
    ProducerStateManager.check_marker = lambda *_: None  # type: ignore[method-assign]


def skip_verification() -> None:
    """A leader takes a transaction's batches without asking its coordinator."""

    async def verify(self: TransactionVerifier, wanted: Any) -> VerificationResult:
        return VerificationResult({}, dict.fromkeys(wanted.sequences, TxnAppendContext(VERIFICATION_DISABLED)))

    TransactionVerifier.verify = TransactionVerifier.verify_once = verify  # type: ignore[method-assign]


def reject_repeated_end_txn() -> None:
    """A producer that did not hear that its transaction has ended is told that there is none."""
    end_txn_rules.RETRY_DECISIONS = dict.fromkeys(end_txn_rules.RETRY_DECISIONS, ErrorCode.INVALID_TXN_STATE)


def omit_aborted_transactions() -> None:
    """Readers get no list of aborted transactions."""
    PartitionLog.aborted_txns_in_slice = lambda *_: []  # type: ignore[method-assign]


def write_commit_markers_for_aborts() -> None:
    """Every marker says commit."""

    def make(real: Any) -> Any:
        def request(self: TxnMarkerSender, letters: Any) -> Any:
            made = real(self, letters)
            for marker in made.markers:
                marker.transaction_result = True
            return made

        return request

    patch(TxnMarkerSender, "_request", make)


def drop_single_marker() -> None:
    """One of a transaction's partitions does not hear of its end."""

    def make(real: Any) -> Any:
        def give(self: TxnMarkerSender, due: Any) -> None:
            partitions = sorted(due.pending_transition.remaining_partitions)
            if len(partitions) > 1:
                due.pending_transition.remaining_partitions.discard(partitions[-1])
            real(self, due)

        return give

    patch(TxnMarkerSender, "deliver", make)


def complete_after_first_marker() -> None:
    """A transaction is complete once one of its partitions knows."""

    def make(real: Any) -> Any:
        def marked(self: TransactionStateMachine, event: Any) -> Any:
            return real(self, event._replace(partitions=tuple(event.pending_transition.remaining_partitions)))

        return marked

    patch(TransactionStateMachine, "_on_markers_written", make)


def forget_what_was_decided() -> None:
    """A coordinator that moved does not go on with ends that were decided."""

    def make(real: Any) -> Any:
        def loaded(self: TransactionStateMachine, now_ms: int) -> Any:
            self._prepared.clear()
            return real(self, now_ms)

        return loaded

    patch(TransactionStateMachine, "_on_loaded", make)


def skip_transaction_timeout() -> None:
    """What its producer has left open stays open."""
    TransactionStateMachine._abort_timed_out = lambda *_: iter(())  # type: ignore[method-assign]


def skip_fencing() -> None:
    """Who takes a transactional id over gets the epoch of who had it."""

    def make(real: Any) -> Any:
        def begun(txn: Any, *rest: Any) -> Any:
            made = real(txn, *rest)
            return made._replace(producer_epoch=max(txn.producer_epoch, 0)) if txn.producer_epoch >= 0 else made

        return begun

    patch(init_producer_id, "prepare_init_producer_id", make)


def forget_open_transactions() -> None:
    """Who begins to lead does not know which transactions are open."""

    def make(real: Any) -> Any:
        def follow_image(self: HostedPartition, *rest: Any) -> bool:
            begins = bool(real(self, *rest))
            if begins:
                self.log.producers.ongoing_txns.clear()
            return begins

        return follow_image

    patch(HostedPartition, "apply_partition_state", make)


def append_a_batch_twice() -> None:
    """A batch of a transaction that is sent again is appended again."""

    def make(real: Any) -> Any:
        def check(self: ProducerStateManager, header: Any, *rest: Any, client: bool) -> Any:
            found = real(self, header, *rest, client=client)
            return None if found is not None else found

        return check

    patch(ProducerStateManager, "check_transactional", make)


def skip_loading_coordinator() -> None:
    """A coordinator of transactions that moved begins with nothing."""
    real = CoordinatorRuntime._start_shard
    controller_faults.skip_loading_coordinator()
    planted = CoordinatorRuntime._start_shard

    def begin(self: CoordinatorRuntime[Any], replica: Any) -> None:
        (planted if replica.topic == TOPIC else real)(self, replica)

    CoordinatorRuntime._start_shard = begin  # type: ignore[method-assign]


def skip_epoch_check_on_end() -> None:
    """Whoever has the producer id may end its transaction."""

    def with_bump(txn: Any, producer_id: int, epoch: int, *, commits: bool, is_pending: bool) -> EndTxnDecision:
        return end_txn_rules.decide_without_epoch_bump(
            txn, producer_id, txn.producer_epoch, commits=commits, is_pending=is_pending
        )

    end_txn_rules.decide_with_epoch_bump = with_bump


def respond_before_commit_decision() -> None:
    """The end is answered, and nothing is written."""

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
    """A position counts as soon as it is committed within a transaction, whatever becomes of that."""
    patch(
        CommittedOffsets,
        "replay_pending",
        lambda _: lambda self, offset, pid, key, value: self.replay(offset, key, value),
    )


def drop_offsets_at_commit() -> None:
    """A transaction is committed, and its positions are not."""
    patch(CommittedOffsets, "replay_end", lambda real: lambda self, pid, *, commits: real(self, pid, commits=False))


def keep_aborted_offsets() -> None:
    """A transaction is aborted, and its positions count."""
    patch(CommittedOffsets, "replay_end", lambda real: lambda self, pid, *, commits: real(self, pid, commits=True))


def read_unstable_offsets() -> None:
    """Who asks for stable positions gets those there are."""
    PendingTransactionalOffsets.producers_by_partition = lambda *_: {}  # type: ignore[method-assign]
