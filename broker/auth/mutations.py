"""How many partitions a client may have made or removed in a second, counted by the active controller.

Behaviour (items 350, 351): a bucket of eleven seconds' tokens, full at first, that fills by the second; a partition
costs one. While there are less than none, versions that know the error are refused topic by topic with
THROTTLING_QUOTA_EXCEEDED, before that topic is counted; older ones are carried out and counted. Both wait until the
bucket is back at none, less what has passed since. A client that a broker speaks for is held up there, not here.

Source: ``TokenBucket.java``, ``ControllerMutationQuotaManager.java``, ``StrictControllerMutationQuota.java``,
``PermissiveControllerMutationQuota.java`` (apache/kafka 4.3.1).

From KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.auth.counters import FREE, MOST_DELAY_MS, SAMPLES, Bound, Kind, Metered
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError

STRICT_SINCE = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
"""The first version of each request that is refused; nothing else is counted."""


class TokenBucket:
    """What somebody may still have done."""

    __slots__ = ("_tokens", "_updated_ms")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._updated_ms: float | None = None

    def look(self, rate: float, now_ms: float) -> float:
        """The tokens there are now; ``rate``: so many come a second."""
        most = SAMPLES * rate
        if self._updated_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> float:
        """Take tokens, more than there are if need be; gives what is left."""
        self._tokens = self.look(rate, now_ms) - count
        return self._tokens

    def last_ms(self) -> float:
        """When it was looked at last."""
        return self._updated_ms or 0.0


class Changes:
    """What one request changes, and how long who asked has to wait for it."""

    def __init__(
        self,
        peer: Metered,
        bound: Bound[TokenBucket],
        bucket: TokenBucket,
        now_ms: Callable[[], float],
        *,
        strict: bool,
    ) -> None:
        self._peer, self._bound, self._bucket, self._now_ms = peer, bound, bucket, now_ms
        self._strict = strict
        self._wait_ms, self._told_ms = 0, 0.0

    def spend(self, count: int) -> None:
        """So many partitions are about to be made or removed.

        Raises:
            ProtocolError: THROTTLING_QUOTA_EXCEEDED.
        """
        now_ms, rate = self._now_ms(), self._bound.rate
        if not self._strict:
            self._over(self._bucket.take(count, rate, now_ms), now_ms)
        elif self._over(self._bucket.look(rate, now_ms), now_ms):
            raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        else:
            self._bucket.take(count, rate, now_ms)

    def _over(self, tokens: float, now_ms: float) -> bool:
        if tokens >= 0:
            return False
        self._wait_ms, self._told_ms = round(min(MOST_DELAY_MS, -tokens / self._bound.rate * 1000)), now_ms
        return True

    def tell(self, answer: Any) -> None:
        """Say in the answer how long to wait; who is connected here is not read meanwhile."""
        wait_ms = max(0, int(self._wait_ms - (self._now_ms() - self._told_ms))) if self._wait_ms else 0
        answer.throttle_time_ms = max(answer.throttle_time_ms, wait_ms)
        self._peer.throttle_ms = max(self._peer.throttle_ms, wait_ms)


class Mutations(Kind[TokenBucket]):
    """Quotas of changes."""

    def __init__(self) -> None:
        super().__init__(TokenBucket)

    def begin(
        self, peer: Metered, client_id: str, key: ApiKey, version: int, now_ms: Callable[[], float]
    ) -> Changes | None:
        """What counts one request's changes; None where it makes none, or nothing bounds who asks."""
        since = STRICT_SINCE.get(key)
        bound = None if since is None else self.bound(peer.principal, client_id)
        if since is None or bound is None or bound.rate == FREE:
            return None
        bucket = self.counter(bound.who, now_ms())
        return Changes(peer, bound, bucket, now_ms, strict=version >= since)
