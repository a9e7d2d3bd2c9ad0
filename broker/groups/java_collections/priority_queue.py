"""A queue in the order of ``java.util.PriorityQueue``: of equals it gives the one Java's heap would.

Source: ``java.util.PriorityQueue`` of the JDK; where it decides: ``StickyTaskAssignor.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """Filled one by one. What stands in it must keep its rank; what was taken out may change and come again."""

    def __init__(self, rank: Callable[[T], float], items: Iterable[T] = ()) -> None:
        self._rank = rank
        self._heap: list[T] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        """Put an item in: it rises while it is smaller than what is above it."""
        heap, rank = self._heap, self._rank
        own, at = rank(item), len(heap)
        heap.append(item)
        while at > 0:
            above = (at - 1) >> 1
            if own >= rank(heap[above]):
                break
            heap[at], at = heap[above], above
        heap[at] = item

    def poll(self) -> T:
        """Take the smallest out; there must be one. The last takes its place and sinks."""
        heap, rank = self._heap, self._rank
        first, item = heap[0], heap.pop()
        if not heap:
            return first
        own, at, size = rank(item), 0, len(heap)
        while at < size >> 1:
            below = 2 * at + 1
            if below + 1 < size and rank(heap[below]) > rank(heap[below + 1]):
                below += 1
            if own <= rank(heap[below]):
                break
            heap[at], at = heap[below], below
        heap[at] = item
        return first
