"""What clients did, as they saw it: every operation with what it sent and read, and whether it came to a good end.

An operation is one call of one client's, retries included. It is ``ok`` (the client was told so), ``fail`` (it was told
that nothing happened), or ``info``: nobody knows, it may have happened or happen yet. `sim.anomalies` judges them.

Terms and rules are those of ``jepsen.tests.kafka``; this is a writing of our own.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

Place = tuple[str, int]
"""Topic and partition."""

_PAYLOAD = struct.Struct(">qI")


class Outcome(Enum):
    """How an operation ended."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Send(NamedTuple):
    """One value was sent; no value is sent twice to one place by two operations."""

    place: Place
    value: int
    offset: int = -1
    """Where it lies, if the client was told."""


class Poll(NamedTuple):
    """What one read of one partition gave, in the order it came: offsets and values; None: its checksum was wrong."""

    place: Place
    records: tuple[tuple[int, int | None], ...]


class Look(NamedTuple):
    """What somebody was told of a partition's ends: of what is committed in transactions, and of what is committed."""

    place: Place
    stable: int
    high: int


Step = Send | Poll | Look

NEVER = 2**62
"""When a transaction asked for its commit that has not."""


class Op(NamedTuple):
    """One operation."""

    process: str
    kind: str
    """``send``, ``poll``, ``txn`` (both), ``look``, ``assign``, ``subscribe``, or ``crash``: the client begins anew."""
    outcome: Outcome
    steps: tuple[Step, ...] = ()
    places: tuple[Place, ...] = ()
    """What the client reads from now on (``assign``, ``subscribe``); of others: what was taken from it meanwhile."""
    began: int = -1
    ended: int = -1
    """Its place among all beginnings and ends."""
    began_s: float = 0.0
    ended_s: float = 0.0
    asked: int = -1
    """Its place among them when a transaction asked for its commit; -1 where that is not told."""
    uncommitted: bool = False
    """Whether it reads what is not committed, too."""

    @property
    def sends(self) -> list[Send]:
        """What it sent, in order."""
        return [x for x in self.steps if isinstance(x, Send)]

    @property
    def polls(self) -> list[Poll]:
        """What it read, in order."""
        return [x for x in self.steps if isinstance(x, Poll)]

    @property
    def looks(self) -> list[Look]:
        """Where it was told that partitions end."""
        return [x for x in self.steps if isinstance(x, Look)]


class History:
    """Operations, written down as they begin and end."""

    def __init__(self) -> None:
        self._ended: list[Op] = []
        self._open: dict[int, Op] = {}
        self._events = 0

    def begin(
        self, process: str, kind: str, steps: Iterable[Step] = (), now_s: float = 0.0, *, uncommitted: bool = False
    ) -> int:
        """A client is about to do something; the number it has until it ends."""
        number = self._events
        self._events += 1
        op = Op(process, kind, Outcome.INFO, tuple(steps), (), number, -1, now_s, now_s, uncommitted=uncommitted)
        self._open[number] = op
        return number

    def sends(self, number: int, steps: Iterable[Step]) -> None:
        """A transaction is about to send more; it has not asked for its commit."""
        op = self._open[number]
        self._open[number] = op._replace(steps=(*op.steps, *steps), asked=NEVER)

    def asks(self, number: int) -> None:
        """A transaction is about to ask for its commit."""
        self._open[number] = self._open[number]._replace(asked=self._events)
        self._events += 1

    def end(
        self,
        number: int,
        outcome: Outcome,
        now_s: float = 0.0,
        steps: Iterable[Step] | None = None,
        places: Iterable[Place] = (),
    ) -> None:
        """It ended; ``steps`` where more is known of them now."""
        op = self._open.pop(number)
        known = op.steps if steps is None else tuple(steps)
        self._ended.append(
            op._replace(outcome=outcome, steps=known, places=tuple(places), ended=self._events, ended_s=now_s)
        )
        self._events += 1

    def ops(self, topic: str | None = None) -> list[Op]:
        """All of them by when they ended, or their steps at one topic; what has not ended is ``info``, and last."""
        end = self._events
        out = [*self._ended, *(op._replace(ended=end + index) for index, op in enumerate(self._open.values()))]
        if topic is None:
            return out
        return [op._replace(steps=tuple(x for x in op.steps if x.place[0] == topic)) for op in out]


def payload(place: Place, value: int) -> bytes:
    """A value as a record's value: it carries its own checksum, which holds at its own place only."""
    return _PAYLOAD.pack(value, _checksum(place, value))


def value_of(place: Place, raw: bytes | None) -> int | None:
    """The value of such a record; None where it is not what was made for this place."""
    if raw is None or len(raw) != _PAYLOAD.size:
        return None
    value, checksum = _PAYLOAD.unpack(raw)
    return int(value) if checksum == _checksum(place, value) else None


def _checksum(place: Place, value: int) -> int:
    return zlib.crc32(f"{place[0]}-{place[1]}:{value}".encode())
