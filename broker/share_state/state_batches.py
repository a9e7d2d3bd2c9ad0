"""Combination of state batches of a share partition into one list without overlaps.

The state of a share partition is a list of batches `(first, last, count, state)`; each write adds some, which may
overlap older ones. Where two overlap, the one with the higher delivery count is newer, and at equal counts the one with
the higher state.

Source: ``PersisterStateBatchCombiner.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple


class PersisterStateBatch(NamedTuple):
    """Range of records in one delivery state; offsets inclusive.

    Ordered as in Kafka: by offsets, then count and state.
    """

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def progress(self) -> tuple[int, int]:
        """Sort key (delivery count, delivery state): where two batches overlap, the larger one applies."""
        return self.delivery_count, self.delivery_state


def combine_state_batches(
    old: Iterable[PersisterStateBatch], new: Iterable[PersisterStateBatch], start_offset: int
) -> list[PersisterStateBatch]:
    """Return old and new batches as one sorted list without overlaps, from ``start_offset`` on (-1: without a limit).

    Where batches overlap, old or new, the one with the largest `progress` applies; adjacent batches in the same state
    are merged, except where Kafka does not. The offsets are iterated once, with the batches that contain the current
    offset in a heap, so that many overlapping batches cost no more.
    """
    every = [_trim_to_start_offset(batch, start_offset) for batch in (*old, *new) if batch.last_offset >= start_offset]
    if len(every) < 2:
        return every
    every.sort()
    done: list[PersisterStateBatch] = []
    furthest: list[tuple[int, int, int, int]] = []
    """Heap of the batches that contain the current offset: count and state, both negated, first and last offset."""
    shortest: list[tuple[int, int, int]] = []
    """Heap of the same batches by last offset: last offset, count and state."""
    at, number = every[0].first_offset, 0
    while furthest or number < len(every):
        if not furthest:
            at = every[number].first_offset
        while number < len(every) and every[number].first_offset <= at:
            first, last, count, state = every[number]
            heappush(furthest, (-count, -state, first, last))
            heappush(shortest, (last, count, state))
            number += 1
        count, state, first, last = furthest[0]
        if last < at:
            heappop(furthest)
            continue
        while shortest[0][0] < at:
            heappop(shortest)
        if number < len(every):
            last = min(last, every[number].first_offset - 1)
        # Kafka merges a batch that begins here with the previous one only if no shorter batch begins here.
        goes_on = first < at or shortest[0][1:] == (-count, -state)
        _append(done, PersisterStateBatch(at, last, -count, -state), joins=goes_on)
        at = last + 1
    return done


def _append(done: list[PersisterStateBatch], batch: PersisterStateBatch, *, joins: bool = True) -> None:
    """Append a batch to ``done``.

    If ``joins`` and the batch adjoins the last one and has its delivery state and count, extend the last one instead.
    """
    before = done[-1] if joins and done else None
    if before is not None and before.last_offset + 1 == batch.first_offset and before.progress == batch.progress:
        done[-1] = before._replace(last_offset=batch.last_offset)
    else:
        done.append(batch)


def merge_adjacent(batches: Iterable[PersisterStateBatch]) -> tuple[PersisterStateBatch, ...]:
    """Return ascending batches with adjacent ones of the same delivery state and count merged."""
    out: list[PersisterStateBatch] = []
    for new in batches:
        _append(out, new)
    return tuple(out)


def _trim_to_start_offset(batch: PersisterStateBatch, start_offset: int) -> PersisterStateBatch:
    return batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
