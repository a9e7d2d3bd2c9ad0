"""Limits of the number and rate of connections, for broker listeners or for controller listeners.

Behaviour (S-355, S-356): a new connection waits for a slot among all connections and those of its listener, and for the
creation rate of both. Above the creation rate of its IP address it is not read, closed after the delay, and not
counted; above the number of its IP address it is closed at once. No delay exceeds 1 s. The inter-broker listener, if it
is separate, is exempt from the limits of all listeners; if these are exceeded, other connections are closed.

Source: ``ConnectionQuotas`` in ``SocketServer.scala`` (apache/kafka 4.3.1). Deviation: rates are measured only once
there is a limit.
From KIP-402, KIP-612.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from ottla.broker.config.limits import MAX_CONNECTION_THROTTLE_MS
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.quotas.quota_table import QuotaTable, Rate
from ottla.controller.config.broker_config_validation import connection_overrides
from ottla.controller.config.config_keys import broker_key, canonical_value
from ottla.controller.control.client_quotas import CONNECTIONS, IP
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages import metadata_records

NO_LIMIT = 2**31 - 1
MAX_CONNECTIONS, MAX_CREATION_RATE = "max.connections", "max.connection.creation.rate"
MAX_CONNECTIONS_PER_IP, PER_IP_OVERRIDES = "max.connections.per.ip", "max.connections.per.ip.overrides"
CONNECTION_LIMIT_KEYS = (MAX_CONNECTIONS, MAX_CREATION_RATE, MAX_CONNECTIONS_PER_IP, PER_IP_OVERRIDES)


def normalize_host(text: str) -> str:
    """Return the canonical form of an IP address; a host name in lower case."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return text.strip().lower()
    return str(getattr(address, "ipv4_mapped", None) or address)


def parse_overrides(text: str) -> dict[str, int]:
    """Return the maximum number of connections by address, from ``HOST:NUMBER,...``.

    Raises:
        ValueError: The text is malformed.
    """
    return {normalize_host(host): number for host, number in connection_overrides(text).items()}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Connection limits of a node, from its configuration and the IP quotas of the metadata; rates are per second."""

    total: int = NO_LIMIT
    rate: int = NO_LIMIT
    per_ip: int = NO_LIMIT
    overrides: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Maximum number and creation rate of listeners with own settings, by listener name."""
    ip_rates: Mapping[str | None, float] = field(default_factory=dict)
    """Maximum creation rate per second by IP address; None is the default."""

    @classmethod
    def from_config(cls, config: NodeConfig, image: MetadataImage, names: Iterable[str]) -> ConnectionLimits:
        """Return the limits in effect with a metadata image; ``names`` are the listeners' names.

        Raises:
            ValueError: A setting is invalid.
        """
        own, everyone = config.dynamic_values(image)
        values = dict(config.values)
        for stored in (everyone, own):
            values.update((k, canonical_value(broker_key(k), v)) for k, v in stored.items())
        listeners = {}
        for name in names:
            prefix = f"listener.name.{name.lower()}."
            if prefix + MAX_CONNECTIONS in values or prefix + MAX_CREATION_RATE in values:
                number, speed = (
                    int(values.get(prefix + key, values.get(key, NO_LIMIT)))
                    for key in (MAX_CONNECTIONS, MAX_CREATION_RATE)
                )
                listeners[name] = number, speed
        rates: dict[str | None, float] = {}
        for about in image.others:
            if about[0] == "quota" and about[2] == CONNECTIONS:
                entity, record = dict(about[1]), image.others[about]
                # The comparison is False for NaN.
                if set(entity) == {IP} and isinstance(record, metadata_records.ClientQuotaRecord) and record.value >= 0:
                    name = entity[IP]
                    rates[None if name is None else normalize_host(name)] = record.value
        overrides = parse_overrides(values.get(PER_IP_OVERRIDES, ""))
        total, rate, per_host = (
            int(values.get(key, NO_LIMIT)) for key in (MAX_CONNECTIONS, MAX_CREATION_RATE, MAX_CONNECTIONS_PER_IP)
        )
        return cls(total, rate, per_host, overrides, listeners, rates)

    def listener_limits(self, name: str) -> tuple[int, int]:
        """Return the maximum number and creation rate per second of a listener's connections, by default the node's."""
        return self.listeners.get(name, (self.total, self.rate))


class ConnectionQuotas:
    """Numbers and creation rates of connections: in total, by listener and by IP address."""

    def __init__(self, protected: str | None = None) -> None:
        """``protected`` is the inter-broker listener if there are other listeners, else None."""
        self._protected = protected
        self.limits = ConnectionLimits()
        self._total = 0
        self._count_by_ip: Counter[str] = Counter()
        self._listeners: Counter[str] = Counter()
        self._rate = Rate()
        self._rates: dict[str, Rate] = {}
        self._ip_rates = QuotaTable(Rate)

    def is_protected(self, listener: str) -> bool:
        """Return True if a listener is exempt from the limits of all listeners together."""
        return listener == self._protected

    def record_and_get_throttle_ms(self, listener: str, now_ms: float) -> int:
        """Record a new connection in the creation rates of its listener and, if it is not protected, of all listeners.

        Return how long in ms, at most 1000, it must wait until it is accepted; 0 within both rates. ``now_ms``:
        monotonic time.
        """
        delay_ms = 0
        if not self.is_protected(listener):
            delay_ms = _record_and_get_throttle_ms(self._rate, self.limits.rate, now_ms)
        own = self._rates.setdefault(listener, Rate())
        return max(delay_ms, _record_and_get_throttle_ms(own, self.limits.listener_limits(listener)[1], now_ms))

    def is_slot_available(self, listener: str) -> bool:
        """Return True if the listener has fewer connections than its limit, and all listeners fewer than the total.

        The total does not count for the protected listener.
        """
        if self._listeners[listener] >= self.limits.listener_limits(listener)[0]:
            return False
        return self.is_protected(listener) or self._total < self.limits.total

    def ip_throttle_ms(self, listener: str, host: str, now_ms: float) -> int:
        """Record a connection in the creation rate of its IP address; return 0, or the ms (at most 1000) to its close.

        0, and nothing is recorded, if the address has no limit. A connection above the rate is not accepted: it is
        removed again from this rate, and from those of ``listener`` and of all listeners, in which
        `record_and_get_throttle_ms` has recorded it. ``now_ms``: monotonic time.
        """
        host = normalize_host(host)
        rates = self.limits.ip_rates
        bound = rates.get(host, rates.get(None)) if rates else None
        if bound is None:
            return 0
        rate = self._ip_rates.counter((host, ""), now_ms)
        delay_ms = _record_and_get_throttle_ms(rate, bound, now_ms)
        if delay_ms:
            rate.record(-1, now_ms)
            self._rates[listener].record(-1, now_ms)
            if not self.is_protected(listener):
                self._rate.record(-1, now_ms)
        return delay_ms

    def increment(self, listener: str, host: str) -> bool:
        """Count a connection; return False, without counting it, if its IP address has as many as it may have."""
        host = normalize_host(host)
        if self._count_by_ip[host] >= self.limits.overrides.get(host, self.limits.per_ip):
            return False
        self._count(listener, host)
        return True

    def add_existing(self, listener: str, host: str) -> None:
        """Count a connection that exists when the first limit is set."""
        self._count(listener, normalize_host(host))

    def _count(self, listener: str, host: str) -> None:
        self._count_by_ip[host] += 1
        self._listeners[listener] += 1
        self._total += 1

    def decrement(self, listener: str, host: str) -> None:
        """Remove a closed connection from the counts."""
        host = normalize_host(host)
        self._count_by_ip[host] -= 1
        if not self._count_by_ip[host]:
            del self._count_by_ip[host]
        self._listeners[listener] -= 1
        self._total -= 1
        assert self._total >= 0, "each closed connection was counted"

    @property
    def excess(self) -> int:
        """Number of connections above the total limit, to be closed on listeners that are not protected."""
        return max(0, self._total - self.limits.total)


def _record_and_get_throttle_ms(rate: Rate, bound: float, now_ms: float) -> int:
    """Record a connection in a rate; return its delay in ms, 0 to 1000, by a limit of ``bound`` per second.

    ``now_ms``: monotonic time. Source: ``QuotaUtils.boundedThrottleTime``.
    """
    rate.record(1, now_ms)
    measured, window_ms = rate.measure(now_ms)
    if measured <= bound:
        return 0
    return (
        MAX_CONNECTION_THROTTLE_MS
        if bound <= 0
        else round(min(MAX_CONNECTION_THROTTLE_MS, (measured - bound) / bound * window_ms))
    )
