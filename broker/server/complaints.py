"""What is said in the log of connections that broke a rule: so much a minute, and then only how often.

Whoever may connect may break rules as fast as it likes: each time a line would fill the disk and hide what matters.
"""

from __future__ import annotations

import logging

from ottla.world.env import Env

A_MINUTE = 30
"""So many lines of a listener."""
_MINUTE_MS = 60_000.0


class Complaints:
    """A listener's."""

    def __init__(self, env: Env, listener: str) -> None:
        self._env = env
        self._listener = listener
        self._since_ms = float("-inf")
        self._said = 0
        self._unsaid = 0

    def say(self, logger: logging.Logger, level: int, text: str, *values: object, traceback: bool = False) -> None:
        """Write a line, unless there were too many lately; ``traceback``: of the exception that is handled just now."""
        now_ms = self._env.monotonic_ms()
        if now_ms - self._since_ms >= _MINUTE_MS:
            if self._unsaid:
                logger.warning("listener %s: %d more lines like the last ones", self._listener, self._unsaid)
            self._since_ms, self._said, self._unsaid = now_ms, 0, 0
        if self._said >= A_MINUTE:
            self._unsaid += 1
            return
        self._said += 1
        logger.log(level, text, *values, exc_info=traceback)
        if self._said == A_MINUTE:
            logger.warning("listener %s: no more lines of connections for a minute", self._listener)
