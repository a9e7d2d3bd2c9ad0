"""Conversion of arrays in group records to dicts and sets, in steps: a record of 1 MB has up to 55,000 topics."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Sequence, Set
from typing import Any, TypeVar

from ottla.broker.groups.assignors.group_spec import EMPTY_ASSIGNMENT, Assignment
from ottla.broker.groups.java_collections import iteration_order

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
ROWS_PER_STEP = 200
"""Array elements (each a topic with its partitions) that are converted in one step."""
PARTITIONS_PER_ROW = 8
"""Number of partitions that cost as much work as one array element."""


def read_table(
    rows: Iterable[Any], key: Callable[[Any], K], value: Callable[[Any], V]
) -> Generator[None, None, dict[K, V]]:
    """Return a dict of the array elements ``rows``, which have ``partitions`` that count as work, as a job.

    ``key`` and ``value`` are functions of an element; of elements with the same key, the last one wins.
    """
    out: dict[K, V] = {}
    work = 0
    for row in rows:
        out[key(row)] = value(row)
        work += 1 + len(row.partitions) // PARTITIONS_PER_ROW
        if work >= ROWS_PER_STEP:
            work = 0
            yield
    return out


def read_assignment(rows: Iterable[Any]) -> Generator[None, None, Assignment]:
    """Return an assignment record's partitions by topic id, in Java's hash table order, as a job."""
    partitions: dict[bytes, tuple[int, ...]] = {}
    work = 0
    for row in rows:
        work += 1 + len(row.partitions) // PARTITIONS_PER_ROW
        if work < ROWS_PER_STEP:
            partitions[row.topic_id] = iteration_order.integer_hash_set_order(row.partitions)
        else:
            work = 0
            partitions[row.topic_id] = yield from iteration_order.integer_hash_set_order_job(row.partitions)
    in_order: dict[bytes, tuple[int, ...]] = {}
    for number, topic in enumerate((yield from iteration_order.uuid_hash_map_order_job(partitions)), 1):
        in_order[topic] = partitions.pop(topic)
        if number % ROWS_PER_STEP == 0:
            yield
    return in_order or EMPTY_ASSIGNMENT


def read_names(names: Sequence[str], most_chars: int | None = None) -> Generator[None, None, Set[str]]:
    """Return the topic names of a record as a set, as a job that yields if they are more than 1,000.

    Raises:
        OverflowError: more than 1,000 names have more than ``most_chars`` characters together (None: no limit).
    """
    if isinstance(names, Set):
        return names
    if len(names) <= iteration_order.MAX_SORTED_PER_STEP:
        return frozenset(names)
    return (yield from iteration_order.sort_strings_job(names, most_chars))
