"""Requests that may be long: worked on in slices, answered once everything asked of coordinators is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import trio

from ottla.broker.coordinator.ticket import Ticket

T = TypeVar("T")

SLICE = 500
"""So many small rows take a few milliseconds."""

Waits = list[tuple[Ticket, Callable[[Any], None]]]
"""What an answer waits for, and who takes it in."""


async def run(steps: Iterator[None]) -> None:
    """Run steps to their end; others get the loop between two of them."""
    for _ in steps:
        await trio.lowlevel.checkpoint()


def conclude(steps: Iterator[None], waits: Waits, result: T) -> T | Awaitable[T]:
    """Run ``steps``, then have all of ``waits`` taken in, then give ``result``: at once where that can be.

    ``steps`` yields where it has worked for long enough; it may add to ``waits``.
    """
    for _ in steps:
        return _later(steps, waits, result)
    if any(ticket.answer is None for ticket, _ in waits):
        return _later(steps, waits, result)
    for ticket, take in waits:
        take(ticket.answer)
    return result


async def _later(steps: Iterator[None], waits: Waits, result: T) -> T:
    await run(steps)
    for ticket, take in waits:
        take(await ticket.wait())
    return result
