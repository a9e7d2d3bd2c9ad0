"""For each topic, for each partition: its answer, else its error. A long request takes turns with everybody else."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ProtocolError
from ottla.wire.schema import Message

P = TypeVar("P")
R = TypeVar("R")
Steps = Generator[None, None, R]
"""Work cut into steps, none of which takes long."""
_LOOK_EVERY = 32


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


def in_turns(context: Context, steps: Steps[Answer]) -> Answer:
    """Go through the steps: at once while they fit into this connection's turn, else resting in between.

    What they give may itself be something to wait for.
    """
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        count += 1
        if count % _LOOK_EVERY == 0 and context.turn.is_over():
            return _go_on(context, steps)


async def _go_on(context: Context, steps: Steps[Answer]) -> Message | None:
    answer = await context.turn.through(steps)
    return answer if answer is None or isinstance(answer, Message) else await answer
