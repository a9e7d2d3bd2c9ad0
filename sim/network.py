"""A network in memory: bytes arrive late, in pieces, in order, or not at all."""

from __future__ import annotations

import errno
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import trio

from ottla.world.disk import FileSlice
from ottla.world.env import Listener, Stream

WINDOW_BYTES = 256 * 1024
MAX_DELAY_S = 0.020
NODE_HOST = "node"


class Pipe:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.held = 0
        self.last_at = 0.0
        self.ended = False
        self.broken = False
        self.changed = trio.Event()

    def tell(self) -> None:
        """Wake both ends."""
        self.changed.set()
        self.changed = trio.Event()


class SimStream:
    """One end of a connection."""

    def __init__(self, network: Network, incoming: Pipe, outgoing: Pipe, peer: str, local: tuple[str, int]) -> None:
        self._network = network
        self._in = incoming
        self._out = outgoing
        self.peer = peer
        self.local = local

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """What has arrived, at most one piece."""
        await trio.lowlevel.checkpoint()
        deadline = trio.current_time() + timeout_s
        pipe = self._in
        while True:
            if pipe.broken:
                raise ConnectionResetError(errno.ECONNRESET, "reset")
            now = trio.current_time()
            if pipe.pieces and pipe.pieces[0][0] <= now:
                at, data = pipe.pieces.popleft()
                count = min(len(data), len(buffer))
                buffer[:count] = data[:count]
                if count < len(data):
                    pipe.pieces.appendleft((at, data[count:]))
                pipe.held -= count
                pipe.tell()
                return count
            if pipe.ended and not pipe.pieces:
                return 0
            if now >= deadline:
                return 0
            until = min(pipe.pieces[0][0], deadline) if pipe.pieces else deadline
            with trio.move_on_at(until):
                await pipe.changed.wait()

    async def send(self, chunks: Sequence[Any]) -> None:
        """Hand over; waits while the other side has too much unread."""
        data = b"".join(c.read() if isinstance(c, FileSlice) else bytes(c) for c in chunks)
        await trio.lowlevel.checkpoint()
        pipe = self._out
        at = 0
        while at < len(data):
            while pipe.held >= WINDOW_BYTES and not pipe.broken:
                await pipe.changed.wait()
            if pipe.broken or pipe.ended:
                raise BrokenPipeError(errno.EPIPE, "the other side is gone")
            size = self._network.piece(len(data) - at)
            pipe.last_at = max(pipe.last_at, self._network.arrival())
            pipe.pieces.append((pipe.last_at, data[at : at + size]))
            pipe.held += size
            at += size
            pipe.tell()

    def close(self) -> None:
        """End both directions: the other side reads what is under way, then the end."""
        self._out.ended = True
        self._in.broken = True
        self._out.tell()
        self._in.tell()

    def reset(self) -> None:
        """Break both directions at once: what is under way is lost."""
        for pipe in (self._in, self._out):
            pipe.broken = pipe.ended = True
            pipe.pieces.clear()
            pipe.tell()


class SimListener:
    """A place where connections come in."""

    def __init__(self, network: Network, port: int) -> None:
        self._network = network
        self.port = port
        self.waiting: deque[SimStream] = deque()
        self.arrived = trio.Event()

    async def accept(self) -> Stream:
        """The next connection."""
        await trio.lowlevel.checkpoint()
        while not self.waiting:
            self.arrived = trio.Event()
            await self.arrived.wait()
        return self.waiting.popleft()

    def close(self) -> None:
        """Stop listening; connections nobody took are reset."""
        if self._network.listeners.get(self.port) is self:
            del self._network.listeners[self.port]
        for stream in self.waiting:
            stream.reset()
        self.waiting.clear()


class Network:
    """All connections of a world; one node, any number of clients."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.listeners: dict[int, SimListener] = {}
        self._streams: list[SimStream] = []
        self._cut_until = 0.0

    def piece(self, left: int) -> int:
        """How many bytes travel together: mostly all, sometimes few."""
        return left if self._rng.random() < 0.8 else self._rng.randint(1, min(left, 1500))

    def arrival(self) -> float:
        """When something sent now arrives."""
        now = max(trio.current_time(), self._cut_until)
        return now + self._rng.random() * MAX_DELAY_S

    def cut(self, seconds: float) -> None:
        """Nothing arrives for a while; then everything does."""
        self._cut_until = trio.current_time() + seconds

    def reset_all(self) -> None:
        """Every connection breaks: a process died, or a switch forgot them."""
        for stream in self._streams:
            stream.reset()
        self._streams.clear()

    def reset_some(self) -> None:
        """One connection in two breaks."""
        for stream in [s for s in self._streams if self._rng.random() < 0.5]:
            stream.reset()
            self._streams.remove(stream)

    async def listen(self, host: str, port: int) -> Listener:
        """Listen."""
        await trio.lowlevel.checkpoint()
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, "port in use")
        self.listeners[port] = SimListener(self, port)
        return self.listeners[port]

    async def connect(self, host: str, port: int) -> Stream:
        """Connect."""
        await trio.sleep(self._rng.random() * MAX_DELAY_S)
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        there, back = Pipe(), Pipe()
        client = SimStream(self, back, there, NODE_HOST, ("client", 0))
        server = SimStream(self, there, back, "client", (NODE_HOST, port))
        self._streams.append(server)
        listener.waiting.append(server)
        listener.arrived.set()
        return client
