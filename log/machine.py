"""The contract of every rule machine: ``handle`` decides, ``replay`` is the only thing that changes replayed state.

A machine never does anything. It says what shall be done, as an `Effects`: records to append, replies to send once
those records are committed, timers to arm. The shell around it appends, replays, waits for the high watermark, and
only then lets the replies go, so nobody ever sees a state that could be lost.

What is not replayed (who waits for what, timers) and must follow the log all the same goes into ``settle``: the shell
hands it back once the fate of the records is known. What is too much for one turn of the loop goes into ``then``.

Shape taken from ``CoordinatorResult``/``CoordinatorShard`` and ``ControllerResult`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from ottla.wire.control import TxnEnd

R = TypeVar("R")


class Guard:
    """Proof of which question about a transaction an answer belongs to; each is equal to itself only."""

    __slots__ = ()


class Arm(NamedTuple):
    """Set the timer ``key`` to ``at_ms`` (wall clock); an older setting of the same key is forgotten."""

    key: Any
    at_ms: int


class Cancel(NamedTuple):
    """Forget the timer ``key``."""

    key: Any


class Reply(NamedTuple):
    """An answer for the request that came in with ``ticket``."""

    ticket: Any
    message: Any


class InTransaction(NamedTuple):
    """Whose transaction records belong to: all of a turn's are one batch."""

    producer_id: int
    epoch: int
    guard: Guard | None
    """The proof that its coordinator knows of this partition; None where the transaction is open here."""


class Ends(NamedTuple):
    """The end of a transaction: a marker in the log, and no records."""

    producer_id: int
    epoch: int
    end: TxnEnd
    version: int
    """Of the protocol it is written under."""


SLICE = 500
"""So many records, or looks that lead to none, are one slice: a few milliseconds of work."""


@dataclass(slots=True)
class Effects(Generic[R]):
    """What a machine wants done."""

    records: list[R] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    at_once: list[Reply] = field(default_factory=list)
    """Answers that hang on nothing that is not committed: they leave in the same turn, whatever becomes of it."""
    txn: InTransaction | Ends | None = None
    """Where the records belong to a transaction, or one ends. Each slice of ``then`` says it for itself."""
    timers: list[Arm | Cancel] = field(default_factory=list)
    settle: Any = None
    """Handed back to the machine when the records are committed, or are known not to be."""
    then: Iterator[Effects[R]] | None = None
    """More of the same, asked for slice by slice; the machine gets no other event before its end. Each slice's records
    are written, and its replies leave, before the next is asked for; where records are refused it is the last. The
    replies and ``settle`` that stand beside it wait for its end, and are told of a `ProtocolError` it ends with."""

    def lay(self, records: Iterable[R | None], txn: InTransaction | None = None) -> None:
        """Records to append, however many: more than one slice is made in ``then``. None is a look that led to none.

        Those of a transaction are as many of its batches: seen together all the same, at its end.
        """
        assert self.then is None
        rest = iter(records)
        first = list(islice(rest, SLICE))
        self.records += (record for record in first if record is not None)
        self.txn = txn if self.records else None
        if len(first) == SLICE:
            self.then = _slices(rest, txn)

    def follow(self, slices: Iterator[Effects[R]], rows: int) -> None:
        """What goes on over so many rows, in slices: at once where they are few, else in ``then``."""
        if rows > SLICE:
            self.then = slices if self.then is None else chain(self.then, slices)
            return
        for part in slices:
            self.records += part.records
            self.replies += part.replies
            self.at_once += part.at_once
            self.timers += part.timers

    def flat(self) -> Iterator[Effects[R]]:
        """These as a slice, and what they go on with as more of them: for who makes slices of slices."""
        rest, self.then = self.then, None
        yield self
        if rest is not None:
            yield from rest


def _slices(rest: Iterator[R | None], txn: InTransaction | None) -> Iterator[Effects[R]]:
    while part := list(islice(rest, SLICE)):
        records = [record for record in part if record is not None]
        yield Effects(records, txn=txn if records else None)


class Machine(Protocol[R]):
    """The contract."""

    def handle(self, now_ms: int, event: Any) -> Effects[R]:
        """Decide; changes nothing that is replayed from the log."""

    def replay(self, offset: int, record: R) -> None:
        """Take over one committed record."""


@runtime_checkable
class TransactionalMachine(Machine[R], Protocol[R]):
    """One whose log takes transactions."""

    def replay_pending(self, offset: int, producer_id: int, record: R) -> None:
        """Take over a record of a transaction that is open."""

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """A producer's transaction has ended."""
