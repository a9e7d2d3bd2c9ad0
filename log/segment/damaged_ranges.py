"""Ranges of bytes in a segment that were found to be damaged (`scrub`), and what may be served around them."""

from __future__ import annotations

from collections.abc import Iterable

ByteRange = tuple[int, int]
"""First byte, and the one behind the last."""


def damaged_bytes_from(damage: Iterable[ByteRange], position: int) -> int:
    """Bytes of the damage that begins at ``position``; 0 for none."""
    return next((end - start for start, end in damage if start == position), 0)


def undamaged_end(damage: Iterable[ByteRange], position: int, end: int) -> int:
    """Up to where the bytes from ``position`` on may be served; ``position`` itself where damage begins there."""
    for start, stop in damage:
        if start <= position < stop:
            return position
        if position < start < end:
            end = start
    return end
