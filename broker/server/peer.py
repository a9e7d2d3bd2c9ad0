"""Who speaks on a connection, and the event of its leaving."""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.server.stopwatch import Stopwatch

logger = logging.getLogger("ottla.connection")
ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a connection that proved nothing (``KafkaPrincipal.java``)."""


class Allowance(Protocol):
    """What somebody may have under a quota: `ottla.broker.auth.counters.Bound`."""

    client_id: str | None
    """It is for who calls itself so."""
    most: int
    """In bytes: more at once would be over it."""

    def covers(self, value: float, about_ms: float) -> bool:
        """Count something that cannot be over; False: it was not counted."""


class _Unknown:
    """Nobody has looked yet what it may have."""

    client_id: str | None = None
    most = 0

    def covers(self, value: float, about_ms: float) -> bool:
        return False


UNKNOWN: Allowance = _Unknown()


class Peer:
    """The other side of a connection: where it came in, who it is, and whether it is still there.

    Whoever parks something for a peer (a request, a share session) asks with `on_close` to be told when it leaves.
    """

    __slots__ = (
        "_callbacks",
        "brings",
        "broken",
        "closed",
        "host",
        "is_forwarded",
        "listener",
        "local",
        "principal",
        "reads",
        "software_name",
        "software_version",
        "stopwatch",
        "takes",
        "throttle_ms",
        "token_authenticated",
        "writes",
    )

    def __init__(self, host: str, local: tuple[str, int], listener: str = "PLAINTEXT") -> None:
        self.listener = listener
        self.principal = ANONYMOUS
        self.token_authenticated = False
        """Whether it logged in with a delegation token."""
        self.is_forwarded = False
        """Whether a broker passes its requests on: it came in there, in a way that is not known here."""
        self.reads: Set[str] = frozenset()
        """Topics it may read, as far as the authorizer has said so under the rules as they are: asked each time."""
        self.writes: Set[str] = frozenset()
        """Those it may write to."""
        self.brings: Allowance = UNKNOWN
        """What it may bring under the quotas as they are, and as who it said last it was: asked first."""
        self.takes: Allowance = UNKNOWN
        """What it may take."""
        self.host = host
        """Its address, for logs and group descriptions."""
        self.local = local
        """Our own address as it dialled it."""
        self.software_name = "unknown"
        self.software_version = "unknown"
        self.stopwatch: Stopwatch | None = None
        """Runs while its request is worked on, where there is a quota of that."""
        self.throttle_ms = 0
        """For so long it is not read once it has its answer: it went over a quota."""
        self.closed = False
        """Whether it has left: nothing that is answered from now on reaches it."""
        self.broken: AssertionError | None = None
        """The broken invariant that a callback met when the peer left: the task of its connection raises it."""
        self._callbacks: dict[object, Callable[[], None]] = {}

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called once when the peer leaves, or now if it has; gives the way to take it back."""
        if self.closed:
            callback()
            return _nothing
        token = object()
        self._callbacks[token] = callback

        def cancel() -> None:
            self._callbacks.pop(token, None)

        return cancel

    def leave(self) -> None:
        """It has left; only the first call does anything."""
        if not self.closed:
            self.closed = True
            while self._callbacks:
                self._call(self._callbacks.pop(next(iter(self._callbacks))))

    def _call(self, callback: Callable[[], None]) -> None:
        """Call back; where that fails the others are called all the same."""
        try:
            callback()
        except AssertionError as error:
            self.broken = self.broken or error
        except Exception:
            logger.exception("Disconnect callback failed: connection from %s", self.host)

    def check(self) -> None:
        """Raise the broken invariant that a callback met, if any.

        Raises:
            AssertionError: it ends the node, as it does everywhere.
        """
        if self.broken is not None:
            raise self.broken


def _nothing() -> None:
    """Takes back what was called at once."""
