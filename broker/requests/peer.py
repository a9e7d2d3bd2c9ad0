"""Who speaks on a connection, and the event of its leaving."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.quotas.request_timer import RequestTimer

logger = logging.getLogger("ottla.connection")
ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a connection that proved nothing (``KafkaPrincipal.java``)."""


class CachedQuota(Protocol):
    """What somebody may have under a quota: `ottla.broker.quotas.quota_table.QuotaBinding`."""

    client_id: str | None
    """It is for who calls itself so."""
    max_in_window: int
    """In bytes: more at once would be over it."""

    def try_record(self, value: float, about_ms: float) -> bool:
        """Count something that cannot be over; False: it was not counted."""


class _UnknownQuota:
    """Nobody has looked yet what it may have."""

    client_id: str | None = None
    max_in_window = 0

    def try_record(self, value: float, about_ms: float) -> bool:
        return False


UNKNOWN_QUOTA: CachedQuota = _UnknownQuota()


class Peer:
    """The other side of a connection: where it came in, who it is, and whether it is still there.

    Whoever parks something for a peer (a request, a share session) asks with `on_close` to be told when it leaves.
    """

    __slots__ = (
        "_callbacks",
        "callback_failure",
        "fetch_quota",
        "host",
        "is_disconnected",
        "is_forwarded",
        "listener",
        "local",
        "principal",
        "produce_quota",
        "readable_topics",
        "request_timer",
        "software_name",
        "software_version",
        "throttle_ms",
        "token_authenticated",
        "watch_disconnect",
        "writable_topics",
    )

    def __init__(self, host: str, local: tuple[str, int], listener: str = "PLAINTEXT") -> None:
        self.listener = listener
        self.principal = ANONYMOUS
        self.token_authenticated = False
        """Whether it logged in with a delegation token."""
        self.is_forwarded = False
        """Whether a broker passes its requests on: it came in there, in a way that is not known here."""
        self.readable_topics: Set[str] = frozenset()
        """Topics it may read, as far as the authorizer has said so under the rules as they are: asked each time."""
        self.writable_topics: Set[str] = frozenset()
        """Those it may write to."""
        self.produce_quota: CachedQuota = UNKNOWN_QUOTA
        """What it may bring under the quotas as they are, and as who it said last it was: asked first."""
        self.fetch_quota: CachedQuota = UNKNOWN_QUOTA
        """What it may take."""
        self.host = host
        """Its address, for logs and group descriptions."""
        self.local = local
        """Our own address as it dialled it."""
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.request_timer: RequestTimer | None = None
        """Runs while its request is worked on, where there is a quota of that."""
        self.throttle_ms = 0
        """For so long it is not read once it has its answer: it went over a quota."""
        self.is_disconnected = False
        """Whether it has left: nothing that is answered from now on reaches it."""
        self.watch_disconnect: Callable[[Callable[[], None]], None] | None = None
        """Has the stream report when the other side disconnects; None where that is done already, or cannot be."""
        self.callback_failure: AssertionError | None = None
        """The broken invariant that a callback met when the peer left: the task of its connection raises it."""
        self._callbacks: dict[object, Callable[[], None]] = {}

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
        """It has left; only the first call does anything."""
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
    """Takes back what was called at once."""
