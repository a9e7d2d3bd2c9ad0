"""Client quotas: a client above its quota is throttled until its rate is back at the limit.

Behaviour (S-345 to S-349): above the limit after counting, the delay is (rate - limit) / limit of the window of the
rate. Without a quota of the type nothing is counted. Request time counts in percent of a second
(``request_percentage``), with a maximum delay of 1 s.

Source: ``QuotaUtils.java``, ``ClientQuotaManager.java``, ``ClientRequestQuotaManager.java`` (apache/kafka 4.3.1).

From KIP-13, KIP-55, KIP-124, KIP-219.
"""

from __future__ import annotations

from ottla.broker.api_spec import MutationQuota, QuotaKind
from ottla.broker.config.limits import MAX_QUOTA_CLIENT_ID_CHARS
from ottla.broker.quotas.controller_mutation_quota import ControllerMutationQuota, ControllerMutationQuotaManager
from ottla.broker.quotas.quota_table import (
    MAX_THROTTLE_MS,
    SAMPLE_MS,
    UNLIMITED,
    QuotaBinding,
    QuotaClient,
    QuotaTable,
    Rate,
    quota_entity,
)
from ottla.controller.control.client_quotas import CONTROLLER_MUTATION, FETCH, PRODUCE, REQUEST
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.wire.messages import metadata_records

MAX_REQUEST_THROTTLE_MS = int(SAMPLE_MS)


class ClientQuotaManager(QuotaTable[Rate]):
    """Quotas of so much a second."""

    def __init__(self, env: Env, most_delay_ms: int = MAX_THROTTLE_MS, *, keeps: bool = True) -> None:
        """Create a manager; ``keeps``: True if throttled values count."""
        super().__init__(Rate)
        self._env = env
        self._most_delay_ms = most_delay_ms
        self._retains_throttled = keeps
        self.binding_attribute: str | None = None
        """Attribute of `ottla.broker.requests.peer.QuotaBindings` that keeps a binding of this quota, if any."""
        self._unlimited_counter.remove_limit()

    def maybe_record_and_get_throttle_ms(
        self, client: QuotaClient, client_id: str, value: float, about_ms: float
    ) -> int:
        """Record a value and return the throttle time in milliseconds.

        ``about_ms``: arrival of the request, wall clock; the current time is only read where it matters. Frequent
        callers try their cached binding first.
        """
        bound = self.binding(client.principal, client_id)
        if self.binding_attribute is not None and len(client_id) <= MAX_QUOTA_CLIENT_ID_CHARS:
            setattr(client.quota_bindings, self.binding_attribute, bound)
        return (
            0
            if bound.try_record(value, about_ms)
            else self._record_and_measure(client, bound, value, about_ms, keep=self._retains_throttled)
        )

    def record_and_get_throttle_ms(self, client: QuotaClient, client_id: str, value: float, about_ms: float) -> int:
        """As `maybe_record_and_get_throttle_ms`, of what counts in any case."""
        bound = self.binding(client.principal, client_id)
        return 0 if bound.limit == UNLIMITED else self._record_and_measure(client, bound, value, about_ms, keep=True)

    def _record_and_measure(
        self, client: QuotaClient, bound: QuotaBinding[Rate], value: float, about_ms: float, *, keep: bool
    ) -> int:
        now_ms = self._env.monotonic_ms()
        rate = bound.counter = self.counter(bound.counter_key, now_ms)
        rate.record(value, now_ms)
        measured, window_ms = rate.measure(now_ms)
        if measured <= bound.limit:
            rate.open_fast_path(bound.max_in_window, now_ms, about_ms)
            return 0
        if not keep:
            rate.record(-value, now_ms)
        delay_ms = round(min(self._most_delay_ms, (measured - bound.limit) / bound.limit * window_ms))
        client.throttle_ms = max(client.throttle_ms, delay_ms)
        return delay_ms

    def record_no_throttle(self, client: QuotaClient, client_id: str, value: float) -> None:
        """Record a value without throttling; a negative value takes one back."""
        bound, now_ms = self.binding(client.principal, client_id), self._env.monotonic_ms()
        if bound.limit != UNLIMITED:
            self.counter(bound.counter_key, now_ms).record(value, now_ms)


class QuotaManagers:
    """Quota managers of this node."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.produce, self.fetch = ClientQuotaManager(env), ClientQuotaManager(env, keeps=False)
        """Of bytes: those that are brought, and those that are taken."""
        self.produce.binding_attribute, self.fetch.binding_attribute = "produce", "fetch"
        self._request = ClientQuotaManager(env, MAX_REQUEST_THROTTLE_MS)
        self._managers_by_key = {PRODUCE: self.produce, FETCH: self.fetch, REQUEST: self._request}
        self._controller_mutation: ControllerMutationQuotaManager | None = None
        self.is_enabled = False
        """True if there is any quota that is counted here."""
        self.times_requests = False
        """True if it counts how long requests take."""

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take in what changed; a new bound holds for the running counters at once (S-348)."""
        for about in delta.others:
            if about[0] != "quota" or about[2] not in (*self._managers_by_key, CONTROLLER_MUTATION):
                continue
            place = quota_entity(about[1])
            if place is None:
                continue
            kind: QuotaTable[Rate] | ControllerMutationQuotaManager = (
                self._managers_by_key[about[2]] if about[2] != CONTROLLER_MUTATION else self._load_controller_mutation()
            )
            record = image.others.get(about)
            if isinstance(record, metadata_records.ClientQuotaRecord) and record.value > 0:  # also not NaN
                kind.limits[place] = record.value
            else:
                kind.limits.pop(place, None)
            kind.invalidate_bindings()
        if self.times_requests != bool(self._request.limits):
            self.times_requests = bool(self._request.limits)
            # What a fetch took is asked of each.
            self.fetch.binding_attribute = None if self.times_requests else "fetch"
            self.fetch.invalidate_bindings()
        limits_changes = self._controller_mutation is not None and bool(self._controller_mutation.limits)
        self.is_enabled = limits_changes or any(kind.limits for kind in self._managers_by_key.values())

    def _load_controller_mutation(self) -> ControllerMutationQuotaManager:
        if self._controller_mutation is None:
            self._controller_mutation = ControllerMutationQuotaManager()
        return self._controller_mutation

    def fetch_throttle_ms(self, peer: QuotaClient, client_id: str, size_bytes: int, about_ms: float) -> int:
        """Return the throttle time of a fetch of so many bytes.

        If positive it returns no records, and they do not count.
        """
        requested_ms = self.request_throttle_ms(peer, client_id)
        delay_ms = self.fetch.maybe_record_and_get_throttle_ms(peer, client_id, size_bytes, about_ms)
        if requested_ms and not delay_ms:
            self.fetch.record_no_throttle(peer, client_id, -size_bytes)
        return max(delay_ms, requested_ms)

    def max_fetch_bytes(self, peer: QuotaClient, client_id: str, most_bytes: int) -> int:
        """Return how much of ``most_bytes`` one fetch may return without exceeding the quota by itself (S-349)."""
        return min(most_bytes, self.fetch.binding(peer.principal, client_id).max_in_window)

    def request_throttle_ms(self, peer: QuotaClient, client_id: str) -> int:
        """Return the throttle time for the time a request has taken (S-346)."""
        if peer.request_timer is None:
            return 0
        return self._request.maybe_record_and_get_throttle_ms(
            peer, client_id, peer.request_timer.lap_ms() / 10, self._env.monotonic_ms()
        )

    def record_response(self, peer: QuotaClient, client_id: str) -> None:
        """Record the time of the response, which counts for the next request."""
        if peer.request_timer is not None:
            self._request.record_no_throttle(peer, client_id, peer.request_timer.lap_ms() / 10)

    def new_mutation_quota(
        self, peer: QuotaClient, client_id: str, kind: QuotaKind | MutationQuota, version: int
    ) -> ControllerMutationQuota | None:
        """Return the quota of the partitions that a request creates or deletes; None where there is none."""
        if (
            self._controller_mutation is None
            or not self._controller_mutation.limits
            or not isinstance(kind, MutationQuota)
        ):
            return None
        return self._controller_mutation.new_quota_for(
            peer, client_id, self._env.monotonic_ms, strict=version >= kind.strict_since
        )
