"""The contract of every rule machine: ``handle`` decides, ``replay`` is the only thing that changes replayed state.

A machine never does anything. It says what shall be done, as an `Effects`: records to append, replies to send once
those records are committed, timers to arm. The shell around it appends, replays, waits for the high watermark, and
only then lets the replies go, so nobody ever sees a state that could be lost.

What is not replayed (who waits for what, timers) and must follow the log all the same goes into ``on_commit_outcome``:
the shell hands it back once the fate of the records is known. What is too much for one turn of the loop goes into
``continuation``.

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
    """Whose transaction records belong to: all of a turn's are one batch."""

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
    """What a machine wants done."""

    records: list[R] = field(default_factory=list)
    replies: list[RequestReply] = field(default_factory=list)
    immediate_replies: list[RequestReply] = field(default_factory=list)
    """Answers that hang on nothing that is not committed: they leave in the same turn, whatever becomes of it."""
    txn: TransactionContext | TransactionCompletion | None = None
    """Where the records belong to a transaction, or one ends. Each slice of ``continuation`` says it for itself."""
    timers: list[ScheduleTimer | CancelTimer] = field(default_factory=list)
    on_commit_outcome: Any = None
    """Handed back to the machine when the records are committed, or are known not to be."""
    continuation: Iterator[Effects[R]] | None = None
    """More of the same, asked for slice by slice; the machine gets no other event before its end. Each slice's records
    are written, and its replies leave, before the next is asked for; where records are refused it is the last. The
    replies and ``on_commit_outcome`` that stand beside it wait for its end, and are told of a `ProtocolError` it ends
    with."""

    def add_records(self, records: Iterable[R | None], txn: TransactionContext | None = None) -> None:
        """Records to append, however many: all after one slice in ``continuation``. None is a look that led to none.

        Those of a transaction are as many of its batches: seen together all the same, at its end.
        """
        assert self.continuation is None
        rest = iter(records)
        first = list(islice(rest, RECORDS_PER_STEP))
        self.records += (record for record in first if record is not None)
        self.txn = txn if self.records else None
        if len(first) == RECORDS_PER_STEP:
            self.continuation = _split_records(rest, txn)

    def continue_with(self, slices: Iterator[Effects[R]], rows: int) -> None:
        """What goes on over so many rows, in slices: at once where they are few, else in ``continuation``."""
        if rows > RECORDS_PER_STEP:
            self.continuation = slices if self.continuation is None else chain(self.continuation, slices)
            return
        for part in slices:
            self.records += part.records
            self.replies += part.replies
            self.immediate_replies += part.immediate_replies
            self.timers += part.timers

    def flatten(self) -> Iterator[Effects[R]]:
        """These as a slice, and what they go on with as more of them: for who makes slices of slices."""
        rest, self.continuation = self.continuation, None
        yield self
        if rest is not None:
            yield from rest


def _split_records(rest: Iterator[R | None], txn: TransactionContext | None) -> Iterator[Effects[R]]:
    while part := list(islice(rest, RECORDS_PER_STEP)):
        records = [record for record in part if record is not None]
        yield Effects(records, txn=txn if records else None)


class StateMachine(Protocol[R]):
    """The contract."""

    def handle(self, now_ms: int, event: Any) -> Effects[R]:
        """Decide; changes nothing that is replayed from the log."""

    def replay(self, offset: int, record: R) -> None:
        """Take over one committed record."""


@runtime_checkable
class TransactionalStateMachine(StateMachine[R], Protocol[R]):
    """One whose log takes transactions."""

    def replay_pending(self, offset: int, producer_id: int, record: R) -> None:
        """Take over a record of a transaction that is open."""

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """A producer's transaction has ended."""
