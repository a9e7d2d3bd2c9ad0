"""Value of a records field that consists of several chunks: bytes and file ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


class ChunkSequence:
    """Chunks of one records field, which are sent one after the other: no file range is read to join them."""

    __slots__ = ("chunks", "size_bytes")

    def __init__(self, chunks: Sequence[Any]) -> None:
        self.chunks = chunks
        self.size_bytes = sum(map(len, chunks))

    def __len__(self) -> int:
        """Return the length of all chunks in bytes."""
        return self.size_bytes


def flatten_chunks(chunks: Iterable[Any]) -> Iterator[Any]:
    """Yield the chunks of a message, those of a `ChunkSequence` one by one."""
    for chunk in chunks:
        if type(chunk) is ChunkSequence:
            yield from chunk.chunks
        else:
            yield chunk
