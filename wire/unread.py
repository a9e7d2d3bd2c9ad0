"""A long array of a large request: read once to see that it is right, and then again by whoever goes through it.

200,000 elements as objects are some thirty megabytes, their bytes four; and nobody looks at them in any other way than
one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from typing import Any

from ottla.wire.budget import SHORT_BYTES, Budget
from ottla.wire.errors import WireError
from ottla.wire.primitives import MAX_STRING_BYTES, long_uvarint

FEW = 256
"""So many elements are objects at once."""
LARGE_ELEMENT_BYTES = 4096
"""An element that is longer than this may be a long array itself: reading it again in one go would take too long."""
READ_AT_ONCE = 64
UNREAD_BYTES = 64
"""What an element that is no object costs a budget: 200,000 are always let in, and what all of them may take of the
processor, some ten microseconds each, has its end."""
_INT16 = struct.Struct(">h").unpack_from


class _Paid(Budget):
    """For elements of which nothing stays."""

    __slots__ = ()

    def take(self, size_bytes: int) -> None:
        """For nothing."""

    def spend(self, size_bytes: int) -> None:
        """For nothing."""


_PAID = _Paid(0)


class Unread:
    """The elements of an array, as bytes: good for as long as the buffer is, so nobody may keep it.

    It can be gone through as often as one likes; each time its elements are made anew.
    """

    __slots__ = ("_buf", "_count", "_end", "_pos", "_read")

    def __init__(self, read: Callable[..., Any], count: int, buf: memoryview, pos: int, end: int) -> None:
        self._read = read
        self._count = count
        self._buf = buf
        self._pos = pos
        self._end = end

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        pos = self._pos
        for _ in range(self._count):
            element, pos = _at_once(self._read(self._buf, pos, self._end, _PAID))
            yield element

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | Unread) or len(other) != self._count:
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


def compact_string(buf: memoryview, pos: int, end: int, budget: Budget) -> tuple[str, int]:
    """Read a string whose length is a varint.

    Raises:
        WireError, IndexError: there is none.
    """
    size = buf[pos]
    pos += 1
    if size > 127:
        size, pos = long_uvarint(buf, pos, size)
    return _string(buf, pos, size - 1, end, budget)


def string(buf: memoryview, pos: int, end: int, budget: Budget) -> tuple[str, int]:
    """Read a string whose length is an int16.

    Raises:
        WireError, struct.error: there is none.
    """
    (size,) = _INT16(buf, pos)
    return _string(buf, pos + 2, size, end, budget)


def _string(buf: memoryview, pos: int, size: int, end: int, budget: Budget) -> tuple[str, int]:
    if not 0 <= size <= min(end - pos, MAX_STRING_BYTES):
        raise WireError(f"length of a string: {size}")
    text = str(buf[pos : pos + size], "utf-8", "replace")
    if size:
        (budget.take if size < SHORT_BYTES else budget.spend)(text.__sizeof__())
    return text, pos + size


def read_array(
    read: Callable[..., Any], count: int, each_bytes: int, buf: memoryview, pos: int, end: int, budget: Budget
) -> Generator[None, None, tuple[Any, int]]:
    """Read an array of structs or strings with ``read``, stopping often; gives it and the position behind it.

    As objects its elements cost ``each_bytes`` and what is in them; else they cost time, and that is little each.

    Raises:
        WireError, struct.error, IndexError: the bytes are not such an array, or it would take too much.
    """
    if budget.keeps or count <= FEW:
        return (yield from _read_all(read, count, each_bytes, buf, pos, end, budget))
    budget.take(count * UNREAD_BYTES)
    first, longest = pos, 0
    for number in range(count):
        at = pos
        element = read(buf, pos, end, _PAID)
        _, pos = (yield from element) if isinstance(element, Generator) else element
        longest = max(longest, pos - at)
        if number % READ_AT_ONCE == 0:
            yield
    if longest <= LARGE_ELEMENT_BYTES:
        return Unread(read, count, buf, first, end), pos
    return (yield from _read_all(read, count, each_bytes, buf, first, end, budget))


def _read_all(
    read: Callable[..., Any], count: int, each_bytes: int, buf: memoryview, pos: int, end: int, budget: Budget
) -> Generator[None, None, tuple[list[Any], int]]:
    """Read the elements as objects."""
    budget.take(count * each_bytes)
    elements: list[Any] = []
    for number in range(count):
        element = read(buf, pos, end, budget)
        element, pos = (yield from element) if isinstance(element, Generator) else element
        elements.append(element)
        if number % READ_AT_ONCE == 0:
            yield
    return elements, pos


def _at_once(element: Any) -> tuple[Any, int]:
    """An element that was read, or is read in steps."""
    if not isinstance(element, Generator):
        return element  # type: ignore[no-any-return]
    while True:
        try:
            next(element)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
