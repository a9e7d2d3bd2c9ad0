"""Jobs over long sequences that yield to other tasks (sort, collect, find duplicates, free), and views of sequences."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Set, Sized
from heapq import merge
from typing import Any, Generic, Protocol, TypeVar

from ottla.jobs.job import Job

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
H = TypeVar("H", bound=Hashable)

YIELD_EVERY = 100
"""Records or partitions processed between two yields: about a millisecond of work."""
YIELD_EVERY_DECODED = 16
"""Elements of a request's array decoded between two yields: each may contain 4 KiB of nested arrays."""
SORT_CHUNK = 2048
"""Elements sorted between two yields: about 3 ms if the sort keys are tuples and strings."""


class SizedIterable(Sized, Iterable[T_co], Protocol[T_co]):
    """Collection with a length that can be iterated repeatedly: a list, or an array decoded at each iteration."""


class Remainder(Generic[T]):
    """View of an array without some of its items; nothing is copied.

    Copied elements of a long array would block the event loop when they are freed.
    """

    __slots__ = ("_items", "_left_out")

    def __init__(self, items: SizedIterable[T], left_out: Set[int]) -> None:
        """Create a view; ``left_out``: indices of the omitted items."""
        self._items = items
        self._left_out = left_out

    def __len__(self) -> int:
        return len(self._items) - len(self._left_out)

    def __iter__(self) -> Iterator[T]:
        return (item for at, item in enumerate(self._items) if at not in self._left_out)


def sort_job(items: Iterable[T], key: Callable[[T], Any] | None = None) -> Generator[None, None, list[T]]:
    """Return the items as a sorted list, by ``key`` if it is given, as a job; equal items keep their order."""
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
    """Empty the collection ``items``, as a job: freeing very many items at once blocks the event loop."""
    pop: Callable[[], Any] = items.popitem if isinstance(items, dict) else items.pop
    for number in range(1, len(items) + 1):
        pop()
        if number % YIELD_EVERY == 0:
            yield None


def find_duplicates_job(keys: Iterable[Hashable]) -> Job[set[Hashable]]:
    """Return the keys that occur more than once, as a job that yields every `YIELD_EVERY_DECODED` keys."""
    seen: set[Hashable] = set()
    twice: set[Hashable] = set()
    for number, key in enumerate(keys, 1):
        (twice if key in seen else seen).add(key)
        if number % YIELD_EVERY_DECODED == 0:
            yield None
    yield from free_job(seen)
    return twice


def collect_job(items: Iterable[T]) -> Job[list[T]]:
    """Return the items as a list, as a job that yields every `YIELD_EVERY_DECODED` items: iteration may decode them."""
    every: list[T] = []
    for number, item in enumerate(items, 1):
        every.append(item)
        if number % YIELD_EVERY_DECODED == 0:
            yield None
    return every


def collect_distinct_job(items: Iterable[H]) -> Job[dict[H, None]]:
    """Return the distinct items in their order, as the keys of a dictionary, as a job."""
    every: dict[H, None] = {}
    for number, item in enumerate(items, 1):
        every[item] = None
        if number % YIELD_EVERY_DECODED == 0:
            yield None
    return every


def first_occurrences(
    items: Iterable[T], key: Callable[[T], Hashable], twice: set[Hashable]
) -> Iterator[tuple[T, bool] | None]:
    """Yield (item, True if its key is in ``twice``) for each item with a new key; yield None for each other item.

    ``twice``: keys that occur more than once (`find_duplicates_job`). A None lets a job that iterates yield.
    """
    yielded: set[Hashable] = set()
    for item in items:
        at = key(item)
        is_again = at in twice
        yield None if at in yielded else (item, is_again)
        if is_again:
            yielded.add(at)
