"""Interface `Env`: clock, randomness, disk, threads, processes and network, by which a node accesses the machine.

So the simulator (`sim/`) can run whole nodes in virtual time from one seed, with another `Env`. Command line tools and
the start of a node also use the operating system directly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.env.disk import Disk

if TYPE_CHECKING:
    from ottla.env.kerberos import GssAcceptorCredentials, GssInitiator, KerberosIdentity, Keytab
    from ottla.env.tls import TlsConfig

T = TypeVar("T")
A = TypeVar("A")


FOREVER_S = float("inf")
"""Timeout in seconds that never expires."""


class ChildDied(Exception):
    """Raised if the child process of `Env.in_process` ends without a result: killed, or out of memory."""


class WorkerContext(NamedTuple):
    """Disk, monotonic clock and sleep function for work in a child process (`Env.in_process`)."""

    disk: Disk
    monotonic_s: Callable[[], float]
    pause: Callable[[float], None]
    """Blocks the process for a number of seconds; it has no other task."""


class ThreadPool(Enum):
    """Thread pools of `Env.in_thread`, by kind of work, so that one kind does not wait for another."""

    RAFT = "raft"
    """Flushes of the metadata log and of the ``quorum-state`` file."""
    SYNC = "sync"
    """Flushes of partition logs and checkpoints, for which responses or recovery points wait."""
    FILES = "files"
    """Default for other work on files: creation, opening, listing, reads, metadata snapshots."""
    REMOVAL = "removal"
    """Deletion of files of removed segments and partitions."""
    AUTHENTICATION = "logins"
    """Verification of clients' credentials that reads files, or hashes passwords (login to the console)."""
    KERBEROS = "tickets"
    """Calls of Kerberos by a client, which may wait for a KDC."""
    REMOTE_STORAGE = "remote-storage"
    """Calls of the remote store of log segments, which the remote log manager limits.

    They may hang. A cancellation does not wait for them, but in a simulation: `StoreCalls` does.
    """


class ProcessStats(NamedTuple):
    """Resource usage of the process; 0 where the system does not report a value (``max_descriptors``: -1, no limit)."""

    cpu_s: float = 0.0
    resident_bytes: int = 0
    virtual_bytes: int = 0
    open_descriptors: int = 0
    max_descriptors: int = 0
    started_s: float = 0.0
    """Start time of the process, in seconds since 1970."""
    disk_read_bytes: int = 0
    disk_written_bytes: int = 0


class Deadline(Protocol):
    """Timeout scope that `Env.timeout` returns."""

    @property
    def cancelled_caught(self) -> bool:
        """True if the timeout expired and the block was cancelled."""


class Stream(Protocol):
    """Network connection: TCP or TLS, or a simulated one."""

    peer: str
    """Host address of the peer, for logs, ACLs and group descriptions: ``127.0.0.1``."""
    local: tuple[str, int]
    """Local (host, port) of the connection; returned to clients if no advertised address is configured."""

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive bytes into ``buffer``; return their number, 0 if the peer closed or ``timeout_s`` expired.

        Raises OSError if the connection failed.
        """

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send bytes and `FileSlice` objects in order; return when the system has accepted all of them.

        Raises:
            OSError: the connection failed, or a file could not be read (FileReadError, FileTruncatedError).
        """

    def close(self) -> None:
        """Close the connection at once, without waiting; TLS sends a close_notify if that does not block.

        Bytes that the system has accepted still go out. Tasks that wait on the stream get an error. Closing again has
        no effect.
        """


class AcceptedStream(Stream, Protocol):
    """Connection that a listener accepted, with a callback for its disconnection."""

    send_waits: int
    """Number of times that `send` waited for space in the send buffer; growth shows that the peer reads."""
    receive_waits: int
    """Number of times that `receive_into` waited or yielded to other tasks."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the peer closes or resets the connection, even while no task reads from it.

        A half-closed connection counts as closed: the two cannot be distinguished. A simulated `close` calls it, too.
        """

    def byte_counts(self) -> tuple[int, int] | None:
        """Return the bytes received and those sent that the peer has acknowledged; None if they are not counted."""


class SecureStream(AcceptedStream, Protocol):
    """Accepted TLS connection."""

    async def handshake(self) -> str | None:
        """Perform the TLS handshake; return the subject of the client's certificate, None without a certificate.

        Raises OSError if the handshake fails or the certificate is not trusted.
        """


class StreamListener(Protocol):
    """Listening socket."""

    port: int
    on_descriptors_low: Callable[[], int]
    """Callback for a new connection while descriptors run low: closes idle connections, returns their number."""

    async def accept(self) -> AcceptedStream:
        """Wait for the next connection and return it, before its TLS handshake.

        Raises:
            OSError: the socket failed or was closed before; trio.ClosedResourceError: it is closed during the wait. In
                a simulation a call waits forever on a closed socket.
        """

    def close(self) -> None:
        """Close the listening socket; accepted connections stay open."""


class SocketBuffers(NamedTuple):
    """Sizes in bytes of a connection's socket buffers; -1: the system's default, which it adapts."""

    send_bytes: int = -1
    receive_bytes: int = -1


SYSTEM_BUFFERS = SocketBuffers()


class Network(Protocol):
    """Network of a node: listens on addresses and opens connections. A simulation ignores ``tls`` and ``buffers``."""

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Listen on ``host`` and ``port`` (0: a free port), with TLS if ``tls`` is given.

        ``buffers``: sizes of the socket buffers of accepted connections. Raises OSError if the address cannot be bound
        or a file of keys cannot be read, InvalidTlsConfig if keys or certificates cannot be used.
        """

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Open a connection, with TLS if ``tls`` is given; the TLS handshake is complete when it returns.

        Raises OSError if the connection fails or the certificate is not trusted, InvalidTlsConfig.
        """


class Env(Protocol):
    """Environment of a node: clock, randomness, disk, network, threads, processes, resource usage and Kerberos.

    That of command line tools (`BlockingEnv`) has no event loop: all work runs in the calling thread, sleeping blocks,
    timeouts never expire, and its network cannot listen.
    """

    disk: Disk
    net: Network

    def now_ms(self) -> int:
        """Return the wall clock time in milliseconds since 1970."""

    def monotonic_ms(self) -> float:
        """Return the time of a monotonic clock in milliseconds since an arbitrary point."""

    def uuid(self) -> bytes:
        """Return a random id of 16 bytes, also fit for secrets; its base64 text never starts with ``-``.

        It is a UUID of version 4, except in a simulation, where the seed determines it.
        """

    def random(self) -> float:
        """Return a random number in [0, 1), for jitter and placement; not for secrets."""

    def process_stats(self) -> ProcessStats:
        """Return the current resource usage of the process; all values are 0 in a simulation."""

    async def sleep(self, seconds: float) -> None:
        """Suspend the task for ``seconds``; `FOREVER_S` until it is cancelled. 0 yields to other tasks."""

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """Return a context manager that cancels its body after ``seconds``, as ``trio.move_on_after``.

        Its ``cancelled_caught`` is True afterwards if the body was cancelled.
        """

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a thread and returns its result or raises its exception.

        Nothing runs before it is awaited; a cancellation waits for the end of ``work``, but in REMOTE_STORAGE. ``work``
        blocks or releases the interpreter lock (fsync, open). Each pool (``lane``) has its own limit of threads: urgent
        work does not queue behind other work. Awaiting raises OSError EAGAIN if the system grants no thread.
        """

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Return credentials to accept Kerberos tickets with the keys in a keytab.

        Raises InvalidKeytab if they cannot be used; always in a simulation.
        """

    def kerberos_initiator(self, identity: KerberosIdentity, service: str) -> GssInitiator:
        """Return the client side of a GSS-API context of ``identity`` with ``service`` (``kafka@host``).

        Blocks: call it in a thread. Raises InvalidKeytab if there is no usable key or ticket; always in a simulation.
        """

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Return an awaitable that runs a long computation (compaction) in a child process and returns its result.

        ``work`` is a module-level function, called with a `WorkerContext` and ``argument``. Argument and result must be
        picklable. Awaiting raises the exceptions of ``work``, ChildDied, or OSError if the child cannot be started.
        """


def steady_env(env: Env) -> Env:
    """Return the environment of the controller: a test never advances its clock; ``env`` itself if it has no other.

    Elections and broker sessions depend on that clock.
    """
    steady: Env = getattr(env, "steady", env)
    return steady
