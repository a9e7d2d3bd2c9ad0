"""An array of a response that is encoded while its rows are made: it takes little more memory than its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ottla.wire.codec.schema import Message

_Chunk = Any

PENDING_ROWS = 256
"""Rows at the end of an array that are kept as objects: until they are encoded, they may be changed."""
CHUNKS_PER_JOIN = 1024
_JOIN_BELOW_BYTES = 4096


class ResponseArray:
    """Rows of one struct, in order, in place of a list in a message: all but the last `PENDING_ROWS` are encoded.

    Rows are read back only while all of them are pending. `ottla.wire.codec.compiler.response_array` makes one;
    `changeable_array` one whose rows all stay pending.
    """

    __slots__ = ("_encode_row", "_encoded", "_encoded_rows", "_loose", "pending")

    def __init__(self, encode_row: Callable[[Message], list[_Chunk]] | None = None) -> None:
        self._encode_row = encode_row
        self._encoded: Sequence[_Chunk] = ()
        self._encoded_rows = 0
        self._loose = 0
        self.pending: list[Any] = []
        """The rows that are not encoded yet."""

    def append(self, row: Any) -> None:
        """Append a row, and encode the oldest one if very many are pending.

        Raises:
            WireError: the version cannot carry that one.
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
        """Return the list of encoded chunks; an array without any has no list, as a response may have very many."""
        if not isinstance(self._encoded, list):
            self._encoded = []
        return self._encoded

    def extend(self, rows: Iterable[Any]) -> None:
        """Append rows."""
        for row in rows:
            self.append(row)

    def append_array(self, other: ResponseArray) -> None:
        """Append the rows of another array, which is not used again. Neither is a `changeable_array`.

        Raises:
            WireError: the version cannot carry a row of this array.
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
        """Write the rows that are encoded, and return the others."""
        for chunk in self._encoded:
            write(chunk)
        return self.pending

    def drain(self, write: Callable[[_Chunk], None] | None = None) -> Iterator[Any]:
        """Write the rows that are encoded, and yield the others: each leaves the array.

        Many rows that are freed in one step are a pause of the event loop.
        """
        if write is not None:
            self.write_encoded(write)
        rows = self.pending
        rows.reverse()
        while rows:
            yield rows.pop()


def changeable_array() -> Any:
    """Return an array in place of a list in a response, all rows of which may be changed until that is encoded.

    The job that encodes a response frees them one after the other (`ResponseArray.drain`), unlike those of a list.
    """
    return ResponseArray()


def join_small_chunks(chunks: list[_Chunk]) -> list[_Chunk]:
    """Return the same bytes with small neighbouring chunks joined."""
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
