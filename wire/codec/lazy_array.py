"""Array of a large request that is validated once, stays encoded, and is decoded again at each iteration.

200,000 elements take about 30 MB as objects, but 4 MB as bytes, and they are only iterated in order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from types import GeneratorType
from typing import Any, overload

from ottla.wire.codec.decode_budget import SHORT_STRING_BYTES, DecodeBudget
from ottla.wire.codec.primitives import read_uvarint_continuation
from ottla.wire.errors import WireError
from ottla.wire.limits import BUDGET_LAZY_ELEMENT_BYTES, MAX_STRING_BYTES

EAGER_ELEMENTS = 256
"""Maximum number of elements of an array that is decoded into a list."""
LARGE_ELEMENT_BYTES = 4096
"""Maximum size of an element of a `LazyArray`: decoding a larger one without yielding would take too long."""
ELEMENTS_PER_YIELD = 64
_BYTES_PER_YIELD = 2 * LARGE_ELEMENT_BYTES
"""Bytes of elements read between two yields, unless `ELEMENTS_PER_YIELD` elements come first."""
_INT16 = struct.Struct(">h").unpack_from
_FORMAT_ERRORS = (WireError, struct.error, IndexError)


class LazyArray:
    """Array whose elements stay encoded in the request's buffer; it must not be stored beyond the request.

    Each iteration decodes the elements again. Arrays within the elements are lists.
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
        read, buf, pos, end = self._read, self._buf, self._pos, self._end
        for _ in range(self._count):
            element, pos = read(buf, pos, end)
            yield element

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        """Return the element at an index, or a list for a slice; the elements before are decoded too.

        Raises:
            IndexError: there is no such element.
        """
        if isinstance(at, slice):
            start, stop, step = at.indices(self._count)
            if step > 0:
                return list(islice(self, start, stop, step))
            return list(self)[at]
        place = at + self._count if at < 0 else at
        if not 0 <= place < self._count:
            raise IndexError(at)
        return next(islice(self, place, None))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | LazyArray) or len(other) != self._count:
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


def read_compact_string(buf: memoryview, pos: int, end: int, budget: DecodeBudget) -> tuple[str, int]:
    """Read a compact string (unsigned varint length + 1), charging the budget; return it and the next position.

    Raises:
        WireError, IndexError: invalid string, or the budget is exceeded.
    """
    text, after = read_unbudgeted_compact_string(buf, pos, end)
    return _charge_string(text, budget), after


def read_unbudgeted_compact_string(buf: memoryview, pos: int, end: int) -> tuple[str, int]:
    """Read a compact string without a budget; return it and the next position.

    Raises:
        WireError, IndexError: the string is null, longer than `MAX_STRING_BYTES`, or exceeds ``end``.
    """
    size = buf[pos]
    pos += 1
    if size > 127:
        size, pos = read_uvarint_continuation(buf, pos, size)
    stop = pos + size - 1
    if not 0 < size <= min(end - pos, MAX_STRING_BYTES) + 1:
        raise WireError(f"length of a string: {size - 1}")
    return str(buf[pos:stop], "utf-8", "replace"), stop


def read_string(buf: memoryview, pos: int, end: int, budget: DecodeBudget) -> tuple[str, int]:
    """Read a string with an int16 length, charging the budget; return it and the next position.

    Raises:
        WireError, struct.error: invalid string, or the budget is exceeded.
    """
    text, after = read_unbudgeted_string(buf, pos, end)
    return _charge_string(text, budget), after


def read_unbudgeted_string(buf: memoryview, pos: int, end: int) -> tuple[str, int]:
    """Read a string with an int16 length without a budget; return it and the next position.

    Raises:
        WireError, struct.error: the string is null or exceeds ``end``.
    """
    (size,) = _INT16(buf, pos)
    pos += 2
    stop = pos + size
    if size < 0 or stop > end:
        raise WireError(f"length of a string: {size}")
    return str(buf[pos:stop], "utf-8", "replace"), stop


def _charge_string(text: str, budget: DecodeBudget) -> str:
    if text:
        size_bytes = text.__sizeof__()
        (budget.charge_elements if len(text) < SHORT_STRING_BYTES else budget.charge)(size_bytes)
    return text


def read_array_job(
    read: Callable[..., Any],
    plain: Callable[[memoryview, int, int], tuple[Any, int]],
    count: int,
    each_bytes: int,
    buf: memoryview,
    pos: int,
    end: int,
    budget: DecodeBudget,
) -> Generator[None, None, tuple[Any, int]]:
    """Read an array of structs or strings and return it with the position after it, as a job.

    An array of more than `EAGER_ELEMENTS` is returned as a `LazyArray`, unless ``budget.keeps`` is True or an element
    has more than `LARGE_ELEMENT_BYTES`; others are lists.

    ``read`` decodes an element, charging the budget and yielding; ``plain`` decodes a small one without both. In a list
    each element is charged ``each_bytes`` plus its contents, in a `LazyArray` `BUDGET_LAZY_ELEMENT_BYTES`.

    Raises:
        WireError, struct.error, IndexError: an element is malformed, or the budget is exceeded.
    """
    if budget.keeps or count <= EAGER_ELEMENTS:
        return (yield from _read_eagerly(read, count, each_bytes, buf, pos, end, budget))
    budget.charge_elements(count * BUDGET_LAZY_ELEMENT_BYTES)
    first, since, stop_at = pos, 0, pos + _BYTES_PER_YIELD
    try:
        for _ in range(count):
            bound = pos + LARGE_ELEMENT_BYTES
            _, pos = plain(buf, pos, bound if bound < end else end)
            since += 1
            if since >= ELEMENTS_PER_YIELD or pos >= stop_at:
                since, stop_at = 0, pos + _BYTES_PER_YIELD
                yield
    except _FORMAT_ERRORS:  # a large or invalid element: read as a list below, which raises the error
        return (yield from _read_eagerly(read, count, each_bytes, buf, first, end, budget))
    return LazyArray(plain, count, buf, first, end), pos


def _read_eagerly(
    read: Callable[..., Any], count: int, each_bytes: int, buf: memoryview, pos: int, end: int, budget: DecodeBudget
) -> Generator[None, None, tuple[list[Any], int]]:
    """Decode all elements into a list, as a job; return it and the position after it (see `read_array_job`)."""
    budget.charge_elements(count * each_bytes)
    elements: list[Any] = []
    for number in range(count):
        element = read(buf, pos, end, budget)
        element, pos = (yield from element) if type(element) is GeneratorType else element
        elements.append(element)
        if number % ELEMENTS_PER_YIELD == 0:
            yield
    return elements, pos
