"""Environment of a node for fault injection: clock that can be advanced, full disk, interrupted network."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import trio

from ottla.broker.faults.fault_rule import FaultCall, FaultRules
from ottla.env.disk import Disk, File, PrivateDisk
from ottla.env.env import (
    SYSTEM_BUFFERS,
    AcceptedStream,
    Deadline,
    Env,
    Network,
    ProcessStats,
    SecureStream,
    SocketBuffers,
    Stream,
    StreamListener,
    ThreadPool,
    WorkerContext,
)

if TYPE_CHECKING:
    from ottla.env.kerberos import GssAcceptorCredentials, GssInitiator, KerberosIdentity, Keytab
    from ottla.env.tls import TlsConfig

T = TypeVar("T")
A = TypeVar("A")
Address = tuple[str, int]


class FaultClock:
    """Clock that tests can advance; sleeps and time-outs that have then expired complete at once."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._scopes: set[trio.CancelScope] = set()
        self.offset_ms = 0
        """Time in ms by which this clock is ahead of the machine's."""

    def advance(self, milliseconds: int) -> None:
        """Advance the clock and the deadlines of all time-outs in progress."""
        self.offset_ms += milliseconds
        for scope in self._scopes:
            scope.deadline -= milliseconds / 1000

    def now_ms(self) -> int:
        """Return the wall clock in ms since 1970, plus the time by which a fault has advanced this clock."""
        return self._env.now_ms() + self.offset_ms

    def monotonic_ms(self) -> float:
        """Return the monotonic time in ms, plus the time by which a fault has advanced this clock."""
        return self._env.monotonic_ms() + self.offset_ms

    @contextmanager
    def timeout(self, seconds: float) -> Iterator[Deadline]:
        """Return a context manager that cancels its block, without error, when this clock has moved by ``seconds``."""
        with self._env.timeout(seconds) as deadline:
            scope = cast("trio.CancelScope", deadline)
            self._scopes.add(scope)
            try:
                yield deadline
            finally:
                self._scopes.discard(scope)

    async def sleep(self, seconds: float) -> None:
        """Sleep until this clock has moved by ``seconds``; an advance of the clock ends the sleep early."""
        if seconds <= 0:
            await self._env.sleep(0)
            return
        with self.timeout(seconds):
            await trio.Event().wait()


class NetworkGate:
    """State of a node's network: paused, or unable to reach some addresses; connections wait then, and do not fail."""

    def __init__(self) -> None:
        self.is_paused = False
        self.blocked: frozenset[Address] = frozenset()
        """Addresses of other nodes that this node cannot reach."""
        self._changed = trio.Event()

    def set_state(self, *, is_paused: bool | None = None, blocked: frozenset[Address] | None = None) -> None:
        """Change the given values, leave those of None, and let waiting connections check the new state."""
        self.is_paused = self.is_paused if is_paused is None else is_paused
        self.blocked = self.blocked if blocked is None else blocked
        self._changed.set()
        self._changed = trio.Event()

    async def wait_open(self, remote: Address | None) -> None:
        """Wait while the network is paused or ``remote`` is blocked; ``remote`` is None for a client's connection."""
        while self.is_paused or remote in self.blocked:
            await self._changed.wait()


class _GatedStream:
    """Connection that delays received and sent bytes while a `NetworkGate` is closed; no bytes are lost."""

    def __init__(self, stream: Stream, gate: NetworkGate, remote: Address | None) -> None:
        self._stream = stream
        self._gate = gate
        self._remote = remote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive bytes, hold them until the gate is open, and return their number.

        It is 0 if the peer closed or ``timeout_s`` expired; the time at the gate does not count.

        Raises:
            OSError: The connection failed.
        """
        count = await self._stream.receive_into(buffer, timeout_s)
        await self._gate.wait_open(self._remote)
        return count

    async def handshake(self) -> str | None:
        """Perform the TLS handshake, once the gate is open; return the client certificate's subject, None without one.

        Raises:
            OSError: as `SecureStream.handshake`.
        """
        await self._gate.wait_open(self._remote)
        return await cast("SecureStream", self._stream).handshake()

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send bytes once the gate is open.

        Raises:
            OSError: The connection failed.
        """
        await self._gate.wait_open(self._remote)
        await self._stream.send(chunks)


class _GatedListener:
    """Listener that wraps its accepted connections in `_GatedStream`."""

    def __init__(self, listener: StreamListener, gate: NetworkGate) -> None:
        self._listener = listener
        self._gate = gate
        self.port = listener.port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    @property
    def on_descriptors_low(self) -> Callable[[], int]:
        """Callback that closes idle connections when file descriptors are short, and returns their number."""
        return self._listener.on_descriptors_low

    @on_descriptors_low.setter
    def on_descriptors_low(self, callback: Callable[[], int]) -> None:
        self._listener.on_descriptors_low = callback

    async def accept(self) -> AcceptedStream:
        """Accept a connection and return it behind the gate."""
        stream: Any = _GatedStream(await self._listener.accept(), self._gate, None)
        return cast("AcceptedStream", stream)

    def close(self) -> None:
        """Close the listening socket."""
        self._listener.close()


class FaultNetwork:
    """Network of a node with a `NetworkGate` in all connections."""

    def __init__(self, network: Network, gate: NetworkGate) -> None:
        self._network = network
        self._gate = gate

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Bind a listening socket with the gate in all its connections.

        Raises:
            OSError, InvalidTlsConfig: See `Network.listen`.
        """
        return _GatedListener(await self._network.listen(host, port, buffers, tls), self._gate)

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Open a connection, through the gate, once the gate is open for its address; ``tls`` None for plaintext.

        Raises:
            OSError, InvalidTlsConfig: See `Network.connect`.
        """
        await self._gate.wait_open((host, port))
        stream: Any = _GatedStream(await self._network.connect(host, port, tls), self._gate, (host, port))
        return cast("Stream", stream)


class _FaultFile:
    """File that fails writes with ENOSPC while a `DISK_FULL` fault applies."""

    def __init__(self, file: File, path: str, check_space: Callable[[str], None]) -> None:
        self._file = file
        self._path = path
        self._check_space = check_space
        for name in ("size", "pread", "fsync", "close", "fileno"):
            setattr(self, name, getattr(file, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Any, offset: int) -> None:
        """Write bytes at an offset of the file.

        Raises:
            OSError: A fault applies (ENOSPC), or the disk failed.
        """
        self._check_space(self._path)
        self._file.pwrite(data, offset)

    def truncate(self, size_bytes: int) -> None:
        """Truncate or extend the file.

        Raises:
            OSError: A fault applies to an extension (ENOSPC), or the disk failed.
        """
        if size_bytes > self._file.size():
            self._check_space(self._path)
        self._file.truncate(size_bytes)


class FaultDisk:
    """Disk that fails writes with ENOSPC while a `DISK_FULL` fault applies."""

    def __init__(self, disk: Disk, rules: FaultRules) -> None:
        self._disk = disk
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def _check_space(self, path: str) -> None:
        """Check that no fault applies to a write to a file.

        Raises:
            OSError: ENOSPC.
        """
        if self._rules.choose(FaultCall(path=path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file as `Disk.open`, with faults for its writes; creating an empty file does not fail on a full disk.

        Raises:
            OSError: The file cannot be opened.
        """
        file: Any = self._disk.open(path, create=create, readonly=readonly, mode=mode)
        return file if readonly else cast("File", _FaultFile(file, path, self._check_space))

    def private(self) -> PrivateDisk:
        """Return the disk for the metadata log, with the same faults."""
        private = self._disk.private()
        return PrivateDisk(cast("Disk", FaultDisk(cast("Disk", private), self._rules)), private.close)


class FaultEnv:
    """Environment of a node with a clock that can be advanced.

    Args:
        env: Environment of the machine.
        clock: Clock of the node.
        disk: Disk of the node.
        net: Network of the node.
        steady: Environment of the controller, whose clock is not advanced, as its elections and broker sessions depend
            on the health of processes; None for this environment itself.
    """

    def __init__(self, env: Env, clock: FaultClock, disk: Disk, net: Network, steady: Env | None = None) -> None:
        self._env = env
        self.disk = disk
        self.net = net
        self.steady: Env = self if steady is None else steady
        self.now_ms = clock.now_ms
        self.monotonic_ms = clock.monotonic_ms
        self.sleep = clock.sleep
        self.timeout = clock.timeout

    def uuid(self) -> bytes:
        """Return 16 random bytes."""
        return self._env.uuid()

    def random(self) -> float:
        """Return a random number in [0, 1)."""
        return self._env.random()

    def process_stats(self) -> ProcessStats:
        """Return CPU time, memory and descriptors of the process."""
        return self._env.process_stats()

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a thread of the pool ``lane`` and returns its result."""
        return self._env.in_thread(work, lane)

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Return an awaitable that runs ``work`` in a child process, without faults, and returns its result."""
        return self._env.in_process(work, argument)

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Return the credentials of a keytab to accept Kerberos tickets. Raises InvalidKeytab."""
        return self._env.kerberos_acceptor(keytab)

    def kerberos_initiator(self, identity: KerberosIdentity, service: str) -> GssInitiator:
        """Return an initiator for Kerberos authentication to a service. Raises InvalidKeytab."""
        return self._env.kerberos_initiator(identity, service)
