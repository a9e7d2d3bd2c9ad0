"""Pauses of live pages after slow updates, and after updates that left something out."""

from __future__ import annotations

import pytest

from ottla.console.live_pace import FULL_LIVE_PAUSE_S, LIVE_PAUSE_FACTORS, SAVED_S, LivePace


def pauses(interval_s: float, took_s: float, updates: int, *, is_flooded: bool = False) -> list[float]:
    """Return the pauses after updates that take the same time."""
    pace, now_ms, out = LivePace(interval_s, 0.0), 0.0, []
    for _ in range(updates):
        now_ms += took_s * 1000
        out.append(pace.next_pause_s(now_ms, took_s, is_flooded=is_flooded))
        now_ms += out[-1] * 1000
    return out


@pytest.mark.parametrize(
    ("took_s", "first_s", "last_s"), [(0.001, 0.1, 0.1), (0.01, 0.1, 0.65), (0.2, 2.0, 2.0), (1.0, 4.0, 4.0)]
)
def test_live_pause_grows_to_a_multiple_of_the_time_of_updates(took_s: float, first_s: float, last_s: float) -> None:
    found = pauses(0.1, took_s, 50)
    assert (found[0], found[-1]) == pytest.approx((first_s, last_s))


def test_page_that_was_quiet_may_be_updated_often_again() -> None:
    pace = LivePace(0.1, 0.0)
    pause_s = pace.next_pause_s(0.0, SAVED_S + 0.01, is_flooded=False)
    assert pause_s == pytest.approx(0.01 * LIVE_PAUSE_FACTORS[1])
    assert pace.next_pause_s(1000 * pause_s, 0.01, is_flooded=False) == pytest.approx(pause_s)
    assert pace.next_pause_s(3_600_000.0, SAVED_S, is_flooded=False) == SAVED_S * LIVE_PAUSE_FACTORS[0]
    assert pace.next_pause_s(3_600_000.0, 0.01, is_flooded=False) == pytest.approx(pause_s), "no more is saved"


def test_very_slow_update_delays_only_the_next_ones() -> None:
    pace = LivePace(0.1, 0.0)
    assert pace.next_pause_s(0.0, 10.0, is_flooded=False) == 40.0
    assert pace.next_pause_s(0.0, 0.0, is_flooded=False) == FULL_LIVE_PAUSE_S
    assert pace.next_pause_s(2000.0, 0.0, is_flooded=False) == 0.1


def test_live_pause_grows_while_updates_are_flooded() -> None:
    pace = LivePace(0.1, 0.0)
    found = [pace.next_pause_s(0.0, 0.0, is_flooded=flooded) for flooded in (True, True, True, False, True)]
    assert found == pytest.approx([0.5, 1.5, 1.5, 0.1, 0.5])


def test_live_pause_of_a_flooded_page_is_never_below_its_interval() -> None:
    assert pauses(2.0, 0.0, 1, is_flooded=True) == [2.0]
