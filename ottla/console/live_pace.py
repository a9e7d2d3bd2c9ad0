"""Pauses between the updates of a live page, so that an open page takes a small part of the event loop."""

from __future__ import annotations

LIVE_PAUSE_FACTORS = 4, 66
"""Pause after an update, as a multiple of the event loop time that it took: at least, and up to `FULL_LIVE_PAUSE_S`.

A page that is updated several times a second takes 1.5 % of the event loop at most; a large page takes a fifth.
"""
FULL_LIVE_PAUSE_S = 2.0
"""Pause in seconds that is long enough for any page but a large one."""
FLOODED_PAUSE_FACTOR = 5
"""Factor of the interval from one update to the next while each leaves something out."""
FLOODED_PAUSE_S = 1.0
"""Longest interval for that reason: nobody reads more in that time than an update shows."""


class LivePace:
    """Pace of one live page: returns the pause after each update."""

    def __init__(self, interval_s: float) -> None:
        """Create a pace; ``interval_s`` is the shortest pause of the page in seconds."""
        self._least_s = self._interval_s = interval_s

    def next_pause_s(self, took_s: float, *, is_flooded: bool) -> float:
        """Return the pause in seconds before the next update: the interval, or more after a slow or flooded update.

        Args:
            took_s: event loop time of the last update; the factors are `LIVE_PAUSE_FACTORS`.
            is_flooded: the update left something out, since more had come than it shows (`View.is_flooded`).
        """
        self._interval_s = (
            max(min(self._interval_s * FLOODED_PAUSE_FACTOR, FLOODED_PAUSE_S), self._least_s)
            if is_flooded
            else self._least_s
        )
        least, most = LIVE_PAUSE_FACTORS
        return max(self._interval_s, took_s * least, min(took_s * most, FULL_LIVE_PAUSE_S))
