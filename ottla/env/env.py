"""Interface `Env`: clock, randomness, disk, threads and network. Nothing else may use the machine's own.

With it a whole node runs in virtual time from one seed: `sim/` passes another `Env` to the same code.
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
"""As a timeout: none."""


class ChildDied(Exception):
    """The process for a job ended without an answer: killed, or out of memory."""


class WorkerContext(NamedTuple):
    """Disk, clock and pauses of work in a process of its own."""

    disk: Disk
    monotonic_s: Callable[[], float]
    pause: Callable[[float], None]
    """Sleep; blocks the process, which has no other task."""


class ThreadPool(Enum):
    """Kinds of work in threads that must not wait for one another."""

    RAFT = "raft"
    """Syncs of the metadata log and of quorum state."""
    SYNC = "sync"
    """Syncs that answers wait for, or that free a recovery point."""
    FILES = "files"
    """Opening, making and looking at files."""
    REMOVAL = "removal"
    """Removal of files that are no longer used."""
    AUTHENTICATION = "logins"
    """Verification of clients' credentials that needs files."""
    KERBEROS = "tickets"
    """Getting tickets to show, for which a KDC is waited for."""


class ProcessStats(NamedTuple):
    """Resources that the process uses; 0 where the system does not tell."""

    cpu_s: float = 0.0
    resident_bytes: int = 0
    virtual_bytes: int = 0
    open_descriptors: int = 0
    max_descriptors: int = 0
    started_s: float = 0.0
    """Seconds since 1970."""
    disk_read_bytes: int = 0
    disk_written_bytes: int = 0


class Deadline(Protocol):
    """Result of `Env.timeout`."""

    @property
    def cancelled_caught(self) -> bool:
        """True if the time was over before the block was."""


class Stream(Protocol):
    """Connection."""

    peer: str
    """Address of the other side, for logs and group descriptions: ``127.0.0.1``."""
    local: tuple[str, int]
    """Local address of the connection; returned to clients when no advertised address is configured."""

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Wait for bytes; how many came, 0 at the end or when the time is over. Raises OSError if it broke."""

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send byte strings and ranges of files in order. Raises OSError when the connection broke."""

    def close(self) -> None:
        """End the connection at once."""


class AcceptedStream(Stream, Protocol):
    """Accepted connection, with a callback for its disconnection."""

    send_waits: int
    """Number of sends that had to wait for the peer to read. A growing number shows that the peer reads."""
    receive_waits: int
    """Number of times that `receive_into` waited, or let other tasks run."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the peer closes or resets the connection, also while no task reads.

        A half-closed connection counts as closed: the two cannot be distinguished.
        """


class SecureStream(AcceptedStream, Protocol):
    """A connection with TLS that came in."""

    async def handshake(self) -> str | None:
        """Agree on keys; gives the subject of the other side's certificate, None where it showed none.

        Raises OSError: they do not agree, or the certificate is not trusted.
        """


class StreamListener(Protocol):
    """Listener that accepts connections."""

    port: int
    on_descriptors_low: Callable[[], int]
    """Called where a connection comes and hardly a descriptor is left; closes others, and returns how many."""

    async def accept(self) -> AcceptedStream:
        """Wait for the next connection."""

    def close(self) -> None:
        """Stop listening."""


class SocketBuffers(NamedTuple):
    """Sizes of the kernel's buffers of a connection in bytes; -1 keeps the system's default, which grows."""

    send_bytes: int = -1
    receive_bytes: int = -1


SYSTEM_BUFFERS = SocketBuffers()


class Network(Protocol):
    """The network."""

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Listen; port 0 takes a free one. Raises OSError where that cannot be, InvalidTlsConfig."""

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Open a connection. Raises OSError if the connection fails, InvalidTlsConfig."""


class Env(Protocol):
    """Environment of a node: clock, randomness, disk, network, threads and processes."""

    disk: Disk
    net: Network

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""

    def monotonic_ms(self) -> float:
        """Return a monotonic time in milliseconds; its zero is arbitrary."""

    def uuid(self) -> bytes:
        """Return 16 random bytes in the form of a version 4 UUID, whose text never starts with ``-``."""

    def random(self) -> float:
        """Return a number in [0, 1)."""

    def process_stats(self) -> ProcessStats:
        """Return the resources that the process uses now."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass; `FOREVER_S` never ends by itself."""

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """Return a block that is cancelled after that time; ``cancelled_caught`` is True afterwards if it was."""

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Run ``work``, which blocks or releases the interpreter lock (fsync, open), in a thread.

        Each pool has its own limit of threads, so that urgent work does not queue behind other work.
        """

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Return credentials to accept Kerberos tickets with the keys of a keytab. Raises InvalidKeytab."""

    def kerberos_initiator(self, identity: KerberosIdentity, service: str) -> GssInitiator:
        """Start to authenticate to a service, ``kafka@host``; blocks, call it in a thread. Raises InvalidKeytab."""

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Run a long computation (compaction) in a process of its own, with its own environment.

        ``work`` is a function of a module; its argument and result can be pickled. Raises its exceptions.
        """


def steady_env(env: Env) -> Env:
    """Return the environment for elections and sessions of nodes: its clock is never advanced by a test."""
    steady: Env = getattr(env, "steady", env)
    return steady
