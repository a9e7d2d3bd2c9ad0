"""Controller mutation quota: partitions created or deleted per second, measured by the active controller.

Behaviour (S-350, S-351): a token bucket with the tokens of eleven seconds, initially full; a partition costs one token.
While the number of tokens is negative, request versions that know THROTTLING_QUOTA_EXCEEDED are rejected topic by topic
before the topic is counted; older versions are executed and counted. The throttle time lasts until the number is zero.
A client whose request was forwarded is throttled by its broker, not here.

Source: ``TokenBucket.java``, ``ControllerMutationQuotaManager.java``, ``StrictControllerMutationQuota.java``,
``PermissiveControllerMutationQuota.java`` (apache/kafka 4.3.1).
From KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.quotas.quota_table import MAX_THROTTLE_MS, SAMPLES, UNLIMITED, QuotaBinding, QuotaClient, QuotaTable
from ottla.wire.errors import ErrorCode, ProtocolError


class TokenBucket:
    """Token bucket of a client; one token for each partition created or deleted. ``now_ms``: monotonic time."""

    __slots__ = ("_tokens", "_updated_ms")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._updated_ms: float | None = None

    def measure(self, rate: float, now_ms: float) -> float:
        """Refill the bucket, up to the tokens of eleven seconds, and return its tokens, possibly negative.

        ``rate`` is in tokens per second, ``now_ms`` the monotonic time. The first call fills the bucket.
        """
        most = SAMPLES * rate
        if self._updated_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def record(self, count: float, rate: float, now_ms: float) -> float:
        """Refill the bucket, remove ``count`` tokens, possibly below zero, and return the rest.

        ``rate`` is in tokens per second, ``now_ms`` the monotonic time.
        """
        self._tokens = self.measure(rate, now_ms) - count
        return self._tokens

    def last_recorded_ms(self) -> float:
        """Return the monotonic time of the last refill in ms; 0 before the first."""
        return self._updated_ms or 0.0


class ControllerMutationQuota:
    """Controller mutation quota applied to one request, and its throttle time.

    ``strict``: the request version knows THROTTLING_QUOTA_EXCEEDED.
    """

    def __init__(
        self,
        peer: QuotaClient,
        bound: QuotaBinding[TokenBucket],
        bucket: TokenBucket,
        now_ms: Callable[[], float],
        *,
        strict: bool,
    ) -> None:
        self._peer, self._bound, self._bucket, self._now_ms = peer, bound, bucket, now_ms
        self._strict = strict
        self._wait_ms, self._measured_ms = 0, 0.0

    def record(self, count: int) -> None:
        """Record partitions that are about to be created or deleted; if not strict, even below zero tokens.

        Raises:
            ProtocolError: THROTTLING_QUOTA_EXCEEDED: the quota is strict and the bucket is below zero. Nothing is
                recorded, and the caller must not change the topic.
        """
        now_ms, rate = self._now_ms(), self._bound.limit
        if not self._strict:
            self._is_exhausted(self._bucket.record(count, rate, now_ms), now_ms)
        elif self._is_exhausted(self._bucket.measure(rate, now_ms), now_ms):
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        else:
            self._bucket.record(count, rate, now_ms)

    def _is_exhausted(self, tokens: float, now_ms: float) -> bool:
        if tokens >= 0:
            return False
        self._wait_ms, self._measured_ms = round(min(MAX_THROTTLE_MS, -tokens / self._bound.limit * 1000)), now_ms
        return True

    def set_throttle_time(self, answer: Any) -> None:
        """Set the throttle time (ms) of response and connection, by the last `record` above the quota."""
        wait_ms = max(0, int(self._wait_ms - (self._now_ms() - self._measured_ms))) if self._wait_ms else 0
        answer.throttle_time_ms = max(answer.throttle_time_ms, wait_ms)
        self._peer.throttle_ms = max(self._peer.throttle_ms, wait_ms)


class ControllerMutationQuotaManager(QuotaTable[TokenBucket]):
    """Manager of the controller mutation quotas of all clients."""

    def __init__(self) -> None:
        super().__init__(TokenBucket)

    def new_quota_for(
        self, peer: QuotaClient, client_id: str, now_ms: Callable[[], float], *, strict: bool
    ) -> ControllerMutationQuota | None:
        """Return the quota for one request of a client; None if the client has no limit.

        ``strict``: the request version knows THROTTLING_QUOTA_EXCEEDED; ``now_ms``: monotonic clock.
        """
        bound = self.binding(peer.principal, client_id)
        if bound.limit == UNLIMITED:
            return None
        bucket = self.counter(bound.counter_key, now_ms())
        return ControllerMutationQuota(peer, bound, bucket, now_ms, strict=strict)
