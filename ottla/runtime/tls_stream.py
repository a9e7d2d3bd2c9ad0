"""TLS connection on the socket itself, which tries each call first and waits only if it would block.

Measured against `ssl.MemoryBIO` (1 GiB of large pieces, one core, OpenSSL 3.0, TLS 1.3): sending costs the same, and
receiving a fifth less, since nothing is copied on the way to the socket. Ranges of files are read and sent in pieces:
`sendfile` ends where bytes must be encrypted. What lies in memory is read at once, and by a thread what does not.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from typing import Any

import trio

from ottla.env.disk import FileSlice
from ottla.env.env import FOREVER_S
from ottla.runtime.certificate_subjects import peer_subject
from ottla.runtime.disconnect_monitor import DisconnectMonitor
from ottla.runtime.real_stream import RealStream
from ottla.runtime.ssl_contexts import sni_host

_PIECE_BYTES = 256 * 1024
_RECORD_BYTES = 16 * 1024
"""Of TLS, at most."""
_AT_ONCE_BYTES = 1024 * 1024
"""Received in one go, in about a millisecond."""
_BYTES_UNTIL_YIELD = 4 * 1024 * 1024
"""After so much others get their turn, however fast the other side reads: some milliseconds."""
_BUSY = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_HANDSHAKE_LOCK: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("handshake")
"""Lock for the steps of handshakes, which take up to 2 ms each: one step at a time, so that other tasks run in
between. Each event loop has its own lock: a program may run nodes in several threads.
"""


def _handshake_lock() -> trio.Lock:
    """Return the handshake lock of this event loop."""
    try:
        return _HANDSHAKE_LOCK.get()
    except LookupError:
        lock = trio.Lock()
        _HANDSHAKE_LOCK.set(lock)
        return lock


class TlsStream(RealStream):
    """TLS connection; `handshake` or the first read or write makes its handshake."""

    def __init__(
        self,
        sock: socket.socket,
        hangups: DisconnectMonitor,
        context: ssl.SSLContext,
        name: str | None = None,
        threads: trio.CapacityLimiter | None = None,
    ) -> None:
        """``name``: of the server that was dialled; None where the connection came in. ``threads`` may read files.

        Raises:
            OSError: the other side reset it already.
        """
        sock.setblocking(False)
        # raises for a connection that was reset, before the library would raise and leave the socket open
        sock.getpeername()
        self._tls = context.wrap_socket(
            sock, server_side=name is None, do_handshake_on_connect=False, server_hostname=name
        )
        super().__init__(self._tls, hangups, threads)
        self._sent = 0

    async def handshake(self) -> str | None:
        """Agree on keys; gives the subject of the other side's certificate, None where it showed none.

        Raises:
            OSError: they do not agree, or the certificate is not trusted. trio.ClosedResourceError: it is closed here.
        """
        while True:
            try:
                async with _handshake_lock():
                    if self._tls.fileno() < 0:
                        raise trio.ClosedResourceError("closed while it waited for its turn")
                    self._tls.do_handshake()
                self.local = (sni_host(self._tls) or self.local[0], self.local[1])
                return peer_subject(self._tls)
            except _BUSY as busy:
                await self._wait(busy)
            except ssl.SSLEOFError:
                raise ConnectionAbortedError("the other side left") from None

    async def _wait(self, busy: OSError) -> None:
        if isinstance(busy, ssl.SSLWantWriteError):
            await trio.lowlevel.wait_writable(self._sock)
        else:
            await trio.lowlevel.wait_readable(self._sock)

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """As `RealStream.receive_into`; a record at a time, full ones together."""
        self._sends_until_yield += 1
        if self._sends_until_yield >= 64:
            self._sends_until_yield = 0
            self.receive_waits += 1
            await trio.lowlevel.checkpoint()
        while True:
            try:
                count = self._tls.recv_into(buffer)
                return count if count < _RECORD_BYTES else self._receive_more(buffer, count)
            except _BUSY as busy:
                self._sends_until_yield = 0
                self.receive_waits += 1
                if timeout_s == FOREVER_S:
                    await self._wait(busy)
                    continue
                with trio.move_on_after(timeout_s) as scope:
                    await self._wait(busy)
                if scope.cancelled_caught:
                    return 0

    def _receive_more(self, buffer: memoryview, count: int) -> int:
        """Receive further records that are available without waiting: usually the rest of a large request."""
        end = min(len(buffer), _AT_ONCE_BYTES)
        with suppress(OSError):  # no data now, or an error, which the next call raises after the data is processed
            while count < end:
                more = self._tls.recv_into(buffer[count:end])
                count += more
                if more < _RECORD_BYTES:
                    break
        self._sends_until_yield += count // _RECORD_BYTES
        return count

    async def _send_bytes(self, data: Any, flags: int = 0) -> None:
        done = 0
        view = memoryview(data)
        while done < len(view):
            try:
                done += self._tls.send(view[done : done + _PIECE_BYTES])
            except _BUSY as busy:
                self.send_waits += 1
                if isinstance(busy, ssl.SSLWantReadError):
                    await trio.lowlevel.wait_readable(self._sock)
                else:
                    await trio.lowlevel.wait_writable(self._sock)
        self._sent += done
        if self._sent >= _BYTES_UNTIL_YIELD:
            self._sent = 0
            await trio.lowlevel.checkpoint()

    async def _send_file(self, part: FileSlice) -> None:
        offset, end = part.offset, part.offset + part.size_bytes
        kept = bytearray(min(part.size_bytes, _PIECE_BYTES))
        while offset < end:
            piece = FileSlice(part.file, offset, min(end - offset, _PIECE_BYTES))
            raw: Any = _read_from_page_cache(piece, kept)
            if raw is None:
                raw = await trio.to_thread.run_sync(piece.read_all, limiter=self._threads)
            await self._send_bytes(raw)
            offset += piece.size_bytes

    def close(self) -> None:
        """Close, and send a close_notify first if that does not block: it shows the peer that no data is missing."""
        if self._sock.fileno() >= 0:
            with suppress(OSError, ValueError):
                self._tls.unwrap()
        super().close()


def _read_from_page_cache(piece: FileSlice, kept: bytearray) -> memoryview | None:
    """Return the part of a file that is in the page cache, read into ``kept``; None if the disk would block."""
    into = memoryview(kept)[: piece.size_bytes]
    try:
        count = os.preadv(piece.file.fileno(), [into], piece.offset, os.RWF_NOWAIT)
    except OSError:  # not in the page cache, or the file system does not support the flag
        return None
    return into if count == len(into) else None
