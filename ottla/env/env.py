"""`Env`: the one door to clock, chance, disk, threads and network. Nothing else may ask the machine for them.

With it a whole node runs in virtual time from one seed: `sim/` hands in another `Env` and the same code goes on.
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
    """What work in a process of its own has of the world."""

    disk: Disk
    monotonic_s: Callable[[], float]
    pause: Callable[[float], None]
    """Let time pass: nobody else is there to be held up."""


class ThreadPool(Enum):
    """Kinds of work in threads that must not wait for one another."""

    RAFT = "raft"
    """Syncs of the metadata log and of quorum state."""
    SYNC = "sync"
    """Syncs that answers wait for, or that free a recovery point."""
    FILES = "files"
    """Opening, making and looking at files."""
    REMOVAL = "removal"
    """Removing what nobody needs any more."""
    AUTHENTICATION = "logins"
    """Looking at what strangers show where that needs files."""
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
    """What `Env.timeout` gives."""

    @property
    def cancelled_caught(self) -> bool:
        """True if the time was over before the block was."""


class Stream(Protocol):
    """One connection."""

    peer: str
    """Address of the other side, for logs and group descriptions: ``127.0.0.1``."""
    local: tuple[str, int]
    """The address this side was dialled at: what a client is told when no advertised address is configured."""

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Wait for bytes; how many came, 0 at the end or when the time is over. Raises OSError if it broke."""

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send byte strings and ranges of files in order. Raises OSError when the connection broke."""

    def close(self) -> None:
        """End the connection at once."""


class AcceptedStream(Stream, Protocol):
    """A connection that came in: whoever serves it hears of the other side's leaving."""

    send_waits: int
    """How often a send has had to wait until the other side reads: while it grows, the other side reads."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, once, when the other side ends or breaks the connection, also while nobody reads.

        A side that only says it will send nothing more counts as gone: the two cannot be told apart.
        """


class SecureStream(AcceptedStream, Protocol):
    """A connection with TLS that came in."""

    async def handshake(self) -> str | None:
        """Agree on keys; gives the subject of the other side's certificate, None where it showed none.

        Raises OSError: they do not agree, or the certificate is not trusted.
        """


class StreamListener(Protocol):
    """A place where connections come in."""

    port: int
    on_descriptors_low: Callable[[], int]
    """Called where a connection comes and hardly a descriptor is left; closes others, and returns how many."""

    async def accept(self) -> AcceptedStream:
        """Wait for the next connection."""

    def close(self) -> None:
        """Stop listening."""


class SocketBuffers(NamedTuple):
    """How much the kernel keeps for a connection, in bytes; -1 leaves it to the system, which lets it grow."""

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
        """Open a connection. Raises OSError where nobody answers, InvalidTlsConfig."""


class Env(Protocol):
    """Everything a node asks of the world around it."""

    disk: Disk
    net: Network

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970."""

    def monotonic_ms(self) -> float:
        """A clock that never goes back; its zero means nothing."""

    def uuid(self) -> bytes:
        """16 fresh random bytes in the form of a version 4 uuid; never one that starts with '-' in text."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def process_stats(self) -> ProcessStats:
        """Return the resources that the process uses now."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass; `FOREVER_S` never ends by itself."""

    def timeout(self, seconds: float) -> AbstractContextManager[Deadline]:
        """A block that is cut short after that time; ``cancelled_caught`` says afterwards whether it was."""

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Run something that only waits, or runs C without the interpreter lock (fsync, opening), beside the loop.

        Each lane has its own limit of threads: what is urgent never queues behind what is not.
        """

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Who takes Kerberos tickets by those keys. Raises InvalidKeytab."""

    def kerberos_initiator(self, who: KerberosIdentity, service: str) -> GssInitiator:
        """Begin to show somebody's ticket to a service, ``kafka@host``; call it in a thread. Raises InvalidKeytab."""

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Run something that computes long (compaction) where it cannot hold up the loop; it gets a world of its own.

        ``work`` is a function of a module; what goes in and what comes out can be pickled. Raises what it raises.
        """
