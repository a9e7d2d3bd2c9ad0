"""Common parts of long requests: names that count once."""

from __future__ import annotations

from ottla.broker.handlers.item_results import distinct


def test_distinct_marks_repeated_names() -> None:
    assert list(distinct(["a", "", "a", "b", "", "b"])) == ["a", "", None, "b", None, None]
