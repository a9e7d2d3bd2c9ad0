"""For each topic, for each partition: its answer, else its error. A long request takes turns with everybody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.turn import Steps, Waiting
from ottla.wire.errors import ProtocolError

P = TypeVar("P")
R = TypeVar("R")

Waits = list[tuple[Ticket, Callable[[Any], None]]]
"""What an answer waits for, and who takes it in."""
WAITS_AT_ONCE = 500
"""So many things are asked of coordinators before the first answer is waited for."""


def each(parts: Iterable[P], answer: Callable[[P], R], refused: Callable[[P, ProtocolError], R]) -> Steps[list[R]]:
    """One row for every part: what ``answer`` gives, or what ``refused`` makes of the error it raised."""
    rows: list[R] = []
    for part in parts:
        try:
            row = answer(part)
        except ProtocolError as error:
            row = refused(part, error)
        rows.append(row)
        yield
    return rows


def settle(waits: Waits) -> Waiting[None]:
    """Have everything taken in that is waited for."""
    for ticket, take in waits:
        yield from settled(ticket)
        take(ticket.answer)
    waits.clear()


def settled(ticket: Ticket) -> Waiting[Any]:
    """A ticket's answer, once it is there."""
    yield None if ticket.answer is not None else ticket
    return ticket.answer
