"""History of the clients' operations: records sent and read, and the outcome from the client's view.

An operation is one call of one client, including retries. Its outcome is ``ok`` (confirmed), ``fail`` (rejected without
effect) or ``info`` (unknown: it may have happened or may happen later). `sim.checkers.anomalies` evaluates the history.

Terms and rules are those of ``jepsen.tests.kafka``; the implementation is our own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

HistoryPartition = tuple[str, int]
"""Topic name and partition number."""

_PAYLOAD = struct.Struct(">qI")


class OperationOutcome(Enum):
    """Outcome of an operation from the client's view: confirmed, rejected without effect, or unknown."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class SendStep(NamedTuple):
    """Sent value; no value is sent to one partition by two operations."""

    place: HistoryPartition
    value: int
    offset: int = -1
    """Offset of the record; -1 if the client does not know it."""


class PollStep(NamedTuple):
    """Result of one read of a partition: offsets and values in order; the value None has an invalid checksum."""

    place: HistoryPartition
    records: tuple[tuple[int, int | None], ...]


class OffsetsStep(NamedTuple):
    """Last stable offset and high watermark of a partition in one Fetch response."""

    place: HistoryPartition
    last_stable_offset: int
    high_watermark: int


OperationStep = SendStep | PollStep | OffsetsStep

NEVER = 2**62
"""Commit time of a transaction without a commit request."""


class Operation(NamedTuple):
    """Call of a client: its steps, its outcome, and the event numbers of its start and end."""

    process: str
    kind: str
    """``send``, ``poll``, ``txn`` (both), ``look``, ``assign``, ``subscribe``, or ``crash`` (restart of the client)."""
    outcome: OperationOutcome
    steps: tuple[OperationStep, ...] = ()
    places: tuple[HistoryPartition, ...] = ()
    """Partitions that the client reads from now on (``assign``, ``subscribe``), or lost during the operation."""
    began: int = -1
    ended: int = -1
    """Event number of the operation's end."""
    began_s: float = 0.0
    ended_s: float = 0.0
    commit_requested_at: int = -1
    """Event number of a transaction's commit request; -1 if unknown."""
    reads_uncommitted: bool = False
    """True for reads with read_uncommitted."""

    @property
    def sends(self) -> list[SendStep]:
        """Sent values, in order."""
        return [x for x in self.steps if isinstance(x, SendStep)]

    @property
    def polls(self) -> list[PollStep]:
        """Reads, in order."""
        return [x for x in self.steps if isinstance(x, PollStep)]

    @property
    def offset_steps(self) -> list[OffsetsStep]:
        """Ends of partitions in responses, in order."""
        return [x for x in self.steps if isinstance(x, OffsetsStep)]


class OperationHistory:
    """Recorder of the operations of a run."""

    def __init__(self) -> None:
        self._ended: list[Operation] = []
        self._open: dict[int, Operation] = {}
        self._events = 0

    def start(
        self,
        process: str,
        kind: str,
        steps: Iterable[OperationStep] = (),
        now_s: float = 0.0,
        *,
        uncommitted: bool = False,
    ) -> int:
        """Record the start of an operation; return its number for the calls up to `end`.

        Args:
            process: Name of the client.
            kind: Kind of operation (`Operation.kind`).
            steps: Steps known so far, such as the values to send.
            now_s: Simulated time in seconds.
            uncommitted: True for reads with read_uncommitted.
        """
        number = self._events
        self._events += 1
        op = Operation(
            process,
            kind,
            OperationOutcome.INFO,
            tuple(steps),
            (),
            number,
            -1,
            now_s,
            now_s,
            reads_uncommitted=uncommitted,
        )
        self._open[number] = op
        return number

    def add_sends(self, number: int, steps: Iterable[OperationStep]) -> None:
        """Add sends to the open transaction ``number``, before its commit request."""
        op = self._open[number]
        self._open[number] = op._replace(steps=(*op.steps, *steps), commit_requested_at=NEVER)

    def request_commit(self, number: int) -> None:
        """Record that the client of an open transaction is about to send its commit request."""
        self._open[number] = self._open[number]._replace(commit_requested_at=self._events)
        self._events += 1

    def end(
        self,
        number: int,
        outcome: OperationOutcome,
        now_s: float = 0.0,
        steps: Iterable[OperationStep] | None = None,
        places: Iterable[HistoryPartition] = (),
    ) -> None:
        """Record the end of the operation ``number`` with its outcome at the simulated time ``now_s``.

        ``steps`` replace those of the start unless None. ``places``: as `Operation.places`.
        """
        op = self._open.pop(number)
        known = op.steps if steps is None else tuple(steps)
        self._ended.append(
            op._replace(outcome=outcome, steps=known, places=tuple(places), ended=self._events, ended_s=now_s)
        )
        self._events += 1

    def operations(self, topic: str | None = None) -> list[Operation]:
        """Return all operations in the order of their ends; with ``topic``, only their steps in that topic.

        Operations that have not ended are ``info`` and come last.
        """
        end = self._events
        out = [*self._ended, *(op._replace(ended=end + index) for index, op in enumerate(self._open.values()))]
        if topic is None:
            return out
        return [op._replace(steps=tuple(x for x in op.steps if x.place[0] == topic)) for op in out]


def encode_value(place: HistoryPartition, value: int) -> bytes:
    """Return a number as bytes of a record's value, with a checksum that is valid only for its partition."""
    return _PAYLOAD.pack(value, _checksum(place, value))


def decode_value(place: HistoryPartition, raw: bytes | None) -> int | None:
    """Return the number in a record's value; None if its size or its checksum for this partition is wrong."""
    if raw is None or len(raw) != _PAYLOAD.size:
        return None
    value, checksum = _PAYLOAD.unpack(raw)
    return int(value) if checksum == _checksum(place, value) else None


def _checksum(place: HistoryPartition, value: int) -> int:
    return zlib.crc32(f"{place[0]}-{place[1]}:{value}".encode())
