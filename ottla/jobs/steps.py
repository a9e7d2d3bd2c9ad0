"""Generators for long work on the event loop: each yields wherever other work may go on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

YIELD_EVERY = 100
"""So many records or partitions are looked at between two pauses: about a millisecond."""
YIELD_EVERY_DECODED = 16
"""So many elements of a request's array are read between two pauses: each may have 4 KiB of arrays of its own."""
SORT_CHUNK = 2048
"""Of what takes longest to compare, tuples and texts made for it, so many take some 3 ms."""


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Do all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def sort_steps(items: Iterable[T], key: Callable[[T], Any] | None = None) -> Generator[None, None, list[T]]:
    """Items sorted as ``sorted`` does, which takes long for many: a few thousand at a time, then joined."""
    every: list[Any] = list(items)
    if len(every) <= SORT_CHUNK:
        every.sort(key=key)
        return every
    parts = []
    for first in range(0, len(every), SORT_CHUNK):
        parts.append(sorted(every[first : first + SORT_CHUNK], key=key))
        yield
    out: list[T] = []
    for number, item in enumerate(merge(*parts, key=key)):
        out.append(item)
        if number % YIELD_EVERY == 0:
            yield
    return out


def find_duplicates_steps(keys: Iterable[Hashable]) -> Generator[None, None, set[Hashable]]:
    """What is named more than once."""
    seen: set[Hashable] = set()
    twice: set[Hashable] = set()
    for number, key in enumerate(keys, 1):
        (twice if key in seen else seen).add(key)
        if number % YIELD_EVERY_DECODED == 0:
            yield
    return twice


def collect_steps(items: Iterable[T]) -> Generator[None, None, list[T]]:
    """Items as a list: with pauses, as each of them may have to be made."""
    every: list[T] = []
    for number, item in enumerate(items, 1):
        every.append(item)
        if number % YIELD_EVERY_DECODED == 0:
            yield
    return every


def collect_distinct_steps(items: Iterable[H]) -> Generator[None, None, dict[H, None]]:
    """Items, each once and in order: as `collect_steps`, where only the distinct ones are to be kept."""
    every: dict[H, None] = {}
    for number, item in enumerate(items, 1):
        every[item] = None
        if number % YIELD_EVERY_DECODED == 0:
            yield
    return every


def first_occurrences(
    items: Iterable[T], key: Callable[[T], Hashable], twice: set[Hashable]
) -> Iterator[tuple[int, T, bool] | None]:
    """Every item, and of those named twice the first: with its number from 1, and whether it is named again.

    None now and then, to pause at, while items are left out.
    """
    told: set[Hashable] = set()
    for number, item in enumerate(items, 1):
        at = key(item)
        is_again = at in twice
        if is_again and at in told:
            if number % YIELD_EVERY_DECODED == 0:
                yield None
            continue
        if is_again:
            told.add(at)
        yield number, item, is_again
