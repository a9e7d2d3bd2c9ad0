"""`Env` of blocking calls without an event loop, for command line tools and `BlockingClient`: one call at a time.

Importing trio takes longer than most of these commands run. The client's coroutines never suspend here, because every
call they await has finished when it returns.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from ottla.env.env import (
    SYSTEM_BUFFERS,
    Deadline,
    Network,
    SocketBuffers,
    Stream,
    StreamListener,
    ThreadPool,
    WorkerContext,
)
from ottla.env.hosts import canonical_host, unmap_ipv4
from ottla.env.tls import TlsConfig
from ottla.runtime.ssl_contexts import client_ssl_context
from ottla.runtime.system_env import SystemEnv, monotonic_s, sleep_blocking

T = TypeVar("T")
A = TypeVar("A")


class BlockingStream:
    """TCP or TLS connection with blocking calls."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self.peer: str = canonical_host(sock.getpeername()[0])
        name = sock.getsockname()
        self.local: tuple[str, int] = (unmap_ipv4(name[0]), name[1])

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive bytes into ``buffer``; return their number, 0 if the peer closed or ``timeout_s`` expired."""
        self._sock.settimeout(timeout_s)
        try:
            return self._sock.recv_into(buffer)
        except TimeoutError:
            return 0

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send the chunks, none a `FileSlice`; the thread is blocked until the system has accepted all bytes."""
        self._sock.sendall(b"".join(chunks))

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class BlockingNetwork:
    """TCP and TLS network of a client; it cannot listen."""

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Raise OSError: a blocking environment has no listeners."""
        raise OSError("a blocking environment has no listeners")

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Open a connection, with TLS if ``tls`` is given; the timeout is 30 s for each address of the host.

        Raises:
            OSError: the connection failed, or the certificate is not trusted; InvalidTlsConfig: keys or certificates
                cannot be used.
        """
        try:
            sock = socket.create_connection((host, port), 30)
        except UnicodeError:  # raised for a label that is empty, too long or not encodable
            raise socket.gaierror(socket.EAI_NONAME, "invalid host name") from None
        if tls is None:
            return BlockingStream(sock)
        try:
            return BlockingStream(client_ssl_context(tls).wrap_socket(sock, server_hostname=host))
        except BaseException:
            sock.close()
            raise


class _NoDeadline:
    cancelled_caught = False


class BlockingEnv(SystemEnv):
    """`Env` of blocking calls: coroutines that use it never suspend, so that `run_blocking` can run them."""

    def __init__(self) -> None:
        super().__init__()
        self.net: Network = BlockingNetwork()

    def monotonic_ms(self) -> float:
        """Return the time of a monotonic clock in milliseconds."""
        return time.monotonic() * 1000

    async def sleep(self, seconds: float) -> None:
        """Block the thread for ``seconds``; no other task runs meanwhile."""
        time.sleep(seconds)  # noqa: ASYNC251 - nothing else waits

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """Return a context manager that never expires, whatever ``seconds`` is: sockets have their own timeouts."""
        return nullcontext(_NoDeadline())

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Return an awaitable that calls ``work`` in the calling thread, which it blocks, and returns its result."""

        async def now() -> T:
            return work()

        return now()

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Return an awaitable of ``work(context, argument)``, called in this process, whose thread it blocks."""
        return self.in_thread(lambda: work(WorkerContext(self.disk, monotonic_s, sleep_blocking), argument))


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, such as one that uses a `BlockingEnv`; return its result.

    Raises:
        AssertionError: it has suspended. Otherwise any exception of the coroutine.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the coroutine waited for an event loop")
