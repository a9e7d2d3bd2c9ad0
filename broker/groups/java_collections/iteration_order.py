"""In which order Java's hash tables give what is in them: where Kafka's rules go through one, so must ours.

Two members with the same claim are told apart by nothing but that order, and an Apache Kafka node that takes over a
group shall find the assignment it would have made itself. A table of ours keeps the order of insertion; these give
the keys as the named table would. Buckets that Java turns into trees (eight keys in one) keep that order as well,
but for their first key: that is not followed.

Source: ``java.util.HashMap``; ``BaseHashTable``, ``SnapshottableHashTable`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from functools import lru_cache
from operator import mul

MAX_SORTED_PER_STEP = 2_000
_MIN_BUCKETS = 16
_LOAD_FACTOR = 0.75
_HASH_MULTIPLIER = -7046029254386353131
_POWERS = [pow(31, n, 1 << 32) for n in range(512)][::-1]


def java_string_sort_key(text: str) -> bytes:
    """What Java compares texts by: a key to sort them as ``String.compareTo`` does."""
    return text.encode("utf-16-be", "surrogatepass")


class JavaSortedStrings(frozenset[str]):
    """Texts that are gone through as ``Collections.sort`` leaves them: of very many this is found out once."""

    __slots__ = ("_in_order",)
    _in_order: list[str]

    def __new__(cls, in_order: list[str]) -> JavaSortedStrings:
        """``in_order``: each once."""
        made = super().__new__(cls, in_order)
        made._in_order = in_order
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._in_order)


def as_frozenset(texts: Iterable[str]) -> frozenset[str]:
    """Texts as a set: the same where they are one."""
    return texts if isinstance(texts, frozenset) else frozenset(texts)


def sort_strings(texts: Iterable[str]) -> Collection[str]:
    """Texts as ``Collections.sort`` leaves them; nearly all there are compare here as they do there."""
    if isinstance(texts, JavaSortedStrings):
        return texts
    every = list(texts)
    return sorted(every) if all(map(str.isascii, every)) else sorted(every, key=java_string_sort_key)


def sort_strings_in_steps(texts: Collection[str]) -> Generator[None, None, JavaSortedStrings]:
    """The same in steps; each of them once."""
    every, in_order = list(texts), list[str]()
    for at in range(0, len(every), MAX_SORTED_PER_STEP):
        in_order += sort_strings(every[at : at + MAX_SORTED_PER_STEP])
        yield
    return JavaSortedStrings(list(sort_strings(in_order)))  # finds what is in order, and only puts that together


@lru_cache(maxsize=4096)
def string_hash(text: str) -> int:
    """``String.hashCode``, as 32 bits without a sign."""
    raw = text.encode("utf-16-le", "surrogatepass")
    units = memoryview(raw).cast("H").tolist() if raw else []
    value = 0
    for at in range(0, len(units), 512):
        part = units[at : at + 512]
        value = (value * pow(31, len(part), 1 << 32) + sum(map(mul, part, _POWERS[512 - len(part) :]))) & 0xFFFFFFFF
    return value


def uuid_hash(uuid: bytes) -> int:
    """``Uuid.hashCode`` of a topic's id, as 32 bits without a sign."""
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (mixed >> 32) ^ (mixed & 0xFFFFFFFF)


def _buckets_after_growth(count: int, buckets: int) -> int:
    while count > buckets * _LOAD_FACTOR:
        buckets *= 2
    return buckets


def _buckets_of_copy(count: int) -> int:
    """How many buckets ``new HashSet<>(others)`` has: made for that many, and at least 16."""
    wanted, buckets = int(count / _LOAD_FACTOR + 1), _MIN_BUCKETS
    while buckets < wanted:
        buckets *= 2
    return buckets


def _bucket_index(value: int, buckets: int) -> int:
    return (value ^ value >> 16) & (buckets - 1)


def hash_map_order(
    keys: Collection[str], *, copied: int | None = None, most: int = 0, hash_of: Callable[[str], int] = string_hash
) -> list[str]:
    """Texts in a ``HashMap`` that grew with them, and held ``most`` at a time, or in a ``HashSet`` of copied ones;
    ``hash_of`` gives what `string_hash` does.
    """
    buckets = _buckets_after_growth(max(len(keys), most), _MIN_BUCKETS) if copied is None else _buckets_of_copy(copied)
    return sorted(keys, key=lambda text: _bucket_index(hash_of(text), buckets))


def presized_hash_map_order(keys: Collection[str], count: int) -> list[str]:
    """Texts in a ``HashMap`` that was made with room for ``count`` buckets, and grew with them."""
    buckets = _buckets_after_growth(len(keys), 1 << max(count - 1, 0).bit_length())
    return sorted(keys, key=lambda text: _bucket_index(string_hash(text), buckets))


def uuid_hash_map_order(keys: Collection[bytes], *, copied_from: int | None = None) -> list[bytes]:
    """Topic ids in a ``HashMap`` that grew with them, or in a ``HashSet`` made for ``copied_from`` of them."""
    buckets = _buckets_after_growth(len(keys), _MIN_BUCKETS) if copied_from is None else _buckets_of_copy(copied_from)
    buckets = _buckets_after_growth(len(keys), buckets)
    return sorted(keys, key=lambda uuid: _bucket_index(uuid_hash(uuid), buckets))


def integer_hash_set_order(keys: Iterable[int]) -> tuple[int, ...]:
    """Partition numbers in a ``HashSet`` copied from a list."""
    every = dict.fromkeys(keys)
    if len(every) <= 1:
        return tuple(every)
    buckets = _buckets_of_copy(len(every))
    if every and min(every) >= 0 and max(every) < min(buckets, 1 << 16):
        return tuple(sorted(every))  # each has a bucket of its own, by its number
    return tuple(sorted(every, key=lambda number: _bucket_index(number, buckets)))


def timeline_hash_map_order(keys: Collection[str]) -> list[str]:
    """Texts in a ``TimelineHashMap``: slots by the high bits of a product, the newest of a slot first."""
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
