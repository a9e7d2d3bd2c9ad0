"""HTTP server of a node: accepts connections, and answers GET and HEAD requests of the paths that have a handler."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus

import trio

from ottla.broker.config.limits import HTTP_TIMEOUT_S, MAX_HTTP_CONNECTIONS
from ottla.broker.network.http.http_exchange import HttpExchange
from ottla.broker.network.http.http_messages import (
    HttpHandler,
    HttpRequest,
    HttpResponse,
    check_request,
    error_response,
)
from ottla.env.env import Env, Stream, StreamListener

logger = logging.getLogger("ottla.http")


class HttpServer:
    """Connections of HTTP clients, and the handlers of the paths.

    Limits: connections, size of a request, and time for a request with its response. The connection that has sent no
    request for longest is closed where a new one arrives at the limit.
    """

    def __init__(self, env: Env, handlers: Mapping[str, HttpHandler], allowed_hosts: Collection[str] = ()) -> None:
        self._env = env
        self._handlers = handlers
        self._allowed_hosts = allowed_hosts
        self._idle: dict[Stream, None] = {}
        """Connections without a request, the oldest first."""
        self._active_count = 0
        """Connections with a request."""

    async def serve(self, listener: StreamListener) -> None:
        """Serve the connections of a listener until cancelled."""
        logger.info("HTTP listener at port %d: %s", listener.port, ", ".join(self._handlers))
        async with trio.open_nursery() as nursery:
            while True:
                stream = await listener.accept()
                if self._admit(stream):
                    nursery.start_soon(self._serve_connection, stream)

    def _admit(self, stream: Stream) -> bool:
        """Register a connection, or close it where each of the others has a request."""
        if len(self._idle) + self._active_count >= MAX_HTTP_CONNECTIONS:
            if not self._idle:
                stream.close()
                return False
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.close()
        self._idle[stream] = None
        return True

    async def _serve_connection(self, stream: Stream) -> None:
        is_active = False
        try:
            with contextlib.suppress(OSError, trio.ClosedResourceError), self._env.timeout(HTTP_TIMEOUT_S):
                exchange = HttpExchange(stream, HTTP_TIMEOUT_S)
                request = await exchange.read_request()
                if request is not None and stream in self._idle:
                    del self._idle[stream]
                    is_active, self._active_count = True, self._active_count + 1
                    await self._answer(exchange, request)
        finally:
            self._idle.pop(stream, None)
            self._active_count -= is_active
            stream.close()

    async def _answer(self, exchange: HttpExchange, request: HttpRequest | HttpResponse) -> None:
        refusal = self._refusal(request) if isinstance(request, HttpRequest) else request
        if refusal is not None:
            await exchange.send_response(refusal)
            await exchange.discard_body()
            return
        assert isinstance(request, HttpRequest)
        await exchange.send_response(await self._handlers[request.path](request))

    def _refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Return the response that refuses a request; None if its handler answers."""
        refusal = check_request(request, self._allowed_hosts)
        if refusal is not None:
            return refusal
        if request.path not in self._handlers:
            return error_response(HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return error_response(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET, HEAD"),))
        return None
