"""The client of a connection: its identity, its quota bindings, its authorization cache, and its disconnection."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Set
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.broker.quotas.request_timer import RequestTimer

logger = logging.getLogger("ottla.connection")
ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of an unauthenticated connection (``KafkaPrincipal.java``)."""


class CachedQuota(Protocol):
    """Quota of a client: `ottla.broker.quotas.quota_table.QuotaBinding`."""

    client_id: str | None
    """Client id of the binding."""
    max_in_window: int
    """In bytes: more at once would be over it."""

    def try_record(self, value: float, about_ms: float) -> bool:
        """Record a value within the limit; return False if it was not recorded."""


class _UnknownQuota:
    """Binding that is not looked up yet."""

    client_id: str | None = None
    max_in_window = 0

    def try_record(self, value: float, about_ms: float) -> bool:
        return False


class PreparedRequest(Protocol):
    """A request that is expected to repeat (`ottla.broker.handlers.prepared_request`)."""

    def respond(self, view: memoryview, begin: int, end: int) -> list[Any] | None:
        """Serve the request that lies between two positions of a view of the receive buffer.

        Returns:
            The chunks of the response, or None where the request must be handled as any other.
        """


UNKNOWN_QUOTA: CachedQuota = _UnknownQuota()


class QuotaBindings:
    """Bindings of a client to its byte-rate quotas, checked before the quota tables.

    Life time: a binding is of the principal and of the client id of the request that looked it up last. It is replaced
    when a request has another client id, and invalid once the quotas change.
    """

    __slots__ = ("fetch", "produce")

    def __init__(self) -> None:
        self.produce: CachedQuota = UNKNOWN_QUOTA
        self.fetch: CachedQuota = UNKNOWN_QUOTA


class AuthorizationCache:
    """Topics that a client is known to be allowed to read and to write, looked at before the authorizer.

    Life time: the sets are the authorizer's, which adds names to them and empties them when the ACLs change. They are
    of one principal and host: the connection's, which authentication sets once. Empty while each decision is audited.
    """

    __slots__ = ("readable_topics", "writable_topics")

    def __init__(self) -> None:
        self.readable_topics: Set[str] = frozenset()
        self.writable_topics: Set[str] = frozenset()


class Peer:
    """Client of a connection: the listener and address it came from, its principal, and whether it is connected.

    Life time: the connection, or the request where a broker forwards it (`is_forwarded`). What is kept for a client (a
    delayed request, a share session) ends by a callback (`on_close`).
    """

    __slots__ = (
        "_callbacks",
        "authorization_cache",
        "callback_failure",
        "host",
        "is_disconnected",
        "is_forwarded",
        "listener",
        "local",
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
        """True if it logged in with a delegation token."""
        self.is_forwarded = False
        """True if a broker passes its requests on: it came in there, in a way that is not known here."""
        self.authorization_cache = AuthorizationCache()
        self.quota_bindings = QuotaBindings()
        self.prepared_request: PreparedRequest | None = None
        """The Fetch or Produce that it repeats, where it does; looked at before a request is decoded."""
        self.prepares_requests = True
        """False where each request must be handled: it is counted, or the session may expire before it."""
        self.request_repetitions: tuple[Hashable, int] = (None, 0)
        """What its last Fetch or Produce that was handled has in common with the next, and how many came in a row."""
        self.host = host
        """Its address, for logs and group descriptions."""
        self.local = local
        """Our own address as it dialled it."""
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.request_timer: RequestTimer | None = None
        """Measures the request under way; None without request quotas."""
        self.request_started_ms = 0.0
        """When the request under way was received, or the one before it had waited (`RequestMetrics`)."""
        self.request_waited_ms = 0.0
        """How long it has waited for followers, records or another node."""
        self.request_errors: list[int] | None = None
        """Error codes of its rows, where its handler reports them; None: there is none."""
        self.throttle_ms = 0
        """How long its connection is not read after the response to the request under way, which exceeded a quota."""
        self.is_disconnected = False
        """True if it has left: nothing that is answered from now on reaches it."""
        self.watch_disconnect: Callable[[Callable[[], None]], None] | None = None
        """Has the stream report when the other side disconnects; None where that is done already, or cannot be."""
        self.callback_failure: AssertionError | None = None
        """The broken invariant that a callback met when the peer left: the task of its connection raises it."""
        self._callbacks: dict[object, Callable[[], None]] = {}

    def add_request_error(self, code: int) -> None:
        """Report an error code of a row of the response to the request under way."""
        if self.request_errors is None:
            self.request_errors = []
        self.request_errors.append(code)

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called once when the peer leaves, or now if it has; gives the way to take it back."""
        if self.is_disconnected:
            callback()
            return _no_cancellation
        token = object()
        self._callbacks[token] = callback

        def cancel() -> None:
            self._callbacks.pop(token, None)

        return cancel

    def mark_disconnected(self) -> None:
        """Mark as disconnected; later calls have no effect."""
        if not self.is_disconnected:
            self.is_disconnected = True
            while self._callbacks:
                self._run_callback(self._callbacks.pop(next(iter(self._callbacks))))

    def _run_callback(self, callback: Callable[[], None]) -> None:
        """Call back; where that fails the others are called all the same."""
        try:
            callback()
        except AssertionError as error:
            self.callback_failure = self.callback_failure or error
        except Exception:
            logger.exception("Disconnect callback failed: connection from %s", self.host)

    def raise_callback_failure(self) -> None:
        """Raise the broken invariant that a callback met, if any.

        Raises:
            AssertionError: it ends the node, as it does everywhere.
        """
        if self.callback_failure is not None:
            raise self.callback_failure


def _no_cancellation() -> None:
    """Do nothing, since the callback was called at once."""
