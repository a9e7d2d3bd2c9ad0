"""Interface of the coordinators' state machines: ``handle`` generates records, ``replay`` applies those of the log.

``handle`` does not change replayed state. It returns `Effects`: records to append, responses to send once these records
are committed, timers to set. The runtime appends and replays the records, waits for the high watermark and then sends
the responses, so that no client gets a state that could be lost. Controller and Raft have interfaces of their own.

``on_commit_outcome`` is for state that is not replayed (pending requests, timers) but depends on the outcome: the
runtime passes it back once the records are committed or failed. ``continuation`` is for work that exceeds a time slice:
a job that yields further effects, or None where other tasks may run.

Modelled on ``CoordinatorResult``/``CoordinatorShard`` and ``ControllerResult`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from ottla.wire.record_batch.control_record import EndTransactionMarker

R = TypeVar("R")


class VerificationGuard:
    """Token of one verification of a transaction (AddPartitionsToTxn), compared by identity (``VerificationGuard``).

    The append of the transaction's first batch must present the token of the latest verification.
    """

    __slots__ = ()


class ScheduleTimer(NamedTuple):
    """Effect: set the timer ``key`` to expire at ``deadline_ms`` (wall clock), replacing its previous deadline."""

    key: Any
    deadline_ms: int


class CancelTimer(NamedTuple):
    """Effect: cancel the timer ``key``."""

    key: Any


class RequestReply(NamedTuple):
    """Effect: complete ``pending_request``, the future of a request to a coordinator, with the response ``message``."""

    pending_request: Any
    message: Any


class TransactionContext(NamedTuple):
    """Transaction to which the records of an `Effects` belong; they are appended as one transactional batch."""

    producer_id: int
    epoch: int
    guard: VerificationGuard | None
    """Guard of the verification by the transaction coordinator; None if the transaction is open in this log."""


class TransactionCompletion(NamedTuple):
    """Effect: append a transaction marker, which commits or aborts a producer's transaction, instead of records."""

    producer_id: int
    epoch: int
    marker: EndTransactionMarker
    transaction_version: int
    """``transaction.version`` of the marker."""


RECORDS_PER_STEP = 500
"""Records generated (or items skipped) in one time slice: a few milliseconds of work."""


@dataclass(slots=True)
class Effects(Generic[R]):
    """Actions for the runtime that result from an event: records to append, responses to send, timers to set."""

    records: list[R] = field(default_factory=list)
    replies: list[RequestReply] = field(default_factory=list)
    immediate_replies: list[RequestReply] = field(default_factory=list)
    """Responses that depend on no uncommitted record: sent at once, before the outcome of the append."""
    txn: TransactionContext | TransactionCompletion | None = None
    """Transaction of the records, or marker to append. Each part of ``continuation`` has its own."""
    timers: list[ScheduleTimer | CancelTimer] = field(default_factory=list)
    on_commit_outcome: Any = None
    """Value that the runtime passes back to the state machine once the records are committed or have failed."""
    continuation: Iterator[Effects[R] | None] | None = None
    """Job that yields further effects, or None where other tasks may run; no other event is handled before its end.
    The records of yielded effects are appended and their responses sent before the job continues; a failed append stops
    it. ``replies`` and ``on_commit_outcome`` wait for its end, and get the `ProtocolError` that stopped it, if any.
    """

    def add_records(self, records: Iterable[R | None], txn: TransactionContext | None = None) -> None:
        """Add records to append: the first `RECORDS_PER_STEP` items now, the rest as ``continuation``.

        None in ``records`` counts as an item, but is skipped. The records of ``txn`` become one batch for each part;
        they are visible together, once the transaction is committed. There must be no continuation yet.
        """
        assert self.continuation is None
        rest = iter(records)
        first = list(islice(rest, RECORDS_PER_STEP))
        self.records += (record for record in first if record is not None)
        self.txn = txn if self.records else None
        if len(first) == RECORDS_PER_STEP:
            self.continuation = _split_records(rest, txn)

    def continue_with(self, job: Iterator[Effects[R] | None], rows: int) -> None:
        """Add the effects that ``job`` yields: all at once if ``rows`` is small, else all as ``continuation``.

        ``rows``: measure of the work of the job, such as the number of members that it visits; up to `RECORDS_PER_STEP`
        is small. If they are added at once, only their records, replies and timers are.
        """
        if rows > RECORDS_PER_STEP:
            self.continuation = chain(self.continuation or (), job)
            return
        for part in filter(None, job):
            self.records += part.records
            self.replies += part.replies
            self.immediate_replies += part.immediate_replies
            self.timers += part.timers

    def flatten(self) -> Iterator[Effects[R] | None]:
        """Remove the continuation; return an iterator over this object, and then over the items of the continuation."""
        rest, self.continuation = self.continuation, None
        return chain([self], rest or ())


def _split_records(rest: Iterator[R | None], txn: TransactionContext | None) -> Iterator[Effects[R]]:
    while part := list(islice(rest, RECORDS_PER_STEP)):
        records = [record for record in part if record is not None]
        yield Effects(records, txn=txn if records else None)


class StateMachine(Protocol[R]):
    """Replicated state machine: its state is the result of replaying the records of its log."""

    def handle(self, now_ms: int, event: Any) -> Effects[R]:
        """Return the effects of an event without changing replayed state.

        Events are requests, and those of the runtime, such as an expired timer or the outcome of a write. ``now_ms``:
        wall clock in ms.
        """

    def replay(self, offset: int, record: R) -> None:
        """Apply one record of the log at ``offset`` to the state."""


@runtime_checkable
class TransactionalStateMachine(StateMachine[R], Protocol[R]):
    """State machine whose log has transactional records (group coordinator: TxnOffsetCommit)."""

    def replay_pending(self, offset: int, producer_id: int, record: R) -> None:
        """Buffer a record of a producer's open transaction, without applying it."""

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """Apply (``commits``) or discard the buffered records of a producer's transaction, at its marker."""
