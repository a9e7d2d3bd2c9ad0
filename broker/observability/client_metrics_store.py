"""Store of the last metric values pushed by clients, for the `/metrics` page.

A value is exported as ``ottla_client_`` and its own name, with labels for its client; deltas are summed up. The values
of a client expire three of its push intervals after its last push, at least a minute. As clients choose the contents,
the store is bounded per client and in total; values beyond the limits are counted and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

from ottla.broker.config.limits import MAX_CLIENT_METRICS_CLIENT_BYTES, MAX_CLIENT_METRICS_TOTAL_BYTES
from ottla.broker.observability.client_metrics_instances import MIN_EXPIRY_MS, ClientMetricsInstance
from ottla.broker.observability.otlp import Labels, OtlpSample, parse_samples
from ottla.jobs.job import Job
from ottla.wire.codec.primitives import uuid_to_string

METRIC_PREFIX = "ottla_client_"
_VALUE_OVERHEAD_BYTES = 300
_IDENTITY_LABELS = ("client_instance_id", "client_id", "client_software_name", "client_software_version")
_VALUES_PER_STEP = 50
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Series = tuple[str, Labels]


class _SeriesValue(NamedTuple):
    value: float
    is_counter: bool


class _ClientValues:
    """Metric values of one client, their size and expiry time."""

    def __init__(self, identity_labels: str) -> None:
        self.identity_labels = identity_labels
        self.values: dict[Series, _SeriesValue] = {}
        self.size_bytes = 0
        self.expires_ms = 0.0


class ClientMetricsStore:
    """Metric values of all clients, and the number of pushes and dropped values."""

    def __init__(self) -> None:
        self._clients: dict[bytes, _ClientValues] = {}
        self._size_bytes = 0
        self.pushes = 0
        self.dropped = 0
        """Number of values dropped because of the limits."""

    def add_push(self, instance: ClientMetricsInstance, data: bytes, now_ms: float) -> Job[None]:
        """Store the values of a push, as a job; ``data`` is OpenTelemetry's ``MetricsData``, not compressed.

        Values of all clients that have expired at the monotonic time ``now_ms`` are removed first. A message that
        proves malformed leaves the values before that point.

        Raises:
            WireError: The message is malformed.
        """
        self._remove_expired(now_ms)
        self.pushes += 1
        until_ms = now_ms + max(MIN_EXPIRY_MS, 3 * instance.subscription.interval_ms)
        known = self._clients.get(instance.client_instance_id)
        if known is not None:
            known.expires_ms = until_ms
        for sample in parse_samples(data):
            if sample is not None:
                self._add_sample(instance, sample, until_ms)
            yield None

    def _add_sample(self, instance: ClientMetricsInstance, sample: OtlpSample, until_ms: float) -> None:
        """Store a sample, or count it as dropped if it exceeds the limit of its client or of the store.

        A delta is added to the stored value. A client is stored with its first value only, as clients choose their ids.
        ``until_ms``: monotonic time at which the values of the client expire.
        """
        kept = self._clients.get(instance.client_instance_id) or _ClientValues(
            _format_labels(_identity_labels(instance))
        )
        kept.expires_ms = until_ms
        labels = tuple(each for each in sample.labels if each[0] not in _IDENTITY_LABELS)
        series = sample.name, labels
        before = kept.values.get(series)
        if before is None:
            size_bytes = _VALUE_OVERHEAD_BYTES + len(sample.name) + sum(len(name) + len(text) for name, text in labels)
            if not kept.values:
                size_bytes += len(kept.identity_labels)
            full = kept.size_bytes + size_bytes > MAX_CLIENT_METRICS_CLIENT_BYTES
            if full or self._size_bytes + size_bytes > MAX_CLIENT_METRICS_TOTAL_BYTES:
                self.dropped += 1
                return
            self._clients[instance.client_instance_id] = kept
            kept.size_bytes += size_bytes
            self._size_bytes += size_bytes
        total = sample.value + (before.value if sample.is_delta and before is not None else 0.0)
        kept.values[series] = _SeriesValue(total, sample.is_counter)

    def _remove_expired(self, now_ms: float) -> None:
        for ident in [ident for ident, kept in self._clients.items() if kept.expires_ms <= now_ms]:
            self._size_bytes -= self._clients.pop(ident).size_bytes

    def render(self, now_ms: float) -> Generator[None, None, list[str]]:
        """Return all samples in the Prometheus text format, as a job: the header of each family and its samples.

        Values that have expired at the monotonic time ``now_ms`` are removed.
        """
        self._remove_expired(now_ms)
        by_name: dict[str, list[tuple[str, Labels, _SeriesValue]]] = {}
        for kept in list(self._clients.values()):
            for number, ((name, labels), value) in enumerate(list(kept.values.items()), 1):
                by_name.setdefault(name, []).append((kept.identity_labels, labels, value))
                if number % _VALUES_PER_STEP == 0:
                    yield
        out = []
        for name, rows in by_name.items():
            kinds = {row[2].is_counter for row in rows}
            kind = "untyped" if len(kinds) > 1 else "counter" if kinds.pop() else "gauge"
            out.append(f"# HELP {METRIC_PREFIX}{name} Pushed by clients.\n# TYPE {METRIC_PREFIX}{name} {kind}\n")
            for number, (identity, labels, value) in enumerate(rows, 1):
                out.append(
                    f"{METRIC_PREFIX}{name}{{{identity}{_format_extra_labels(labels)}}} {_format_number(value.value)}\n"
                )
                if number % _VALUES_PER_STEP == 0:
                    yield
            yield
        return out

    def push_counters(self) -> Iterator[tuple[str, int]]:
        """Yield name and value of the counters of pushes and dropped values; no client metric can have these names."""
        yield "ottla_telemetry_pushes_total", self.pushes
        yield "ottla_telemetry_values_dropped_total", self.dropped


def _identity_labels(instance: ClientMetricsInstance) -> Labels:
    attributes = {**instance.attributes, "client_instance_id": uuid_to_string(instance.client_instance_id)}
    return tuple((name, (attributes.get(name) or "")[:200]) for name in _IDENTITY_LABELS)


def _format_labels(labels: Labels) -> str:
    return ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels)


def _format_extra_labels(labels: Labels) -> str:
    return f",{_format_labels(labels)}" if labels else ""


def _format_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(value)
