"""Reading a segment's batches one after the other, in large pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ottla.wire.batch import BatchHeader, overhead
from ottla.wire.errors import WireError
from ottla.wire.legacy import TELLING_BYTES, any_crc_matches, any_header, smallest
from ottla.world.disk import File

_PIECE_BYTES = 1 << 20


class Scanned(Protocol):
    """What is read: a segment, which may grow, and whose file may be closed and opened meanwhile."""

    path: str
    size_bytes: int

    @property
    def file(self) -> File:
        """Its file, open."""


def batches(segment: Scanned, position: int, *, check: bool) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every batch from ``position`` on: where it lies, its header, its bytes.

    Raises:
        WireError: a batch that does not parse or (with ``check``) has a bad checksum; all before it were given.
    """
    name = f"{segment.path}.log"
    while position < segment.size_bytes:
        window = memoryview(segment.file.pread(_PIECE_BYTES, position))
        at = 0
        while len(window) - at >= TELLING_BYTES:
            size = overhead(window, at)[1]
            if size < smallest(window, at) or position + at + size > segment.size_bytes:
                raise WireError(f"{name}: batch of {size} bytes at {position + at}")
            if size > len(window) - at:
                if at == 0:
                    window = memoryview(segment.file.pread(size, position))
                    if len(window) < size:
                        raise WireError(f"{name} ends inside the batch at {position}")
                    continue
                break
            header = any_header(window, at)
            if check and not any_crc_matches(window, header, at):
                raise WireError(f"{name}: bad CRC at {position + at}")
            yield position + at, header, window[at : at + size]
            at += size
        if at == 0:
            raise WireError(f"{name}: {segment.size_bytes - position} bytes at {position} are no batch")
        position += at
