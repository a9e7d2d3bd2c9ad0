"""Table of client quotas: look-up of the most specific quota of a client, and its rate counter.

Behaviour (P-99, S-345, S-347, S-348): the most specific quota applies: user and client id, user and default client id,
user, and so on; each client under a default has a counter of its own. A rate is the sum of its samples over their
window: ten whole seconds and the elapsed part of the last one; a sample lasts a second from its first use, and is reset
after eleven seconds without use. Counters unused for an hour are removed.

Source: ``Rate.java``, ``SampledStat.java``, ``ClientQuotaManager.java`` (apache/kafka 4.3.1).
From KIP-13, KIP-55.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ottla.broker.config.limits import MAX_QUOTA_CLIENT_ID_CHARS, MAX_QUOTA_COUNTERS
from ottla.controller.control.client_quotas import CLIENT_ID, USER, QuotaEntity

SAMPLE_MS = 1000.0
SAMPLES = 11
COUNTER_EXPIRY_MS = 3_600_000.0
MAX_THROTTLE_MS = 2**31 - 1
"""Maximum throttle time in a response, in ms."""
UNLIMITED = math.inf
"""Limit of a client without a quota."""
_MAX_BINDINGS = 10_000
_SWEEP_MS = 60_000.0
_MAX_LIMIT = 10**15
ClientQuotaEntity = tuple[str | None, str | None]
"""User and client id of a quota; None is the default entity, an empty text an unspecified one."""
UNSPECIFIED = ""


class RequestClock(Protocol):
    """Interface of a request's timer; implemented by `ottla.broker.quotas.request_timer.RequestTimer`."""

    def lap_ms(self) -> float:
        """Return the event loop time in ms used since the last call."""


class QuotaClient(Protocol):
    """Client of a connection, as quotas see it; implemented by `ottla.broker.requests.peer.Peer`.

    A quota sets ``throttle_ms``, for which the connection is then muted.
    """

    principal: str
    throttle_ms: int

    @property
    def quota_bindings(self) -> object:
        """Cached `QuotaBinding` objects of the client."""

    @property
    def request_timer(self) -> RequestClock | None:
        """Timer of the request in progress; None without request quotas."""


class QuotaCounter(Protocol):
    """Interface of a client's counter: a rate or a token bucket."""

    def last_recorded_ms(self) -> float:
        """Return the monotonic time in ms of the last use, after which the counter expires; 0 before the first."""


C = TypeVar("C", bound=QuotaCounter)


class _RateSample:
    """Sum of the values recorded in one second."""

    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Rate over a window of one-second samples (S-345). Recording and measuring touch one sample, once a second all.

    Fast path: from `fast_from_ms` to `fast_until_ms` a caller may add to `recorded` directly, up to `remaining`, and
    store the time in `recorded_ms`. These times are wall clock; like `remaining` they are integers, which compare twice
    as fast.
    """

    __slots__ = (
        *("_recompute_ms", "_began_ms", "_current", "_others", "_samples", "_shift_ms"),
        *("fast_from_ms", "remaining", "recorded", "recorded_ms", "fast_until_ms"),
    )

    def __init__(self) -> None:
        self._samples: list[_RateSample] = []
        self._current = 0
        self._others = 0.0
        """Sum of all samples but the current one."""
        self._began_ms = 0.0
        """Start of the oldest sample (monotonic, ms)."""
        self._recompute_ms = float("-inf")
        """Time from which `_others` and `_began_ms` must be computed again, as a sample has expired."""
        self.recorded: float = 0
        self.remaining: float = 0
        self.recorded_ms: float = 0
        self.fast_from_ms: float = 0
        self.fast_until_ms: float = 0
        self._shift_ms = 0.0
        """Difference between monotonic and wall clock in ms, at the start of the fast path."""

    def open_fast_path(self, most: float, now_ms: float, about_ms: float) -> None:
        """Open the fast path for the current sample until all samples together reach ``most``.

        The rate was measured at ``now_ms`` (monotonic); ``about_ms`` is the same time by wall clock: if that is set
        back, the fast path closes.
        """
        current = self._samples[self._current]
        self.remaining = math.floor(min(most - self._others - current.value, _MAX_LIMIT))
        self._shift_ms = now_ms - about_ms
        self.fast_from_ms = about_ms
        self.fast_until_ms = math.floor(min(self._recompute_ms, current.began_ms + SAMPLE_MS) - self._shift_ms)

    def remove_limit(self) -> None:
        """Open the fast path without a limit, for clients without a quota."""
        self.remaining, self.fast_until_ms = UNLIMITED, UNLIMITED

    def _close_fast_path(self) -> None:
        """Close the fast path and add the values recorded by it to the current sample."""
        self.fast_until_ms = 0
        if self.recorded:
            current = self._samples[self._current]
            current.value += self.recorded
            current.last_ms = self.recorded_ms + self._shift_ms
            self.recorded = 0

    def record(self, value: float, now_ms: float) -> None:
        """Record a value at the monotonic time ``now_ms``; a negative value takes back a recorded one."""
        self._close_fast_path()
        samples = self._samples
        if not samples:
            samples.append(_RateSample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.began_ms >= SAMPLE_MS:
            self._current = (self._current + 1) % (SAMPLES + 1)
            if self._current >= len(samples):
                samples.append(_RateSample(now_ms))
            else:
                samples[self._current].reset(now_ms)
            sample = samples[self._current]
            self._recompute_ms = float("-inf")
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: float) -> tuple[float, float]:
        """Return the rate per second at ``now_ms`` (monotonic), and the length of its window in ms."""
        self._close_fast_path()
        samples = self._samples
        if not samples:
            return 0.0, SAMPLES * SAMPLE_MS - SAMPLE_MS
        current = samples[self._current]
        if now_ms >= self._recompute_ms or now_ms - current.last_ms >= SAMPLES * SAMPLE_MS:
            self._sum_up(current, now_ms)
        window_ms = now_ms - self._began_ms
        whole = int(window_ms // SAMPLE_MS)
        if whole < SAMPLES - 1:
            window_ms += (SAMPLES - 1 - whole) * SAMPLE_MS
        window_ms = max(window_ms, 1.0)
        return (self._others + current.value) * 1000 / window_ms, window_ms

    def _sum_up(self, current: _RateSample, now_ms: float) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= SAMPLES * SAMPLE_MS:
                sample.reset(now_ms)
        others = [s for s in self._samples if s is not current]
        self._began_ms = min(s.began_ms for s in self._samples)
        self._others = sum(s.value for s in others)
        self._recompute_ms = min((s.last_ms for s in others), default=float("inf")) + SAMPLES * SAMPLE_MS

    def last_recorded_ms(self) -> float:
        """Return the monotonic time in ms of the last recorded value; 0 before the first. Closes the fast path.

        If `measure` has reset samples since, which were unused for eleven seconds, it is the time of that reset.
        """
        self._close_fast_path()
        return max((s.last_ms for s in self._samples), default=0.0)


class QuotaBinding(Generic[C]):
    """Most specific quota of a client: its limit and its counter.

    A connection caches its last one, so that most requests need no look-up.
    """

    __slots__ = ("client_id", "counter", "counter_key", "limit", "max_in_window")

    def __init__(self, counter_key: tuple[str, str], client_id: str, rate: float, counter: C) -> None:
        self.counter_key = counter_key
        self.client_id: str | None = client_id
        """Client id; None once the quotas have changed, so that the quota must be looked up again."""
        self.limit = rate
        self.max_in_window = math.floor(min(rate * (SAMPLES - 1) * SAMPLE_MS / 1000, _MAX_LIMIT))
        """Maximum sum of all samples: limit times the minimum length of the window."""
        self.counter = counter
        """Counter that `QuotaTable.counter` returned last; an unused one before its first call."""

    def try_record(self: QuotaBinding[Rate], value: float, about_ms: float) -> bool:
        """Record a value by the fast path; return False, without recording, if the rate must be computed.

        ``about_ms``: arrival of the request, wall clock.
        """
        rate = self.counter
        if rate.fast_from_ms <= about_ms < rate.fast_until_ms:
            taken = rate.recorded + value
            if taken <= rate.remaining:
                rate.recorded = taken
                rate.recorded_ms = about_ms
                return True
        return False


class QuotaTable(Generic[C]):
    """Limits of one type of quota by entity, and the counters of clients."""

    def __init__(self, make: Callable[[], C]) -> None:
        self.limits: dict[ClientQuotaEntity, float] = {}
        self._make = make
        self._counters: dict[tuple[str, str], C] = {}
        self._unused_counter = make()
        """Counter of bindings whose counter was not looked up; nothing is recorded there."""
        self._unlimited_counter = make()
        """Shared counter of all clients without a quota."""
        self.bindings: dict[tuple[str, str], QuotaBinding[C]] = {}
        """Cached bindings by principal and client id."""
        self._swept_ms = 0.0

    def invalidate_bindings(self) -> None:
        """Invalidate the cached bindings after a change of quotas; counters remain."""
        for bound in self.bindings.values():
            bound.client_id, bound.counter = None, self._unused_counter  # also cached by connections
        self.bindings.clear()

    def binding(self, principal: str, client_id: str) -> QuotaBinding[C]:
        """Return the binding of a client to its most specific quota (P-99, S-347), with limit `UNLIMITED` if none."""
        try:
            return self.bindings[principal, client_id]
        except KeyError:
            return self._find_binding(principal, client_id)

    def _find_binding(self, principal: str, client_id: str) -> QuotaBinding[C]:
        found = self._resolve_binding(principal.partition(":")[2], client_id)
        if len(client_id) <= MAX_QUOTA_CLIENT_ID_CHARS:
            if len(self.bindings) > _MAX_BINDINGS:
                self.invalidate_bindings()
            self.bindings[principal, client_id] = found
        return found

    def _resolve_binding(self, user: str, client_id: str) -> QuotaBinding[C]:
        """Return a new binding to the most specific quota; without a client id only quotas of the user apply."""
        limits = self.limits
        order: tuple[tuple[ClientQuotaEntity, tuple[str, str]], ...] = (
            ((user, client_id), (user, client_id)),
            ((user, None), (user, client_id)),
            ((user, UNSPECIFIED), (user, UNSPECIFIED)),
            ((None, client_id), (user, client_id)),
            ((None, None), (user, client_id)),
            ((None, UNSPECIFIED), (user, UNSPECIFIED)),
            ((UNSPECIFIED, client_id), (UNSPECIFIED, client_id)),
            ((UNSPECIFIED, None), (UNSPECIFIED, client_id)),
        )
        for place, entity in order:
            if place[1] != UNSPECIFIED and not client_id:
                continue
            rate = limits.get(place)
            if rate is not None:
                return QuotaBinding(
                    (entity[0], entity[1][:MAX_QUOTA_CLIENT_ID_CHARS]), client_id, rate, self._unused_counter
                )
        return QuotaBinding((UNSPECIFIED, UNSPECIFIED), client_id, UNLIMITED, self._unlimited_counter)

    def counter(self, counter_key: tuple[str, str], now_ms: float) -> C:
        """Return the counter with a key, created if needed, as the last one used; remove expired counters.

        ``now_ms``: monotonic time. Beyond `MAX_QUOTA_COUNTERS` the one that was unused for longest is removed, and its
        client is counted from zero.
        """
        found = self._counters.pop(counter_key, None)
        self._remove_expired(now_ms)
        if found is None:
            found = self._make()
            if len(self._counters) >= MAX_QUOTA_COUNTERS:
                del self._counters[next(iter(self._counters))]
        self._counters[counter_key] = found
        return found

    def find_counter(self, counter_key: tuple[str, str]) -> C | None:
        """Return the counter with a key; None if there is none. Unlike `counter`, this does not defer its removal."""
        return self._counters.get(counter_key)

    def _remove_expired(self, now_ms: float) -> None:
        """Remove the counters expired at the monotonic time ``now_ms``; counters are in order of their last use."""
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            while self._counters:
                entity, rate = next(iter(self._counters.items()))
                if now_ms - rate.last_recorded_ms() < COUNTER_EXPIRY_MS:
                    return
                del self._counters[entity]


def quota_entity(entity: QuotaEntity) -> ClientQuotaEntity | None:
    """Return user and client id of a quota entity: None is the default entity, an empty text an unspecified one.

    Instead of the pair, None for an entity with other types, such as ip.
    """
    kinds = dict(entity)
    if not kinds.keys() <= {USER, CLIENT_ID}:
        return None
    return kinds.get(USER, UNSPECIFIED), kinds.get(CLIENT_ID, UNSPECIFIED)
