"""A table in the order of ``java.util.HashMap``, also while it changes: for rules that go through one as they fill it.

New keys go to the end of their bucket, or to its head where they came by ``computeIfAbsent``, which grows a table that
is too small only when it is next called. Growing keeps the order inside a bucket. Buckets of eight and more, which
Java may turn into trees, are not followed.

Source: ``java.util.HashMap`` of the JDK; where it decides: ``SimpleHomogeneousAssignmentBuilder.java`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_MIN_BUCKETS = 16


def table_size_for(count: int) -> int:
    """Return the number of buckets of Kafka's table for a number of keys (``AssignorHelpers.newHashMap``)."""
    return _next_power_of_two(int((count + 1) / 0.75 + 1))


def _next_power_of_two(wanted: int) -> int:
    return 1 << max(wanted - 1, 0).bit_length()


class JavaHashMap(Generic[K, V]):
    """``HashMap``; with unused values it is a ``HashSet``."""

    def __init__(self, hash_of: Callable[[K], int], buckets: int = _MIN_BUCKETS) -> None:
        """``hash_of`` gives ``hashCode`` as 32 bits without a sign; ``buckets`` is a power of two."""
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
        """Return the value, if there is one."""
        return self._values.get(key)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys; the key yielded last may be removed."""
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
        """``put``, or ``add`` of a set."""
        known = key in self._values
        self._values[key] = value
        if not known:
            self._bucket(key).append(key)
            if self._is_full:
                self._grow()

    def compute_if_absent(self, key: K, make: Callable[[], V]) -> V:
        """Return the value; compute a missing one."""
        if self._is_full:
            self._grow()
        if key not in self._values:
            self._values[key] = make()
            self._bucket(key).insert(0, key)
        return self._values[key]

    def remove(self, key: K) -> bool:
        """Remove a key; return True if it existed."""
        if key not in self._values:
            return False
        del self._values[key]
        self._bucket(key).remove(key)
        return True
