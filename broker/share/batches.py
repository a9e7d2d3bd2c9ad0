"""Delivery states of neighbouring records as few batches as can say them.

What is remembered of a share partition is a list of batches `(first, last, state, count)`; each write brings some
more, which may lie over older ones. Where two overlap, the one delivered more often is the newer truth, and at equal
counts the one whose state is further on.

Source: ``PersisterStateBatchCombiner.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple


class StateBatch(NamedTuple):
    """Records that are in one state; offsets inclusive. Compares as Kafka's do: by offsets, then by how far it is."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def progress(self) -> tuple[int, int]:
        """What decides where two batches overlap."""
        return self.delivery_count, self.delivery_state


def combine(old: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Old and new batches as one sorted list without overlaps, from ``start_offset`` on (-1: from wherever they begin).

    A single batch, or none, is left as it is; neighbours in the same state become one.
    """
    every = [_from(batch, start_offset) for batch in (*old, *new) if batch.last_offset >= start_offset]
    if len(every) < 2:
        return every
    heapify(every)
    done: list[StateBatch] = []
    current = heappop(every)
    while every:
        following = heappop(every)
        touches = following.first_offset <= current.last_offset + 1
        if touches and following.progress == current.progress:
            current = current._replace(last_offset=max(current.last_offset, following.last_offset))
        elif following.first_offset > current.last_offset:
            done.append(current)
            current = following
        else:
            for piece in _cut(current, following):
                heappush(every, piece)
            current = heappop(every)
    done.append(current)
    return done


def joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Ascending batches, those that touch and are in the same state as one."""
    out: list[StateBatch] = []
    for new in batches:
        old = out[-1] if out else None
        if old is not None and new.first_offset == old.last_offset + 1 and new.progress == old.progress:
            out[-1] = old._replace(last_offset=new.last_offset)
        else:
            out.append(new)
    return tuple(out)


def _from(batch: StateBatch, start_offset: int) -> StateBatch:
    return batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)


def _cut(earlier: StateBatch, later: StateBatch) -> list[StateBatch]:
    """Two overlapping batches of different progress as pieces that do not overlap; ``earlier`` sorts first."""
    if later.progress < earlier.progress:
        rest = later._replace(first_offset=earlier.last_offset + 1)
        return [earlier, rest] if rest.first_offset <= rest.last_offset else [earlier]
    head = earlier._replace(last_offset=later.first_offset - 1)
    tail = earlier._replace(first_offset=later.last_offset + 1)
    return [piece for piece in (head, later, tail) if piece.first_offset <= piece.last_offset]
