"""Parts of long lists: a page shows `PAGE_ROWS` rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.console.page import PageRequest

PAGE_ROWS = 100
_MAX_FIRST = 10_000_000


class Paging(NamedTuple):
    """Part of a list that a page shows."""

    first: int
    shown: int
    total: int

    @property
    def has_previous(self) -> bool:
        """True if there are rows before."""
        return self.first > 0

    @property
    def has_next(self) -> bool:
        """True if there are rows behind."""
        return self.first + self.shown < self.total

    @property
    def previous(self) -> int:
        """First row of the page before."""
        return max(self.first - PAGE_ROWS, 0)

    @property
    def next(self) -> int:
        """First row of the page behind."""
        return self.first + PAGE_ROWS


def paginate(page: PageRequest, rows: Sequence[Any]) -> tuple[list[Any], Paging]:
    """Return the rows that the query asks for.

    Raises:
        InvalidInput: not a number.
    """
    first = page.number("first", 0, 0, _MAX_FIRST)
    shown = list(rows[first : first + PAGE_ROWS])
    return shown, Paging(first, len(shown), len(rows))
