"""TCP connection that tries each call first and waits only if it would block.

A busy connection saves a round trip through the event loop.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio

from ottla.env.disk import FileReadError, FileSlice, FileTruncatedError
from ottla.env.env import FOREVER_S
from ottla.env.hosts import canonical_host, unmap_ipv4
from ottla.runtime.disconnect_monitor import DisconnectMonitor
from ottla.runtime.system_env import monotonic_s

_COPY_BELOW_BYTES = 32 * 1024  # a range as large costs as much copied as by sendfile
_SENDS_UNTIL_YIELD = 16
_CHECK_CACHE_FROM_BYTES = 512 * 1024
_IN_THREAD_FROM_BYTES = 2 * 1024 * 1024  # the loop sends a MiB in 0.1 ms; the way to a thread and back takes longer
_BYTES_PER_CALL = 16 * 1024 * 1024  # in pieces of 1 MiB a GiB costs half as much again
_SLOW_FOR = 64
_SEND_TIMEOUT_S = 0.1
_FAST_BYTES_A_SECOND = 64 * 1024 * 1024
_OF_FILES = frozenset(
    {errno.EIO, errno.EBADMSG, errno.ENODATA, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ESTALE, errno.EUCLEAN}
)
"""Errors of ``sendfile`` that are the disk's: no socket has them."""
_SEND_TIMEOUT = struct.pack("ll", 0, int(_SEND_TIMEOUT_S * 1_000_000))


class RealStream:
    """TCP connection."""

    def __init__(
        self, sock: socket.socket, hangups: DisconnectMonitor, threads: trio.CapacityLimiter | None = None
    ) -> None:
        """``threads`` may send what is large."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        self._sock = sock
        self._hangups = hangups
        self.send_waits = self.receive_waits = 0
        self._sends_until_yield = 0
        self._threads = threads
        self._lent = self._closing = False
        self._slow_sends_remaining = 0
        """So many more ranges of files are sent from the loop: the other side does not take them fast enough."""
        self.peer = canonical_host(sock.getpeername()[0])
        name = sock.getsockname()
        self.local: tuple[str, int] = (unmap_ipv4(name[0]), name[1])

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive available bytes; wait only if there are none."""
        self._sends_until_yield += 1
        # a peer that always has more data must not starve other connections
        if self._sends_until_yield >= _SENDS_UNTIL_YIELD:
            self._sends_until_yield = 0
            self.receive_waits += 1
            await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                self._sends_until_yield = 0
                self.receive_waits += 1
                if timeout_s == FOREVER_S:
                    await trio.lowlevel.wait_readable(self._sock)
                    continue
                with trio.move_on_after(timeout_s) as scope:
                    await trio.lowlevel.wait_readable(self._sock)
                if scope.cancelled_caught:
                    return 0

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send in order: small pieces joined, ranges of files by sendfile."""
        if len(chunks) == 1 and type(data := chunks[0]) is bytes:
            await self._send_bytes(data)
            return
        pending: list[Any] = []
        for chunk in chunks:
            if type(chunk) is not FileSlice:
                pending.append(chunk)
            elif chunk.size_bytes < _COPY_BELOW_BYTES:
                pending.append(chunk.read_all())
            else:
                if pending:
                    await self._send_bytes(b"".join(pending), socket.MSG_MORE)
                    pending = []
                await self._send_file(chunk)
        if pending:
            await self._send_bytes(b"".join(pending))

    async def _send_bytes(self, data: bytes, flags: int = 0) -> None:
        """Send bytes; with ``MSG_MORE`` they may wait for those of the file behind them, to leave with them."""
        done, size = 0, len(data)
        while done < size:
            try:
                done += self._sock.send(memoryview(data)[done:] if done else data, flags)
            except (BlockingIOError, InterruptedError):
                self.send_waits += 1
                await trio.lowlevel.wait_writable(self._sock)

    async def _send_file(self, part: FileSlice) -> None:
        offset, left = part.offset, part.size_bytes
        self._slow_sends_remaining = max(self._slow_sends_remaining - 1, 0)
        while left:
            if left >= _CHECK_CACHE_FROM_BYTES and self._has_thread() and not _is_quick(part, offset, left):
                done = await self._send_in_thread(part, offset, left)
            else:
                done = self._send_some(part, offset, left)
            if not done:
                self.send_waits += 1
                await trio.lowlevel.wait_writable(self._sock)
            offset += done
            left -= done

    def _has_thread(self) -> bool:
        """Return True if a thread is free; no send waits for one, since slow readers may occupy all threads."""
        return not self._slow_sends_remaining and self._threads is not None and self._threads.available_tokens > 0

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Register a callback that is called when the peer closes or resets the connection."""
        if self._sock.fileno() >= 0:
            self._hangups.watch(self._sock.fileno(), callback)

    def _send_some(self, part: FileSlice, offset: int, left: int) -> int:
        """Send with one system call; return 0 if the send buffer is full."""
        try:
            done = os.sendfile(self._sock.fileno(), part.file.fileno(), offset, left)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno in _OF_FILES:
                raise FileReadError(error, part.file) from error
            raise
        if done == 0:
            raise FileTruncatedError(part)
        return done

    async def _send_in_thread(self, part: FileSlice, offset: int, left: int) -> int:
        """Send a large range with few blocking system calls in a thread, while the event loop continues.

        Returns the number of bytes sent. A peer that reads nothing for ``_SEND_TIMEOUT_S``, or less than
        ``_FAST_BYTES_A_SECOND``, does not get a thread again soon.
        """
        self._lent = True
        try:
            return await trio.to_thread.run_sync(self._send_waiting, part, offset, left, limiter=self._threads)
        finally:
            self._lent = False
            if self._closing:
                self.close()

    def _send_waiting(self, part: FileSlice, offset: int, left: int) -> int:
        done = 0
        self._sock.setblocking(True)
        try:
            while done < left and not self._slow_sends_remaining:
                began_s = monotonic_s()
                sent = self._send_some(part, offset + done, min(left - done, _BYTES_PER_CALL))
                if not sent or monotonic_s() - began_s > _SEND_TIMEOUT_S + sent / _FAST_BYTES_A_SECOND:
                    self._slow_sends_remaining = _SLOW_FOR
                done += sent
        finally:
            self._sock.setblocking(False)
        return done

    def detach(self) -> socket.socket:
        """Give up the socket and return it; no task may be waiting for it."""
        self._hangups.unwatch(self._sock.fileno())
        return self._sock

    def close(self) -> None:
        """Close, and wake the tasks that wait for the connection.

        A thread that is sending must end first, since it uses the descriptor.
        """
        if self._lent:
            self._closing = True
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        elif self._sock.fileno() >= 0:
            self._hangups.unwatch(self._sock.fileno())
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


def _is_quick(part: FileSlice, offset: int, left: int) -> bool:
    """Return True if the rest of a range is small and in the page cache, so that sending it does not block.

    It is taken to be in the page cache if its first and its last byte are: it is read ahead from the front, and what
    was written first leaves the cache first.
    """
    if left >= _IN_THREAD_FROM_BYTES:
        return False
    descriptor, byte = part.file.fileno(), [bytearray(1)]
    try:
        return all(os.preadv(descriptor, byte, at, os.RWF_NOWAIT) for at in (offset, offset + left - 1))
    except OSError:  # it lies on the disk only, or the file system cannot tell
        return False
