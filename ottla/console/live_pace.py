"""Pauses between the updates of a live page, so that an open page takes a small part of the event loop."""

from __future__ import annotations

LIVE_PAUSE_FACTORS = 4, 66
"""Pause after an update, as a multiple of its event loop time: at least, and on average, up to `FULL_LIVE_PAUSE_S`.

A page that is updated several times a second takes 1.5 % of the event loop at most; a large page takes a fifth.
"""
FULL_LIVE_PAUSE_S = 2.0
"""Pause in seconds that is long enough for any page but a large one."""
SAVED_S = 0.1
"""Event loop time in seconds that a page may take without longer pauses, at first and after it was quiet.

The first updates load code and templates.
"""
FLOODED_PAUSE_FACTOR = 5
"""Factor of the interval from one update to the next while each leaves something out."""
FLOODED_PAUSE_S = 1.5
"""Longest interval for that reason: nobody reads more in that time than an update shows."""


class LivePace:
    """Pace of one live page: returns the pause after each update."""

    def __init__(self, interval_s: float, now_ms: float) -> None:
        """Create a pace at the monotonic time ``now_ms``; ``interval_s``: shortest pause of the page in seconds."""
        self._least_s = self._interval_s = interval_s
        self._last_ms = now_ms
        self._saved_s = SAVED_S
        """Event loop time that is left; a negative one is made up for by the next pause."""

    def next_pause_s(self, now_ms: float, took_s: float, *, is_flooded: bool) -> float:
        """Return the pause in seconds before the next update: the interval, or more after slow or flooded updates.

        Args:
            now_ms: monotonic time.
            took_s: event loop time of the last update in seconds.
            is_flooded: the update left something out, since more had come than it shows (`View.is_flooded`).
        """
        least, average = LIVE_PAUSE_FACTORS
        earned_s, self._last_ms = (now_ms - self._last_ms) / 1000 / average, now_ms
        saved_s = min(self._saved_s + earned_s, SAVED_S) - took_s
        self._saved_s = max(saved_s, -FULL_LIVE_PAUSE_S / average)
        if is_flooded:
            self._interval_s = max(min(self._interval_s * FLOODED_PAUSE_FACTOR, FLOODED_PAUSE_S), self._least_s)
        else:
            self._interval_s = self._least_s
        return max(self._interval_s, took_s * least, -self._saved_s * average)
