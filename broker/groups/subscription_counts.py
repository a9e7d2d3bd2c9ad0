"""How many members want or name something: what nobody wants any more is not there."""

from __future__ import annotations

from collections.abc import Iterable


def adjust_count(counts: dict[str, int], key: str | None, by: int) -> None:
    """Count one text up or down; none and the empty one are not counted."""
    if key:
        adjust_counts(counts, (key,), by)


def adjust_counts(counts: dict[str, int], keys: Iterable[str], by: int) -> None:
    """Count texts up or down."""
    for key in keys:
        left = counts.get(key, 0) + by
        if left > 0:
            counts[key] = left
        else:
            counts.pop(key, None)
