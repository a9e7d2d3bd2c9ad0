"""Results of a request with many items, computed in time slices, and waits for requests to coordinators."""

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
"""Pending requests to coordinators of a response's rows, with the functions that apply their results to the rows."""
MAX_PENDING_RESULTS = 250
"""Maximum number of rows with pending results; they are awaited before more rows are added, which encodes the rows."""
assert MAX_PENDING_RESULTS <= PENDING_ROWS


def collect_results(
    rows: list[R], parts: Iterable[P], answer: Callable[[P], R], refused: Callable[[P, ProtocolError], R]
) -> Job[list[R]]:
    """Append a row to ``rows`` for each item of ``parts`` and return ``rows``, as a job.

    A row is the result of ``answer``, or of ``refused`` for the `ProtocolError` that ``answer`` raised.
    """
    for part in parts:
        try:
            row = answer(part)
        except ProtocolError as error:
            row = refused(part, error)
        rows.append(row)
        yield None
    return rows


def distinct(names: Iterable[str]) -> Iterator[str | None]:
    """Yield each name at its first occurrence, and None for each repetition, so that a job can yield there."""
    seen: set[bytes] = set()  # 25 % less memory than str
    for name in names:
        raw = name.encode()
        yield None if raw in seen else name
        seen.add(raw)


def wait_before_encoding(rows: Sized, waits: PendingResults) -> Job[None]:
    """Wait for the pending results if the next row begins a new block of `MAX_PENDING_RESULTS` rows, as a job.

    Call it before each row is added: a `ResponseArray` encodes its rows in blocks of a fixed number of rows.
    """
    if len(rows) % MAX_PENDING_RESULTS == 0:
        yield from wait_for_results(waits)


def wait_for_results(waits: PendingResults) -> Job[None]:
    """Wait for all pending results of ``waits``, apply them to their rows and clear the list, as a job.

    The `ProtocolError` of a failed request is applied, too, and not raised.
    """
    for pending, take in waits:
        yield from wait_for_result(pending)
        take(pending.answer)
    waits.clear()


def wait_for_success(pending: PendingBrokerRequest) -> Job[Any]:
    """Wait for the result of a pending request and return it, as a job.

    Raises:
        ProtocolError: The request failed with this error.
    """
    answer = yield from wait_for_result(pending)
    if isinstance(answer, ProtocolError):
        raise ProtocolError(answer.code, answer.message)  # raising `answer` would make a cycle with this frame
    return answer


def wait_for_result(pending: PendingBrokerRequest) -> Job[Any]:
    """Wait for the result of a request to a coordinator or the controller and return it, as a job.

    A failed request has a `ProtocolError` as its result, which is returned and not raised.
    """
    yield pending.wait() if pending.answer is None else None
    return pending.answer
