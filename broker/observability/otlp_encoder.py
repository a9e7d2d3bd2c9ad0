"""Encoder of metrics and request spans as OTLP requests, in protobuf.

Source: ``opentelemetry-proto`` 1.x (``metrics_service.proto``, ``trace_service.proto``), OTLP specification 1.x.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ottla.broker.observability.request_tracer import RequestSpan
from ottla.jobs.job import Job

MAX_POINTS = 1_000
"""Maximum number of data points, or of spans, in one request."""
_SAMPLE = re.compile(r"(\w+?)(_count)?(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_NS_PER_MS = 1_000_000


class OtlpResource(NamedTuple):
    """OTLP resource, this node, to which its metrics and spans belong."""

    node_id: int

    def attributes(self) -> list[KeyValue]:
        """Return the attributes ``service.name`` (ottla) and ``service.instance.id`` (node id) of OpenTelemetry."""
        values = {"service.name": "ottla", "service.instance.id": str(self.node_id)}
        return [_attribute(key, value) for key, value in values.items()]


def _attribute(key: str, value: str | int) -> KeyValue:
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=value))


class _MetricsRequest:
    """OTLP metrics request under construction: samples are added, then its protobuf ``message`` is serialized."""

    def __init__(self, resource: OtlpResource, started_ns: int, now_ns: int) -> None:
        self.message = ExportMetricsServiceRequest()
        group = self.message.resource_metrics.add()
        group.resource.attributes.extend(resource.attributes())
        self._scope = group.scope_metrics.add()
        self._scope.scope.name = "ottla"
        self._started_ns = started_ns
        self._now_ns = now_ns
        self._metrics: dict[str, Any] = {}
        self._summaries: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self.points = 0

    def has_metric(self, name: str) -> bool:
        """Return True if samples of a family were added. All samples of a summary must be in the same request."""
        return name in self._metrics

    def add(self, name: str, kind: str, meaning: str, labels: dict[str, str], value: float, *, is_count: bool) -> None:
        """Add a sample of a family of type ``kind`` (counter, gauge, summary); ``meaning``: description of the family.

        ``is_count``: ``value`` is the number of observations of a summary, else the quantile in ``labels``, which is
        removed from them.
        """
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = self._scope.metrics.add(name=name, description=meaning)
            if kind == "counter":
                metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
                metric.sum.is_monotonic = True
        if kind == "summary":
            self._add_to_summary(metric, name, labels, value, is_count=is_count)
            return
        point = (metric.sum if kind == "counter" else metric.gauge).data_points.add(as_double=value)
        self._describe(point, labels)

    def _add_to_summary(self, metric: Any, name: str, labels: dict[str, str], value: float, *, is_count: bool) -> None:
        quantile = labels.pop("quantile", "")
        at = name, tuple(labels.items())
        point = self._summaries.get(at)
        if point is None:
            point = self._summaries[at] = metric.summary.data_points.add()
            self._describe(point, labels)
        if is_count:
            point.count = int(value)
        else:
            point.quantile_values.add(quantile=float(quantile), value=value)

    def _describe(self, point: Any, labels: dict[str, str]) -> None:
        point.time_unix_nano = self._now_ns
        point.start_time_unix_nano = self._started_ns
        point.attributes.extend(_attribute(key, text) for key, text in labels.items())
        self.points += 1


def encode_metrics(pieces: Iterable[bytes], resource: OtlpResource, started_ms: int, now_ms: int) -> Job[list[bytes]]:
    """Return a metrics page as serialized OTLP requests of about `MAX_POINTS` data points at most, as a job.

    Args:
        pieces: pieces of the page in the Prometheus text format; no line is divided between two.
        resource: the node.
        started_ms: wall clock at the start of the node, since which counters count.
        now_ms: wall clock of the page.
    """
    times = started_ms * _NS_PER_MS, now_ms * _NS_PER_MS
    out: list[bytes] = []
    request = _MetricsRequest(resource, *times)
    kinds: dict[str, str] = {}
    meanings: dict[str, str] = {}
    family = ""
    for piece in pieces:
        for line in piece.decode().split("\n"):
            if line.startswith("#"):
                _, comment_kind, family, text = line.split(" ", 3)
                (meanings if comment_kind == "HELP" else kinds)[family] = text
                yield None
                continue
            found = _SAMPLE.fullmatch(line)
            if found is None:
                continue
            name, count, labels, value = found.groups()
            kind = kinds.get(family, "gauge")
            if kind != "summary":
                name += count or ""
            if request.points >= MAX_POINTS and not (kind == "summary" and request.has_metric(name)):
                out.append(request.message.SerializeToString())
                request = _MetricsRequest(resource, *times)
            request.add(name, kind, meanings.get(family, ""), _parse_labels(labels), float(value), is_count=bool(count))
            yield None
    if request.points:
        out.append(request.message.SerializeToString())
    return out


def _parse_labels(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    return {name: _ESCAPED.sub(_unescape, value) for name, value in _LABEL.findall(text)}


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def encode_spans(spans: Sequence[RequestSpan], resource: OtlpResource) -> Job[bytes]:
    """Encode spans of requests as one OTLP request, as a job; a request that waited has a child span for the wait."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.extend(resource.attributes())
    scope = group.scope_spans.add()
    scope.scope.name = "ottla"
    for each in spans:
        end_ns = each.end_ms * _NS_PER_MS
        span = scope.spans.add(
            trace_id=each.trace_id,
            span_id=each.trace_id[:8],
            name=each.api_name,
            kind=Span.SPAN_KIND_SERVER,
            start_time_unix_nano=end_ns - int(each.elapsed_ms * _NS_PER_MS),
            end_time_unix_nano=end_ns,
        )
        span.attributes.extend(_attribute(key, value) for key, value in each.attributes.items())
        if each.waited_ms:
            scope.spans.add(
                trace_id=each.trace_id,
                span_id=each.trace_id[8:],
                parent_span_id=each.trace_id[:8],
                name="wait",
                kind=Span.SPAN_KIND_INTERNAL,
                start_time_unix_nano=end_ns - int(each.waited_ms * _NS_PER_MS),
                end_time_unix_nano=end_ns,
            )
        yield None
    encoded: bytes = message.SerializeToString()
    return encoded
