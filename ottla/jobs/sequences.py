"""Jobs over sequences: sort, collect and search with pauses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Set, Sized
from heapq import merge
from typing import Any, Generic, Protocol, TypeVar

from ottla.jobs.job import Job

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
H = TypeVar("H", bound=Hashable)

YIELD_EVERY = 100
"""Records or partitions between two pauses: about a millisecond of work."""
YIELD_EVERY_DECODED = 16
"""Elements of an array of a request between two pauses: each may have 4 KiB of arrays of its own."""
SORT_CHUNK = 2048
"""Elements sorted between two pauses: about 3 ms where tuples and strings have to be made to compare them."""


class SizedIterable(Sized, Iterable[T_co], Protocol[T_co]):
    """Sized items that can be iterated repeatedly: a list, or an array that is decoded at each iteration."""


class Remainder(Generic[T]):
    """View of an array without some of its items.

    Nothing is copied: as objects, the elements of a long array are a pause of the event loop when they are freed.
    """

    __slots__ = ("_items", "_left_out")

    def __init__(self, items: SizedIterable[T], left_out: Set[int]) -> None:
        """``left_out``: places of items, from 0."""
        self._items = items
        self._left_out = left_out

    def __len__(self) -> int:
        return len(self._items) - len(self._left_out)

    def __iter__(self) -> Iterator[T]:
        return (item for at, item in enumerate(self._items) if at not in self._left_out)


def sort_job(items: Iterable[T], key: Callable[[T], Any] | None = None) -> Generator[None, None, list[T]]:
    """Sort items as ``sorted`` does: in chunks, which are merged then."""
    every: list[Any] = list(items)
    if len(every) <= SORT_CHUNK:
        every.sort(key=key)
        return every
    parts = []
    for first in range(0, len(every), SORT_CHUNK):
        parts.append(sorted(every[first : first + SORT_CHUNK], key=key))
        yield None
    out: list[T] = []
    for number, item in enumerate(merge(*parts, key=key)):
        out.append(item)
        if number % YIELD_EVERY == 0:
            yield None
    return out


def free_job(items: dict[Any, Any] | set[Any] | list[Any]) -> Job[None]:
    """Empty a collection: very many objects that are freed in one step are a pause of the event loop."""
    pop: Callable[[], Any] = items.popitem if isinstance(items, dict) else items.pop
    for number in range(1, len(items) + 1):
        pop()
        if number % YIELD_EVERY == 0:
            yield None


def find_duplicates_job(keys: Iterable[Hashable]) -> Job[set[Hashable]]:
    """Return the keys that occur more than once."""
    seen: set[Hashable] = set()
    twice: set[Hashable] = set()
    for number, key in enumerate(keys, 1):
        (twice if key in seen else seen).add(key)
        if number % YIELD_EVERY_DECODED == 0:
            yield None
    yield from free_job(seen)
    return twice


def collect_job(items: Iterable[T]) -> Job[list[T]]:
    """Collect items, each of which may have to be made, in a list."""
    every: list[T] = []
    for number, item in enumerate(items, 1):
        every.append(item)
        if number % YIELD_EVERY_DECODED == 0:
            yield None
    return every


def collect_distinct_job(items: Iterable[H]) -> Job[dict[H, None]]:
    """Collect the distinct items in order, as the keys of a dictionary."""
    every: dict[H, None] = {}
    for number, item in enumerate(items, 1):
        every[item] = None
        if number % YIELD_EVERY_DECODED == 0:
            yield None
    return every


def first_occurrences(
    items: Iterable[T], key: Callable[[T], Hashable], twice: set[Hashable]
) -> Iterator[tuple[int, T, bool] | None]:
    """Yield each distinct item at its first occurrence: with its number from 1, and whether it occurs again.

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
