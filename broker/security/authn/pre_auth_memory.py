"""Memory limit of a listener's unauthenticated connections.

An authentication needs a few kilobytes. A message of 512 KiB, the maximum of ``sasl.server.max.receive.size``, is
unusual, and a thousand such connections must not take 512 MiB.
"""

from __future__ import annotations

from ottla.broker.config.limits import MAX_PRE_AUTH_BYTES, UNCOUNTED_PRE_AUTH_BYTES


class PreAuthMemoryLimit:
    """Limit of the memory in the receive buffers of all unauthenticated connections of a listener.

    Of each connection the first `UNCOUNTED_PRE_AUTH_BYTES` do not count. The caller closes a connection that would
    exceed the limit.
    """

    def __init__(self) -> None:
        self._held_bytes = 0

    def resize(self, before_bytes: int, now_bytes: int) -> bool:
        """Record that a connection's buffer changes from ``before_bytes`` to ``now_bytes``; a closed connection has 0.

        Return False, without recording it, if the buffer grows and the limit of all connections would be exceeded.
        """
        more = max(now_bytes - UNCOUNTED_PRE_AUTH_BYTES, 0) - max(before_bytes - UNCOUNTED_PRE_AUTH_BYTES, 0)
        if more > 0 and self._held_bytes + more > MAX_PRE_AUTH_BYTES:
            return False
        self._held_bytes += more
        return True
