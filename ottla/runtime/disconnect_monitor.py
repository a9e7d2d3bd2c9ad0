"""Detection of disconnections while no task reads from the connection.

A socket with unread requests is always readable, so readability does not show a disconnection. A separate epoll is
registered for hang-ups only (``EPOLLRDHUP``), and the event loop waits for that epoll.
"""

from __future__ import annotations

import contextlib
import logging
import select
from collections.abc import Callable

import trio

logger = logging.getLogger("ottla.connection")
_HANGUP = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR | select.EPOLLONESHOT


class DisconnectMonitor:
    """Monitor that calls a callback when the peer of a registered connection disconnects."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, on the event loop, when the peer of the socket ``fd`` disconnects; return at once.

        Without a free descriptor the connection is not monitored: the next read or write detects the disconnection.
        """
        with contextlib.suppress(OSError):
            if self._epoll is None:
                self._epoll = select.epoll()
                trio.lowlevel.spawn_system_task(self._run, self._epoll)
            self._epoll.register(fd, _HANGUP)
            self._callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Stop monitoring a descriptor, if it is monitored; must be called before the descriptor is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._unregister(fd)

    def _unregister(self, fd: int) -> None:
        if self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    @staticmethod
    def _call(callback: Callable[[], None]) -> None:
        """Call ``callback`` and log its exceptions: an exception in a system task would end trio's event loop."""
        try:
            callback()
        except Exception:
            logger.exception("Disconnect callback failed: %r", callback)

    async def _run(self, epoll: select.epoll) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(epoll.fileno())
                for fd, _ in epoll.poll(0):
                    callback = self._callbacks.pop(fd, None)
                    self._unregister(fd)
                    if callback is not None:
                        self._call(callback)
        finally:
            self._epoll = None
            self._callbacks.clear()
            trio.lowlevel.notify_closing(epoll.fileno())
            epoll.close()
