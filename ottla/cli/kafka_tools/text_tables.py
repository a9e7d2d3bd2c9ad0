"""Text tables of Kafka's tools, with columns as Java's ``printf`` pads them (``%-Ns``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def padded(widths: Sequence[int], cells: Sequence[Any]) -> str:
    """Return cells padded on the right to their widths and separated by a space; None is printed as ``null``.

    A cell is not truncated; one of width 0 is not padded.
    """
    shown = ("null" if cell is None else str(cell) for cell in cells)
    return " ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True))


def widest(least: int, cells: Sequence[Any]) -> int:
    """Return the length in characters of the longest cell, but not less than ``least``."""
    return max((least, *(len(str(cell)) for cell in cells)))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table as ``ToolsUtils.prettyPrintTable`` does: cells as wide as the longest in a column, and a tab."""
    widths = [widest(len(head), [row[i] for row in rows]) for i, head in enumerate(heads)]
    for row in (heads, *rows):
        print("".join(f"{str(cell).ljust(width)}\t" for cell, width in zip(row, widths, strict=True)))
