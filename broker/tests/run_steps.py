"""Work that is cut into steps, done in one go."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def run_steps(steps: Generator[Any, None, T]) -> T:
    """Take all steps; gives what the work gives."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            out: T = end.value
            return out
