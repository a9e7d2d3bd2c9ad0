"""What long requests have in common: names that count once."""

from __future__ import annotations

from ottla.broker.handlers.item_results import distinct


def test_a_name_counts_once_and_where_it_comes_again_it_is_told() -> None:
    assert list(distinct(["a", "", "a", "b", "", "b"])) == ["a", "", None, "b", None, None]
