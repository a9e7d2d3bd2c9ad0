"""A long array of an answer: what was said first is written at once, and not kept as objects until all is said."""

from __future__ import annotations

from typing import Any

from ottla.wire.codec import compiler
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.schema import Message

BUFFERED_ELEMENTS = 256
"""So many rows, the last ones, are kept as they are."""
CHUNKS_PER_JOIN = 1024


class StreamingArray(list[Any]):
    """Rows of one struct, in order. Those that are written count, but can neither be changed nor looked at any more.

    It stands in place of a list in a message of the class ``answer``, which is to be written in this version.
    """

    __slots__ = ("_answer", "_loose", "_version", "_written", "chunks")

    def __init__(self, answer: type[Message], version: int) -> None:
        super().__init__()
        self._answer = answer
        self._version = version
        self._written = 0
        self._loose = 0
        self.chunks: list[Chunk] = []
        """The rows that are written."""

    def append(self, row: Any) -> None:
        """One row more: for which the oldest that is kept is written.

        Raises:
            WireError: the version cannot carry that one.
        """
        super().append(row)
        if list.__len__(self) > BUFFERED_ELEMENTS:
            self.chunks += compiler.join_small_chunks(
                compiler.encode_element_chunks(self._answer, self._version, self.pop(0))
            )
            self._written += 1
            if len(self.chunks) - self._loose >= CHUNKS_PER_JOIN:
                self.chunks[self._loose :] = compiler.join_small_chunks(self.chunks[self._loose :])
                self._loose = len(self.chunks)

    def __len__(self) -> int:
        return self._written + list.__len__(self)

    def __bool__(self) -> bool:
        return len(self) > 0
