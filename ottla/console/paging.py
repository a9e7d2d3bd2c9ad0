"""Paging of long lists: a page shows `PAGE_ROWS` rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.console.page import PageRequest

PAGE_ROWS = 100
_MAX_FIRST = 10_000_000


class Paging(NamedTuple):
    """Range of a list's rows on a page: index of the first row, number of rows, number of all rows."""

    first: int
    shown: int
    total: int

    @property
    def has_previous(self) -> bool:
        """True if there are rows before this page."""
        return self.first > 0

    @property
    def has_next(self) -> bool:
        """True if there are rows after this page."""
        return self.first + self.shown < self.total

    @property
    def previous(self) -> int:
        """Index of the first row of the previous page."""
        return max(self.first - PAGE_ROWS, 0)

    @property
    def next(self) -> int:
        """Index of the first row of the next page."""
        return self.first + PAGE_ROWS


def paginate(page: PageRequest, rows: Sequence[Any]) -> tuple[list[Any], Paging]:
    """Return the rows of the page that the query's field ``first`` selects, and their range.

    A ``first`` beyond the end selects the last page, as rows may have been removed meanwhile.

    Raises:
        InvalidInput: ``first`` is not a number from 0 to 10,000,000.
    """
    first = page.number("first", 0, 0, _MAX_FIRST)
    if first >= len(rows):  # rows were removed meanwhile
        first = max(len(rows) - 1, 0) // PAGE_ROWS * PAGE_ROWS
    shown = list(rows[first : first + PAGE_ROWS])
    return shown, Paging(first, len(shown), len(rows))
