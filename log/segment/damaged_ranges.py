"""Byte ranges of a segment that scrubbing found damaged, and the bytes around them that may be served."""

from __future__ import annotations

from collections.abc import Iterable

ByteRange = tuple[int, int]
"""Position of the first byte, and position after the last byte."""


def damaged_bytes_from(damage: Iterable[ByteRange], position: int) -> int:
    """Return the size of the damaged range that begins at ``position``; 0 if there is none."""
    return next((end - start for start, end in damage if start == position), 0)


def undamaged_end(damage: Iterable[ByteRange], position: int, end: int) -> int:
    """Return the end of the undamaged bytes from ``position`` up to ``end``; ``position`` if it is damaged itself."""
    for start, stop in damage:
        if start <= position < stop:
            return position
        if position < start < end:
            end = start
    return end
