"""One connection, one task: frames in, answers out, in order.

A request is answered before the next one is looked at, as Kafka mutes a channel while it works on its request.
Answers to requests that arrived together leave together. The frame a handler works on lies in the receive buffer
itself: a produced batch goes from there to the page cache without being copied.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ottla.broker.server.dispatch import Peer, answer
from ottla.wire.apis import ApiKey
from ottla.wire.compiler import Chunk
from ottla.wire.errors import WireError
from ottla.wire.framing import frame_size, parse_request, response_chunks
from ottla.wire.schema import Message
from ottla.world.env import FOREVER_S, Stream

if TYPE_CHECKING:
    from ottla.broker.services import Services

logger = logging.getLogger("ottla.connection")

_FIRST_BUFFER_BYTES = 4 * 1024
_BUSY_BUFFER_BYTES = 64 * 1024
_KEPT_BUFFER_BYTES = 1024 * 1024
_FLUSH_BYTES = 256 * 1024


class CloseConnection(Exception):
    """A handler's wish to end the connection: the only sign of an error that Produce with acks=0 has."""


class Connection:
    """A connection's buffer and its two ends."""

    def __init__(self, services: Services, stream: Stream) -> None:
        self._services = services
        self._stream = stream
        self._peer = Peer(stream.peer, stream.local)
        self._limit = services.config.number("socket.request.max.bytes")
        self.silent_since_ms: float | None = None
        """Since when the other side has owed us a request; None while one is worked on."""
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._start = 0
        self._end = 0
        self._filled = False
        self._out: list[Chunk] = []
        self._out_bytes = 0

    def close(self) -> None:
        """Hang up, as after ``connections.max.idle.ms`` of silence."""
        self._stream.close()

    async def serve(self) -> None:
        """Serve until the other side leaves, breaks the protocol, or stays silent too long."""
        try:
            while await self._receive():
                try:
                    while (frame := self._next_frame()) is not None:
                        await self._answer(frame)
                finally:
                    await self._flush()  # what was answered before a request that ends the connection still leaves
        except WireError as error:
            logger.warning("connection from %s closed: %s", self._peer.host, error)
        except (CloseConnection, OSError, trio.ClosedResourceError):  # the other side left, or must leave
            pass
        except AssertionError:
            raise  # a broken invariant: going on could lose data
        except Exception:
            logger.exception("connection from %s closed: a request could not be handled", self._peer.host)
        finally:
            self._stream.close()

    async def _receive(self) -> bool:
        """Get more bytes; False at the end."""
        self._make_room()
        self.silent_since_ms = self._services.env.monotonic_ms()
        with memoryview(self._buffer) as view:
            count = await self._stream.receive_into(view[self._end :], FOREVER_S)
        self.silent_since_ms = None
        self._end += count
        self._filled = self._end == len(self._buffer)
        return count > 0

    def _make_room(self) -> None:
        """See that there is room behind what has been received.

        The buffer doubles as it fills, so a frame's memory is spent only as its bytes arrive, whatever size it
        announces; it shrinks again once a large frame is done.
        """
        have, size = self._end - self._start, len(self._buffer)
        if have == 0:
            self._start = self._end = 0
            if size > _KEPT_BUFFER_BYTES:
                self._buffer = bytearray(_FIRST_BUFFER_BYTES)
            elif self._filled and size < _KEPT_BUFFER_BYTES:
                self._buffer = bytearray(max(size * 2, _BUSY_BUFFER_BYTES))
            return
        need = 4
        if have >= 4:
            need += frame_size(self._buffer[self._start : self._start + 4], self._limit)
        if self._end < size and self._start + need <= size:
            return
        if self._start:
            self._buffer[:have] = self._buffer[self._start : self._end]
            self._start, self._end = 0, have
        if have == size:
            grown = bytearray(min(max(size * 2, _BUSY_BUFFER_BYTES), max(need, _KEPT_BUFFER_BYTES)))
            grown[:have] = self._buffer
            self._buffer = grown

    def _next_frame(self) -> memoryview | None:
        """The next whole frame, or None."""
        have = self._end - self._start
        if have < 4:
            return None
        size = frame_size(self._buffer[self._start : self._start + 4], self._limit)
        if have < 4 + size:
            return None
        begin = self._start + 4
        self._start = begin + size
        return memoryview(self._buffer)[begin : begin + size]

    async def _answer(self, frame: memoryview) -> None:
        request = parse_request(frame)
        result = answer(self._services, self._peer, request)
        if result is not None and not isinstance(result, Message):
            await self._flush()
            result = await result
        if result is None:
            return
        version = request.version
        if request.key is ApiKey.API_VERSIONS and not 0 <= version <= 4:
            version = 0
        chunks = response_chunks(request.key, version, request.correlation_id, result)
        self._out += chunks
        self._out_bytes += sum(map(len, chunks))
        if self._out_bytes >= _FLUSH_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            await self._stream.send(out)
