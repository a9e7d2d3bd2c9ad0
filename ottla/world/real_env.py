"""The real world as an `Env`: wall clock, operating system randomness, files, threads, TCP.

Sockets are tried first and waited for second: a busy connection never pays for a trip through the event loop.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import trio

from ottla.world.beside import run_beside
from ottla.world.disk import FileSlice
from ottla.world.env import FOREVER_S, Accepted, Deadline, Ground, Lane, Listener, Net, Stream
from ottla.world.hangups import Hangups
from ottla.world.this_machine import ThisMachine

T = TypeVar("T")
A = TypeVar("A")
_JOIN_BELOW_BYTES = 32 * 1024
_TURNS = 16
_THREADS = {Lane.RAFT: 2, Lane.SYNC: 8, Lane.FILES: 4, Lane.REMOVAL: 1}


class RealStream:
    """One TCP connection."""

    def __init__(self, sock: socket.socket, hangups: Hangups) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._hangups = hangups
        self.send_waits = 0
        self._turns = 0
        self.peer: str = sock.getpeername()[0]
        name = sock.getsockname()
        self.local: tuple[str, int] = (name[0], name[1])

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive what is there; wait only where there is nothing."""
        self._turns += 1
        if self._turns >= _TURNS:  # a peer that always has more to say must not keep the others waiting
            self._turns = 0
            await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                self._turns = 0
                if timeout_s == FOREVER_S:
                    await trio.lowlevel.wait_readable(self._sock)
                    continue
                with trio.move_on_after(timeout_s) as scope:
                    await trio.lowlevel.wait_readable(self._sock)
                if scope.cancelled_caught:
                    return 0

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send in order: small pieces joined, ranges of files by sendfile."""
        pending: list[Any] = []
        for chunk in chunks:
            if type(chunk) is not FileSlice:
                pending.append(chunk)
            elif chunk.size_bytes < _JOIN_BELOW_BYTES:
                pending.append(chunk.read())
            else:
                await self._send_bytes(b"".join(pending))
                pending = []
                await self._send_file(chunk)
        await self._send_bytes(pending[0] if len(pending) == 1 else b"".join(pending))

    async def _send_bytes(self, data: bytes) -> None:
        done = 0
        view = memoryview(data)
        while done < len(data):
            try:
                done += self._sock.send(view[done:] if done else data)
            except (BlockingIOError, InterruptedError):
                self.send_waits += 1
                await trio.lowlevel.wait_writable(self._sock)

    async def _send_file(self, part: FileSlice) -> None:
        offset, left = part.offset, part.size_bytes
        out, fd = self._sock.fileno(), part.file.fileno()
        while left:
            try:
                done = os.sendfile(out, fd, offset, left)
            except (BlockingIOError, InterruptedError):
                self.send_waits += 1
                await trio.lowlevel.wait_writable(self._sock)
                continue
            if done == 0:
                raise OSError(errno.EIO, "the file ended before what was promised of it")
            offset += done
            left -= done

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Told by the kernel when the other side closes or resets."""
        if self._sock.fileno() >= 0:
            self._hangups.watch(self._sock.fileno(), callback)

    def detach(self) -> socket.socket:
        """Give the socket away; nobody may wait on it."""
        self._hangups.forget(self._sock.fileno())
        return self._sock

    def close(self) -> None:
        """Close, waking whoever waits on it."""
        if self._sock.fileno() >= 0:
            self._hangups.forget(self._sock.fileno())
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


class RealListener:
    """One listening TCP socket."""

    def __init__(self, sock: socket.socket, hangups: Hangups) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._hangups = hangups
        self.port: int = sock.getsockname()[1]

    async def accept(self) -> Accepted:
        """The next connection. Out of descriptors, it waits a little and leaves the old ones alone."""
        while True:
            try:
                sock, _ = self._sock.accept()
                return RealStream(sock, self._hangups)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(self._sock)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    await trio.sleep(0.1)
                elif error.errno not in (errno.ECONNABORTED, errno.EPROTO, errno.ENOTCONN):
                    raise

    def close(self) -> None:
        """Stop listening."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


class RealNet:
    """TCP."""

    def __init__(self) -> None:
        self._hangups = Hangups()

    async def listen(self, host: str, port: int) -> Listener:
        """Listen on an address; an empty host is every address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
            sock.listen(1024)
        except BaseException:
            sock.close()
            raise
        return RealListener(sock, self._hangups)

    async def connect(self, host: str, port: int) -> Stream:
        """Open a connection."""
        stream = await trio.open_tcp_stream(host, port)
        return RealStream(socket.socket(fileno=stream.socket.detach()), self._hangups)


class RealEnv(ThisMachine):
    """The machine as it is, and trio's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.net: Net = RealNet()
        self._limits = {lane: trio.CapacityLimiter(count) for lane, count in _THREADS.items()}

    def monotonic_ms(self) -> float:
        """Trio's clock."""
        return trio.current_time() * 1000

    async def sleep(self, seconds: float) -> None:
        """Let others run."""
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """A cancel scope of trio's."""
        return trio.move_on_after(seconds)

    def in_thread(self, work: Callable[[], T], lane: Lane = Lane.FILES) -> Awaitable[T]:
        """A worker thread."""
        return trio.to_thread.run_sync(work, limiter=self._limits[lane])

    def in_process(self, work: Callable[[Ground, A], T], argument: A) -> Awaitable[T]:
        """A Python process for this one job."""
        return run_beside(work, argument)
