"""Pauses of live pages after slow updates, and after updates that left something out."""

from __future__ import annotations

import pytest

from ottla.console.live_pace import LivePace


@pytest.mark.parametrize(
    ("interval_s", "took_s", "pause_s"), [(0.1, 0.001, 0.1), (0.1, 0.01, 0.66), (0.1, 0.2, 2.0), (0.1, 1.0, 4.0)]
)
def test_live_pause_is_a_multiple_of_the_time_of_the_update(interval_s: float, took_s: float, pause_s: float) -> None:
    assert LivePace(interval_s).next_pause_s(took_s, is_flooded=False) == pytest.approx(pause_s)


def test_live_pause_grows_to_a_second_while_updates_are_flooded() -> None:
    pace = LivePace(0.1)
    pauses = [pace.next_pause_s(0.0, is_flooded=is_flooded) for is_flooded in (True, True, True, True, False, True)]
    assert pauses == pytest.approx([0.5, 1.0, 1.0, 1.0, 0.1, 0.5])


def test_live_pause_of_a_flooded_page_is_never_below_its_interval() -> None:
    assert LivePace(2.0).next_pause_s(0.0, is_flooded=True) == 2.0
