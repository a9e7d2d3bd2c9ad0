"""Map that iterates in the order of ``java.util.HashMap``, for rules whose results depend on this order.

During an iteration only the key yielded last may be removed; no key may be added.

New keys are inserted at the end of their bucket, or at its head by ``computeIfAbsent``, which resizes a full table only
at the next call. Resizing keeps the order inside a bucket. Buckets of eight and more keys, which Java may turn into
trees, are not reproduced.

Source: ``java.util.HashMap`` of the JDK; used as in ``SimpleHomogeneousAssignmentBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_MIN_BUCKETS = 16


def table_size_for(count: int) -> int:
    """Return the number of buckets of a map that Kafka creates with ``AssignorHelpers.newHashMap(count)``."""
    return _next_power_of_two(int((count + 1) / 0.75 + 1))


def _next_power_of_two(wanted: int) -> int:
    return 1 << max(wanted - 1, 0).bit_length()


class JavaHashMap(Generic[K, V]):
    """Map with the iteration order of Java's ``HashMap``; with unused values it serves as a ``HashSet``."""

    def __init__(self, hash_of: Callable[[K], int], buckets: int = _MIN_BUCKETS) -> None:
        """Initialize an empty map.

        Args:
            hash_of: returns the ``hashCode`` of a key as an unsigned 32-bit integer.
            buckets: initial number of buckets, a power of two.
        """
        self._hash_of = hash_of
        self._values: dict[K, V] = {}
        self._buckets: list[list[K]] = [[] for _ in range(buckets)]

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __getitem__(self, key: K) -> V:
        return self._values[key]

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if the key is absent."""
        return self._values.get(key)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys; the key yielded last may be removed during the iteration."""
        for bucket in self._buckets:
            yield from list(bucket)

    def _bucket(self, key: K) -> list[K]:
        value = self._hash_of(key)
        return self._buckets[(value ^ value >> 16) & (len(self._buckets) - 1)]

    @property
    def _is_full(self) -> bool:
        return len(self._values) > int(len(self._buckets) * 0.75)

    def _grow(self) -> None:
        keys = [key for bucket in self._buckets for key in bucket]
        self._buckets = [[] for _ in range(2 * len(self._buckets))]
        for key in keys:
            self._bucket(key).append(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key (``HashMap.put``, ``HashSet.add``); a new key is inserted at the end of its bucket."""
        known = key in self._values
        self._values[key] = value
        if not known:
            self._bucket(key).append(key)
            if self._is_full:
                self._grow()

    def compute_if_absent(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; an absent key is inserted at the head of its bucket with the value ``make()``."""
        if self._is_full:
            self._grow()
        if key not in self._values:
            self._values[key] = make()
            self._bucket(key).insert(0, key)
        return self._values[key]

    def remove(self, key: K) -> bool:
        """Remove a key; return True if it was present."""
        if key not in self._values:
            return False
        del self._values[key]
        self._bucket(key).remove(key)
        return True
