"""Clients that push metrics: what each shall push, when it may ask and push again, and how its requests are refused.

Behaviour: at most 16,384 are remembered, whoever was not heard from for longest is forgotten first; each is forgotten
after three of its intervals, a minute at least, and when its connection ends. Who asks or pushes before its interval is
over is THROTTLING_QUOTA_EXCEEDED; the first push after an answer may come at any time, and so may the last one of a
client that ends, after which there is none. Another subscription id is UNKNOWN_SUBSCRIPTION_ID, an unknown codec
UNSUPPORTED_COMPRESSION_TYPE, more than ``telemetry.max.bytes`` TELEMETRY_TOO_LARGE.

Source: ``ClientMetricsManager.java``, ``ClientMetricsInstance.java`` (apache/kafka 4.3.1).

From KIP-714.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.broker.telemetry.subscriptions import Subscription, Wanted, Who, wanted_of
from ottla.wire.compression import CompressionType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.push_telemetry import PushTelemetryRequest

MOST_INSTANCES = 16_384
LEAST_KEPT_MS = 60_000.0
_SWEEP_MS = 60_000.0
RESERVED = (bytes(16), bytes(15) + b"\x01")
"""Ids no client has (``Uuid.RESERVED``)."""
_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER_MS = float("-inf")


class Connected(Protocol):
    """Whose connection it is: `ottla.broker.server.peer.Peer`."""

    def on_close(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called when it ends."""


class Instance:
    """One client as it is known here."""

    def __init__(self, ident: bytes, who: Who, wanted: Wanted, version: int) -> None:
        self.ident = ident
        self.who = who
        self.wanted = wanted
        self.subscription_id = wanted.id_for(ident)
        self.version = version
        """Of the subscriptions that ``wanted`` was made of."""
        self.is_ending = False
        self.last_error = ErrorCode.NONE
        self._asked_ms = self._pushed_ms = _NEVER_MS
        self.until_ms = 0.0

    def ask(self, now_ms: float) -> None:
        """It asks what to push. Raises ProtocolError."""
        if now_ms - max(self._asked_ms, self._pushed_ms) >= self.wanted.interval_ms:
            self._asked_ms = now_ms
        elif self.last_error not in _ASK_AGAIN:
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.last_error = ErrorCode.NONE

    def push(self, request: PushTelemetryRequest, now_ms: float, most_bytes: int) -> None:
        """It pushes. Raises ProtocolError."""
        try:
            self._check(request, now_ms, most_bytes)
        except ProtocolError as error:
            self.last_error = error.code
            raise
        finally:
            self.is_ending = request.terminating
        self.last_error = ErrorCode.NONE

    def _check(self, request: PushTelemetryRequest, now_ms: float, most_bytes: int) -> None:
        if self.is_ending:
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        if self._asked_ms > self._pushed_ms or now_ms - self._pushed_ms >= self.wanted.interval_ms:
            self._pushed_ms = now_ms
        elif not request.terminating:
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != self.subscription_id:
            raise ProtocolError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in tuple(CompressionType):
            raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > most_bytes:
            raise ProtocolError(ErrorCode.TELEMETRY_TOO_LARGE)


class Instances:
    """All of them, in the order they were heard from last."""

    def __init__(self) -> None:
        self._known: dict[bytes, Instance] = {}
        self._peers: dict[Connected, bytes] = {}
        """Who came last over each connection."""
        self._subscriptions: list[Subscription] = []
        self._wanted: dict[tuple[int, ...], Wanted] = {}
        """By the numbers of the subscriptions that match: most clients want the same."""
        self._version = 0
        self._swept_ms = 0.0

    def __len__(self) -> int:
        return len(self._known)

    def subscribe(self, subscriptions: list[Subscription]) -> None:
        """There are other subscriptions: each client's are looked at again when it comes."""
        self._subscriptions = subscriptions
        self._wanted.clear()
        self._version += 1

    def of(self, ident: bytes, who: Who, peer: Connected, now_ms: float) -> Instance:
        """The client of this id, as the subscriptions are now; who is new comes over this connection."""
        found = self._known.pop(ident, None)
        self._sweep(now_ms)
        if found is None or found.version < self._version:
            who = who if found is None else found.who
            if found is None and len(self._known) >= MOST_INSTANCES:
                del self._known[next(iter(self._known))]
            found = Instance(ident, who, self._wanted_of(who), self._version)
            is_new = peer not in self._peers
            self._peers[peer] = ident
            if is_new:
                peer.on_close(lambda: self._left(peer))
        self._known[ident] = found
        found.until_ms = now_ms + max(LEAST_KEPT_MS, 3 * found.wanted.interval_ms)
        return found

    def _wanted_of(self, who: Who) -> Wanted:
        meant = tuple(number for number, each in enumerate(self._subscriptions) if each.matches(who))
        if meant not in self._wanted:
            self._wanted[meant] = wanted_of(self._subscriptions[number] for number in meant)
        return self._wanted[meant]

    def _left(self, peer: Connected) -> None:
        self._known.pop(self._peers.pop(peer), None)

    def _sweep(self, now_ms: float) -> None:
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            for ident in [ident for ident, each in self._known.items() if each.until_ms <= now_ms]:
                del self._known[ident]
