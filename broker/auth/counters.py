"""Whose quota counts for somebody, and the counters under it.

Behaviour (items 99, 345, 347, 348): the most specific quota counts: of user and client, the client of any user, the
user, and so on; clients under a default have counters of their own. A rate is the sum of the kept samples over their
time, counted as ten whole seconds and what has passed of the last one; a sample lasts a second from its first use, and
one that was silent for eleven begins anew. Counters nobody used for an hour are forgotten.

Source: ``Rate.java``, ``SampledStat.java``, ``ClientQuotaManager.java`` (apache/kafka 4.3.1).

From KIP-13, KIP-55.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ottla.controller.quotas import CLIENT_ID, USER, Entity

SAMPLE_MS = 1000.0
SAMPLES = 11
FORGOTTEN_MS = 3_600_000.0
MOST_COUNTERS = 20_000
"""Clients name themselves as they like: the counter that was not used for longest makes room for a new one."""
MOST_DELAY_MS = 2**31 - 1
"""What an answer can say."""
_KEPT_NAME_CHARS = 255
_SWEEP_MS = 60_000.0
Place = tuple[str | None, str | None]
"""Whose quota: a user's and a client's name; None is the default of its kind, an empty name none at all."""
NONE = ""


class Timed(Protocol):
    """What a request has taken so far: `ottla.broker.server.stopwatch.Stopwatch`."""

    def lap_ms(self) -> float:
        """How long the loop was at work for it since this was asked last."""


class Metered(Protocol):
    """Who is counted: `ottla.broker.server.peer.Peer`."""

    principal: str
    throttle_ms: int

    @property
    def stopwatch(self) -> Timed | None:
        """Runs while its request is worked on, where that counts."""


class Counter(Protocol):
    """Somebody's."""

    def last_ms(self) -> float:
        """When something was counted last."""


C = TypeVar("C", bound=Counter)


class _Sample:
    """What was counted within a second."""

    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What was counted lately, by the second (item 345). Counting and looking touch one sample but once a second."""

    __slots__ = ("_again_ms", "_began_ms", "_current", "_others", "_samples")

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._current = 0
        self._others = 0.0
        """What all samples but the current one hold."""
        self._began_ms = 0.0
        """When the oldest began."""
        self._again_ms = float("-inf")
        """From then on these two are to be made anew: one of the samples has been silent for too long."""

    def count(self, value: float, now_ms: float) -> None:
        """Count something that happened now."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.began_ms >= SAMPLE_MS:
            self._current = (self._current + 1) % (SAMPLES + 1)
            if self._current >= len(samples):
                samples.append(_Sample(now_ms))
            else:
                samples[self._current].reset(now_ms)
            sample = samples[self._current]
            self._again_ms = float("-inf")
        sample.value += value
        sample.last_ms = now_ms

    def look(self, now_ms: float) -> tuple[float, float]:
        """What a second brings, and over how many milliseconds that was taken."""
        samples = self._samples
        if not samples:
            return 0.0, SAMPLES * SAMPLE_MS - SAMPLE_MS
        current = samples[self._current]
        if now_ms >= self._again_ms or now_ms - current.last_ms >= SAMPLES * SAMPLE_MS:
            self._sum_up(current, now_ms)
        window_ms = now_ms - self._began_ms
        whole = int(window_ms // SAMPLE_MS)
        if whole < SAMPLES - 1:
            window_ms += (SAMPLES - 1 - whole) * SAMPLE_MS
        window_ms = max(window_ms, 1.0)
        return (self._others + current.value) * 1000 / window_ms, window_ms

    def _sum_up(self, current: _Sample, now_ms: float) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= SAMPLES * SAMPLE_MS:
                sample.reset(now_ms)
        others = [s for s in self._samples if s is not current]
        self._began_ms = min(s.began_ms for s in self._samples)
        self._others = sum(s.value for s in others)
        self._again_ms = min((s.last_ms for s in others), default=float("inf")) + SAMPLES * SAMPLE_MS

    def last_ms(self) -> float:
        """When something was counted last."""
        return max((s.last_ms for s in self._samples), default=0.0)


class Bound(NamedTuple):
    """Whose counter it is, and how much a second it may be."""

    who: tuple[str, str]
    rate: float


class Kind(Generic[C]):
    """Quotas of one kind, and the counters under them."""

    def __init__(self, make: Callable[[], C]) -> None:
        self.limits: dict[Place, float] = {}
        self._make = make
        self._rates: dict[tuple[str, str], C] = {}
        self._found: dict[tuple[str, str], Bound | None] = {}
        self._swept_ms = 0.0

    def changed(self) -> None:
        """There are other quotas: the counters go on."""
        self._found.clear()

    def bound(self, user: str, client_id: str) -> Bound | None:
        """The most specific quota of somebody (items 99 and 347)."""
        if len(client_id) > _KEPT_NAME_CHARS:
            found = self._look(user, client_id)
            return found and Bound((found.who[0], found.who[1][:_KEPT_NAME_CHARS]), found.rate)
        at = user, client_id
        if at not in self._found:
            if len(self._found) > 10_000:
                self._found.clear()
            self._found[at] = self._look(user, client_id)
        return self._found[at]

    def _look(self, user: str, client_id: str) -> Bound | None:
        limits = self.limits
        order: tuple[tuple[Place, tuple[str, str]], ...] = (
            ((user, client_id), (user, client_id)),
            ((user, None), (user, client_id)),
            ((user, NONE), (user, NONE)),
            ((None, client_id), (user, client_id)),
            ((None, None), (user, client_id)),
            ((None, NONE), (user, NONE)),
            ((NONE, client_id), (NONE, client_id)),
            ((NONE, None), (NONE, client_id)),
        )
        for place, who in order:
            if place[1] != NONE and not client_id:
                continue  # who does not say what it is has its user's quota alone
            rate = limits.get(place)
            if rate is not None:
                return Bound(who, rate)
        return None

    def counter(self, who: tuple[str, str], now_ms: float) -> C:
        """Somebody's counter; those nobody used for long are forgotten."""
        found = self._rates.pop(who, None)
        self._sweep(now_ms)
        if found is None:
            found = self._make()
            if len(self._rates) >= MOST_COUNTERS:
                del self._rates[next(iter(self._rates))]
        self._rates[who] = found
        return found

    def _sweep(self, now_ms: float) -> None:
        """They stand in the order of their last use."""
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._swept_ms = now_ms
            while self._rates:
                who, rate = next(iter(self._rates.items()))
                if now_ms - rate.last_ms() < FORGOTTEN_MS:
                    return
                del self._rates[who]


def place_of(entity: Entity) -> Place | None:
    """Where a quota of users and clients stands; None for one of another kind."""
    kinds = dict(entity)
    if not kinds.keys() <= {USER, CLIENT_ID}:
        return None
    return kinds.get(USER, NONE), kinds.get(CLIENT_ID, NONE)


def name_of(peer: Metered) -> str:
    """The name a user's quotas stand under."""
    return peer.principal.partition(":")[2]
