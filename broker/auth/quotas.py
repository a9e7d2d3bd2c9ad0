"""What clients may bring, take and have done in a second: who goes over a quota waits until the rate is back at it.

Behaviour (items 345 to 349): over the bound after counting, a client waits (rate - bound) / bound of the time the rate
was taken over. Nothing is counted while there is no quota of that kind. Time that requests take counts in hundredths of
a second (``request_percentage``), and nobody waits longer than a second for it.

Source: ``QuotaUtils.java``, ``ClientQuotaManager.java``, ``ClientRequestQuotaManager.java`` (apache/kafka 4.3.1).

From KIP-13, KIP-55, KIP-124, KIP-219.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.auth.counters import (
    FREE,
    KEPT_NAME_CHARS,
    MOST_DELAY_MS,
    SAMPLE_MS,
    Bound,
    Kind,
    Metered,
    Rate,
    place_of,
)
from ottla.controller.delta import MetadataDelta
from ottla.controller.image import MetadataImage
from ottla.controller.quotas import CONTROLLER_MUTATION, FETCH, PRODUCE, REQUEST
from ottla.wire.apis import ApiKey
from ottla.wire.messages import metadata_records as m
from ottla.world.env import Env

if TYPE_CHECKING:
    from ottla.broker.auth.mutations import Changes, Mutations

MOST_REQUEST_DELAY_MS = int(SAMPLE_MS)


class Rates(Kind[Rate]):
    """Quotas of so much a second."""

    def __init__(self, env: Env, most_delay_ms: int = MOST_DELAY_MS, *, keeps: bool = True) -> None:
        """``keeps``: whether what somebody has to wait for counts."""
        super().__init__(Rate)
        self._env = env
        self._most_delay_ms = most_delay_ms
        self._keeps = keeps
        self.held_as: str | None = None
        """As what a connection holds its bound, if it does: `ottla.broker.server.peer.Peer`."""
        self._free.free()

    def spend(self, who: Metered, client_id: str, value: float, about_ms: float) -> int:
        """Count something: how long somebody has to wait now, in milliseconds; for so long he is not read.

        ``about_ms``: when his request came, by the wall clock; the time is asked for only where it decides. Who asks
        often comes here only when what he holds does not cover it.
        """
        bound = self.bound(who.principal, client_id)
        if self.held_as is not None and len(client_id) <= KEPT_NAME_CHARS:
            setattr(who, self.held_as, bound)
        return 0 if bound.covers(value, about_ms) else self._over_ms(who, bound, value, about_ms, keep=self._keeps)

    def take(self, who: Metered, client_id: str, value: float, about_ms: float) -> int:
        """As `spend`, of what counts in any case."""
        bound = self.bound(who.principal, client_id)
        return 0 if bound.rate == FREE else self._over_ms(who, bound, value, about_ms, keep=True)

    def _over_ms(self, who: Metered, bound: Bound[Rate], value: float, about_ms: float, *, keep: bool) -> int:
        now_ms = self._env.monotonic_ms()
        rate = bound.counter = self.counter(bound.who, now_ms)
        rate.count(value, now_ms)
        measured, window_ms = rate.look(now_ms)
        if measured <= bound.rate:
            rate.lay_open(bound.most, now_ms, about_ms)
            return 0
        if not keep:
            rate.count(-value, now_ms)
        delay_ms = round(min(self._most_delay_ms, (measured - bound.rate) / bound.rate * window_ms))
        who.throttle_ms = max(who.throttle_ms, delay_ms)
        return delay_ms

    def count(self, who: Metered, client_id: str, value: float) -> None:
        """Count something nobody waits for; a negative value takes back what was counted."""
        bound, now_ms = self.bound(who.principal, client_id), self._env.monotonic_ms()
        if bound.rate != FREE:
            self.counter(bound.who, now_ms).count(value, now_ms)


class Quotas:
    """What clients may have of this node."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.produce, self.fetch = Rates(env), Rates(env, keeps=False)
        """Of bytes: those that are brought, and those that are taken."""
        self.produce.held_as, self.fetch.held_as = "brings", "takes"
        self._request = Rates(env, MOST_REQUEST_DELAY_MS)
        self._kinds = {PRODUCE: self.produce, FETCH: self.fetch, REQUEST: self._request}
        self._mutations: Mutations | None = None
        self.is_on = False
        """Whether there is any quota that is counted here."""
        self.times_requests = False
        """Whether it counts how long requests take."""

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take in what changed; a new bound holds for the running counters at once (item 348)."""
        for about in delta.others:
            if about[0] != "quota" or about[2] not in (*self._kinds, CONTROLLER_MUTATION):
                continue
            place = place_of(about[1])
            if place is None:
                continue
            kind: Kind[Rate] | Mutations = (
                self._kinds[about[2]] if about[2] != CONTROLLER_MUTATION else self._mutating()
            )
            record = image.others.get(about)
            if isinstance(record, m.ClientQuotaRecord) and record.value > 0:  # also not NaN
                kind.limits[place] = record.value
            else:
                kind.limits.pop(place, None)
            kind.changed()
        if self.times_requests != bool(self._request.limits):
            self.times_requests = bool(self._request.limits)
            self.fetch.held_as = None if self.times_requests else "takes"  # what a fetch took is asked of each
            self.fetch.changed()
        limits_changes = self._mutations is not None and bool(self._mutations.limits)
        self.is_on = limits_changes or any(kind.limits for kind in self._kinds.values())

    def _mutating(self) -> Mutations:
        if self._mutations is None:
            from ottla.broker.auth.mutations import Mutations  # few clusters have such quotas

            self._mutations = Mutations()
        return self._mutations

    def fetched(self, peer: Metered, client_id: str, size_bytes: int, about_ms: float) -> int:
        """Somebody would get so much, and its request took time: how long it has to wait; then it gets nothing, and
        that does not count. ``about_ms``: as of `Rates.spend`.
        """
        requested_ms = self.requested(peer, client_id)
        delay_ms = self.fetch.spend(peer, client_id, size_bytes, about_ms)
        if requested_ms and not delay_ms:
            self.fetch.count(peer, client_id, -size_bytes)
        return max(delay_ms, requested_ms)

    def most_fetched(self, peer: Metered, client_id: str, most_bytes: int) -> int:
        """So much of ``most_bytes`` may be fetched at once; more would be over the quota by itself (item 349)."""
        return min(most_bytes, self.fetch.bound(peer.principal, client_id).most)

    def requested(self, peer: Metered, client_id: str) -> int:
        """A request is about to be answered: how long who asked has to wait for the time it took (item 346)."""
        if peer.stopwatch is None:
            return 0
        return self._request.spend(peer, client_id, peer.stopwatch.lap_ms() / 10, self._env.monotonic_ms())

    def answered(self, peer: Metered, client_id: str) -> None:
        """Its answer left: what that took counts for the next request."""
        if peer.stopwatch is not None:
            self._request.count(peer, client_id, peer.stopwatch.lap_ms() / 10)

    def changes(self, peer: Metered, client_id: str, key: ApiKey, version: int) -> Changes | None:
        """What counts the partitions a request makes or removes; None where nobody counts them."""
        if self._mutations is None or not self._mutations.limits:
            return None
        return self._mutations.begin(peer, client_id, key, version, self._env.monotonic_ms)
