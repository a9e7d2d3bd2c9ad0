"""TCP connection that tries each system call first and waits only if it would block.

So a busy connection needs no pass through the event loop for each call.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio

from ottla.env.disk import FileReadError, FileSlice, FileTruncatedError
from ottla.env.env import FOREVER_S
from ottla.env.hosts import canonical_host, unmap_ipv4
from ottla.runtime.disconnect_monitor import DisconnectMonitor
from ottla.runtime.system_env import monotonic_s

_COPY_BELOW_BYTES = 32 * 1024  # below this size a copy is faster than sendfile
_SENDS_UNTIL_YIELD = 16
_CHECK_CACHE_FROM_BYTES = 512 * 1024
_IN_THREAD_FROM_BYTES = 2 * 1024 * 1024  # the loop sends a MiB in 0.1 ms; a switch to a thread and back takes longer
_BYTES_PER_CALL = 16 * 1024 * 1024  # calls of 1 MiB take 50 % more time for a GiB
_SLOW_FOR = 64
_SEND_TIMEOUT_S = 0.1
_FAST_BYTES_A_SECOND = 64 * 1024 * 1024
_OF_FILES = frozenset(
    {errno.EIO, errno.EBADMSG, errno.ENODATA, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ESTALE, errno.EUCLEAN}
)
"""Errors of ``sendfile`` that the disk causes, never the socket."""
_TCP_BYTE_COUNTS = struct.Struct("=120xQQ")
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received`` of Linux' ``struct tcp_info``."""
_SEND_TIMEOUT = struct.pack("ll", 0, int(_SEND_TIMEOUT_S * 1_000_000))


class RealStream:
    """TCP connection, accepted or opened by this node."""

    def __init__(
        self, sock: socket.socket, hangups: DisconnectMonitor, threads: trio.CapacityLimiter | None = None
    ) -> None:
        """Wrap a connected socket; ``threads``: limiter of threads that send large file ranges, None for no threads."""
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
        """Number of file ranges still to be sent without a thread, because the peer reads too slowly."""
        self.peer = canonical_host(sock.getpeername()[0])
        name = sock.getsockname()
        self.local: tuple[str, int] = (unmap_ipv4(name[0]), name[1])

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive available bytes into ``buffer``, waiting for the first one up to ``timeout_s``; return their number.

        0: the peer has closed the connection, or ``timeout_s`` has expired.
        """
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
        """Send chunks in order: bytes and small file ranges are joined, large ones are sent with ``sendfile``.

        Raises:
            OSError: the connection failed. FileReadError, FileTruncatedError: a file range cannot be read.
        """
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
        """Send all bytes; with ``MSG_MORE`` the kernel may delay them to join them with the file range that follows."""
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
        """Return True if the peer was not slow of late and a sender thread is free.

        Sends never wait for a thread: slow peers may occupy all threads.
        """
        return not self._slow_sends_remaining and self._threads is not None and self._threads.available_tokens > 0

    def byte_counts(self) -> tuple[int, int] | None:
        """Return the bytes received, and those sent that the peer has acknowledged, as Linux counts them.

        None: the system does not count them, or the connection is closed.
        """
        option = getattr(socket, "TCP_INFO", None)
        if option is None or not sys.platform.startswith("linux"):
            return None
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, option, _TCP_BYTE_COUNTS.size)
        except OSError:  # closed
            return None
        if len(info) < _TCP_BYTE_COUNTS.size:
            return None
        acknowledged, received = _TCP_BYTE_COUNTS.unpack(info)
        return received, acknowledged

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the peer closes or resets the connection; never if it is closed here already."""
        if self._sock.fileno() >= 0:
            self._hangups.watch(self._sock.fileno(), callback)

    def _send_some(self, part: FileSlice, offset: int, left: int) -> int:
        """Send up to ``left`` bytes of a file with one ``sendfile`` call; return their number, 0 if the buffer is full.

        Raises:
            FileReadError: the disk failed; FileTruncatedError: the file ends before ``offset``; OSError: the
            connection.
        """
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
        """Send a large file range with few blocking system calls in a thread; return the number of bytes sent.

        For a peer that reads nothing for ``_SEND_TIMEOUT_S``, or less than ``_FAST_BYTES_A_SECOND``, the next
        ``_SLOW_FOR`` ranges are sent without a thread.
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
        """Stop monitoring the socket for disconnection and return it, open and in non-blocking mode.

        The caller must close it, and must not use this object any more. No task may be waiting for the socket.
        """
        self._hangups.unwatch(self._sock.fileno())
        return self._sock

    def close(self) -> None:
        """Close the socket and wake the tasks that wait for it.

        While a thread is sending, the connection is only shut down, which makes the send fail; the socket is closed
        when the thread is done.
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
    """Return True if the rest of a file range is small and in the page cache, so that sending it does not block.

    It counts as cached if its first and last byte are: files are read ahead from the front, and older pages are
    evicted first.
    """
    if left >= _IN_THREAD_FROM_BYTES:
        return False
    descriptor, byte = part.file.fileno(), [bytearray(1)]
    try:
        return all(os.preadv(descriptor, byte, at, os.RWF_NOWAIT) for at in (offset, offset + left - 1))
    except OSError:  # not in the page cache, or the file system does not support the flag
        return False
