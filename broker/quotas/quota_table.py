"""Lookup of the most specific quota of a client, and its rate counter.

Behaviour (P-99, S-345, S-347, S-348): the most specific quota counts: of user and client, the client of any user, the
user, and so on; clients under a default have counters of their own. A rate is the sum of the samples over their window:
ten whole seconds and the elapsed part of the last one; a sample lasts a second from its first use, and one idle for
eleven is reset. Counters unused for an hour are removed.

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
"""Maximum throttle time in a response."""
UNLIMITED = math.inf
"""Limit without a quota."""
_MAX_BINDINGS = 10_000
_SWEEP_MS = 60_000.0
_MAX_LIMIT = 10**15
ClientQuotaEntity = tuple[str | None, str | None]
"""User and client id of a quota; None is the default of its type, an empty name none."""
UNSPECIFIED = ""


class RequestClock(Protocol):
    """Processing time of a request: `ottla.broker.quotas.request_timer.RequestTimer`."""

    def lap_ms(self) -> float:
        """Return the event loop time used since the last call."""


class QuotaClient(Protocol):
    """Client of a quota: `ottla.broker.requests.peer.Peer`."""

    principal: str
    throttle_ms: int

    @property
    def quota_bindings(self) -> object:
        """Bindings that were looked up for it."""

    @property
    def request_timer(self) -> RequestClock | None:
        """Runs while its request is worked on, where that counts."""


class QuotaCounter(Protocol):
    """Counter of a client."""

    def last_recorded_ms(self) -> float:
        """Time of the last recorded value."""


C = TypeVar("C", bound=QuotaCounter)


class _RateSample:
    """Sum of one second."""

    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Rate over a window of samples of one second (S-345). Recording and reading touch one sample, once a second all.

    Fast path: from `fast_from_ms` to `fast_until_ms` a caller may add to `recorded` directly, up to `remaining`, and
    store the time. These times are wall clock; like `remaining` they are integers, which compare twice as fast.
    """

    __slots__ = (
        *("_recompute_ms", "_began_ms", "_current", "_others", "_samples", "_shift_ms"),
        *("fast_from_ms", "remaining", "recorded", "recorded_ms", "fast_until_ms"),
    )

    def __init__(self) -> None:
        self._samples: list[_RateSample] = []
        self._current = 0
        self._others = 0.0
        """What all samples but the current one hold."""
        self._began_ms = 0.0
        """When the oldest began."""
        self._recompute_ms = float("-inf")
        """From then on these two are to be made anew: one of the samples has been silent for too long."""
        self.recorded: float = 0
        self.remaining: float = 0
        self.recorded_ms: float = 0
        self.fast_from_ms: float = 0
        self.fast_until_ms: float = 0
        self._shift_ms = 0.0
        """So much is the clock of looks ahead of the other."""

    def open_fast_path(self, most: float, now_ms: float, about_ms: float) -> None:
        """Have the current sample counted at directly as long as all samples together hold ``most``.

        It was just looked at. ``about_ms``: the time by another clock; where that is set back, this ends.
        """
        current = self._samples[self._current]
        self.remaining = math.floor(min(most - self._others - current.value, _MAX_LIMIT))
        self._shift_ms = now_ms - about_ms
        self.fast_from_ms = about_ms
        self.fast_until_ms = math.floor(min(self._recompute_ms, current.began_ms + SAMPLE_MS) - self._shift_ms)

    def remove_limit(self) -> None:
        """Open the fast path without a limit."""
        self.remaining, self.fast_until_ms = UNLIMITED, UNLIMITED

    def _close_fast_path(self) -> None:
        """Move directly recorded values into the sample."""
        self.fast_until_ms = 0
        if self.recorded:
            current = self._samples[self._current]
            current.value += self.recorded
            current.last_ms = self.recorded_ms + self._shift_ms
            self.recorded = 0

    def record(self, value: float, now_ms: float) -> None:
        """Record a value now."""
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
        """Return the rate per second, and its window in milliseconds."""
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
        """Return the time of the last recorded value."""
        self._close_fast_path()
        return max((s.last_ms for s in self._samples), default=0.0)


class QuotaBinding(Generic[C]):
    """Counter and limit of a client.

    A connection keeps its last one, so that most requests need no lookup.
    """

    __slots__ = ("client_id", "counter", "counter_key", "limit", "max_in_window")

    def __init__(self, counter_key: tuple[str, str], client_id: str, rate: float, counter: C) -> None:
        self.counter_key = counter_key
        self.client_id: str | None = client_id
        """What who counts here calls itself; None once something else holds: then it has to be looked for again."""
        self.limit = rate
        self.max_in_window = math.floor(min(rate * (SAMPLES - 1) * SAMPLE_MS / 1000, _MAX_LIMIT))
        """All samples together may hold this much in any case: the time they are taken over is never shorter."""
        self.counter = counter
        """The one that `QuotaTable.counter` gave last, if it gave any."""

    def try_record(self: QuotaBinding[Rate], value: float, about_ms: float) -> bool:
        """Record a value within the limit; return False, without recording, if the rate must be computed."""
        rate = self.counter
        if rate.fast_from_ms <= about_ms < rate.fast_until_ms:
            taken = rate.recorded + value
            if taken <= rate.remaining:
                rate.recorded = taken
                rate.recorded_ms = about_ms
                return True
        return False


class QuotaTable(Generic[C]):
    """Quotas of one kind, and the counters under them."""

    def __init__(self, make: Callable[[], C]) -> None:
        self.limits: dict[ClientQuotaEntity, float] = {}
        self._make = make
        self._counters: dict[tuple[str, str], C] = {}
        self._unused_counter = make()
        """Nothing is ever counted there."""
        self._unlimited_counter = make()
        """Of all who have no quota."""
        self.bindings: dict[tuple[str, str], QuotaBinding[C]] = {}
        """Those who were looked for, by principal and client: `binding`, without a call."""
        self._swept_ms = 0.0

    def invalidate_bindings(self) -> None:
        """Invalidate cached bindings after a change of quotas; counters stay."""
        for bound in self.bindings.values():
            bound.client_id, bound.counter = None, self._unused_counter  # connections hold it
        self.bindings.clear()

    def binding(self, principal: str, client_id: str) -> QuotaBinding[C]:
        """Return the binding of a client to its most specific quota (P-99 and S-347); FREE without one."""
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
        """Return the binding; a client without a client id has its user's quota only."""
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
        for place, who in order:
            if place[1] != UNSPECIFIED and not client_id:
                continue
            rate = limits.get(place)
            if rate is not None:
                return QuotaBinding((who[0], who[1][:MAX_QUOTA_CLIENT_ID_CHARS]), client_id, rate, self._unused_counter)
        return QuotaBinding((UNSPECIFIED, UNSPECIFIED), client_id, UNLIMITED, self._unlimited_counter)

    def counter(self, counter_key: tuple[str, str], now_ms: float) -> C:
        """Return the counter of a client, and remove expired ones."""
        found = self._counters.pop(counter_key, None)
        self._remove_expired(now_ms)
        if found is None:
            found = self._make()
            if len(self._counters) >= MAX_QUOTA_COUNTERS:
                del self._counters[next(iter(self._counters))]
        self._counters[counter_key] = found
        return found

    def _remove_expired(self, now_ms: float) -> None:
        """Remove expired counters, which are in order of last use."""
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            while self._counters:
                who, rate = next(iter(self._counters.items()))
                if now_ms - rate.last_recorded_ms() < COUNTER_EXPIRY_MS:
                    return
                del self._counters[who]


def quota_entity(entity: QuotaEntity) -> ClientQuotaEntity | None:
    """Return user and client id of a quota entity; None for another type."""
    kinds = dict(entity)
    if not kinds.keys() <= {USER, CLIENT_ID}:
        return None
    return kinds.get(USER, UNSPECIFIED), kinds.get(CLIENT_ID, UNSPECIFIED)
