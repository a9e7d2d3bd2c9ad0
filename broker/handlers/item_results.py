"""Results of a request with many items: a response row or an error for each, in time slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, TypeVar

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.jobs.job import Job
from ottla.wire.codec.response_array import PENDING_ROWS
from ottla.wire.errors import ProtocolError

P = TypeVar("P")
R = TypeVar("R")

PendingResults = list[tuple[PendingBrokerRequest, Callable[[Any], None]]]
"""Pending requests of a response, with the functions that apply their results."""
MAX_PENDING_RESULTS = 250
"""So many rows are made before what coordinators say about them is waited for: they must not have been written yet."""
assert MAX_PENDING_RESULTS <= PENDING_ROWS


def collect_results(
    rows: list[R], parts: Iterable[P], answer: Callable[[P], R], refused: Callable[[P, ProtocolError], R]
) -> Job[list[R]]:
    """Append a row for every part: the result of ``answer``, or of ``refused`` for the error it raised."""
    for part in parts:
        try:
            row = answer(part)
        except ProtocolError as error:
            row = refused(part, error)
        rows.append(row)
        yield None
    return rows


def distinct(names: Iterable[str]) -> Iterator[str | None]:
    """Yield each name when it occurs first, None when it is repeated: many repetitions take steps too."""
    seen: set[bytes] = set()  # a quarter smaller than the text
    for name in names:
        raw = name.encode()
        yield None if raw in seen else name
        seen.add(raw)


def wait_before_encoding(rows: Sized, waits: PendingResults) -> Job[None]:
    """Wait for the pending results of the last rows, if the next row would be the first of another block.

    Call it before each row: a `ResponseArray` encodes rows by their number, also where they wait for nothing.
    """
    if len(rows) % MAX_PENDING_RESULTS == 0:
        yield from wait_for_results(waits)


def wait_for_results(waits: PendingResults) -> Job[None]:
    """Wait for all results and apply them."""
    for ticket, take in waits:
        yield from wait_for_result(ticket)
        take(ticket.answer)
    waits.clear()


def wait_for_result(ticket: PendingBrokerRequest) -> Job[Any]:
    """Return the result of a pending request, when it is there."""
    yield ticket.wait() if ticket.answer is None else None
    return ticket.answer
