"""Clients that push metrics (KIP-714): their subscriptions, push intervals, and the errors of their requests.

Behaviour: at most 16,384 client instances are cached; the least recently active is evicted first. An instance expires
after three of its push intervals, at least a minute, and when its connection is closed. A request before the interval
has passed is THROTTLING_QUOTA_EXCEEDED; exempt are the first push after GetTelemetrySubscriptions and the terminating
push, after which no further push is allowed. Another subscription id is UNKNOWN_SUBSCRIPTION_ID, an unknown codec
UNSUPPORTED_COMPRESSION_TYPE, more than ``telemetry.max.bytes`` TELEMETRY_TOO_LARGE.

Source: ``ClientMetricsManager.java``, ``ClientMetricsInstance.java`` (apache/kafka 4.3.1).
From KIP-714.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config.limits import MAX_CLIENT_METRICS_INSTANCES
from ottla.broker.observability.client_metrics_subscriptions import (
    ClientAttributes,
    ClientMetricsSubscription,
    MergedSubscription,
    merge_subscriptions,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.record_batch.compression import CompressionType

if TYPE_CHECKING:
    from ottla.broker.requests.peer import Peer

MIN_EXPIRY_MS = 60_000.0
_SWEEP_MS = 60_000.0
RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")
"""Client instance ids that no client has (``Uuid.RESERVED``)."""
_EARLY_GET_ERRORS = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_NEVER_MS = float("-inf")


class ClientMetricsInstance:
    """Client that pushes metrics: its attributes, subscription, and monotonic times (ms) of its last requests."""

    def __init__(
        self, ident: bytes, attributes: ClientAttributes, subscription: MergedSubscription, version: int
    ) -> None:
        self.client_instance_id = ident
        self.attributes = attributes
        self.subscription = subscription
        self.subscription_id = subscription.subscription_id(ident)
        self.version = version
        """Version of the cluster's subscriptions from which ``subscription`` was merged."""
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self._last_get_ms = self._last_push_ms = _NEVER_MS
        self.expires_ms = 0.0

    def check_get_request(self, now_ms: float) -> None:
        """Check that a GetTelemetrySubscriptions request at ``now_ms`` (monotonic) is not too early, and record it.

        It is too early within one push interval of the last such request or push, unless the last push was refused with
        UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE. A request that passes resets `last_error` to NONE; the
        time of an early one is not recorded.

        Raises:
            ProtocolError: THROTTLING_QUOTA_EXCEEDED: the request is too early.
        """
        if now_ms - max(self._last_get_ms, self._last_push_ms) >= self.subscription.interval_ms:
            self._last_get_ms = now_ms
        elif self.last_error not in _EARLY_GET_ERRORS:
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.last_error = ErrorCode.NONE

    def check_push_request(self, request: PushTelemetryRequest, now_ms: float, most_bytes: int) -> None:
        """Check a PushTelemetry request and record its time, its ``terminating`` flag and the resulting `last_error`.

        A push is too early within one push interval of the last one, unless a GetTelemetrySubscriptions request was
        accepted since, or it is terminating. ``now_ms``: monotonic time.

        Raises:
            ProtocolError: INVALID_REQUEST after a terminating push; THROTTLING_QUOTA_EXCEEDED: too early;
                UNKNOWN_SUBSCRIPTION_ID; UNSUPPORTED_COMPRESSION_TYPE; TELEMETRY_TOO_LARGE: over ``most_bytes``,
                compressed.
        """
        try:
            self._check_push(request, now_ms, most_bytes)
        except ProtocolError as error:
            self.last_error = error.code
            raise
        finally:
            self.is_terminating = request.terminating
        self.last_error = ErrorCode.NONE

    def _check_push(self, request: PushTelemetryRequest, now_ms: float, most_bytes: int) -> None:
        if self.is_terminating:
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        if self._last_get_ms > self._last_push_ms or now_ms - self._last_push_ms >= self.subscription.interval_ms:
            self._last_push_ms = now_ms
        elif not request.terminating:
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != self.subscription_id:
            raise ProtocolError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in tuple(CompressionType):
            raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > most_bytes:
            raise ProtocolError(ErrorCode.TELEMETRY_TOO_LARGE)


class ClientMetricsInstanceCache:
    """Cache of client instances by id, in the order of their last request."""

    def __init__(self) -> None:
        self._instances: dict[bytes, ClientMetricsInstance] = {}
        self._instance_ids_by_peer: dict[Peer, bytes] = {}
        """Client instance id of the last new instance on each connection."""
        self._subscriptions: list[ClientMetricsSubscription] = []
        self._merged_subscriptions: dict[tuple[int, ...], MergedSubscription] = {}
        """Merged subscriptions by the indices of the matching ones; most clients share one."""
        self._version = 0
        self._swept_ms = 0.0

    def __len__(self) -> int:
        return len(self._instances)

    def set_subscriptions(self, subscriptions: list[ClientMetricsSubscription]) -> None:
        """Set the cluster's subscriptions; each client is matched again at its next request (`get_or_create`)."""
        self._subscriptions = subscriptions
        self._merged_subscriptions.clear()
        self._version += 1

    def get_or_create(
        self, ident: bytes, attributes: ClientAttributes, peer: Peer, now_ms: float
    ) -> ClientMetricsInstance:
        """Return the instance with the id ``ident``, with its current subscription; create it if the id is unknown.

        The instance becomes the most recently active one, and its expiry is extended (``now_ms``: monotonic time). An
        instance whose subscription was merged before `set_subscriptions` is replaced by a new one with the same
        attributes. When the connection of ``peer`` is closed, the last new instance on it is removed; beyond
        `MAX_CLIENT_METRICS_INSTANCES` the least recently active one is removed.
        """
        found = self._instances.pop(ident, None)
        self._remove_expired(now_ms)
        if found is None or found.version < self._version:
            attributes = attributes if found is None else found.attributes
            if found is None and len(self._instances) >= MAX_CLIENT_METRICS_INSTANCES:
                del self._instances[next(iter(self._instances))]
            found = ClientMetricsInstance(ident, attributes, self._merged_subscription(attributes), self._version)
            is_new = peer not in self._instance_ids_by_peer
            self._instance_ids_by_peer[peer] = ident
            if is_new:
                peer.on_close(lambda: self._on_disconnect(peer))
        self._instances[ident] = found
        found.expires_ms = now_ms + max(MIN_EXPIRY_MS, 3 * found.subscription.interval_ms)
        return found

    def _merged_subscription(self, attributes: ClientAttributes) -> MergedSubscription:
        meant = tuple(number for number, each in enumerate(self._subscriptions) if each.matches(attributes))
        if meant not in self._merged_subscriptions:
            self._merged_subscriptions[meant] = merge_subscriptions(self._subscriptions[number] for number in meant)
        return self._merged_subscriptions[meant]

    def _on_disconnect(self, peer: Peer) -> None:
        self._instances.pop(self._instance_ids_by_peer.pop(peer), None)

    def _remove_expired(self, now_ms: float) -> None:
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            for ident in [ident for ident, each in self._instances.items() if each.expires_ms <= now_ms]:
                del self._instances[ident]
