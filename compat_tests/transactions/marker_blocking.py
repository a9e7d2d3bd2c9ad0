"""Blocking of transaction markers, which keeps decided transactions incomplete.

Kafka sends markers to the inter-broker listener, its own ones too, here through a `ClosableProxy` that gets closed.
``python -m compat_tests.transactions.marker_blocking FILE serve ...`` is Ottla's command line in a process that sends
no markers while ``FILE`` exists.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from ottla.broker.transactions.marker_sender import TxnMarkerSender
from ottla.cli.main import main


class ClosableProxy:
    """Port that forwards to another one of this machine, until it is closed."""

    def __init__(self, to: int) -> None:
        """Open the port; the server at ``to`` may start later."""
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                came, _ = self._listener.accept()
                try:
                    on = socket.create_connection(("127.0.0.1", self._to))
                except OSError:  # the server has not started: the client tries again
                    came.close()
                    continue
                self._open += [came, on]
                for pair in ((came, on), (on, came)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while raw := source.recv(65536):
                target.sendall(raw)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Block all markers from now on."""
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def run(mark: str, arguments: list[str]) -> int:
    """Run the command line and return its exit status."""
    give = TxnMarkerSender.deliver

    def held(self: TxnMarkerSender, due: Any) -> None:
        if not os.path.exists(mark):
            give(self, due)

    TxnMarkerSender.deliver = held  # type: ignore[method-assign]
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
