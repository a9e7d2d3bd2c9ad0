"""What clients did, as they saw it: every operation with what it sent and read, and whether it came to a good end.

An operation is one call of one client's, retries included. It is ``ok`` (the client was told so), ``fail`` (it was told
that nothing happened), or ``info``: nobody knows, it may have happened or happen yet. `sim.checkers.anomalies` judges
them.

Terms and rules are those of ``jepsen.tests.kafka``; this is a writing of our own.
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
    """How an operation ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class SendStep(NamedTuple):
    """One value was sent; no value is sent twice to one place by two operations."""

    place: HistoryPartition
    value: int
    offset: int = -1
    """Where it lies, if the client was told."""


class PollStep(NamedTuple):
    """What one read of one partition gave, in the order it came: offsets and values; None: its checksum was wrong."""

    place: HistoryPartition
    records: tuple[tuple[int, int | None], ...]


class OffsetsStep(NamedTuple):
    """What somebody was told of a partition's ends: of what is committed in transactions, and of what is committed."""

    place: HistoryPartition
    last_stable_offset: int
    high_watermark: int


OperationStep = SendStep | PollStep | OffsetsStep

NEVER = 2**62
"""When a transaction asked for its commit that has not."""


class Operation(NamedTuple):
    """One operation."""

    process: str
    kind: str
    """``send``, ``poll``, ``txn`` (both), ``look``, ``assign``, ``subscribe``, or ``crash``: the client begins anew."""
    outcome: OperationOutcome
    steps: tuple[OperationStep, ...] = ()
    places: tuple[HistoryPartition, ...] = ()
    """What the client reads from now on (``assign``, ``subscribe``); of others: what was taken from it meanwhile."""
    began: int = -1
    ended: int = -1
    """Its place among all beginnings and ends."""
    began_s: float = 0.0
    ended_s: float = 0.0
    commit_requested_at: int = -1
    """Its place among them when a transaction asked for its commit; -1 where that is not told."""
    reads_uncommitted: bool = False
    """Whether it reads what is not committed, too."""

    @property
    def sends(self) -> list[SendStep]:
        """What it sent, in order."""
        return [x for x in self.steps if isinstance(x, SendStep)]

    @property
    def polls(self) -> list[PollStep]:
        """What it read, in order."""
        return [x for x in self.steps if isinstance(x, PollStep)]

    @property
    def offset_steps(self) -> list[OffsetsStep]:
        """Where it was told that partitions end."""
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
        """A client is about to do something; the number it has until it ends."""
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
        """A transaction is about to send more; it has not asked for its commit."""
        op = self._open[number]
        self._open[number] = op._replace(steps=(*op.steps, *steps), commit_requested_at=NEVER)

    def request_commit(self, number: int) -> None:
        """A transaction is about to ask for its commit."""
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
        """It ended; ``steps`` where more is known of them now."""
        op = self._open.pop(number)
        known = op.steps if steps is None else tuple(steps)
        self._ended.append(
            op._replace(outcome=outcome, steps=known, places=tuple(places), ended=self._events, ended_s=now_s)
        )
        self._events += 1

    def operations(self, topic: str | None = None) -> list[Operation]:
        """All of them by when they ended, or their steps at one topic; what has not ended is ``info``, and last."""
        end = self._events
        out = [*self._ended, *(op._replace(ended=end + index) for index, op in enumerate(self._open.values()))]
        if topic is None:
            return out
        return [op._replace(steps=tuple(x for x in op.steps if x.place[0] == topic)) for op in out]


def encode_value(place: HistoryPartition, value: int) -> bytes:
    """A value as a record's value: it carries its own checksum, which holds at its own place only."""
    return _PAYLOAD.pack(value, _checksum(place, value))


def decode_value(place: HistoryPartition, raw: bytes | None) -> int | None:
    """The value of such a record; None where it is not what was made for this place."""
    if raw is None or len(raw) != _PAYLOAD.size:
        return None
    value, checksum = _PAYLOAD.unpack(raw)
    return int(value) if checksum == _checksum(place, value) else None


def _checksum(place: HistoryPartition, value: int) -> int:
    return zlib.crc32(f"{place[0]}-{place[1]}:{value}".encode())
