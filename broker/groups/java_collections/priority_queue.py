"""Priority queue that returns items of equal rank in the order of ``java.util.PriorityQueue``.

Source: ``java.util.PriorityQueue`` of the JDK; used as in ``StickyTaskAssignor.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """Binary heap by ``rank``, smallest first; the rank of an item must not change while it is in the queue."""

    def __init__(self, rank: Callable[[T], float], items: Iterable[T] = ()) -> None:
        self._rank = rank
        self._heap: list[T] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        """Add an item: it moves up the heap while its rank is smaller than its parent's."""
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
        """Remove and return the item of smallest rank; the queue must not be empty."""
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
