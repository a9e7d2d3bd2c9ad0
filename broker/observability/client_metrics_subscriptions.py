"""Client metrics subscriptions: the metrics and the push interval of a client, selected by its attributes.

Behaviour: a subscription without match patterns applies to every client; the metrics of all that match are merged,
``*`` means all metrics, and the shortest interval applies. The subscription id is a checksum of the result, with the
metrics in the order of Java's hash set, mixed with the client instance id: a push with another id is rejected.

Source: ``ClientMetricsManager.createClientInstance``, ``ClientMetricsConfigs.java``,
``ClientMetricsInstanceMetadata.java`` (apache/kafka 4.3.1).
From KIP-714.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import re2

from ottla.broker.config.dynamic_config import log_invalid_stored_value
from ottla.broker.groups.java_collections.hash_map import JavaHashMap
from ottla.broker.groups.java_collections.iteration_order import string_hash, uuid_hash
from ottla.controller.config.java_values import parse_integer, trim
from ottla.controller.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.wire.record_batch.crc import crc32c

logger = logging.getLogger("ottla.telemetry")
DEFAULT_INTERVAL_MS = 300_000
MIN_INTERVAL_MS = 100
ALL_METRICS = "*"
ClientAttributes = Mapping[str, str | None]
"""Attributes of a client by their names in match patterns."""


class MergedSubscription(NamedTuple):
    """Metrics and push interval of a client, merged from all subscriptions that match it."""

    metrics: tuple[str, ...]
    """Prefixes of metric names, in the order of Java's hash set."""
    interval_ms: int

    def subscription_id(self, instance_id: bytes) -> int:
        """Return the subscription id for a client instance, a signed 32-bit integer."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        mixed = crc32c(text.encode()) ^ uuid_hash(instance_id)
        return mixed - (1 << 32) if mixed >> 31 else mixed


class ClientMetricsSubscription(NamedTuple):
    """Client metrics subscription of the cluster: metric name prefixes, push interval and match patterns."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any]
    """Compiled pattern by client attribute; None for an invalid one, which matches no client."""

    def matches(self, attributes: ClientAttributes) -> bool:
        """Return True if all match patterns match the client's attributes, each as a whole.

        An invalid pattern, or one for an attribute that the client lacks, does not match.
        """
        for name, pattern in self.patterns.items():
            text = attributes.get(name)
            if text is None or pattern is None or not pattern.fullmatch(text):
                return False
        return True


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (x.strip() for x in text.split(","))))


def _compile_pattern(name: str, text: str) -> Any:
    """Compile a match pattern with RE2, in linear time, as clients choose the text; None if it is invalid."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeError):
        logger.warning("Invalid match pattern of client metrics %s, matching no client: %r", name, text)
        return None


def _interval_ms(name: str, text: str | None) -> int:
    """Return the push interval of a subscription in ms, at least `MIN_INTERVAL_MS`.

    The default if ``text`` is None or no integer; the latter is logged.
    """
    try:
        return DEFAULT_INTERVAL_MS if text is None else max(parse_integer(trim(text), 32), MIN_INTERVAL_MS)
    except ValueError:
        log_invalid_stored_value(f"client metrics {name!r}", "interval.ms", text or "")
        return DEFAULT_INTERVAL_MS


def read_subscriptions(image: MetadataImage) -> list[ClientMetricsSubscription]:
    """Return the subscriptions for client metrics (KIP-714): configs of the resources of type CLIENT_METRICS."""
    out = []
    for kind, name in image.configs:
        if kind == RESOURCE_CLIENT_METRICS:
            values = image.config(kind, name)
            pairs = (x.partition("=") for x in _split_list(values.get("match", "")))
            patterns = {key.strip(): _compile_pattern(name, text.strip()) for key, _, text in pairs}
            interval_ms = _interval_ms(name, values.get("interval.ms"))
            out.append(ClientMetricsSubscription(_split_list(values.get("metrics", "")), interval_ms, patterns))
    return out


def merge_subscriptions(subscriptions: Iterable[ClientMetricsSubscription]) -> MergedSubscription:
    """Merge the subscriptions that match a client: all their metrics, and the shortest interval, at most five minutes.

    Without subscriptions: no metrics, every five minutes.
    """
    interval_ms, metrics = DEFAULT_INTERVAL_MS, JavaHashMap[str, None](string_hash)
    for each in subscriptions:
        interval_ms = min(interval_ms, each.interval_ms)
        for name in each.metrics:
            metrics.put(name, None)
    return MergedSubscription((ALL_METRICS,) if ALL_METRICS in metrics else tuple(metrics), interval_ms)
