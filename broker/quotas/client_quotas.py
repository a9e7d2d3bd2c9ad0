"""Client quotas: a client above its quota is throttled until its rate is at the limit again.

Behaviour (S-345 to S-349): if the rate including a request exceeds the limit, the throttle time is (rate - limit) /
limit of the rate's window. Clients without a quota are not measured. The request quota (``request_percentage``) is in
percent of a second of processing time, with a maximum throttle time of 1 s.

Source: ``QuotaUtils.java``, ``ClientQuotaManager.java``, ``ClientRequestQuotaManager.java`` (apache/kafka 4.3.1).
From KIP-13, KIP-55, KIP-124, KIP-219.
"""

from __future__ import annotations

from typing import NamedTuple

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


class QuotaUsage(NamedTuple):
    """Quota of a client and its current rate, both in units per second: bytes, percent of time or partitions."""

    key: str
    """Name of the quota, such as ``producer_byte_rate``."""
    limit: float
    rate: float | None
    """None for partitions, which are counted by a token bucket."""


class ClientQuotaManager(QuotaTable[Rate]):
    """Manager of one type of client quota in units per second: bytes or percent of request time."""

    def __init__(self, env: Env, most_delay_ms: int = MAX_THROTTLE_MS, *, keeps: bool = True) -> None:
        """Create a manager without limits.

        ``most_delay_ms``: maximum throttle time. ``keeps``: the value of a throttled request remains recorded; False if
        the request is answered without that value, as a fetch without records.
        """
        super().__init__(Rate)
        self._env = env
        self._most_delay_ms = most_delay_ms
        self._retains_throttled = keeps
        self.binding_attribute: str | None = None
        """Name of the attribute of the client's `QuotaBindings` that caches a binding; None: it is not cached."""
        self._unlimited_counter.remove_limit()

    def maybe_record_and_get_throttle_ms(
        self, client: QuotaClient, client_id: str, value: float, about_ms: float
    ) -> int:
        """Record a value of a client and return its throttle time in ms, 0 within the quota or without one.

        A positive throttle time is stored in ``client.throttle_ms`` as well, by which its connection is muted; the
        value stays recorded only if the manager ``keeps`` it. Frequent callers try the client's cached `QuotaBinding`
        first.

        Args:
            client: Client with its principal.
            client_id: Client id of the request.
            value: Bytes or percent of request time.
            about_ms: Arrival of the request, wall clock; the current time is only read if the rate must be computed.
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
        """Like `maybe_record_and_get_throttle_ms`, but the value stays recorded even if the client is throttled.

        The cached `QuotaBinding` of the connection is neither used nor set. ``about_ms``: wall clock.
        """
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

    def measure_rate(self, bound: QuotaBinding[Rate]) -> float:
        """Return the current rate per second in the counter of ``bound``; 0 if nothing was recorded.

        Clients under a default quota have a counter each.
        """
        counter = self.find_counter(bound.counter_key)
        return 0.0 if counter is None else counter.measure(self._env.monotonic_ms())[0]

    def record_no_throttle(self, client: QuotaClient, client_id: str, value: float) -> None:
        """Record bytes or percent of time without throttling, if there is a quota; a negative value takes one back.

        The quota is that of the principal of ``client`` and of ``client_id``, the client id of the request.
        """
        bound, now_ms = self.binding(client.principal, client_id), self._env.monotonic_ms()
        if bound.limit != UNLIMITED:
            self.counter(bound.counter_key, now_ms).record(value, now_ms)


class QuotaManagers:
    """Quota managers of this node by type: produce, fetch, request time and controller mutations."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.produce, self.fetch = ClientQuotaManager(env), ClientQuotaManager(env, keeps=False)
        """Managers of the byte rates of Produce and Fetch requests."""
        self.produce.binding_attribute, self.fetch.binding_attribute = "produce", "fetch"
        self._request = ClientQuotaManager(env, MAX_REQUEST_THROTTLE_MS)
        self._managers_by_key = {PRODUCE: self.produce, FETCH: self.fetch, REQUEST: self._request}
        self._controller_mutation: ControllerMutationQuotaManager | None = None
        self.is_enabled = False
        """True if any produce, fetch, request or controller mutation quota is configured."""
        self.times_requests = False
        """True if request quotas are configured, so that requests are timed."""

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Apply the changed quotas of a metadata delta; they apply to the existing rates at once (S-348)."""
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
            if isinstance(record, metadata_records.ClientQuotaRecord) and record.value > 0:  # False for NaN
                kind.limits[place] = record.value
            else:
                kind.limits.pop(place, None)
            kind.invalidate_bindings()
        if self.times_requests != bool(self._request.limits):
            self.times_requests = bool(self._request.limits)
            # the request time of each fetch has to be recorded
            self.fetch.binding_attribute = None if self.times_requests else "fetch"
            self.fetch.invalidate_bindings()
        limits_changes = self._controller_mutation is not None and bool(self._controller_mutation.limits)
        self.is_enabled = limits_changes or any(kind.limits for kind in self._managers_by_key.values())

    def _load_controller_mutation(self) -> ControllerMutationQuotaManager:
        if self._controller_mutation is None:
            self._controller_mutation = ControllerMutationQuotaManager()
        return self._controller_mutation

    def fetch_throttle_ms(self, peer: QuotaClient, client_id: str, size_bytes: int, about_ms: float) -> int:
        """Return the throttle time in ms of a fetch that would return ``size_bytes``, by its fetch and request quotas.

        If it is 0, the bytes are recorded. If it is positive they are not, as the caller must answer without records;
        it is also stored in ``peer.throttle_ms``. The request's time so far is recorded in any case. ``about_ms``:
        arrival of the request, wall clock.
        """
        requested_ms = self.request_throttle_ms(peer, client_id)
        delay_ms = self.fetch.maybe_record_and_get_throttle_ms(peer, client_id, size_bytes, about_ms)
        if requested_ms and not delay_ms:
            self.fetch.record_no_throttle(peer, client_id, -size_bytes)
        return max(delay_ms, requested_ms)

    def max_fetch_bytes(self, peer: QuotaClient, client_id: str, most_bytes: int) -> int:
        """Return ``most_bytes``, or fewer if a single fetch of so many bytes would exceed the quota (S-349)."""
        return min(most_bytes, self.fetch.binding(peer.principal, client_id).max_in_window)

    def request_throttle_ms(self, peer: QuotaClient, client_id: str) -> int:
        """Record a request's processing time so far; return its throttle time in ms, 0 without request quotas.

        A positive one is also stored in ``peer.throttle_ms`` (S-346).
        """
        if peer.request_timer is None:
            return 0
        return self._request.maybe_record_and_get_throttle_ms(
            peer, client_id, peer.request_timer.lap_ms() / 10, self._env.monotonic_ms()
        )

    def record_response(self, peer: QuotaClient, client_id: str) -> None:
        """Record a request's processing time since the last record, for encoding and sending its response.

        It does not throttle this request, only later ones. No effect without request quotas.
        """
        if peer.request_timer is not None:
            self._request.record_no_throttle(peer, client_id, peer.request_timer.lap_ms() / 10)

    def describe(self, principal: str, client_id: str) -> list[QuotaUsage]:
        """Return the quotas that apply to a client, the most specific of each type, with its current rates."""
        out = []
        for key, manager in self._managers_by_key.items():
            bound = manager.binding(principal, client_id)
            if bound.limit != UNLIMITED:
                out.append(QuotaUsage(key, bound.limit, manager.measure_rate(bound)))
        if self._controller_mutation is not None:
            limit = self._controller_mutation.binding(principal, client_id).limit
            if limit != UNLIMITED:
                out.append(QuotaUsage(CONTROLLER_MUTATION, limit, None))
        return out

    def new_mutation_quota(
        self, peer: QuotaClient, client_id: str, kind: QuotaKind | MutationQuota, version: int
    ) -> ControllerMutationQuota | None:
        """Return the quota for the partitions that a request creates or deletes.

        None if the client has no such quota, or if ``kind``, the quota of the API, is none for mutations.
        """
        if (
            self._controller_mutation is None
            or not self._controller_mutation.limits
            or not isinstance(kind, MutationQuota)
        ):
            return None
        return self._controller_mutation.new_quota_for(
            peer, client_id, self._env.monotonic_ms, strict=version >= kind.strict_since
        )
