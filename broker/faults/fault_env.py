"""Environment of a node whose clock a test advances, whose disk may be full, and whose network may be cut."""

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
    """Clock that can be advanced: waits and deadlines that are over then end at once."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._scopes: set[trio.CancelScope] = set()
        self.offset_ms = 0
        """How far the clock is ahead of that of the machine."""

    def advance(self, milliseconds: int) -> None:
        """Advance the clock."""
        self.offset_ms += milliseconds
        for scope in self._scopes:
            scope.deadline -= milliseconds / 1000

    def now_ms(self) -> int:
        """Return the wall clock."""
        return self._env.now_ms() + self.offset_ms

    def monotonic_ms(self) -> float:
        """Return the monotonic clock."""
        return self._env.monotonic_ms() + self.offset_ms

    @contextmanager
    def timeout(self, seconds: float) -> Iterator[Deadline]:
        """Return a block that is cancelled after a time."""
        with self._env.timeout(seconds) as deadline:
            scope = cast("trio.CancelScope", deadline)
            self._scopes.add(scope)
            try:
                yield deadline
            finally:
                self._scopes.discard(scope)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        if seconds <= 0:
            await self._env.sleep(0)
            return
        with self.timeout(seconds):
            await trio.Event().wait()


class NetworkGate:
    """State of the network of a node: paused, or cut off from some addresses."""

    def __init__(self) -> None:
        self.is_paused = False
        self.blocked: frozenset[Address] = frozenset()
        """Addresses of other nodes that this node cannot reach."""
        self._changed = trio.Event()

    def set_state(self, *, is_paused: bool | None = None, blocked: frozenset[Address] | None = None) -> None:
        """Change the state; what waits looks again."""
        self.is_paused = self.is_paused if is_paused is None else is_paused
        self.blocked = self.blocked if blocked is None else blocked
        self._changed.set()
        self._changed = trio.Event()

    async def wait_open(self, remote: Address | None) -> None:
        """Wait while nothing passes to or from an address; None: that of a client."""
        while self.is_paused or remote in self.blocked:
            await self._changed.wait()


class _GatedStream:
    """Connection whose bytes pass while its gate is open; they are delayed, and none is lost."""

    def __init__(self, stream: Stream, gate: NetworkGate, remote: Address | None) -> None:
        self._stream = stream
        self._gate = gate
        self._remote = remote

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive bytes, once the gate is open.

        Raises:
            OSError: the connection broke.
        """
        count = await self._stream.receive_into(buffer, timeout_s)
        await self._gate.wait_open(self._remote)
        return count

    async def handshake(self) -> str | None:
        """Make the TLS handshake, once the gate is open.

        Raises:
            OSError: as `SecureStream.handshake`.
        """
        await self._gate.wait_open(self._remote)
        return await cast("SecureStream", self._stream).handshake()

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send, once the gate is open.

        Raises:
            OSError: the connection broke.
        """
        await self._gate.wait_open(self._remote)
        await self._stream.send(chunks)


class _GatedListener:
    """Listener whose connections have a gate."""

    def __init__(self, listener: StreamListener, gate: NetworkGate) -> None:
        self._listener = listener
        self._gate = gate
        self.port = listener.port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    @property
    def on_descriptors_low(self) -> Callable[[], int]:
        """Closes other connections."""
        return self._listener.on_descriptors_low

    @on_descriptors_low.setter
    def on_descriptors_low(self, callback: Callable[[], int]) -> None:
        self._listener.on_descriptors_low = callback

    async def accept(self) -> AcceptedStream:
        """Accept a connection."""
        stream: Any = _GatedStream(await self._listener.accept(), self._gate, None)
        return cast("AcceptedStream", stream)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


class FaultNetwork:
    """Network of a node behind a gate."""

    def __init__(self, network: Network, gate: NetworkGate) -> None:
        self._network = network
        self._gate = gate

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Listen.

        Raises:
            OSError, InvalidTlsConfig: as `Network.listen`.
        """
        return _GatedListener(await self._network.listen(host, port, buffers, tls), self._gate)

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Connect, once the gate to the address is open.

        Raises:
            OSError, InvalidTlsConfig: as `Network.connect`.
        """
        await self._gate.wait_open((host, port))
        stream: Any = _GatedStream(await self._network.connect(host, port, tls), self._gate, (host, port))
        return cast("Stream", stream)


class _FaultFile:
    """File whose writes fail while its disk is full."""

    def __init__(self, file: File, path: str, check_space: Callable[[str], None]) -> None:
        self._file = file
        self._path = path
        self._check_space = check_space
        for name in ("size", "pread", "fsync", "close", "fileno"):
            setattr(self, name, getattr(file, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Any, offset: int) -> None:
        """Write.

        Raises:
            OSError: the disk is full, or failed.
        """
        self._check_space(self._path)
        self._file.pwrite(data, offset)

    def truncate(self, size_bytes: int) -> None:
        """Cut or extend the file.

        Raises:
            OSError: the disk is full, or failed.
        """
        if size_bytes > self._file.size():
            self._check_space(self._path)
        self._file.truncate(size_bytes)


class FaultDisk:
    """Disk that is full while a rule says so."""

    def __init__(self, disk: Disk, rules: FaultRules) -> None:
        self._disk = disk
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def _check_space(self, path: str) -> None:
        """Raise if a write to a file fails.

        Raises:
            OSError: the disk is full.
        """
        if self._rules.choose(FaultCall(path=path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644) -> File:
        """Open a file; a new one takes no space.

        Raises:
            OSError: it cannot be opened.
        """
        file: Any = self._disk.open(path, create=create, readonly=readonly, mode=mode)
        return file if readonly else cast("File", _FaultFile(file, path, self._check_space))

    def private(self) -> PrivateDisk:
        """Return the disk for the metadata log."""
        private = self._disk.private()
        return PrivateDisk(cast("Disk", FaultDisk(cast("Disk", private), self._rules)), private.close)


class FaultEnv:
    """Environment with a clock that can be advanced.

    Args:
        env: the environment of the machine.
        clock: the clock of the node.
        disk: its disk.
        net: its network.
        steady: the environment of the controller, whose clock is not advanced: its elections and the sessions of
            brokers stand for the health of processes; None for itself.
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
        """16 fresh random bytes."""
        return self._env.uuid()

    def random(self) -> float:
        """Return a random number."""
        return self._env.random()

    def process_stats(self) -> ProcessStats:
        """Return the resources that the process uses."""
        return self._env.process_stats()

    def in_thread(self, work: Callable[[], T], lane: ThreadPool = ThreadPool.FILES) -> Awaitable[T]:
        """Run in a thread."""
        return self._env.in_thread(work, lane)

    def in_process(self, work: Callable[[WorkerContext, A], T], argument: A) -> Awaitable[T]:
        """Run in a process of its own, whose clock and disk have no faults."""
        return self._env.in_process(work, argument)

    def kerberos_acceptor(self, keytab: Keytab) -> GssAcceptorCredentials:
        """Return credentials to accept Kerberos tickets. Raises InvalidKeytab."""
        return self._env.kerberos_acceptor(keytab)

    def kerberos_initiator(self, identity: KerberosIdentity, service: str) -> GssInitiator:
        """Start to authenticate to a service. Raises InvalidKeytab."""
        return self._env.kerberos_initiator(identity, service)
