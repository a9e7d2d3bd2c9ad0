"""In-memory connections between parts of a test: listeners, connects, closed and silent sides."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

import trio

from ottla.env.env import SYSTEM_BUFFERS, SocketBuffers


class MemoryStream:
    """End of a connection."""

    def __init__(self, peer: str, local: tuple[str, int]) -> None:
        self.peer = peer
        self.local = local
        self.send_waits = self.receive_waits = 0
        self.peer_stream: MemoryStream
        self.is_closed = False
        self.drops_input = False
        """What is sent to it from now on is lost."""
        self._bytes = bytearray()
        self._changed = trio.Event()
        self._on_disconnect: Callable[[], None] | None = None

    def deliver(self, raw: bytes) -> None:
        """Receive bytes."""
        if not self.drops_input:
            self._bytes += raw
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive as `Stream.receive_into` does."""
        with trio.move_on_after(timeout_s):
            while not self._bytes:
                if self.is_closed:
                    raise trio.ClosedResourceError
                if self.peer_stream.is_closed:
                    return 0
                self.receive_waits += 1
                await self._changed.wait()
        count = min(len(self._bytes), len(buffer))
        buffer[:count] = self._bytes[:count]
        del self._bytes[:count]
        return count

    async def send(self, chunks: Sequence[Any]) -> None:
        """Send as `Stream.send` does."""
        await trio.lowlevel.checkpoint()
        if self.is_closed or self.peer_stream.is_closed:
            raise ConnectionResetError("the other side has gone")
        self.peer_stream.deliver(b"".join(bytes(chunk) for chunk in chunks))

    def byte_counts(self) -> tuple[int, int] | None:
        """Return None: the bytes are not counted."""
        return None

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Register a callback as `AcceptedStream.on_disconnect` does."""
        self._on_disconnect = callback

    def close(self) -> None:
        """Close as `Stream.close` does."""
        if not self.is_closed:
            self.is_closed = True
            self._notify()
            self.peer_stream.on_peer_closed()

    def on_peer_closed(self) -> None:
        """Handle the close of the other side."""
        self._notify()
        if self._on_disconnect is not None:
            gone, self._on_disconnect = self._on_disconnect, None
            gone()


class MemoryListener:
    """Listener that accepts connections in memory."""

    def __init__(self, net: MemoryNet, port: int) -> None:
        self.port = port
        self._net = net
        self.send, self.receive = trio.open_memory_channel[MemoryStream](100)

    async def accept(self) -> MemoryStream:
        """Accept as `Listener.accept` does."""
        return await self.receive.receive()

    def close(self) -> None:
        """Close as `Listener.close` does."""
        self._net.listeners.pop(self.port, None)


class MemoryNet:
    """Network with all ports on one host."""

    def __init__(self) -> None:
        self.listeners: dict[int, MemoryListener] = {}
        self.connect_attempts: list[tuple[str, int]] = []
        self.accepted: list[MemoryStream] = []
        """What was accepted, in order."""

    async def listen(self, host: str, port: int, buffers: SocketBuffers = SYSTEM_BUFFERS) -> MemoryListener:
        """Listen as `Net.listen` does."""
        await trio.lowlevel.checkpoint()
        assert port not in self.listeners
        self.listeners[port] = MemoryListener(self, port)
        return self.listeners[port]

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect as `Net.connect` does."""
        await trio.lowlevel.checkpoint()
        self.connect_attempts.append((host, port))
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        here, there = MemoryStream("10.0.0.1", ("10.0.0.9", 5)), MemoryStream("10.0.0.9", (host, port))
        here.peer_stream, there.peer_stream = there, here
        self.accepted.append(there)
        listener.send.send_nowait(there)
        return here
