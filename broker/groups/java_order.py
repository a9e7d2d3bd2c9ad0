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

SORTED_AT_ONCE = 2_000
_LEAST = 16
_FULL = 0.75
_SCATTER = -7046029254386353131
_POWERS = [pow(31, n, 1 << 32) for n in range(512)][::-1]


def java_text(text: str) -> bytes:
    """What Java compares texts by: a key to sort them as ``String.compareTo`` does."""
    return text.encode("utf-16-be", "surrogatepass")


class SortedTexts(frozenset[str]):
    """Texts that are gone through as ``Collections.sort`` leaves them: of very many this is found out once."""

    __slots__ = ("_in_order",)
    _in_order: list[str]

    def __new__(cls, in_order: list[str]) -> SortedTexts:
        """``in_order``: each once."""
        made = super().__new__(cls, in_order)
        made._in_order = in_order
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._in_order)


def set_of(texts: Iterable[str]) -> frozenset[str]:
    """Texts as a set: the same where they are one."""
    return texts if isinstance(texts, frozenset) else frozenset(texts)


def sorted_texts(texts: Iterable[str]) -> Collection[str]:
    """Texts as ``Collections.sort`` leaves them; nearly all there are compare here as they do there."""
    if isinstance(texts, SortedTexts):
        return texts
    every = list(texts)
    return sorted(every) if all(map(str.isascii, every)) else sorted(every, key=java_text)


def sorting_texts(texts: Collection[str]) -> Generator[None, None, SortedTexts]:
    """The same in steps; each of them once."""
    every, in_order = list(texts), list[str]()
    for at in range(0, len(every), SORTED_AT_ONCE):
        in_order += sorted_texts(every[at : at + SORTED_AT_ONCE])
        yield
    return SortedTexts(list(sorted_texts(in_order)))  # finds what is in order, and only puts that together


@lru_cache(maxsize=4096)
def text_hash(text: str) -> int:
    """``String.hashCode``, as 32 bits without a sign."""
    raw = text.encode("utf-16-le", "surrogatepass")
    units = memoryview(raw).cast("H").tolist() if raw else []
    value = 0
    for at in range(0, len(units), 512):
        part = units[at : at + 512]
        value = (value * pow(31, len(part), 1 << 32) + sum(map(mul, part, _POWERS[512 - len(part) :]))) & 0xFFFFFFFF
    return value


def id_hash(uuid: bytes) -> int:
    """``Uuid.hashCode`` of a topic's id, as 32 bits without a sign."""
    mixed = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    return (mixed >> 32) ^ (mixed & 0xFFFFFFFF)


def _grown(count: int, buckets: int) -> int:
    while count > buckets * _FULL:
        buckets *= 2
    return buckets


def _copied(count: int) -> int:
    """How many buckets ``new HashSet<>(others)`` has: made for that many, and at least 16."""
    wanted, buckets = int(count / _FULL + 1), _LEAST
    while buckets < wanted:
        buckets *= 2
    return buckets


def _bucket(value: int, buckets: int) -> int:
    return (value ^ value >> 16) & (buckets - 1)


def texts(
    keys: Collection[str], *, copied: int | None = None, most: int = 0, hash_of: Callable[[str], int] = text_hash
) -> list[str]:
    """Texts in a ``HashMap`` that grew with them, and held ``most`` at a time, or in a ``HashSet`` of copied ones;
    ``hash_of`` gives what `text_hash` does.
    """
    buckets = _grown(max(len(keys), most), _LEAST) if copied is None else _copied(copied)
    return sorted(keys, key=lambda text: _bucket(hash_of(text), buckets))


def texts_made_for(keys: Collection[str], count: int) -> list[str]:
    """Texts in a ``HashMap`` that was made with room for ``count`` buckets, and grew with them."""
    buckets = _grown(len(keys), 1 << max(count - 1, 0).bit_length())
    return sorted(keys, key=lambda text: _bucket(text_hash(text), buckets))


def ids(keys: Collection[bytes], *, copied_from: int | None = None) -> list[bytes]:
    """Topic ids in a ``HashMap`` that grew with them, or in a ``HashSet`` made for ``copied_from`` of them."""
    buckets = _grown(len(keys), _LEAST) if copied_from is None else _copied(copied_from)
    buckets = _grown(len(keys), buckets)
    return sorted(keys, key=lambda uuid: _bucket(id_hash(uuid), buckets))


def numbers(keys: Iterable[int]) -> tuple[int, ...]:
    """Partition numbers in a ``HashSet`` copied from a list."""
    every = dict.fromkeys(keys)
    if len(every) <= 1:
        return tuple(every)
    buckets = _copied(len(every))
    if every and min(every) >= 0 and max(every) < min(buckets, 1 << 16):
        return tuple(sorted(every))  # each has a bucket of its own, by its number
    return tuple(sorted(every, key=lambda number: _bucket(number, buckets)))


def timeline(keys: Collection[str]) -> list[str]:
    """Texts in a ``TimelineHashMap``: slots by the high bits of a product, the newest of a slot first."""
    slots = 2
    while len(keys) * _FULL > slots:
        slots *= 2
    shift = 65 - slots.bit_length()

    def slot(text: str) -> int:
        value = text_hash(text)
        signed = value - (1 << 32) if value >> 31 else value
        return (signed * _SCATTER & 0xFFFFFFFFFFFFFFFF) >> shift

    newest_first = list(keys)[::-1]
    return sorted(newest_first, key=slot)
