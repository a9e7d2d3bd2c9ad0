"""Iteration orders of Java's hash tables, for rules of Kafka that iterate over one.

This order decides between members that are otherwise equal, and an Apache Kafka node that becomes the coordinator of a
group must compute the same assignment. Python's dicts keep the order of insertion; these functions return the keys in
the order of the named Java table. Buckets that Java turns into trees (eight keys in one bucket) keep that order too,
except for their first key, which is not reproduced.

Source: ``java.util.HashMap``; ``BaseHashTable``, ``SnapshottableHashTable`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Set
from functools import lru_cache
from itertools import islice
from operator import eq, mul

from ottla.jobs.sequences import sort_job

MAX_SORTED_PER_STEP = 1_000
MAX_COMPARED_PER_STEP = 5_000
_MIN_BUCKETS = 16
_LOAD_FACTOR = 0.75
_HASH_MULTIPLIER = -7046029254386353131
_POWERS = [pow(31, n, 1 << 32) for n in range(512)][::-1]


def java_string_sort_key(text: str) -> bytes:
    """Return a sort key with the order of Java's ``String.compareTo`` (by UTF-16 code units)."""
    return text.encode("utf-16-be", "surrogatepass")


class JavaSortedStrings(Set[str]):
    """Immutable set of strings in the order of Java's ``Collections.sort``, built in steps.

    A ``frozenset`` of 300,000 strings takes tens of milliseconds to build or copy, without a step between.
    """

    __slots__ = ("_content_hash", "_keys")

    def __init__(self, in_order: Iterable[str] = ()) -> None:
        self._keys: dict[str, None] = {}
        self._content_hash = 0
        self.append(in_order)

    def append(self, part: Iterable[str]) -> None:
        """Append the next strings in sorted order; only for the job that builds the set."""
        keys = dict.fromkeys(part)
        self._keys.update(keys)
        self._content_hash = self._content_hash + sum(map(hash, keys)) & 0xFFFFFFFFFFFF

    @classmethod
    def _from_iterable(cls, it: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(it)

    def __contains__(self, text: object) -> bool:
        return text in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, JavaSortedStrings):
            return self is other or super().__eq__(other)
        return self._may_equal(other) and all(map(eq, self._keys, other._keys))  # in the same order

    def _may_equal(self, other: JavaSortedStrings) -> bool:
        return self._content_hash == other._content_hash and len(self) == len(other)

    def equals_job(self, other: Set[str]) -> Generator[None, None, bool]:
        """Compare two sets as ``==`` does, as a job."""
        if self is other or not isinstance(other, JavaSortedStrings) or not self._may_equal(other):
            return self == other
        ours, theirs = iter(self._keys), iter(other._keys)
        while part := list(islice(ours, MAX_COMPARED_PER_STEP)):
            if part != list(islice(theirs, MAX_COMPARED_PER_STEP)):
                return False
            yield
        return True

    def __hash__(self) -> int:
        return self._content_hash


def as_set(texts: Iterable[str]) -> Set[str]:
    """Return strings as a set; a set is returned unchanged."""
    return texts if isinstance(texts, Set) else frozenset(texts)


def sort_strings(texts: Iterable[str]) -> Collection[str]:
    """Return strings in the order of Java's ``Collections.sort``; ASCII strings, the usual case, need no sort key."""
    if isinstance(texts, JavaSortedStrings):
        return texts
    every = list(texts)
    return sorted(every) if all(map(str.isascii, every)) else sorted(every, key=java_string_sort_key)


def sort_strings_job(texts: Iterable[str], most_chars: int | None = None) -> Generator[None, None, JavaSortedStrings]:
    """Return the distinct strings in the order of Java's ``Collections.sort``, as a job.

    Raises:
        OverflowError: the distinct strings have more than ``most_chars`` characters in total (None: no limit).
    """
    distinct: dict[str, None] = {}
    is_plain, rest, chars = True, iter(texts), 0
    while part := list(islice(rest, MAX_SORTED_PER_STEP)):
        new = {text: None for text in part if text not in distinct}
        chars += sum(map(len, new))
        if most_chars is not None and chars > most_chars:
            raise OverflowError(f"strings too long: {chars} characters (at most {most_chars})")
        distinct.update(new)
        is_plain = is_plain and all(map(str.isascii, new))
        yield
    in_order = yield from sort_job(distinct, None if is_plain else java_string_sort_key)
    out = JavaSortedStrings()
    for first in range(0, len(in_order), MAX_SORTED_PER_STEP):
        out.append(in_order[first : first + MAX_SORTED_PER_STEP])
        yield
    return out


@lru_cache(maxsize=4096)
def string_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` as an unsigned 32-bit integer."""
    raw = text.encode("utf-16-le", "surrogatepass")
    units = memoryview(raw).cast("H").tolist() if raw else []
    value = 0
    for at in range(0, len(units), 512):
        part = units[at : at + 512]
        value = (value * pow(31, len(part), 1 << 32) + sum(map(mul, part, _POWERS[512 - len(part) :]))) & 0xFFFFFFFF
    return value


def uuid_hash(uuid: bytes) -> int:
    """Return ``Uuid.hashCode`` of a topic id as an unsigned 32-bit integer."""
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (mixed >> 32) ^ (mixed & 0xFFFFFFFF)


def _buckets_after_growth(count: int, buckets: int) -> int:
    while count > buckets * _LOAD_FACTOR:
        buckets *= 2
    return buckets


def _buckets_of_copy(count: int) -> int:
    """Return the number of buckets of ``new HashSet<>(other)`` for ``count`` keys: load factor 0.75, at least 16."""
    wanted, buckets = int(count / _LOAD_FACTOR + 1), _MIN_BUCKETS
    while buckets < wanted:
        buckets *= 2
    return buckets


def _bucket_index(value: int, buckets: int) -> int:
    return (value ^ value >> 16) & (buckets - 1)


def hash_map_order(
    keys: Collection[str], *, copied: int | None = None, most: int = 0, hash_of: Callable[[str], int] = string_hash
) -> list[str]:
    """Return strings in the order of a ``HashMap`` with default capacity, or of a ``HashSet`` copied from a collection.

    Args:
        keys: the strings, in order of insertion.
        copied: size of the collection that the ``HashSet`` was copied from; None for a ``HashMap``.
        most: largest number of keys that the ``HashMap`` has had.
        hash_of: returns the hash code of a string, as `string_hash` does.
    """
    buckets = _buckets_after_growth(max(len(keys), most), _MIN_BUCKETS if copied is None else _buckets_of_copy(copied))
    return sorted(keys, key=lambda text: _bucket_index(hash_of(text), buckets))


def hash_map_order_job(keys: Collection[str]) -> Generator[None, None, list[str]]:
    """Return strings in the order of a ``HashMap`` with default capacity, as a job."""
    buckets = _buckets_after_growth(len(keys), _MIN_BUCKETS)
    return (yield from sort_job(keys, lambda text: _bucket_index(string_hash(text), buckets)))


def presized_hash_map_order(keys: Collection[str], count: int) -> list[str]:
    """Return strings in the order of a ``HashMap`` created with the initial capacity ``count``."""
    buckets = _buckets_after_growth(len(keys), 1 << max(count - 1, 0).bit_length())
    return sorted(keys, key=lambda text: _bucket_index(string_hash(text), buckets))


def uuid_hash_map_order(keys: Collection[bytes], *, copied_from: int | None = None) -> list[bytes]:
    """Return topic ids in the order of a ``HashMap``, or of a ``HashSet`` sized for ``copied_from`` keys."""
    buckets = _buckets_after_growth(len(keys), _MIN_BUCKETS) if copied_from is None else _buckets_of_copy(copied_from)
    buckets = _buckets_after_growth(len(keys), buckets)
    return sorted(keys, key=lambda uuid: _bucket_index(uuid_hash(uuid), buckets))


def uuid_hash_map_order_job(keys: Collection[bytes]) -> Generator[None, None, list[bytes]]:
    """Return topic ids in the order of a ``HashMap`` with default capacity, as a job."""
    buckets = _buckets_after_growth(len(keys), _MIN_BUCKETS)
    return (yield from sort_job(keys, lambda uuid: _bucket_index(uuid_hash(uuid), buckets)))


def integer_hash_set_order(keys: Iterable[int]) -> tuple[int, ...]:
    """Return the distinct partition numbers in the order of a ``HashSet<Integer>`` copied from a list."""
    every = dict.fromkeys(keys)
    if len(every) <= 1:
        return tuple(every)
    buckets = _buckets_of_copy(len(every))
    if every and min(every) >= 0 and max(every) < min(buckets, 1 << 16):
        return tuple(sorted(every))  # each number has its own bucket, in ascending order
    return tuple(sorted(every, key=lambda number: _bucket_index(number, buckets)))


def integer_hash_set_order_job(keys: Iterable[int]) -> Generator[None, None, tuple[int, ...]]:
    """Return partition numbers in the order of `integer_hash_set_order`, as a job."""
    every: dict[int, None] = {}
    rest = iter(keys)
    while part := list(islice(rest, MAX_COMPARED_PER_STEP)):
        every.update(dict.fromkeys(part))
        yield
    buckets = _buckets_of_copy(len(every))
    return tuple((yield from sort_job(every, lambda number: _bucket_index(number, buckets))))


def timeline_hash_map_order(keys: Collection[str]) -> list[str]:
    """Return ``keys`` (oldest first) in the order of Kafka's ``TimelineHashMap``: by slot, in a slot newest first."""
    slots = 2
    while len(keys) * _LOAD_FACTOR > slots:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot(text: str) -> int:
        value = string_hash(text)
        signed = value - (1 << 32) if value >> 31 else value
        return (signed * _HASH_MULTIPLIER & 0xFFFFFFFFFFFFFFFF) >> shift

    newest_first = list(keys)[::-1]
    return sorted(newest_first, key=slot)
