"""Execution of stepwise work at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def run_steps(steps: Generator[Any, None, T]) -> T:
    """Run all steps; return the result of the work."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            out: T = end.value
            return out
