"""State machine of one partition of `__transaction_state`: transactional ids and their transactions.

The record of a transition is appended and replayed, but requests see the previous state until it is committed; another
transition meanwhile gets CONCURRENT_TRANSACTIONS. Once PrepareCommit or PrepareAbort is committed, markers are written
to the partitions; after all of them the transaction is complete.

Source: ``TransactionCoordinator.scala``, ``TransactionStateManager.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, ShardUnloaded, TimerExpired, WriteResult
from ottla.broker.transactions import add_partitions, end_transitions, end_txn_rules, events, init_producer_id
from ottla.broker.transactions.end_txn_rules import EndTxnDecision
from ottla.broker.transactions.init_producer_id import NewProducerId
from ottla.broker.transactions.pending_transition import PendingTransition
from ottla.broker.transactions.records import TransactionRecord
from ottla.broker.transactions.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    IDLE_STATES,
    NO_TIMEOUT_MS,
    PREPARED_STATES,
    S,
    TransactionMetadata,
)
from ottla.jobs.state_machine import RECORDS_PER_STEP, Effects, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

TransactionEffects = Effects[TransactionRecord]
RETRY_MS = 100
"""Back-off after which the completion record of a transaction is written again when its append has failed."""
MAX_EXPIRED_PER_SCAN = 5_000
MAX_RESULTS_PER_SLICE = 200
"""Transitions whose write results are applied in one time slice: about 10 us each, and more with markers."""


class TransactionSettings(NamedTuple):
    """Settings of the transaction coordinator, all in ms."""

    max_timeout_ms: int
    abort_timed_out_interval_ms: int
    remove_expired_interval_ms: int
    expiration_ms: int


class TransactionStateMachine:
    """State machine of transactional ids; ``handle`` turns events into effects, ``replay`` applies records.

    Requests that only read use `committed_transaction` and `transactional_ids` directly.
    """

    def __init__(
        self, settings: TransactionSettings, fresh: NewProducerId, level: Callable[[], int], outbox: Any
    ) -> None:
        """Initialize without transactional ids.

        Args:
            settings: settings of the transaction coordinator.
            fresh: returns a new producer id.
            level: returns the finalized transaction.version.
            outbox: marker sender; its ``deliver`` is called with each `MarkersRequested`.
        """
        self.settings = settings
        self._new_producer_id = fresh
        self._transaction_version = level
        self._marker_sender = outbox
        self._transactions: dict[str, TransactionMetadata] = {}
        self._ongoing: dict[str, None] = {}
        self._prepared: dict[str, None] = {}
        self.pending_transitions: dict[str, PendingTransition] = {}

    # ------------------------------------------------------------------ reading

    def committed_transaction(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the last state of a transactional id whose record is committed; None if the id is unknown.

        A new id whose first record is pending has its initial state: Empty, with epoch -1. In PrepareCommit and
        PrepareAbort the partitions are those that still need a marker.
        """
        pending = self.pending_transitions.get(transactional_id)
        return self._transactions.get(transactional_id) if pending is None else pending.visible_transaction()

    @property
    def transactional_id_count(self) -> int:
        """Number of transactional ids, without the list of `transactional_ids`: there may be a million."""
        return len(self._transactions) + sum(x not in self._transactions for x in self.pending_transitions)

    def transactional_ids(self) -> list[str]:
        """Return all transactional ids, including new ones whose first transition is pending."""
        return [*self._transactions, *(x for x in self.pending_transitions if x not in self._transactions)]

    # ------------------------------------------------------------------ events and replay

    def handle(self, now_ms: int, event: Any) -> TransactionEffects:
        """Return the records, replies and timers for an event; a new transition is pending from now on.

        ``now_ms``: wall clock.
        """
        match event:
            case ShardLoaded():
                return self._on_loaded(now_ms)
            case WriteResult():
                return self._on_write_result(event.context, event.error, now_ms)
            case TimerExpired():
                return self._on_timer(event.key, now_ms)
            case events.MarkersWritten():
                return self._on_markers_written(event)
            case ShardUnloaded() | RequestDisconnected():
                return TransactionEffects()  # pending requests only wait for writes
        try:
            match event:
                case events.InitProducerId():
                    return self._init(event, now_ms)
                case events.AddPartitions():
                    return self._add(event, now_ms)
                case events.VerifyPartitions():
                    return self._verify(event)
                case events.EndTransaction():
                    return self._end(event, now_ms)
                case _:
                    raise AssertionError(event)
        except ProtocolError as error:
            return TransactionEffects(
                immediate_replies=[RequestReply(event.pending_request, error.with_traceback(None))]
            )

    def replay(self, offset: int, record: TransactionRecord) -> None:
        """Apply a record of `__transaction_state`; if a pending transition here made it, mark that one as written."""
        transactional_id, txn = record
        self._ongoing.pop(transactional_id, None)
        self._prepared.pop(transactional_id, None)
        if txn is None:
            self._transactions.pop(transactional_id, None)
        else:
            self._transactions[transactional_id] = txn
            if txn.state is S.ONGOING:
                self._ongoing[transactional_id] = None
            elif txn.state in PREPARED_STATES:
                self._prepared[transactional_id] = None
        pending = self.pending_transitions.get(transactional_id)
        if pending is not None and pending.after is txn:
            pending.is_written = True

    # ------------------------------------------------------------------ requests of producers

    def _init(self, event: events.InitProducerId, now_ms: int) -> TransactionEffects:
        self._check_nothing_pending(event.transactional_id)
        txn = self._transactions.get(event.transactional_id)
        if txn is None:
            txn = init_producer_id.new_transaction(event.timeout_ms, now_ms, self._new_producer_id)
        init_producer_id.check_expected_producer(txn, event.expected_producer)
        if txn.state is S.ONGOING:
            answer: Any = ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)  # sent once the abort is committed
            after = end_transitions.prepare_fence_producer_epoch(
                txn, now_ms, self._new_producer_id, bumps=self._transaction_version() >= EPOCH_BUMP_VERSION
            )
        else:
            after = init_producer_id.prepare_init_producer_id(
                txn, event.expected_producer, event.timeout_ms, now_ms, self._new_producer_id
            )
            answer = (after.producer_id, after.producer_epoch)
        return self._start_transition(event.transactional_id, txn, after, RequestReply(event.pending_request, answer))

    def _add(self, event: events.AddPartitions, now_ms: int) -> TransactionEffects:
        self._check_nothing_pending(event.transactional_id)
        txn = self._transactions.get(event.transactional_id)
        txn = add_partitions.check_producer(txn, event.producer_id, event.producer_epoch)
        after = add_partitions.prepare_add_partitions(txn, event.partitions, event.client_transaction_version, now_ms)
        reply = RequestReply(event.pending_request, ErrorCode.NONE)
        if after is None:
            return TransactionEffects(replies=[reply])
        return self._start_transition(event.transactional_id, txn, after, reply)

    def _verify(self, event: events.VerifyPartitions) -> TransactionEffects:
        txn = self.committed_transaction(event.transactional_id)
        txn = add_partitions.check_producer(txn, event.producer_id, event.producer_epoch)
        return TransactionEffects(
            immediate_replies=[RequestReply(event.pending_request, event.partitions & txn.partitions)]
        )

    def _end(self, event: events.EndTransaction, now_ms: int) -> TransactionEffects:
        txn = self.committed_transaction(event.transactional_id)
        if txn is None:
            raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        decide = end_txn_rules.decide_with_epoch_bump if event.bumps_epoch else end_txn_rules.decide_without_epoch_bump
        is_pending = event.transactional_id in self.pending_transitions
        verdict = decide(txn, event.producer_id, event.producer_epoch, commits=event.is_commit, is_pending=is_pending)
        after = txn
        if verdict is EndTxnDecision.PREPARE and event.bumps_epoch:
            after = end_transitions.prepare_abort_or_commit_with_epoch_bump(
                txn, now_ms, self._new_producer_id, commits=event.is_commit
            )
        elif verdict is EndTxnDecision.PREPARE:
            after = end_transitions.prepare_abort_or_commit(txn, now_ms, commits=event.is_commit)
        goes_on = end_transitions.prepare_complete(after, now_ms) if after.state in PREPARED_STATES else after
        producer = (goes_on.producer_id, goes_on.producer_epoch) if event.bumps_epoch else (-1, -1)
        reply = RequestReply(event.pending_request, producer)
        return (
            TransactionEffects(replies=[reply])
            if after is txn
            else self._start_transition(event.transactional_id, txn, after, reply)
        )

    def _check_nothing_pending(self, transactional_id: str) -> None:
        """Check that an id has no pending transition.

        Raises:
            ProtocolError: CONCURRENT_TRANSACTIONS.
        """
        if transactional_id in self.pending_transitions:
            raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)

    # ------------------------------------------------------------------ transitions

    def _start_transition(
        self, transactional_id: str, before: TransactionMetadata, after: TransactionMetadata, *replies: RequestReply
    ) -> TransactionEffects:
        pending = self.pending_transitions[transactional_id] = PendingTransition(before, after)
        record = TransactionRecord(transactional_id, after)
        return TransactionEffects([record], list(replies), on_commit_outcome=[(transactional_id, pending)])

    def _on_write_result(
        self, transitions: list[tuple[str, PendingTransition]], error: ErrorCode, now_ms: int
    ) -> TransactionEffects:
        """Return the effects of a write's result on its transitions; very many are processed in a continuation."""
        if len(transitions) <= MAX_RESULTS_PER_SLICE:
            return self._apply_results(transitions, error, now_ms)
        left = list(transitions)
        return TransactionEffects(
            on_commit_outcome=left, continuation=self._apply_results_in_slices(left, error, now_ms)
        )

    def _apply_results_in_slices(
        self, left: list[tuple[str, PendingTransition]], error: ErrorCode, now_ms: int
    ) -> Iterator[TransactionEffects]:
        """Yield the effects of applying the write result to the transitions ``left``, in slices.

        Before each slice, ``left`` is reduced to the transitions to apply again if the append of that slice fails.
        """
        done: list[tuple[str, PendingTransition]] = []
        transitions = list(left)
        for first in range(0, len(transitions), MAX_RESULTS_PER_SLICE):
            fx = self._apply_results(transitions[first : first + MAX_RESULTS_PER_SLICE], error, now_ms)
            done += fx.on_commit_outcome or ()
            fx.on_commit_outcome = None
            left[:] = [*done, *transitions[first + MAX_RESULTS_PER_SLICE :]]
            yield fx

    def _apply_results(
        self, transitions: list[tuple[str, PendingTransition]], error: ErrorCode, now_ms: int
    ) -> TransactionEffects:
        """Complete the transitions of a committed write; after an error, drop those whose record is not appended.

        An appended record may still be committed: it waits for the next result. Completions are retried (`RETRY_MS`).
        """
        fx = TransactionEffects()
        again = []
        for transactional_id, pending in transitions:
            if self.pending_transitions.get(transactional_id) is not pending:
                continue
            if error is ErrorCode.NONE:
                self._on_committed(transactional_id, pending, now_ms, fx)
            elif pending.is_written or pending.remaining_partitions:
                again.append((transactional_id, pending))
            elif pending.before.state in PREPARED_STATES:
                fx.timers.append(ScheduleTimer(("complete", transactional_id), now_ms + RETRY_MS))
            else:
                del self.pending_transitions[transactional_id]  # rejected: the state is unchanged
        if again:
            fx.on_commit_outcome = again
        return fx

    def _on_committed(
        self, transactional_id: str, pending: PendingTransition, now_ms: int, fx: TransactionEffects
    ) -> None:
        """Finish a committed transition; after PrepareCommit or PrepareAbort, start the completion.

        Added to ``fx``: a marker request or, without partitions, its record. An unwritten completion is only started.
        """
        if pending.is_written:
            del self.pending_transitions[transactional_id]
            after = pending.after
            if after is None or after.state not in PREPARED_STATES:
                return
            pending = self.pending_transitions[transactional_id] = PendingTransition(
                after, end_transitions.prepare_complete(after, now_ms)
            )
        if pending.remaining_partitions:
            fx.immediate_replies.append(
                RequestReply(self._marker_sender, events.MarkersRequested(transactional_id, pending))
            )
        else:
            self._complete(transactional_id, pending, fx)

    def _on_markers_written(self, event: events.MarkersWritten) -> TransactionEffects:
        fx, pending = TransactionEffects(), event.pending_transition
        if self.pending_transitions.get(event.transactional_id) is pending and pending.remaining_partitions:
            pending.remaining_partitions.difference_update(event.partitions)
            if not pending.remaining_partitions:
                self._complete(event.transactional_id, pending, fx)
        return fx

    def _complete(self, transactional_id: str, pending: PendingTransition, fx: TransactionEffects) -> None:
        fx.records.append(TransactionRecord(transactional_id, pending.after))
        fx.on_commit_outcome = [*(fx.on_commit_outcome or ()), (transactional_id, pending)]

    # ------------------------------------------------------------------ timers

    def _on_loaded(self, now_ms: int) -> TransactionEffects:
        """Return effects that start the timers after loading and resume prepared commits and aborts."""
        settings = self.settings
        timers: list[Any] = [
            ScheduleTimer(("abort",), now_ms + settings.abort_timed_out_interval_ms),
            ScheduleTimer(("expire",), now_ms + settings.remove_expired_interval_ms),
        ]
        if self._prepared:
            timers.append(ScheduleTimer(("resume",), now_ms))
        fx = TransactionEffects(timers=timers)
        fx.continue_with(self._resume_prepared(now_ms), len(self._prepared))
        return fx

    def _resume_prepared(self, now_ms: int) -> Iterator[TransactionEffects | None]:
        for number, transactional_id in enumerate(list(self._prepared), 1):
            txn = self._transactions[transactional_id]
            self.pending_transitions[transactional_id] = PendingTransition(
                txn, end_transitions.prepare_complete(txn, now_ms)
            )
            if number % RECORDS_PER_STEP == 0:
                yield None

    def _on_timer(self, key: tuple[str, ...], now_ms: int) -> TransactionEffects:
        match key:
            case ("resume",):
                return TransactionEffects(on_commit_outcome=list(self.pending_transitions.items()))
            case ("complete", transactional_id):
                fx, pending = TransactionEffects(), self.pending_transitions.get(transactional_id)
                if pending is not None and not pending.remaining_partitions and not pending.is_written:
                    self._complete(transactional_id, pending, fx)
                return fx
            case ("abort",):
                return self._scan(("abort",), self.settings.abort_timed_out_interval_ms, self._abort_timed_out, now_ms)
            case ("expire",):
                return self._scan(("expire",), self.settings.remove_expired_interval_ms, self._remove_expired, now_ms)
            case _:
                raise AssertionError(key)

    def _scan(self, key: tuple[str], every_ms: int, look: Callable[..., Any], now_ms: int) -> TransactionEffects:
        fx = TransactionEffects(timers=[ScheduleTimer(key, now_ms + every_ms)], on_commit_outcome=[])
        fx.add_records(look(now_ms, fx.on_commit_outcome))
        return fx

    def _abort_timed_out(
        self, now_ms: int, transitions: list[tuple[str, PendingTransition]]
    ) -> Iterator[TransactionRecord | None]:
        """Yield the records that abort transactions open longer than their timeout; not of two-phase commit (KIP-939).

        The transitions are pending from now on and appended to ``transitions``; None is yielded for other transactions.
        """
        for transactional_id in list(self._ongoing):
            txn = self._transactions[transactional_id]
            over = txn.timeout_ms != NO_TIMEOUT_MS and txn.start_ms + txn.timeout_ms < now_ms
            if over and transactional_id not in self.pending_transitions:
                try:
                    after = end_transitions.prepare_fence_producer_epoch(
                        txn, now_ms, self._new_producer_id, bumps=self._transaction_version() >= EPOCH_BUMP_VERSION
                    )
                except ProtocolError:
                    continue  # no producer id is available: retried by the next scan
                yield self._start_scanned_transition(transactional_id, txn, after, transitions)
            else:
                yield None

    def _remove_expired(
        self, now_ms: int, transitions: list[tuple[str, PendingTransition]]
    ) -> Iterator[TransactionRecord | None]:
        """Yield the tombstones of expired transactional ids, at most `MAX_EXPIRED_PER_SCAN`; None for each other id.

        The transitions are pending from now on and appended to ``transitions``.
        """
        since_ms = now_ms - self.settings.expiration_ms
        for transactional_id, txn in list(self._transactions.items()):
            unused = txn.state in IDLE_STATES and txn.last_update_ms <= since_ms
            if unused and transactional_id not in self.pending_transitions and len(transitions) < MAX_EXPIRED_PER_SCAN:
                yield self._start_scanned_transition(transactional_id, txn, None, transitions)
            else:
                yield None

    def _start_scanned_transition(
        self,
        transactional_id: str,
        before: TransactionMetadata,
        after: TransactionMetadata | None,
        transitions: list[tuple[str, PendingTransition]],
    ) -> TransactionRecord:
        pending = self.pending_transitions[transactional_id] = PendingTransition(before, after)
        transitions.append((transactional_id, pending))
        return TransactionRecord(transactional_id, after)
