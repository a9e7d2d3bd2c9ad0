"""Client of a connection: identity, cached quotas, authorization cache, disconnection, and waits that end with it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import trio

if TYPE_CHECKING:
    from ottla.broker.quotas.request_timer import RequestTimer
    from ottla.wire.api_keys import ApiKey
    from ottla.wire.codec.compiler import Chunk

T = TypeVar("T")
logger = logging.getLogger("ottla.connection")
ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of an unauthenticated connection (``KafkaPrincipal.java``)."""


class CachedQuota(Protocol):
    """Interface of a client's cached byte-rate quota; implemented by `ottla.broker.quotas.quota_table.QuotaBinding`."""

    client_id: str | None
    """Client id for which the quota was looked up; None before the first look-up."""
    max_in_window: int
    """Maximum bytes in a quota window: a single request with more would exceed the quota."""

    def try_record(self, value: float, about_ms: float) -> bool:
        """Record a value in bytes at a wall-clock time in ms and return True if it is certainly within the quota.

        Return False, with nothing recorded, if the rate must be computed by the quota tables first.
        """


class _UnknownQuota:
    """Placeholder of a connection's cached quota before the first look-up; records nothing."""

    client_id: str | None = None
    max_in_window = 0

    def try_record(self, value: float, about_ms: float) -> bool:
        return False


class LastError(NamedTuple):
    """Last error code in a response of a connection: API, code and monotonic time in ms."""

    key: ApiKey
    code: int
    time_ms: float


class PreparedRequest(Protocol):
    """Interface of a prepared request: it serves repetitions of itself (`ottla.broker.handlers.prepared_request`)."""

    key: ApiKey
    """API of the request."""

    def respond(self, view: memoryview, start: int, end: int) -> list[Any] | None:
        """Serve the request frame in ``view[start:end]`` of the receive buffer.

        Returns:
            The encoded response in chunks, or None if the request must be decoded and handled as any other.
        """


UNKNOWN_QUOTA: CachedQuota = _UnknownQuota()


class QuotaBindings:
    """Cached byte-rate quotas of a connection's client, checked before the quota tables.

    Lifetime: a cached quota belongs to the principal and client id of the request that looked it up last. It is
    replaced when a request has another client id, and invalid once the quotas change.
    """

    __slots__ = ("fetch", "produce")

    def __init__(self) -> None:
        self.produce: CachedQuota = UNKNOWN_QUOTA
        self.fetch: CachedQuota = UNKNOWN_QUOTA


class AuthorizationCache:
    """Topics that the client is known to be authorized to read and to write, checked before the authorizer.

    Lifetime: the sets belong to the authorizer, which adds names to them and clears them when the ACLs change. They are
    for one principal and host: those of the connection, which authentication sets once. Empty while each decision is
    audited.
    """

    __slots__ = ("readable_topics", "writable_topics")

    def __init__(self) -> None:
        self.readable_topics: Set[str] = frozenset()
        self.writable_topics: Set[str] = frozenset()


class Peer:
    """Client of a connection: its listener, address, principal, software, caches and state of the request in progress.

    Lifetime: the connection, or the request if a broker forwards it (`is_forwarded`). State that depends on the
    connection (a delayed request, a share session) is released by a callback (`on_close`).
    """

    __slots__ = (
        "_callbacks",
        "authorization_cache",
        "callback_failure",
        "collects_errors",
        "host",
        "is_disconnected",
        "is_forwarded",
        "last_error",
        "listener",
        "local",
        "observed_apis",
        "prepared_request",
        "prepares_requests",
        "principal",
        "quota_bindings",
        "request_errors",
        "request_repetitions",
        "request_started_ms",
        "request_timer",
        "request_waited_ms",
        "software_name",
        "software_version",
        "throttle_ms",
        "token_authenticated",
        "watch_disconnect",
    )

    def __init__(self, host: str, local: tuple[str, int], listener: str = "PLAINTEXT") -> None:
        self.listener = listener
        self.principal = ANONYMOUS
        self.token_authenticated = False
        """True if the client authenticated with a delegation token."""
        self.is_forwarded = False
        """True if a broker forwards the client's requests: the security protocol of its own connection is unknown."""
        self.authorization_cache = AuthorizationCache()
        self.quota_bindings = QuotaBindings()
        self.prepared_request: PreparedRequest | None = None
        """Prepared Fetch or Produce request, tried before a request is decoded; None if requests do not repeat."""
        self.prepares_requests = True
        """False if each request must be handled: the SASL session may expire, or faults are injected."""
        self.observed_apis: Set[ApiKey] = frozenset()
        """APIs of which an observer needs each request as a message, so that requests are not prepared."""
        self.request_repetitions: tuple[Hashable, int] = (None, 0)
        """Common value of the last similar Fetch or Produce requests, and how many of them came in a row."""
        self.host = host
        """IP address of the client, for logs, ACLs and group descriptions."""
        self.local = local
        """Local address and port of the connection."""
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.request_timer: RequestTimer | None = None
        """Timer of the request in progress for the request quota; None without request quotas."""
        self.request_started_ms = 0.0
        """Time of receipt of the request in progress, or the end of the previous one's wait (`RequestMetrics`)."""
        self.request_waited_ms = 0.0
        """Time in ms that the request in progress has waited for followers, records or another node."""
        self.request_errors: list[int] | None = None
        """Error codes of response rows that the handler has reported; None for none."""
        self.collects_errors = False
        """True if an observer reads and resets `request_errors` after each request."""
        self.last_error: LastError | None = None
        """Last error in a response; None if there was none, or if no request metrics are kept."""
        self.throttle_ms = 0
        """Time in ms for which the connection is muted after the response, as the request exceeded a quota."""
        self.is_disconnected = False
        """True if the client has disconnected: no response will reach it."""
        self.watch_disconnect: Callable[[Callable[[], None]], None] | None = None
        """Function that makes the stream report a disconnection; None if it does so already, or cannot."""
        self.callback_failure: AssertionError | None = None
        """Assertion error of a disconnect callback, to be raised by the connection's task."""
        self._callbacks: dict[object, Callable[[], None]] = {}

    def add_request_error(self, code: int) -> None:
        """Report the error code of a response row of the request in progress; no effect unless `collects_errors`."""
        if not self.collects_errors:
            return
        if self.request_errors is None:
            self.request_errors = []
        self.request_errors.append(code)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for the client's disconnection; return a function that cancels it.

        The callback is called once; if the client has disconnected already, at once; never for a forwarded request.
        """
        if self.is_disconnected:
            callback()
            return _no_cancellation
        token = object()
        self._callbacks[token] = callback

        def cancel() -> None:
            self._callbacks.pop(token, None)

        return cancel

    def mark_disconnected(self) -> None:
        """Mark the client as disconnected and call the callbacks of `on_close`; further calls have no effect."""
        if not self.is_disconnected:
            self.is_disconnected = True
            self.prepared_request = None  # it refers to its peer
            while self._callbacks:
                self._run_callback(self._callbacks.pop(next(iter(self._callbacks))))

    def _run_callback(self, callback: Callable[[], None]) -> None:
        """Run a disconnect callback; if it raises, the remaining callbacks are called all the same.

        An AssertionError is kept for `raise_callback_failure`; any other exception is logged.
        """
        try:
            callback()
        except AssertionError as error:
            self.callback_failure = self.callback_failure or error
        except Exception:
            logger.exception("Disconnect callback failed: connection from %s", self.host)

    def raise_callback_failure(self) -> None:
        """Raise the assertion error of a disconnect callback, if any.

        Raises:
            AssertionError: A broken invariant, which stops the node.
        """
        if self.callback_failure is not None:
            raise self.callback_failure


def _no_cancellation() -> None:
    """Do nothing: the callback was called at once and cannot be cancelled."""


class CloseConnection(Exception):
    """Raised to close the connection, such as by a handler: the only sign of an error of Produce with acks=0.

    ``last_chunks`` are sent before.
    """

    def __init__(self, last_chunks: Sequence[Chunk] = ()) -> None:
        super().__init__()
        self.last_chunks = last_chunks


class PeerDisconnectedError(Exception):
    """Raised when the client disconnected while its request waited: no response is needed."""


async def wait_while_connected(peer: Peer, awaitable: Awaitable[T]) -> T:
    """Wait for ``awaitable`` and return its result; cancel it if the client disconnects first.

    The connection never cancels a handler: a handler is only interrupted in waits wrapped in this function.

    Raises:
        PeerDisconnectedError: The client has disconnected; the wait was cancelled.
    """
    watch, peer.watch_disconnect = peer.watch_disconnect, None
    if watch is not None:
        watch(peer.mark_disconnected)
    with trio.CancelScope() as scope:
        unsubscribe = peer.on_close(scope.cancel)
        try:
            return await awaitable
        finally:
            unsubscribe()
    raise PeerDisconnectedError
