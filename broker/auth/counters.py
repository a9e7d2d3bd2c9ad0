"""Whose quota counts for somebody, and the counters under it.

Behaviour (items 99, 345, 347, 348): the most specific quota counts: of user and client, the client of any user, the
user, and so on; clients under a default have counters of their own. A rate is the sum of the kept samples over their
time, counted as ten whole seconds and what has passed of the last one; a sample lasts a second from its first use, and
one that was silent for eleven begins anew. Counters nobody used for an hour are forgotten.

Source: ``Rate.java``, ``SampledStat.java``, ``ClientQuotaManager.java`` (apache/kafka 4.3.1).

From KIP-13, KIP-55.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ottla.controller.quotas import CLIENT_ID, USER, QuotaEntity

SAMPLE_MS = 1000.0
SAMPLES = 11
FORGOTTEN_MS = 3_600_000.0
MOST_COUNTERS = 20_000
"""Clients name themselves as they like: the counter that was not used for longest makes room for a new one."""
MOST_DELAY_MS = 2**31 - 1
"""What an answer can say."""
FREE = math.inf
"""The rate of whoever has no quota."""
KEPT_NAME_CHARS = 255
_MOST_FOUND = 10_000
_SWEEP_MS = 60_000.0
_NO_END = 10**15
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
    """What was counted lately, by the second (item 345). Counting and looking touch one sample but once a second.

    Between two looks who counts may do it by itself, from the time `from_ms` up to `until_ms`: what it adds to `taken`
    counts as long as that is no more than `room`, and it notes when that was. These times are of another clock; like
    `room` they are whole numbers, as what is compared with them is: that takes half as long.
    """

    __slots__ = (
        *("_again_ms", "_began_ms", "_current", "_others", "_samples", "_shift_ms"),
        *("from_ms", "room", "taken", "taken_ms", "until_ms"),
    )

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._current = 0
        self._others = 0.0
        """What all samples but the current one hold."""
        self._began_ms = 0.0
        """When the oldest began."""
        self._again_ms = float("-inf")
        """From then on these two are to be made anew: one of the samples has been silent for too long."""
        self.taken: float = 0
        self.room: float = 0
        self.taken_ms: float = 0
        self.from_ms: float = 0
        self.until_ms: float = 0
        self._shift_ms = 0.0
        """So much is the clock of looks ahead of the other."""

    def lay_open(self, most: float, now_ms: float, about_ms: float) -> None:
        """Have the current sample counted at directly as long as all samples together hold ``most``. It was just looked
        at. ``about_ms``: the time by another clock; where that is set back, this ends.
        """
        current = self._samples[self._current]
        self.room = math.floor(min(most - self._others - current.value, _NO_END))
        self._shift_ms = now_ms - about_ms
        self.from_ms = about_ms
        self.until_ms = math.floor(min(self._again_ms, current.began_ms + SAMPLE_MS) - self._shift_ms)

    def free(self) -> None:
        """Have it counted at directly whatever comes: nobody looks here."""
        self.room, self.until_ms = FREE, FREE

    def _close(self) -> None:
        """What was counted directly is in the sample."""
        self.until_ms = 0
        if self.taken:
            current = self._samples[self._current]
            current.value += self.taken
            current.last_ms = self.taken_ms + self._shift_ms
            self.taken = 0

    def count(self, value: float, now_ms: float) -> None:
        """Count something that happened now."""
        self._close()
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
        self._close()
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
        self._close()
        return max((s.last_ms for s in self._samples), default=0.0)


class Bound(Generic[C]):
    """Whose counter it is, and how much a second it may be.

    A connection holds the one it counted under last: most requests count there, without anything being looked for.
    """

    __slots__ = ("client_id", "counter", "most", "rate", "who")

    def __init__(self, who: tuple[str, str], client_id: str, rate: float, counter: C) -> None:
        self.who = who
        self.client_id: str | None = client_id
        """What who counts here calls itself; None once something else holds: then it has to be looked for again."""
        self.rate = rate
        self.most = math.floor(min(rate * (SAMPLES - 1) * SAMPLE_MS / 1000, _NO_END))
        """All samples together may hold this much in any case: the time they are taken over is never shorter."""
        self.counter = counter
        """The one that `Kind.counter` gave last, if it gave any."""

    def covers(self: Bound[Rate], value: float, about_ms: float) -> bool:
        """Count something that cannot be over; False: it was not counted, and what it comes to has to be looked at."""
        rate = self.counter
        if rate.from_ms <= about_ms < rate.until_ms:
            taken = rate.taken + value
            if taken <= rate.room:
                rate.taken = taken
                rate.taken_ms = about_ms
                return True
        return False


class Kind(Generic[C]):
    """Quotas of one kind, and the counters under them."""

    def __init__(self, make: Callable[[], C]) -> None:
        self.limits: dict[Place, float] = {}
        self._make = make
        self._rates: dict[tuple[str, str], C] = {}
        self._nobodys = make()
        """Nothing is ever counted there."""
        self._free = make()
        """Of all who have no quota."""
        self.found: dict[tuple[str, str], Bound[C]] = {}
        """Those who were looked for, by principal and client: `bound`, without a call."""
        self._swept_ms = 0.0

    def changed(self) -> None:
        """There are other quotas: the counters go on."""
        for bound in self.found.values():
            bound.client_id, bound.counter = None, self._nobodys  # connections hold it
        self.found.clear()

    def bound(self, principal: str, client_id: str) -> Bound[C]:
        """The most specific quota of somebody (items 99 and 347); who has none is FREE."""
        try:
            return self.found[principal, client_id]
        except KeyError:
            return self._find(principal, client_id)

    def _find(self, principal: str, client_id: str) -> Bound[C]:
        found = self._look(principal.partition(":")[2], client_id)
        if len(client_id) <= KEPT_NAME_CHARS:
            if len(self.found) > _MOST_FOUND:
                self.changed()
            self.found[principal, client_id] = found
        return found

    def _look(self, user: str, client_id: str) -> Bound[C]:
        """Who comes without a name for itself has its user's quota alone."""
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
                continue
            rate = limits.get(place)
            if rate is not None:
                return Bound((who[0], who[1][:KEPT_NAME_CHARS]), client_id, rate, self._nobodys)
        return Bound((NONE, NONE), client_id, FREE, self._free)

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


def place_of(entity: QuotaEntity) -> Place | None:
    """Where a quota of users and clients stands; None for one of another kind."""
    kinds = dict(entity)
    if not kinds.keys() <= {USER, CLIENT_ID}:
        return None
    return kinds.get(USER, NONE), kinds.get(CLIENT_ID, NONE)
