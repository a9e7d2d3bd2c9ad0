"""HTTP server of a node: accepts connections and calls the handler that a router returns for each request."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from http import HTTPStatus
from typing import NamedTuple, cast

import trio

from ottla.broker.config.limits import HTTP_LINGER_S, HTTP_TIMEOUT_S, MAX_HTTP_CONNECTIONS
from ottla.broker.dispatch.rate_limited_log import RateLimitedLog
from ottla.broker.network.http.http_exchange import HttpExchange
from ottla.broker.network.http.http_messages import (
    HttpRequest,
    HttpResponse,
    HttpRouter,
    check_request,
    error_response,
)
from ottla.env.env import AcceptedStream, Env, SecureStream, StreamListener
from ottla.jobs.supervision import is_broken_invariant

logger = logging.getLogger("ottla.http")


class HttpLimits(NamedTuple):
    """Limits of an HTTP server: connections, body size and time."""

    connections: int = MAX_HTTP_CONNECTIONS
    """Maximum number of connections, without those whose response is a stream: their handlers limit them."""
    body_bytes: int = 0
    """Maximum size of a request's body in bytes; 0: bodies are discarded, and the requests handled without them."""
    timeout_s: float = HTTP_TIMEOUT_S
    """Maximum time for a request with its response in seconds; for a stream, for each of its pieces."""


METRICS_LIMITS = HttpLimits()


class HttpServer:
    """HTTP server: its connections and the router of their requests.

    At the limit of connections, a new connection closes the one that has been without a request for longest, or else
    the one whose request arrived first, so that slow readers cannot keep out health checks.
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
        """Create a server; ``is_secure``: its listener uses TLS.

        ``allowed_hosts``: host names that requests may name, besides those that are always allowed (`is_allowed_host`).
        """
        self._env = env
        self._router = router
        self._allowed_hosts = allowed_hosts
        self._limits = limits
        self._is_secure = is_secure
        self._failure_log = RateLimitedLog(env, "HTTP")
        self._idle: dict[AcceptedStream, None] = {}
        """Connections without a request so far and those that have their response, oldest first."""
        self._active: dict[AcceptedStream, trio.CancelScope] = {}
        """Connections whose request is being handled, oldest first, with the scope that cancels it."""

    async def serve(self, listener: StreamListener) -> None:
        """Accept and serve connections of a listener until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                stream = await listener.accept()
                self._admit(stream)
                nursery.start_soon(self._serve_connection, stream)

    def _admit(self, stream: AcceptedStream) -> None:
        """Register a connection; at the limit close the oldest one without a request, else the oldest one."""
        if len(self._idle) + len(self._active) >= self._limits.connections:
            if self._idle:
                oldest = next(iter(self._idle))
                del self._idle[oldest]
            else:
                oldest = next(iter(self._active))
                self._active.pop(oldest).cancel()
            oldest.close()
        self._idle[stream] = None

    async def _serve_connection(self, stream: AcceptedStream) -> None:
        try:
            with contextlib.suppress(OSError, trio.ClosedResourceError):
                await self._serve_request(stream)
        except Exception as error:
            if is_broken_invariant(error):
                raise
            self._log_failure("response")
        finally:
            self._idle.pop(stream, None)
            stream.close()

    async def _serve_request(self, stream: AcceptedStream) -> None:
        exchange = HttpExchange(self._env, stream, self._limits.timeout_s)
        streamed, is_answered = None, False
        with self._env.timeout(self._limits.timeout_s):
            subject = await cast("SecureStream", stream).handshake() if self._is_secure else None
            request = await exchange.read_request()
            if request is None or stream not in self._idle:
                return
            if subject is not None and isinstance(request, HttpRequest):
                request = request._replace(certificate_subject=subject)
            del self._idle[stream]
            with trio.CancelScope() as scope:
                self._active[stream] = scope
                try:
                    streamed = await self._answer(exchange, request)
                    is_answered = True
                finally:
                    self._active.pop(stream, None)
        if streamed is not None:
            await exchange.send_stream(streamed)
        elif is_answered and not exchange.is_complete():
            self._idle[stream] = None  # may be closed for a new connection
            with self._env.timeout(HTTP_LINGER_S):
                await exchange.discard()

    async def _answer(self, exchange: HttpExchange, request: HttpRequest | HttpResponse) -> HttpResponse | None:
        """Send the response to a request and return None; if its body is a stream, only return the response.

        ``request`` is the error response itself if the head could not be read.
        """
        response = request if isinstance(request, HttpResponse) else await self._handle(exchange, request)
        if not isinstance(response.body, bytes | list):
            return response
        await exchange.send_response(response)
        return None

    async def _handle(self, exchange: HttpExchange, request: HttpRequest) -> HttpResponse:
        """Return the response of the request's handler, or the error response of a check, of the router or of the body.

        An exception of the handler is logged and becomes a response with status 500.
        """
        handler = check_request(request, self._allowed_hosts) or self._router(request)
        if isinstance(handler, HttpResponse):
            return handler
        if self._limits.body_bytes:
            body = await exchange.read_body(self._limits.body_bytes)
            if body is None:
                return error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            request = request._replace(body=body)
        try:
            return await handler(request)
        except Exception as error:
            if is_broken_invariant(error):
                raise
            self._log_failure(request.path)
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _log_failure(self, name: str) -> None:
        self._failure_log.log(logger, logging.ERROR, "HTTP %s failed: unexpected error", name, traceback=True)
