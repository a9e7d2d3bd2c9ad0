"""HTTP server of a node: accepts connections, and has a router find the handler of each request."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from http import HTTPStatus
from typing import NamedTuple, cast

import trio

from ottla.broker.config.limits import HTTP_TIMEOUT_S, MAX_HTTP_CONNECTIONS
from ottla.broker.network.http.http_exchange import HttpExchange
from ottla.broker.network.http.http_messages import (
    HttpRequest,
    HttpResponse,
    HttpRouter,
    check_request,
    error_response,
)
from ottla.env.env import AcceptedStream, Env, SecureStream, Stream, StreamListener


class HttpLimits(NamedTuple):
    """Limits of an HTTP server."""

    connections: int = MAX_HTTP_CONNECTIONS
    """Connections, but for those whose response is a stream: their handlers count them."""
    body_bytes: int = 0
    """Size of the body of a request; 0: requests have none."""
    timeout_s: float = HTTP_TIMEOUT_S
    """Time for a request with its response; for a stream, to take each of its pieces."""


METRICS_LIMITS = HttpLimits()


class HttpServer:
    """Connections of HTTP clients, and the router of their requests.

    Limits: connections, size of a request, and time for a request with its response. The connection that has sent no
    request for longest is closed where a new one arrives at the limit.
    """

    def __init__(
        self,
        env: Env,
        router: HttpRouter,
        allowed_hosts: Collection[str] = (),
        limits: HttpLimits = METRICS_LIMITS,
        *,
        is_secure: bool = False,
    ) -> None:
        """Create a server; ``is_secure``: its listener speaks TLS."""
        self._env = env
        self._router = router
        self._allowed_hosts = allowed_hosts
        self._limits = limits
        self._is_secure = is_secure
        self._idle: dict[Stream, None] = {}
        """Connections without a request, the oldest first."""
        self._active_count = 0
        """Connections with a request."""

    async def serve(self, listener: StreamListener) -> None:
        """Serve the connections of a listener until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                stream = await listener.accept()
                if self._admit(stream):
                    nursery.start_soon(self._serve_connection, stream)

    def _admit(self, stream: Stream) -> bool:
        """Register a connection, or close it where each of the others has a request."""
        if len(self._idle) + self._active_count >= self._limits.connections:
            if not self._idle:
                stream.close()
                return False
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.close()
        self._idle[stream] = None
        return True

    async def _serve_connection(self, stream: AcceptedStream) -> None:
        timeout_s, streamed, is_active = self._limits.timeout_s, None, False
        try:
            exchange = HttpExchange(self._env, stream, timeout_s)
            with contextlib.suppress(OSError, trio.ClosedResourceError):
                try:
                    with self._env.timeout(timeout_s):
                        if self._is_secure:
                            await cast("SecureStream", stream).handshake()
                        request = await exchange.read_request()
                        if request is not None and stream in self._idle:
                            del self._idle[stream]
                            is_active, self._active_count = True, self._active_count + 1
                            streamed = await self._answer(exchange, request)
                finally:
                    self._idle.pop(stream, None)
                    self._active_count -= is_active
                if streamed is not None:
                    await exchange.send_stream(streamed)
        finally:
            stream.close()

    async def _answer(self, exchange: HttpExchange, request: HttpRequest | HttpResponse) -> HttpResponse | None:
        """Answer a request; return a response that is still to be sent, as it is a stream."""
        if isinstance(request, HttpRequest):
            handler = check_request(request, self._allowed_hosts) or self._router(request)
        else:
            handler = request
        if not isinstance(handler, HttpResponse):
            assert isinstance(request, HttpRequest)
            if self._limits.body_bytes:
                body = await exchange.read_body(self._limits.body_bytes)
                if body is None:
                    handler = error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                else:
                    request = request._replace(body=body)
        if isinstance(handler, HttpResponse):
            await exchange.send_response(handler)
            await exchange.discard_body()
            return None
        assert isinstance(request, HttpRequest)
        response = await handler(request)
        if not isinstance(response.body, bytes | list):
            return response
        await exchange.send_response(response)
        return None
