"""The contract of every rule machine: ``handle`` decides, ``replay`` is the only thing that changes replayed state.

A machine never does anything. It says what shall be done, as an `Effects`: records to append, replies to send once
those records are committed, timers to arm. The shell around it appends, replays, waits for the high watermark, and
only then lets the replies go, so nobody ever sees a state that could be lost.

Shape taken from ``CoordinatorResult``/``CoordinatorShard`` and ``ControllerResult`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

R = TypeVar("R")


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


@dataclass(slots=True)
class Effects(Generic[R]):
    """What a machine wants done."""

    records: list[R] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[Arm | Cancel] = field(default_factory=list)


class Machine(Protocol[R]):
    """The contract."""

    def handle(self, now_ms: int, event: Any) -> Effects[R]:
        """Decide; changes nothing that is replayed from the log."""

    def replay(self, offset: int, record: R) -> None:
        """Take over one committed record."""
