"""Tables in the form of Java's ``printf`` with ``%-Ns`` cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def padded(widths: Sequence[int], cells: Sequence[Any]) -> str:
    """Return cells padded to widths and separated by spaces; a width of 0 pads nothing. None is printed as ``null``."""
    shown = ("null" if cell is None else str(cell) for cell in cells)
    return " ".join(cell.ljust(width) for cell, width in zip(shown, widths, strict=True))


def widest(least: int, cells: Sequence[Any]) -> int:
    """Return the length of the longest cell, at least ``least``."""
    return max((least, *(len(str(cell)) for cell in cells)))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table as ``ToolsUtils.prettyPrintTable`` does: columns as wide as their longest cell, and a tab."""
    widths = [widest(len(head), [row[i] for row in rows]) for i, head in enumerate(heads)]
    for row in (heads, *rows):
        print("".join(f"{str(cell).ljust(width)}\t" for cell, width in zip(row, widths, strict=True)))
