"""HTTP request and its response on a connection, with h11.

Each connection serves one request: scrapers and health checks come seconds apart, and an abandoned connection would
occupy a slot until a timeout.
"""

from __future__ import annotations

from http import HTTPStatus

import h11

from ottla.broker.config.limits import MAX_HTTP_DISCARDED_BYTES, MAX_HTTP_HEAD_BYTES
from ottla.broker.network.http.http_messages import SECURITY_HEADERS, HttpRequest, HttpResponse, error_response
from ottla.env.env import Stream

_RECEIVE_BYTES = 4096
_SEND_BYTES = 64 * 1024


class HttpExchange:
    """Protocol state of one connection."""

    def __init__(self, stream: Stream, timeout_s: float) -> None:
        self._stream = stream
        self._timeout_s = timeout_s
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HTTP_HEAD_BYTES)
        self._method = ""

    async def _receive(self) -> bytes:
        """Receive bytes; none at the end of the stream."""
        buffer = bytearray(_RECEIVE_BYTES)
        count = await self._stream.receive_into(memoryview(buffer), self._timeout_s)
        return bytes(buffer[:count])

    async def read_request(self) -> HttpRequest | HttpResponse | None:
        """Read the head of a request.

        Returns:
            The request; the response to a head that is malformed or too large; None where the client disconnects first.

        Raises:
            OSError: the connection broke.
        """
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                received = await self._receive()
                if not received:
                    return None
                self._protocol.receive_data(received)
        except h11.RemoteProtocolError as error:
            return error_response(HTTPStatus(error.error_status_hint), str(error))
        if not isinstance(event, h11.Request):
            return None
        if event.http_version not in (b"1.0", b"1.1"):
            return error_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        self._method = event.method.decode("ascii")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
        return HttpRequest(self._method, event.target.decode("ascii"), headers)

    async def send_response(self, response: HttpResponse) -> None:
        """Send a response; the body in pieces, as the other side may read slowly.

        Raises:
            OSError: the connection broke.
        """
        pieces = [response.body] if isinstance(response.body, bytes) else response.body
        fields = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(sum(len(piece) for piece in pieces))),
            *SECURITY_HEADERS,
            *response.headers,
            ("Connection", "close"),
        ]
        status, reason = int(response.status), response.status.phrase.encode()
        head = self._protocol.send(h11.Response(status_code=status, headers=fields, reason=reason))
        chunks, size_bytes = [head], 0
        for piece in () if self._method == "HEAD" else pieces:
            for start in range(0, len(piece), _SEND_BYTES):
                chunks.append(piece[start : start + _SEND_BYTES])
                size_bytes += len(chunks[-1])
                if size_bytes >= _SEND_BYTES:
                    await self._stream.send(chunks)
                    chunks, size_bytes = [], 0
        if chunks:
            await self._stream.send(chunks)

    async def discard_body(self) -> None:
        """Receive the rest of a refused request: closing before it resets the connection, and loses the response.

        Raises:
            OSError: the connection broke.
        """
        received_bytes = 0
        while received_bytes < MAX_HTTP_DISCARDED_BYTES:
            if self._is_request_complete():
                return
            received = await self._receive()
            if not received:
                return
            received_bytes += len(received)
            if self._protocol.their_state is h11.SEND_BODY:
                self._protocol.receive_data(received)

    def _is_request_complete(self) -> bool:
        """Return whether the body has been received; False for a malformed request, which has no known end."""
        try:
            while isinstance(self._protocol.next_event(), h11.Data):
                pass
        except h11.RemoteProtocolError:
            return False
        return self._protocol.their_state not in (h11.SEND_BODY, h11.ERROR)
