"""Contract of replicated state machines: ``handle`` decides, ``replay`` changes the replayed state.

``handle`` has no side effects. It returns `Effects`: records to append, replies to send once those records are
committed, timers to set. The runtime appends and replays the records, waits for the high watermark and then sends the
replies, so that no client sees a state that could be lost.

State that is not replayed (pending requests, timers) but depends on the outcome goes into ``on_commit_outcome``: the
runtime calls it once the records are committed or failed. Work that exceeds a time slice goes into ``continuation``: a
job (`ottla.jobs.job.Job`) that yields effects where another job yields what it waits for.

Shape taken from ``CoordinatorResult``/``CoordinatorShard`` and ``ControllerResult`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from ottla.wire.record_batch.control_record import EndTransactionMarker

R = TypeVar("R")


class VerificationGuard:
    """Proof of which question about a transaction an answer belongs to; each is equal to itself only."""

    __slots__ = ()


class ScheduleTimer(NamedTuple):
    """Set the timer ``key`` to ``deadline_ms`` (wall clock); an older setting of the same key is forgotten."""

    key: Any
    deadline_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer ``key``."""

    key: Any


class RequestReply(NamedTuple):
    """An answer for the request that came in with ``pending_request``."""

    pending_request: Any
    message: Any


class TransactionContext(NamedTuple):
    """Transaction of the records of an `Effects`, which are appended as one batch."""

    producer_id: int
    epoch: int
    guard: VerificationGuard | None
    """The proof that its coordinator knows of this partition; None where the transaction is open here."""


class TransactionCompletion(NamedTuple):
    """The end of a transaction: a marker in the log, and no records."""

    producer_id: int
    epoch: int
    marker: EndTransactionMarker
    transaction_version: int
    """Of the protocol it is written under."""


RECORDS_PER_STEP = 500
"""So many records, or looks that lead to none, are one slice: a few milliseconds of work."""


@dataclass(slots=True)
class Effects(Generic[R]):
    """Result of handling an event."""

    records: list[R] = field(default_factory=list)
    replies: list[RequestReply] = field(default_factory=list)
    immediate_replies: list[RequestReply] = field(default_factory=list)
    """Replies that depend on no uncommitted record: sent at once, whatever the outcome of the append."""
    txn: TransactionContext | TransactionCompletion | None = None
    """Transaction of the records, or its end. Each part of ``continuation`` has its own."""
    timers: list[ScheduleTimer | CancelTimer] = field(default_factory=list)
    on_commit_outcome: Any = None
    """Handed back to the machine when the records are committed, or are known not to be."""
    continuation: Iterator[Effects[R] | None] | None = None
    """Job that yields None where it may be paused, or further effects; the machine gets no other event before its end.
    The records of yielded effects are written and their replies sent before the job goes on; a failed append ends it.
    ``replies`` and ``on_commit_outcome`` wait for the end, and get the `ProtocolError` that ends it, if any.
    """

    def add_records(self, records: Iterable[R | None], txn: TransactionContext | None = None) -> None:
        """Append records, all if they fit into one time slice, else as ``continuation``. None is a pause.

        Those of a transaction are as many of its batches: seen together all the same, at its end.
        """
        assert self.continuation is None
        rest = iter(records)
        first = list(islice(rest, RECORDS_PER_STEP))
        self.records += (record for record in first if record is not None)
        self.txn = txn if self.records else None
        if len(first) == RECORDS_PER_STEP:
            self.continuation = _split_records(rest, txn)

    def continue_with(self, job: Iterator[Effects[R] | None], rows: int) -> None:
        """Append further effects: at once for few rows, whose records are one batch then, else as ``continuation``."""
        if rows > RECORDS_PER_STEP:
            self.continuation = chain(self.continuation or (), job)
            return
        for part in filter(None, job):
            self.records += part.records
            self.replies += part.replies
            self.immediate_replies += part.immediate_replies
            self.timers += part.timers

    def flatten(self) -> Iterator[Effects[R] | None]:
        """Yield these effects, then their continuation."""
        rest, self.continuation = self.continuation, None
        return chain([self], rest or ())


def _split_records(rest: Iterator[R | None], txn: TransactionContext | None) -> Iterator[Effects[R]]:
    while part := list(islice(rest, RECORDS_PER_STEP)):
        records = [record for record in part if record is not None]
        yield Effects(records, txn=txn if records else None)


class StateMachine(Protocol[R]):
    """The contract."""

    def handle(self, now_ms: int, event: Any) -> Effects[R]:
        """Decide on an event without changing replayed state."""

    def replay(self, offset: int, record: R) -> None:
        """Take over one committed record."""


@runtime_checkable
class TransactionalStateMachine(StateMachine[R], Protocol[R]):
    """State machine whose log has transactions."""

    def replay_pending(self, offset: int, producer_id: int, record: R) -> None:
        """Take over a record of a transaction that is open."""

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """Replay the end of a producer's transaction."""
