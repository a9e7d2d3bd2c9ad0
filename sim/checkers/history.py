"""History of the clients' operations: records sent and read, and the outcome as the client saw it.

An operation is one call of one client, including retries. It is ``ok`` (confirmed), ``fail`` (rejected without effect),
or ``info``: unknown, it may have happened or may happen later. `sim.checkers.anomalies` evaluates them.

Terms and rules are those of ``jepsen.tests.kafka``; the implementation is our own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

HistoryPartition = tuple[str, int]
"""Topic and partition."""

_PAYLOAD = struct.Struct(">qI")


class OperationOutcome(Enum):
    """Outcome of an operation."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class SendStep(NamedTuple):
    """Sent value; no value is sent to one partition by two operations."""

    place: HistoryPartition
    value: int
    offset: int = -1
    """Offset, if the client knows it."""


class PollStep(NamedTuple):
    """Result of one read of a partition, in order: offsets and values; None: invalid checksum."""

    place: HistoryPartition
    records: tuple[tuple[int, int | None], ...]


class OffsetsStep(NamedTuple):
    """Returned ends of a partition: last stable offset and high watermark."""

    place: HistoryPartition
    last_stable_offset: int
    high_watermark: int


OperationStep = SendStep | PollStep | OffsetsStep

NEVER = 2**62
"""Commit time of a transaction without a commit request."""


class Operation(NamedTuple):
    """Operation."""

    process: str
    kind: str
    """``send``, ``poll``, ``txn`` (both), ``look``, ``assign``, ``subscribe``, or ``crash``: the client begins anew."""
    outcome: OperationOutcome
    steps: tuple[OperationStep, ...] = ()
    places: tuple[HistoryPartition, ...] = ()
    """Partitions that the client reads from now on (``assign``, ``subscribe``), or lost meanwhile."""
    began: int = -1
    ended: int = -1
    """Event number of its end."""
    began_s: float = 0.0
    ended_s: float = 0.0
    commit_requested_at: int = -1
    """Event number of a transaction's commit request; -1 if unknown."""
    reads_uncommitted: bool = False
    """True for read_uncommitted."""

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
        """Returned ends of partitions."""
        return [x for x in self.steps if isinstance(x, OffsetsStep)]


class OperationHistory:
    """Operations, written down as they begin and end."""

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
        """Record the start of an operation; return its number until it ends."""
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
        """Add values to a transaction before its commit request."""
        op = self._open[number]
        self._open[number] = op._replace(steps=(*op.steps, *steps), commit_requested_at=NEVER)

    def request_commit(self, number: int) -> None:
        """Record a transaction's commit request."""
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
        """Record its end; ``steps`` if more is known now."""
        op = self._open.pop(number)
        known = op.steps if steps is None else tuple(steps)
        self._ended.append(
            op._replace(outcome=outcome, steps=known, places=tuple(places), ended=self._events, ended_s=now_s)
        )
        self._events += 1

    def operations(self, topic: str | None = None) -> list[Operation]:
        """Return all of them by when they ended, or their steps at one topic.

        What has not ended is ``info``, and last.
        """
        end = self._events
        out = [*self._ended, *(op._replace(ended=end + index) for index, op in enumerate(self._open.values()))]
        if topic is None:
            return out
        return [op._replace(steps=tuple(x for x in op.steps if x.place[0] == topic)) for op in out]


def encode_value(place: HistoryPartition, value: int) -> bytes:
    """Return a value as a record's value: it carries its own checksum, which holds at its own place only."""
    return _PAYLOAD.pack(value, _checksum(place, value))


def decode_value(place: HistoryPartition, raw: bytes | None) -> int | None:
    """Return the value of such a record; None where it is not what was made for this place."""
    if raw is None or len(raw) != _PAYLOAD.size:
        return None
    value, checksum = _PAYLOAD.unpack(raw)
    return int(value) if checksum == _checksum(place, value) else None


def _checksum(place: HistoryPartition, value: int) -> int:
    return zlib.crc32(f"{place[0]}-{place[1]}:{value}".encode())
