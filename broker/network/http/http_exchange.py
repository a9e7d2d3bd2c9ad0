"""HTTP request and its response on a connection, with the protocol library h11.

Each connection serves one request: scrapers and health checks come at intervals of seconds, and an abandoned connection
would occupy a slot until a timeout.
"""

from __future__ import annotations

import errno
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import h11
import trio

from ottla.broker.config.limits import MAX_HTTP_DISCARDED_BYTES, MAX_HTTP_HEAD_BYTES
from ottla.broker.network.http.http_messages import HttpRequest, HttpResponse, error_response
from ottla.env.env import AcceptedStream, Env

_RECEIVE_BYTES = 4096
_SEND_BYTES = 64 * 1024


class HttpExchange:
    """HTTP/1.1 connection with one request: reads the request, sends the response."""

    def __init__(self, env: Env, stream: AcceptedStream, timeout_s: float) -> None:
        self._env = env
        self._stream = stream
        self._timeout_s = timeout_s
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HTTP_HEAD_BYTES)
        self._method = ""

    async def _receive(self) -> bytes:
        """Receive up to 4096 bytes; empty at the end of the stream, or after the time-out."""
        buffer = bytearray(_RECEIVE_BYTES)
        count = await self._stream.receive_into(memoryview(buffer), self._timeout_s)
        return bytes(buffer[:count])

    def _next_event(self) -> Any:
        """Return the next h11 event of the received bytes, `h11.NEED_DATA` if they are incomplete.

        Raises:
            h11.RemoteProtocolError: The received bytes are malformed.
        """
        try:
            return self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            # h11's traceback forms a reference cycle, which would retain the connection's buffers
            raise error.with_traceback(None) from None

    async def read_request(self) -> HttpRequest | HttpResponse | None:
        """Read the head of a request.

        Returns:
            The request; an error response for a head that is malformed or too large; None if the client disconnects
            first, or sends no byte within the time-out.

        Raises:
            OSError: The connection failed.
        """
        try:
            while (event := self._next_event()) is h11.NEED_DATA:
                received = await self._receive()
                if not received:
                    return None
                self._protocol.receive_data(received)
        except h11.RemoteProtocolError as error:
            problem = str(error).partition(": bytearray")[0]  # without the repr of the bytes
            return error_response(HTTPStatus(error.error_status_hint), problem)
        if not isinstance(event, h11.Request):
            return None
        if event.http_version not in (b"1.0", b"1.1"):
            return error_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        self._method = event.method.decode("ascii")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
        peer, on_disconnect = self._stream.peer, self._stream.on_disconnect
        return HttpRequest(self._method, event.target.decode("ascii"), headers, peer, on_disconnect=on_disconnect)

    async def read_body(self, limit: int) -> bytes | None:
        """Read the body of the request; return None if it is larger than ``limit`` bytes, malformed or incomplete.

        It is incomplete if the client disconnects, or sends no byte within the time-out.

        Raises:
            OSError: The connection failed.
        """
        if self._protocol.they_are_waiting_for_100_continue:
            await self._stream.send([self._protocol.send(h11.InformationalResponse(status_code=100, headers=[]))])
        body = bytearray()
        try:
            while type(event := self._next_event()) is not h11.EndOfMessage:
                if isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > limit:
                        return None
                    continue
                received = await self._receive()
                if not received:
                    return None
                self._protocol.receive_data(received)
        except h11.RemoteProtocolError:
            return None
        return bytes(body)

    def _head(self, response: HttpResponse, size_bytes: int | None) -> bytes:
        """Return the encoded status line and header fields.

        ``size_bytes``: Content-Length; None for a streamed body, which has none.
        """
        length = [] if size_bytes is None else [("Content-Length", str(size_bytes))]
        fields = [*response.fields, *length, ("Connection", "close")]
        status, reason = int(response.status), response.status.phrase.encode()
        return self._protocol.send(h11.Response(status_code=status, headers=fields, reason=reason))

    async def send_stream(self, response: HttpResponse) -> None:
        """Send a response whose body is generated while it is sent, until its end or until the client disconnects.

        For HEAD only the head is sent. At the end the body is closed.

        Raises:
            OSError: The connection failed, or the client did not read a piece within the time-out.
        """
        assert not isinstance(response.body, bytes | list)
        head = self._head(response, None)
        with trio.CancelScope() as scope:
            async with aclosing(response.body) as pieces:
                self._stream.on_disconnect(scope.cancel)
                await self._send_in_time([head])
                if self._method == "HEAD":
                    return
                async for piece in pieces:
                    if piece:
                        await self._send_in_time([self._protocol.send(h11.Data(data=piece))])
                await self._send_in_time([self._protocol.send(h11.EndOfMessage())])

    async def _send_in_time(self, chunks: list[bytes]) -> None:
        with self._env.timeout(self._timeout_s):
            return await self._stream.send(chunks)
        raise TimeoutError(errno.ETIMEDOUT, "the client reads too slowly")

    async def send_response(self, response: HttpResponse) -> None:
        """Send a response with a complete body, in pieces of 64 KiB, as the client may read slowly.

        For HEAD only the head is sent, with the length of the body. The caller limits the time.

        Raises:
            OSError: The connection failed.
        """
        assert isinstance(response.body, bytes | list)
        pieces = [response.body] if isinstance(response.body, bytes) else response.body
        chunks, size_bytes = [self._head(response, sum(len(piece) for piece in pieces))], 0
        for piece in () if self._method == "HEAD" else pieces:
            for start in range(0, len(piece), _SEND_BYTES):
                chunks.append(piece[start : start + _SEND_BYTES])
                size_bytes += len(chunks[-1])
                if size_bytes >= _SEND_BYTES:
                    await self._stream.send(chunks)
                    chunks, size_bytes = [], 0
        if chunks:
            await self._stream.send(chunks)

    def is_complete(self) -> bool:
        """Return True if the received bytes are exactly one complete request; its unread body events are discarded."""
        try:
            while isinstance(self._next_event(), h11.Data):
                pass
        except h11.RemoteProtocolError:
            return False  # a malformed request has no known end
        is_ended = self._protocol.their_state not in (h11.SEND_BODY, h11.ERROR)
        return is_ended and not self._protocol.trailing_data[0]

    async def discard(self) -> None:
        """Receive and discard the rest of a request; of a malformed or pipelined one until the client disconnects.

        Return earlier after `MAX_HTTP_DISCARDED_BYTES`, or after the time-out without a byte; the caller limits the
        whole time. Closing earlier would reset the connection, and the client might lose the response.

        Raises:
            OSError: The connection failed.
        """
        buffer, received_bytes = bytearray(_SEND_BYTES), 0
        while received_bytes < MAX_HTTP_DISCARDED_BYTES and not self.is_complete():
            count = await self._stream.receive_into(memoryview(buffer), self._timeout_s)
            if not count:
                return
            received_bytes += count
            if self._protocol.their_state is h11.SEND_BODY:
                self._protocol.receive_data(bytes(buffer[:count]))
