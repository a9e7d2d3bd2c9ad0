"""What clients may bring, take and have done in a second: who goes over a quota waits until the rate is back at it.

Behaviour (items 345 to 349): over the bound after counting, a client waits (rate - bound) / bound of the time the rate
was taken over. Nothing is counted while there is no quota of that kind. Time that requests take counts in hundredths of
a second (``request_percentage``), and nobody waits longer than a second for it.

Source: ``QuotaUtils.java``, ``ClientQuotaManager.java``, ``ClientRequestQuotaManager.java`` (apache/kafka 4.3.1).

From KIP-13, KIP-55, KIP-124, KIP-219.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.auth.counters import MOST_DELAY_MS, SAMPLE_MS, SAMPLES, Kind, Metered, Rate, name_of, place_of
from ottla.controller.delta import Delta
from ottla.controller.image import Image
from ottla.controller.quotas import FETCH, MUTATION, PRODUCE, REQUEST
from ottla.wire.apis import ApiKey
from ottla.wire.messages import metadata_records as m
from ottla.world.env import Env

if TYPE_CHECKING:
    from ottla.broker.auth.mutations import Changes, Mutations

MOST_REQUEST_DELAY_MS = int(SAMPLE_MS)
_RATES = (PRODUCE, FETCH, REQUEST)


class Rates(Kind[Rate]):
    """Quotas of so much a second."""

    def __init__(self) -> None:
        super().__init__(Rate)

    def delay_ms(self, user: str, client_id: str, value: float, now_ms: float, *, keep: bool = True) -> int:
        """Count something; gives how long somebody has to wait now. ``keep``: whether it counts though he waits."""
        bound = self.bound(user, client_id)
        if bound is None:
            return 0
        rate = self.counter(bound.who, now_ms)
        rate.count(value, now_ms)
        measured, window_ms = rate.look(now_ms)
        if measured <= bound.rate:
            return 0
        if not keep:
            rate.count(-value, now_ms)
        return round(min(MOST_DELAY_MS, (measured - bound.rate) / bound.rate * window_ms))

    def count(self, user: str, client_id: str, value: float, now_ms: float) -> None:
        """Count something nobody waits for; a negative value takes back what was counted."""
        bound = self.bound(user, client_id)
        if bound is not None:
            self.counter(bound.who, now_ms).count(value, now_ms)


class Quotas:
    """What clients may have of this node."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._kinds = {key: Rates() for key in _RATES}
        self._mutations: Mutations | None = None
        self.is_on = False
        """Whether there is any quota that is counted here."""
        self.times_requests = False
        """Whether it counts how long requests take."""

    def publish(self, image: Image, delta: Delta) -> None:
        """Take in what changed; a new bound holds for the running counters at once (item 348)."""
        for about in delta.others:
            if about[0] != "quota" or about[2] not in (*_RATES, MUTATION):
                continue
            place = place_of(about[1])
            if place is None:
                continue
            kind: Kind[Rate] | Mutations = self._kinds[about[2]] if about[2] != MUTATION else self._mutating()
            record = image.others.get(about)
            if isinstance(record, m.ClientQuotaRecord):
                kind.limits[place] = record.value
            else:
                kind.limits.pop(place, None)
            kind.changed()
        self.times_requests = bool(self._kinds[REQUEST].limits)
        limits_changes = self._mutations is not None and bool(self._mutations.limits)
        self.is_on = limits_changes or any(kind.limits for kind in self._kinds.values())

    def _mutating(self) -> Mutations:
        if self._mutations is None:
            from ottla.broker.auth.mutations import Mutations  # few clusters have such quotas

            self._mutations = Mutations()
        return self._mutations

    def produced(self, peer: Metered, client_id: str, size_bytes: int) -> int:
        """Somebody produced: how long it has to wait, in milliseconds; its connection is muted for so long."""
        delay_ms = self._kinds[PRODUCE].delay_ms(name_of(peer), client_id, size_bytes, self._env.monotonic_ms())
        peer.throttle_ms = max(peer.throttle_ms, delay_ms)
        return delay_ms

    def fetched(self, peer: Metered, client_id: str, size_bytes: int) -> int:
        """Somebody would get so much: how long it has to wait; then it gets nothing, and that does not count."""
        now_ms, user, kind = self._env.monotonic_ms(), name_of(peer), self._kinds[FETCH]
        requested_ms = self.requested(peer, client_id)
        delay_ms = kind.delay_ms(user, client_id, size_bytes, now_ms, keep=False)
        if requested_ms and not delay_ms:
            kind.count(user, client_id, -size_bytes, now_ms)
        peer.throttle_ms = max(peer.throttle_ms, delay_ms)
        return max(delay_ms, requested_ms)

    def took(self, peer: Metered, client_id: str, size_bytes: int) -> int:
        """Somebody gets so much: how long it has to wait afterwards."""
        delay_ms = self._kinds[FETCH].delay_ms(name_of(peer), client_id, size_bytes, self._env.monotonic_ms())
        peer.throttle_ms = max(peer.throttle_ms, delay_ms)
        return delay_ms

    def most_fetched(self, peer: Metered, client_id: str, most_bytes: int) -> int:
        """So much of ``most_bytes`` may be fetched at once; more would be over the quota by itself (item 349)."""
        bound = self._kinds[FETCH].bound(name_of(peer), client_id)
        return most_bytes if bound is None else min(most_bytes, int(bound.rate * (SAMPLES - 1) * SAMPLE_MS / 1000))

    def requested(self, peer: Metered, client_id: str) -> int:
        """A request is about to be answered: how long who asked has to wait for the time it took (item 346)."""
        if peer.stopwatch is None:
            return 0
        percent, now_ms = peer.stopwatch.lap_ms() / 10, self._env.monotonic_ms()
        delay_ms = self._kinds[REQUEST].delay_ms(name_of(peer), client_id, percent, now_ms)
        delay_ms = min(delay_ms, MOST_REQUEST_DELAY_MS)
        peer.throttle_ms = max(peer.throttle_ms, delay_ms)
        return delay_ms

    def answered(self, peer: Metered, client_id: str) -> None:
        """Its answer left: what that took counts for the next request."""
        if peer.stopwatch is not None:
            percent, now_ms = peer.stopwatch.lap_ms() / 10, self._env.monotonic_ms()
            self._kinds[REQUEST].count(name_of(peer), client_id, percent, now_ms)

    def changes(self, peer: Metered, client_id: str, key: ApiKey, version: int) -> Changes | None:
        """What counts the partitions a request makes or removes; None where nobody counts them."""
        if self._mutations is None or not self._mutations.limits:
            return None
        return self._mutations.begin(peer, client_id, key, version, self._env.monotonic_ms)
