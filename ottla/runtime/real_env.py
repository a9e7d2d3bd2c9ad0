"""`Env` of a node on a real machine with trio: clock, randomness, files, threads, TCP and TLS."""

from __future__ import annotations

import errno
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import trio

from ottla.env.env import (
    SYSTEM_BUFFERS,
    AcceptedStream,
    Deadline,
    Network,
    SocketBuffers,
    Stream,
    StreamListener,
    ThreadPool,
    WorkerContext,
)
from ottla.runtime.disconnect_monitor import DisconnectMonitor
from ottla.runtime.real_stream import RealStream
from ottla.runtime.system_env import SystemEnv

if TYPE_CHECKING:
    from ssl import SSLContext

    from ottla.env.tls import TlsConfig

T = TypeVar("T")
A = TypeVar("A")
_SENDER_THREADS = 4  # Kafka's num.network.threads is 3 by default, for all network I/O
_HANDSHAKE_S = 30.0
_RESOURCE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PEER_ERRORS = tuple(
    getattr(errno, name)
    for name in (
        *("ECONNABORTED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENONET"),
        *("ENOPROTOOPT", "ENOTCONN", "EOPNOTSUPP", "EPERM", "EPROTO", "ETIMEDOUT"),
    )
    if hasattr(errno, name)
)
"""Errors of accept(2) that concern the new connection only: it is skipped."""
_THREADS = {
    ThreadPool.RAFT: 2,
    ThreadPool.SYNC: 8,
    ThreadPool.FILES: 4,
    ThreadPool.REMOVAL: 1,
    ThreadPool.AUTHENTICATION: 2,
    ThreadPool.KERBEROS: 2,
    ThreadPool.REMOTE_STORAGE: 1000,
}


_AGAIN_S, _SHORT_S = 0.001, 0.1
"""Seconds to wait before the next accept without descriptors: if connections were closed, and if none could be."""
_LEAST_RESERVED, _MOST_RESERVED, _RESERVED_PART = 16, 64, 16


def connection_descriptor_limit() -> int:
    """Return the descriptor number from which on a new connection makes the node close idle ones.

    It is ``RLIMIT_NOFILE`` less 16 to 64 descriptors, which are left for the node's files; 2^31 without a limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2**31
    return soft - min(_MOST_RESERVED, max(_LEAST_RESERVED, soft // _RESERVED_PART))


class RealListener:
    """Listening TCP socket, given bound and listening, with TLS if it has an SSL context."""

    def __init__(
        self, sock: socket.socket, hangups: DisconnectMonitor, buffers: SocketBuffers, context: SSLContext | None = None
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._hangups = hangups
        self._buffers = buffers
        self._threads = trio.CapacityLimiter(_SENDER_THREADS)
        self._context = context
        self.on_descriptors_low: Callable[[], int] = int
        self.port: int = sock.getsockname()[1]

    async def accept(self) -> AcceptedStream:
        """Wait for the next connection and return it; a TLS handshake is not performed yet.

        If descriptors run low, `on_descriptors_low` is called to close idle connections; without any the call is tried
        again after a pause. Connections that were reset already are skipped, yielding in between: there may be many.

        Raises:
            OSError: the listening socket failed, or was closed before. trio.ClosedResourceError: it was closed during
            the wait.
        """
        while True:
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(self._sock)
                continue
            except OSError as error:
                if error.errno in _RESOURCE_ERRORS:
                    await trio.sleep(_AGAIN_S if self.on_descriptors_low() else _SHORT_S)
                elif error.errno not in _PEER_ERRORS:
                    raise
                else:
                    await trio.lowlevel.checkpoint()
                continue
            if sock.fileno() >= connection_descriptor_limit():
                self.on_descriptors_low()
            try:
                return self._stream(sock)
            except OSError:  # the peer has reset it already
                sock.close()
            await trio.lowlevel.checkpoint()

    def _stream(self, sock: socket.socket) -> AcceptedStream:
        if self._buffers.send_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._buffers.send_bytes)
        if self._context is None:
            return RealStream(sock, self._hangups, self._threads)
        # lazy: 3.8 ms, 137 kB
        from ottla.runtime.tls_stream import TlsStream

        return TlsStream(sock, self._hangups, self._context, threads=self._threads)

    def reload_tls(self, tls: TlsConfig) -> None:
        """Use the changed keys and trusted certificates in ``tls`` from the next connection on.

        Raises:
            InvalidTlsConfig: they cannot be used; OSError: a file cannot be read. The previous ones are then kept.
        """
        # lazy: 3.3 ms, 95 kB
        from ottla.runtime.ssl_contexts import server_ssl_context

        self._context = server_ssl_context(tls)

    def close(self) -> None:
        """Close the listening socket; accepted connections stay open."""
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


class RealNetwork:
    """TCP and TLS network of the operating system."""

    def __init__(self) -> None:
        self._hangups = DisconnectMonitor()
        self._contexts: dict[TlsConfig, tuple[tuple[int, ...], SSLContext]] = {}
        """Cached SSL contexts of clients with the modification times of their files (ns), to reload changed files."""

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Listen on an address; an empty host means all IPv4 addresses, port 0 a free port.

        Accepted connections get the sizes of ``buffers``.

        Raises:
            OSError: the address cannot be bound, or a file cannot be read; InvalidTlsConfig: keys or certificates
                cannot be used.
        """
        context = None
        if tls is not None:
            # lazy: 3.3 ms, 95 kB
            from ottla.runtime.ssl_contexts import server_ssl_context

            context = server_ssl_context(tls)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if buffers.receive_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)
            sock.bind((host, port))
            sock.listen(1024)
        except BaseException:
            sock.close()
            raise
        return RealListener(sock, self._hangups, buffers, context)

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Open a connection, with TLS if ``tls`` is given. If all addresses of a host fail, the first error is raised.

        Only the TLS handshake has a timeout here, 30 s.

        Raises:
            OSError: the connection failed, or the certificate is not trusted; InvalidTlsConfig: keys or certificates
                cannot be used.
        """
        try:
            stream = await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise _first_cause(error) from None
        except UnicodeError:  # raised for a label that is empty, too long or not encodable
            raise socket.gaierror(socket.EAI_NONAME, "invalid host name") from None
        sock = socket.socket(fileno=stream.socket.detach())
        return RealStream(sock, self._hangups) if tls is None else await self._secure(sock, host, tls)

    async def _secure(self, sock: socket.socket, host: str, tls: TlsConfig) -> Stream:
        """Perform the TLS handshake over a connected socket, within 30 s, and return the connection.

        SSL contexts are cached until their files change. The socket is closed if the handshake fails.

        Raises:
            OSError: as `connect`; TimeoutError after 30 s.
        """
        # lazy: 3.8 ms, 137 kB
        from ottla.runtime.ssl_contexts import client_ssl_context
        from ottla.runtime.tls_stream import TlsStream

        try:
            stamp = _store_mtimes_ns(tls)
            stood, context = self._contexts.get(tls, (None, None))
            if context is None or stood != stamp:
                context = client_ssl_context(tls)
                self._contexts[tls] = (stamp, context)
            made = TlsStream(sock, self._hangups, context, host)
        except BaseException:
            sock.close()
            raise
        try:
            with trio.move_on_after(_HANDSHAKE_S) as scope:
                await made.handshake()
            if scope.cancelled_caught:
                raise TimeoutError(errno.ETIMEDOUT, "TLS handshake timed out: the peer may not use TLS")
        except BaseException:
            made.close()
            raise
        return made


def _store_mtimes_ns(tls: TlsConfig) -> tuple[int, ...]:
    """Return the modification times (ns) of the files of key store and trust store; OSError if one is missing."""
    stores = [x.location for x in (tls.keystore, tls.truststore) if x is not None and x.location]
    return tuple(os.stat(path).st_mtime_ns for path in stores)


def _first_cause(error: OSError) -> OSError:
    """Return the error of the first address behind ``error``, such as a refused connection; else ``error`` itself."""
    cause = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause if isinstance(cause, OSError) else error


_BEGAN_S = 100_000.0
"""Offset in seconds added to the monotonic clock, so that 0 is long ago, as on trio's clock."""


async def _in_thread(work: Callable[[], T], limiter: trio.CapacityLimiter, *, may_abandon: bool) -> T:
    """Run ``work`` in a worker thread; raise OSError EAGAIN if no thread can be started.

    ``may_abandon``: a cancelled task does not wait for the end of ``work``.
    """
    try:
        return await trio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=may_abandon)
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        raise OSError(errno.EAGAIN, "the system grants no more threads") from error


class RealEnv(SystemEnv):
    """`Env` on the real machine for code that runs on trio's event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.net: Network = RealNetwork()
        self._limits = {lane: trio.CapacityLimiter(count) for lane, count in _THREADS.items()}

    def monotonic_ms(self) -> float:
        """Return the time of a monotonic clock in ms since an arbitrary point long ago; faster than trio's clock."""
        return (_BEGAN_S + time.perf_counter()) * 1000

    async def sleep(self, seconds: float) -> None:
        """Suspend the task for ``seconds``."""
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """Return a trio cancel scope: a context manager that cancels its body after ``seconds``, without an error."""
        return trio.move_on_after(seconds)

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a worker thread, once the pool ``lane`` has a free one.

        It returns the result of ``work``. Once that has begun, a cancelled task waits for its end, but in the pool
        REMOTE_STORAGE it does not: the thread continues.

        Raises:
            OSError: EAGAIN, the system starts no more threads.
        """
        return _in_thread(work, self._limits[lane], may_abandon=lane is ThreadPool.REMOTE_STORAGE)

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a child process and returns its result (`run_in_child_process`)."""
        # lazy: 0.5 ms, 8 kB: only for the log cleaner
        from ottla.runtime.child_process import run_in_child_process

        return run_in_child_process(work, argument)
