"""Array of a response that is encoded while elements are appended, to use little more memory than its encoded bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ottla.wire.codec.schema import Message

_Chunk = Any

PENDING_ROWS = 256
"""Number of elements at the end of an array that are not encoded yet and may be changed."""
CHUNKS_PER_JOIN = 1024
_JOIN_BELOW_BYTES = 4096


class ResponseArray:
    """Array of structs in place of a list in a response: all but the last `PENDING_ROWS` elements (rows) are encoded.

    Elements can only be read while none is encoded. Created by `ottla.wire.codec.compiler.response_array`, or by
    `changeable_array` if no element is to be encoded before the response.
    """

    __slots__ = ("_encode_row", "_encoded", "_encoded_rows", "_loose", "pending")

    def __init__(self, encode_row: Callable[[Message], list[_Chunk]] | None = None) -> None:
        self._encode_row = encode_row
        self._encoded: Sequence[_Chunk] = ()
        self._encoded_rows = 0
        self._loose = 0
        self.pending: list[Any] = []
        """Elements that are not encoded yet."""

    def append(self, row: Any) -> None:
        """Append an element; encode the oldest pending one if more than `PENDING_ROWS` are pending.

        Raises:
            WireError: the encoded element has a value that the version does not support.
        """
        self.pending.append(row)
        if self._encode_row is not None and len(self.pending) > PENDING_ROWS:
            self._encode_oldest(self._encode_row)

    def _encode_oldest(self, encode_row: Callable[[Message], list[_Chunk]]) -> None:
        encoded = self._writable_chunks()
        encoded += join_small_chunks(encode_row(self.pending.pop(0)))
        self._encoded_rows += 1
        if len(encoded) - self._loose >= CHUNKS_PER_JOIN:
            encoded[self._loose :] = join_small_chunks(encoded[self._loose :])
            self._loose = len(encoded)

    def _writable_chunks(self) -> list[_Chunk]:
        """Return the list of encoded chunks, created on first use: a response may have very many empty arrays."""
        if not isinstance(self._encoded, list):
            self._encoded = []
        return self._encoded

    def extend(self, rows: Iterable[Any]) -> None:
        """Append several elements."""
        for row in rows:
            self.append(row)

    def append_array(self, other: ResponseArray) -> None:
        """Append the elements of another array, which must not be used afterwards.

        Neither array may come from `changeable_array`.

        Raises:
            WireError: an encoded element has a value that the version does not support.
        """
        if other._encoded_rows:
            assert self._encode_row is not None
            while self.pending:
                self._encode_oldest(self._encode_row)
            self._writable_chunks().extend(other._encoded)
            self._encoded_rows += other._encoded_rows
            self._loose = len(self._encoded)
        self.extend(other.pending)

    def __len__(self) -> int:
        return self._encoded_rows + len(self.pending)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all_rows())

    def __getitem__(self, at: int) -> Any:
        return self._all_rows()[at]

    def __eq__(self, other: object) -> bool:
        return self._all_rows() == other

    __hash__ = None  # type: ignore[assignment]

    def _all_rows(self) -> list[Any]:
        if self._encoded_rows:
            raise TypeError("rows of an array whose first ones are encoded cannot be read")
        return self.pending

    def write_encoded(self, write: Callable[[_Chunk], None]) -> list[Any]:
        """Pass the encoded chunks to ``write`` and return the pending elements, which the encoder writes next."""
        for chunk in self._encoded:
            write(chunk)
        return self.pending

    def drain(self, write: Callable[[_Chunk], None]) -> Iterator[Any]:
        """Pass the encoded chunks to ``write``, then yield the pending elements, removing each from the array.

        So the elements are freed one by one: freeing many at once blocks the event loop.
        """
        rows = self.write_encoded(write)
        rows.reverse()
        while rows:
            yield rows.pop()


def changeable_array() -> Any:
    """Return a `ResponseArray` whose elements may all be changed until the response is encoded.

    The job that encodes a response frees its elements one by one (`ResponseArray.drain`), unlike those of a list.
    """
    return ResponseArray()


def join_small_chunks(chunks: list[_Chunk]) -> list[_Chunk]:
    """Return the chunks, with adjacent bytes objects of less than 4096 bytes joined; others stay as they are."""
    out: list[_Chunk] = []
    small: list[bytes] = []
    for chunk in chunks:
        if type(chunk) is bytes and len(chunk) < _JOIN_BELOW_BYTES:
            small.append(chunk)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(chunk)
    if small:
        out.append(b"".join(small))
    return out
