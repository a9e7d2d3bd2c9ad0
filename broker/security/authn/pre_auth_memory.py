"""What connections hold before it is known who they are: all those of a listener together get so much memory.

A login needs a few kilobytes. One that sends half a mebibyte, as ``sasl.server.max.receive.size`` lets it, is none of
the usual, and a thousand such connections must not cost half a gibibyte.
"""

from __future__ import annotations

from ottla.broker.config.limits import MAX_PRE_AUTH_BYTES, UNCOUNTED_PRE_AUTH_BYTES


class PreAuthMemoryLimit:
    """A listener's connections that have not logged in."""

    def __init__(self) -> None:
        self._held_bytes = 0

    def resize(self, before_bytes: int, now_bytes: int) -> bool:
        """A connection's buffer grew or shrank; says whether there is room for it, else nothing is counted."""
        more = max(now_bytes - UNCOUNTED_PRE_AUTH_BYTES, 0) - max(before_bytes - UNCOUNTED_PRE_AUTH_BYTES, 0)
        if more > 0 and self._held_bytes + more > MAX_PRE_AUTH_BYTES:
            return False
        self._held_bytes += more
        return True
