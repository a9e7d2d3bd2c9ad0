"""Notifications to systemd (``sd_notify``): readiness, stopping and watchdog.

Source: ``sd_notify(3)``, ``sd_watchdog_enabled(3)``.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

import trio

logger = logging.getLogger("ottla.systemd")


class ServiceNotifier:
    """Sender of state changes to systemd, without effect if ``NOTIFY_SOCKET`` is not set."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        values = os.environ if environment is None else environment
        address = values.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_interval_s = self._watchdog_interval(values)
        """Seconds between two watchdog messages, half of ``WATCHDOG_USEC``; None without a watchdog."""

    def _watchdog_interval(self, values: Mapping[str, str]) -> float | None:
        limit_us, process_id = values.get("WATCHDOG_USEC", ""), values.get("WATCHDOG_PID", str(os.getpid()))
        if not self._address or not limit_us.isdecimal() or int(limit_us) == 0 or process_id != str(os.getpid()):
            return None
        return int(limit_us) / 2_000_000

    def notify(self, state: str) -> None:
        """Send ``state`` to systemd: ``READY=1``, ``STOPPING=1`` or ``WATCHDOG=1``, optionally ``STATUS=...`` lines.

        No effect without systemd; an error is logged and not raised.
        """
        if not self._address:
            return
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto(state.encode(), self._address)
        except OSError as error:
            logger.warning("Cannot notify systemd at %s: %s", self._address.replace("\0", "@"), error.strerror or error)

    async def run_watchdog(self) -> None:
        """Send ``WATCHDOG=1`` at each interval, as long as the event loop runs; return at once without a watchdog."""
        while self.watchdog_interval_s is not None:
            self.notify("WATCHDOG=1")
            await trio.sleep(self.watchdog_interval_s)
