"""Simulated network: hosts, a link for each direction between two of them, and TCP connections over the links.

Bytes arrive late, in pieces, in order, or not at all; a connection is closed, reset, or half open after one side
disappeared.
"""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from ottla.env.disk import FileSlice
from ottla.env.env import SYSTEM_BUFFERS, AcceptedStream, SocketBuffers, Stream, StreamListener
from ottla.env.tls import TlsConfig

if TYPE_CHECKING:
    from sim.engine.hosts import SimHost
    from sim.engine.processes import SimProcess

WINDOW_BYTES = 256 * 1024
MAX_DELAY_S = 0.020
RETRANSMIT_S = 0.2
CONNECT_TIMEOUT_S = 20.0
FIRST_FREE_PORT = 40_000
ANY_ADDRESS = ("", "0.0.0.0", "127.0.0.1", "localhost")
END = b""
"""Piece that marks the end of the stream."""


class Link:
    """Link from one host to another; the opposite direction is a link of its own."""

    def __init__(self, rng: random.Random, source: SimHost, target: SimHost) -> None:
        self._rng = rng
        self.source = source
        self.target = target
        self.delay_s = MAX_DELAY_S
        """Maximum delay in seconds of a piece that is not lost."""
        self.loss = 0.0
        """Share of pieces that are retransmitted."""
        self.cut_until = 0.0

    @property
    def open_at(self) -> float:
        """Time before which no piece arrives."""
        return max(self.cut_until, self.source.outbound_cut_until, self.target.inbound_cut_until)

    def arrival(self, now_s: float) -> float:
        """Return the arrival time in simulated seconds of a piece sent now, after retransmissions and cuts."""
        late = 0.0
        wait = RETRANSMIT_S
        while self.loss and self._rng.random() < self.loss and late < 10:
            late += wait
            wait *= 2
        return max(now_s, self.open_at) + self._rng.random() * self.delay_s + late


class Pipe:
    """Direction of a connection: the pieces of data between its writer and its reader."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.held = 0
        self.last_at = 0.0
        self.held_until = 0.0
        """Time before which no piece arrives, in addition to the limits of the link."""
        self.ended = False
        """True after the writer has closed its direction."""
        self.broken = False
        """True after a reset, or after the reader has closed; both ends know."""
        self.vanished = False
        """True if the reader disappeared without notifying the writer."""
        self.changed = trio.Event()

    def put(self, now_s: float, data: bytes) -> None:
        """Queue a piece of data with its arrival time, after that of earlier pieces."""
        self.last_at = max(self.last_at, self.link.arrival(now_s))
        if not self.vanished:
            self.pieces.append((self.last_at, data))
        self.held += len(data)
        self.notify()

    def end(self, now_s: float) -> None:
        """Close the direction by its writer: the reader gets earlier data, then the end of the stream."""
        if not self.ended and not self.broken:
            self.put(now_s, END)
        self.ended = True

    def next_at(self) -> float:
        """Return the simulated time in seconds at which the next piece can be received; infinite without one."""
        return max(self.pieces[0][0], self.open_at) if self.pieces else float("inf")

    @property
    def open_at(self) -> float:
        """Time before which no piece arrives."""
        return max(self.link.open_at, self.held_until)

    def break_connection(self) -> None:
        """Reset the direction: data in flight is lost."""
        self.broken = self.ended = True
        self.pieces.clear()
        self.notify()

    def notify(self) -> None:
        """Wake the tasks that wait for a change of the direction, at both ends."""
        self.changed.set()
        self.changed = trio.Event()


class SimStream:
    """End of a simulated connection, which belongs to one process."""

    def __init__(self, network: SimNetwork, owner: SimProcess, pipes: tuple[Pipe, Pipe], peer: str, local: str) -> None:
        self._network = network
        self._owner = owner
        self._in, self._out = pipes
        self.peer = peer
        self.local: tuple[str, int] = (local, 0)
        self.send_waits = self.receive_waits = 0

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive a piece or what fits of it; return its size; 0: end or timeout. Raises ConnectionResetError."""
        self.receive_waits += 1
        await trio.lowlevel.checkpoint()
        deadline = trio.current_time() + timeout_s
        pipe = self._in
        while True:
            await self._owner.wait_if_paused()
            if pipe.broken:
                raise ConnectionResetError(errno.ECONNRESET, "reset")
            now = trio.current_time()
            at = pipe.next_at()
            if at <= now:
                return self._read_piece(buffer)
            if now >= deadline:
                return 0
            with trio.move_on_at(min(at, deadline)):
                await pipe.changed.wait()

    def _read_piece(self, buffer: memoryview) -> int:
        pipe = self._in
        at, data = pipe.pieces.popleft()
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        if count < len(data) or data == END:
            pipe.pieces.appendleft((at, data[count:]))
        pipe.held -= count
        pipe.notify()
        return count

    async def wait_disconnected(self) -> None:
        """Wait until the peer has closed, or the connection was reset; earlier data need not be read."""
        pipe = self._in
        while not pipe.broken:
            if pipe.pieces and pipe.pieces[-1][1] == END:
                at = max(pipe.pieces[-1][0], pipe.open_at)
                if at <= trio.current_time():
                    break
                with trio.move_on_at(at):
                    await pipe.changed.wait()
            else:
                await pipe.changed.wait()
            await self._owner.wait_if_paused()
        await trio.lowlevel.checkpoint()

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send all chunks; wait while the peer has `WINDOW_BYTES` unread. Raises BrokenPipeError if it is gone."""
        data = b"".join(c.read_all() if isinstance(c, FileSlice) else bytes(c) for c in chunks)
        await trio.lowlevel.checkpoint()
        pipe = self._out
        at = 0
        while at < len(data):
            while pipe.held >= WINDOW_BYTES and not pipe.broken:
                self.send_waits += 1
                await pipe.changed.wait()
            await self._owner.wait_if_paused()
            if pipe.vanished and pipe.link.target.up and pipe.link.open_at <= trio.current_time():
                self.reset()
            if pipe.broken or pipe.ended:
                raise BrokenPipeError(errno.EPIPE, "the other side is gone")
            size = self._network.piece(len(data) - at)
            pipe.put(trio.current_time(), data[at : at + size])
            at += size

    def byte_counts(self) -> tuple[int, int] | None:
        """Return None: the bytes are not counted."""
        return None

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Start a task that calls ``callback`` when peer or `close` has disconnected, if the own process runs then."""

        async def watch() -> None:
            await self.wait_disconnected()
            if not self._owner.dead:
                callback()

        self._owner.simulation.start_soon(watch)

    def close(self) -> None:
        """Close this end: the peer still reads data in flight, then the end of the stream, and can send no more."""
        self._out.end(self._network.now_s())
        self._in.broken = True
        self._in.notify()
        self._network.forget(self)

    def reset(self) -> None:
        """Reset both directions: data in flight is lost."""
        self._in.break_connection()
        self._out.break_connection()
        self._network.forget(self)

    def close_by_kernel(self) -> None:
        """Close as the kernel of an ended process: unread bytes cause a reset; a cut link drops that or the close."""
        if self._out.link.open_at > self._network.now_s():
            self.vanish()
        elif self._in.held:
            self.reset()
        else:
            self.close()

    def vanish(self) -> None:
        """Disappear: the host is gone, or a middlebox dropped the connection; the peer is not notified."""
        self._in.break_connection()
        self._in.broken = False
        self._in.vanished = True
        self._in.ended = False
        self._out.pieces.clear()
        self._out.ended = True
        self._network.forget(self)

    def hold(self, until_s: float) -> None:
        """Deliver no data sent by this end before the simulated time ``until_s``; the other direction is unaffected."""
        self._out.held_until = until_s

    def half_open(self) -> None:
        """Drop the connection in a middlebox: both sides remain without receiving from each other."""
        for pipe in (self._in, self._out):
            pipe.vanished = True
            pipe.pieces.clear()


class SimListener:
    """Listening socket of a process."""

    def __init__(self, network: SimNetwork, owner: SimProcess, port: int) -> None:
        self._network = network
        self._owner = owner
        self.port = port
        self.on_descriptors_low: Callable[[], int] = int
        self.waiting: deque[SimStream] = deque()
        self.arrived = trio.Event()

    async def accept(self) -> AcceptedStream:
        """Wait for the next incoming connection and return it; after `close` wait forever."""
        await trio.lowlevel.checkpoint()
        while True:
            await self._owner.wait_if_paused()
            if self.waiting:
                return self.waiting.popleft()
            self.arrived = trio.Event()
            await self.arrived.wait()

    def offer(self, owner_of: Callable[[SimProcess], SimStream]) -> None:
        """Queue an incoming connection; ``owner_of`` creates its end for the listener's process."""
        self.waiting.append(owner_of(self._owner))
        self.arrived.set()

    def close(self) -> None:
        """Stop listening; connections that were not accepted are reset."""
        place = (self._owner.host.name, self.port)
        if self._network.listeners.get(place) is self:
            del self._network.listeners[place]
        for stream in self.waiting:
            stream.reset()
        self.waiting.clear()


class SimNetwork:
    """Network of a simulation: links, listeners and connections of all hosts."""

    def __init__(self, rng: random.Random, hosts: Callable[[str], SimHost], now_s: Callable[[], float]) -> None:
        self._rng = rng
        self._hosts = hosts
        self.now_s = now_s
        self.links: dict[tuple[str, str], Link] = {}
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.streams: dict[SimStream, SimProcess] = {}
        """Both ends of every connection with their processes, in the order of their creation."""
        self._free_port = FIRST_FREE_PORT

    def link(self, source: str, target: str) -> Link:
        """Return the link from one host to another, created at its first use."""
        found = self.links.get((source, target))
        if found is None:
            found = self.links[source, target] = Link(self._rng, self._hosts(source), self._hosts(target))
        return found

    def piece(self, remaining: int) -> int:
        """Return the size of the next piece of the ``remaining`` bytes to send: mostly all, sometimes fewer."""
        return remaining if self._rng.random() < 0.8 else self._rng.randint(1, min(remaining, 1500))

    def forget(self, stream: SimStream) -> None:
        """Remove a closed end of a connection."""
        self.streams.pop(stream, None)

    def streams_of(self, owner: SimProcess) -> list[SimStream]:
        """Return the open connection ends of a process."""
        return [stream for stream, process in self.streams.items() if process is owner]

    def close_all_of(self, owner: SimProcess, how: Callable[[SimStream], None]) -> None:
        """Close an ended process's listeners, and end its connections by ``how``: `close_by_kernel` or `vanish`."""
        for listener in [x for x in self.listeners.values() if x._owner is owner]:
            listener.close()
        for stream in self.streams_of(owner):
            how(stream)

    def random_half(self) -> list[SimStream]:
        """Return a random half of the connection ends."""
        return [s for s in list(self.streams) if self._rng.random() < 0.5]

    def restore_links(self) -> None:
        """Restore all links: no cuts, no losses, normal delays; deliver held data."""
        for link in self.links.values():
            link.cut_until = link.source.outbound_cut_until = link.target.inbound_cut_until = 0.0
            link.loss = 0.0
            link.delay_s = MAX_DELAY_S
        for stream in self.streams:
            stream._in.held_until = stream._out.held_until = 0.0
            stream._in.notify()

    def close_half_open(self) -> None:
        """Reset the connections that a middlebox dropped between hosts that are up; both sides notice."""
        for stream in list(self.streams):
            if stream._out.vanished and stream._out.link.target.up:
                stream.reset()

    async def listen(self, owner: SimProcess, host: str, port: int) -> StreamListener:
        """Listen on the owner's host. Raises OSError if the address is not the host's, or the port is in use."""
        await trio.lowlevel.checkpoint()
        if host not in (owner.host.name, *ANY_ADDRESS):
            raise OSError(errno.EADDRNOTAVAIL, "not this machine's address")
        if port == 0:
            self._free_port += 1
            port = self._free_port
        place = (owner.host.name, port)
        if place in self.listeners:
            raise OSError(errno.EADDRINUSE, "port in use")
        listener = self.listeners[place] = SimListener(self, owner, port)
        return listener

    async def connect(self, owner: SimProcess, host: str, port: int) -> Stream:
        """Connect in simulated time. Raises OSError without a listener, or after `CONNECT_TIMEOUT_S`."""
        there, back = self.link(owner.host.name, host), self.link(host, owner.host.name)
        deadline = trio.current_time() + CONNECT_TIMEOUT_S
        at = back.arrival(there.arrival(trio.current_time()))
        await trio.sleep_until(min(at, deadline))
        if at > deadline or not there.target.up:
            await trio.sleep_until(deadline)
            raise TimeoutError(errno.ETIMEDOUT, "no answer")
        await owner.wait_if_paused()
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        out, answers = Pipe(there), Pipe(back)

        def other_end(server: SimProcess) -> SimStream:
            stream = SimStream(self, server, (out, answers), owner.host.name, host)
            stream.local = (host, port)
            self.streams[stream] = server
            return stream

        client = SimStream(self, owner, (answers, out), host, owner.host.name)
        self.streams[client] = owner
        listener.offer(other_end)
        return client


class SimHostNetwork:
    """Network interface of one process."""

    def __init__(self, network: SimNetwork, owner: SimProcess) -> None:
        self._network = network
        self._owner = owner

    async def listen(
        self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS, tls: TlsConfig | None = None
    ) -> StreamListener:
        """Listen at a port, without encryption; ``buffers`` and ``tls`` have no effect."""
        return await self._network.listen(self._owner, host, port)

    async def connect(self, host: str, port: int, tls: TlsConfig | None = None) -> Stream:
        """Connect to a listener, without encryption; ``tls`` has no effect."""
        return await self._network.connect(self._owner, host, port)
