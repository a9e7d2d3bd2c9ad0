"""Persistent (immutable) maps: a changed copy shares unchanged parts, so that it costs only the size of the change.

Keys of any type: the hash trie of the `immutables` library. Consecutive integer keys (a topic's partitions): shards of
64, which preserve the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")

_BITS = 6


def to_hash_trie(mapping: Mapping[K, V]) -> Map[K, V]:
    """Return a hash trie with the items of a mapping; a mapping that is one already is returned itself."""
    return mapping if isinstance(mapping, Map) else Map(mapping)


class PersistentIntMap(Mapping[int, V], Generic[V]):
    """Immutable map with integer keys, for partitions by number. A change by `builder` copies one shard of 64 keys.

    It iterates over shards in the order of their first insertion, and within a shard in the order of insertion.
    """

    __slots__ = ("_count", "_shards")

    def __init__(self, items: Iterable[tuple[int, V]] = ()) -> None:
        self._shards: dict[int, dict[int, V]] = {}
        self._count = 0
        for number, value in items:
            shard = self._shards.setdefault(number >> _BITS, {})
            self._count += number not in shard
            shard[number] = value

    def __getitem__(self, number: int) -> V:
        return self._shards[number >> _BITS][number]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._shards.values())

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._shards.get(number >> _BITS, ())

    def __repr__(self) -> str:
        return f"Numbered({dict(self)!r})"

    def builder(self) -> IntMapBuilder[V]:
        """Return a builder for a changed map; this map does not change."""
        return IntMapBuilder(self._shards, self._count)


class IntMapBuilder(Generic[V]):
    """Builder of the next `PersistentIntMap`: copies a shard before its first change."""

    __slots__ = ("_count", "_own", "_shards")

    def __init__(self, shards: dict[int, dict[int, V]], count: int) -> None:
        self._shards = dict(shards)
        self._own: set[int] = set()
        self._count = count

    def get(self, number: int) -> V | None:
        """Return the current value; None for an unknown key."""
        shard = self._shards.get(number >> _BITS)
        return None if shard is None else shard.get(number)

    def __setitem__(self, number: int, value: V) -> None:
        at = number >> _BITS
        if at not in self._own:
            self._own.add(at)
            self._shards[at] = dict(self._shards.get(at, ()))
        shard = self._shards[at]
        self._count += number not in shard
        shard[number] = value

    def build(self) -> PersistentIntMap[V]:
        """Return the map with all changes so far; later changes use copies."""
        out: PersistentIntMap[V] = PersistentIntMap()
        out._shards, out._count = dict(self._shards), self._count
        self._own.clear()
        return out
