"""Byte rates of clients: who goes over a quota waits until the rate is back at it.

Behaviour (items 345 to 349, 99): a rate is the sum of the kept samples over their time, counted as ten whole seconds
and what has passed of the last one; a sample lasts a second from its first use, and one that was silent for eleven
begins anew. Over the bound after counting, a client waits (rate - bound) / bound of that time. The most specific quota
counts: of user and client, the client of any user, the user, and so on; clients under a default have counters of their
own. Nothing is counted while there is no quota of that kind; counters nobody used for an hour are forgotten.

Source: ``Rate.java``, ``SampledStat.java``, ``QuotaUtils.java``, ``ClientQuotaManager.java`` (apache/kafka 4.3.1).

From KIP-13, KIP-55, KIP-219.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ottla.controller.delta import Delta
from ottla.controller.image import Image
from ottla.controller.quotas import CLIENT_ID, FETCH, PRODUCE, USER, Entity
from ottla.wire.messages import metadata_records as m
from ottla.world.env import Env

SAMPLE_MS = 1000.0
SAMPLES = 11
FORGOTTEN_MS = 3_600_000.0
MOST_COUNTERS = 20_000
"""Clients name themselves as they like: the counter that was not used for longest makes room for a new one."""
_KEPT_NAME_CHARS = 255
_SWEEP_MS = 60_000.0
_COUNTED = (PRODUCE, FETCH)
Place = tuple[str | None, str | None]
"""Whose quota: a user's and a client's name; None is the default of its kind, an empty name none at all."""
NONE = ""


class Metered(Protocol):
    """Who is counted: `ottla.broker.server.peer.Peer`."""

    principal: str
    throttle_ms: int


class _Sample:
    """What was counted within a second."""

    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What was counted lately, by the second (item 345)."""

    __slots__ = ("_current", "_samples")

    def __init__(self) -> None:
        self._samples: list[_Sample] = []
        self._current = 0

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
        sample.value += value
        sample.last_ms = now_ms

    def look(self, now_ms: float) -> tuple[float, float]:
        """What a second brings, and over how many milliseconds that was taken."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= SAMPLES * SAMPLE_MS:
                sample.reset(now_ms)
        began_ms = min((s.began_ms for s in self._samples), default=now_ms)
        window_ms = now_ms - began_ms
        whole = int(window_ms // SAMPLE_MS)
        if whole < SAMPLES - 1:
            window_ms += (SAMPLES - 1 - whole) * SAMPLE_MS
        window_ms = max(window_ms, 1.0)
        return sum(s.value for s in self._samples) * 1000 / window_ms, window_ms

    def last_ms(self) -> float:
        """When something was counted last."""
        return max((s.last_ms for s in self._samples), default=0.0)


class Bound(NamedTuple):
    """Whose counter it is, and how much a second it may be."""

    who: tuple[str, str]
    rate: float


class _Kind:
    """Quotas of one kind, and the counters under them."""

    def __init__(self) -> None:
        self.limits: dict[Place, float] = {}
        self._rates: dict[tuple[str, str], Rate] = {}
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

    def delay_ms(self, user: str, client_id: str, value: float, now_ms: float, *, keep: bool = True) -> int:
        """Count something; gives how long somebody has to wait now. ``keep``: whether it counts though he waits."""
        bound = self.bound(user, client_id)
        if bound is None:
            return 0
        rate = self._rates.pop(bound.who, None)
        if rate is None:
            rate = Rate()
            if len(self._rates) >= MOST_COUNTERS:
                del self._rates[next(iter(self._rates))]
        self._rates[bound.who] = rate
        rate.count(value, now_ms)
        measured, window_ms = rate.look(now_ms)
        self._sweep(now_ms)
        if measured <= bound.rate:
            return 0
        if not keep:
            rate.count(-value, now_ms)
        return round((measured - bound.rate) / bound.rate * window_ms)

    def _sweep(self, now_ms: float) -> None:
        """Forget counters nobody used for long: they stand in the order of their last use."""
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


class Quotas:
    """The byte rates of clients at this node."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._kinds = {key: _Kind() for key in _COUNTED}
        self.is_on = False
        """Whether there is any quota that is counted here."""

    def publish(self, image: Image, delta: Delta) -> None:
        """Take in what changed; a new bound holds for the running counters at once (item 348)."""
        for about in delta.others:
            if about[0] != "quota" or about[2] not in self._kinds:
                continue
            place, kind = place_of(about[1]), self._kinds[about[2]]
            if place is None:
                continue
            record = image.others.get(about)
            if isinstance(record, m.ClientQuotaRecord):
                kind.limits[place] = record.value
            else:
                kind.limits.pop(place, None)
            kind.changed()
        self.is_on = any(kind.limits for kind in self._kinds.values())

    def produced(self, peer: Metered, client_id: str, size_bytes: int) -> int:
        """Somebody produced: how long it has to wait, in milliseconds; its connection is muted for so long."""
        delay_ms = self._kinds[PRODUCE].delay_ms(_name(peer), client_id, size_bytes, self._env.monotonic_ms())
        peer.throttle_ms = max(peer.throttle_ms, delay_ms)
        return delay_ms

    def fetched(self, peer: Metered, client_id: str, size_bytes: int) -> int:
        """Somebody would get so much: how long it has to wait; then it gets nothing, and that does not count."""
        now_ms = self._env.monotonic_ms()
        delay_ms = self._kinds[FETCH].delay_ms(_name(peer), client_id, size_bytes, now_ms, keep=False)
        peer.throttle_ms = max(peer.throttle_ms, delay_ms)
        return delay_ms

    def most_fetched(self, peer: Metered, client_id: str, most_bytes: int) -> int:
        """So much of ``most_bytes`` may be fetched at once; more would be over the quota by itself (item 349)."""
        bound = self._kinds[FETCH].bound(_name(peer), client_id)
        return most_bytes if bound is None else min(most_bytes, int(bound.rate * (SAMPLES - 1) * SAMPLE_MS / 1000))


def _name(peer: Metered) -> str:
    return peer.principal.partition(":")[2]
