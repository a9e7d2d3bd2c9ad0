"""Rate-limited log of messages about connections: a limited number of lines per minute, then a count.

Clients may repeat protocol violations quickly: a line for each would fill the disk and hide important lines.
"""

from __future__ import annotations

import logging

from ottla.broker.config.limits import MAX_LOG_LINES_PER_MINUTE
from ottla.env.env import Env

_MINUTE_MS = 60_000.0


class RateLimitedLog:
    """Rate-limited log of one listener: at most `MAX_LOG_LINES_PER_MINUTE` lines per minute."""

    def __init__(self, env: Env, listener: str) -> None:
        self._env = env
        self._listener = listener
        self._since_ms = float("-inf")
        self._logged = 0
        self._suppressed = 0

    def log(self, logger: logging.Logger, level: int, text: str, *values: object, traceback: bool = False) -> None:
        """Log ``text`` with ``values``, or count it as suppressed if the limit of this minute is reached.

        ``traceback``: append the traceback of the exception being handled.
        """
        now_ms = self._env.monotonic_ms()
        if now_ms - self._since_ms >= _MINUTE_MS:
            if self._suppressed:
                logger.warning("Listener %s: %d similar log messages were suppressed", self._listener, self._suppressed)
            self._since_ms, self._logged, self._suppressed = now_ms, 0, 0
        if self._logged >= MAX_LOG_LINES_PER_MINUTE:
            self._suppressed += 1
            return
        self._logged += 1
        logger.log(level, text, *values, exc_info=traceback)
        if self._logged == MAX_LOG_LINES_PER_MINUTE:
            logger.warning("Listener %s: suppressing log messages about connections for a minute", self._listener)
