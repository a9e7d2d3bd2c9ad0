"""For each topic, for each partition: its answer, else its error. A long request takes turns with everybody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.jobs.job import Job
from ottla.wire.codec.response_array import PENDING_ROWS
from ottla.wire.errors import ProtocolError

P = TypeVar("P")
R = TypeVar("R")

PendingResults = list[tuple[PendingBrokerRequest, Callable[[Any], None]]]
"""What an answer waits for, and who takes it in."""
MAX_PENDING_RESULTS = 250
"""So many rows are made before what coordinators say about them is waited for: they must not have been written yet."""
assert MAX_PENDING_RESULTS <= PENDING_ROWS


def collect_results(
    rows: list[R], parts: Iterable[P], answer: Callable[[P], R], refused: Callable[[P, ProtocolError], R]
) -> Job[list[R]]:
    """One row more for every part: what ``answer`` gives, or what ``refused`` makes of the error it raised."""
    for part in parts:
        try:
            row = answer(part)
        except ProtocolError as error:
            row = refused(part, error)
        rows.append(row)
        yield None
    return rows


def distinct(names: Iterable[str]) -> Iterator[str | None]:
    """Each name the first time it comes, None where it comes again: very many of those take their time too."""
    seen: set[bytes] = set()  # a quarter smaller than the text
    for name in names:
        raw = name.encode()
        yield None if raw in seen else name
        seen.add(raw)


def wait_for_results(waits: PendingResults) -> Job[None]:
    """Have everything taken in that is waited for."""
    for ticket, take in waits:
        yield from wait_for_result(ticket)
        take(ticket.answer)
    waits.clear()


def wait_for_result(ticket: PendingBrokerRequest) -> Job[Any]:
    """A ticket's answer, once it is there."""
    yield ticket.wait() if ticket.answer is None else None
    return ticket.answer
