"""Export by OTLP: encoded metrics and spans, sampling, and failures of the collector."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ottla.broker.config.limits import MAX_TRACED_CLIENT_ID_CHARS, MAX_TRACED_REQUESTS
from ottla.broker.observability import otlp_exporter
from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.broker.observability.metrics_endpoint import MetricsPage
from ottla.broker.observability.otlp_encoder import MAX_POINTS, OtlpResource, encode_metrics, encode_spans
from ottla.broker.observability.otlp_exporter import OtlpExporter
from ottla.broker.observability.request_tracer import RequestTracer
from ottla.broker.tests.connection_fixture import ConnectionEnv, in_virtual_time
from ottla.client.http_client import HttpFetchError
from ottla.jobs.job import Job, run_to_end
from ottla.wire.api_keys import ApiKey

RESOURCE = OtlpResource(7)
SIZE = "kafka_log_log_size"


def attributes(found: Any) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in found.attributes}


def decoded_metrics(page: MetricsBuilder) -> list[ExportMetricsServiceRequest]:
    bodies = run_to_end(encode_metrics(run_to_end(page.finish()), RESOURCE, 1_000, 61_000))
    return [ExportMetricsServiceRequest.FromString(body) for body in bodies]


def metrics_by_name(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    return {metric.name: metric for metric in request.resource_metrics[0].scope_metrics[0].metrics}


def test_encode_metrics_maps_gauge_counter_and_summary_of_the_page() -> None:
    page, odd = MetricsBuilder(), 'a"b\\c\nd'
    page.add(SIZE, 12, labels(topic=odd, partition=0))
    page.add("process_cpu_seconds_total", 2.5)
    page.add("kafka_network_requestmetrics_totaltimems", 0.25, labels(request="Fetch", quantile="0.50"))
    page.add("kafka_network_requestmetrics_totaltimems", 4.0, labels(request="Fetch", quantile="0.99"))
    page.add_count("kafka_network_requestmetrics_totaltimems", 9, labels(request="Fetch"))
    (request,) = decoded_metrics(page)
    assert attributes(request.resource_metrics[0].resource) == {
        "service.name": "ottla",
        "service.instance.id": "7",
    }
    found = metrics_by_name(request)
    (size,) = found[SIZE].gauge.data_points
    assert (size.as_double, attributes(size), size.time_unix_nano) == (12, {"topic": odd, "partition": "0"}, 61 * 10**9)
    assert found[SIZE].description
    counter = found["process_cpu_seconds_total"].sum
    assert (counter.is_monotonic, counter.aggregation_temporality) == (True, 2)
    assert [(x.as_double, x.start_time_unix_nano) for x in counter.data_points] == [(2.5, 10**9)]
    (summary,) = found["kafka_network_requestmetrics_totaltimems"].summary.data_points
    assert (summary.count, attributes(summary)) == (9, {"request": "Fetch"})
    assert [(x.quantile, x.value) for x in summary.quantile_values] == [(0.5, 0.25), (0.99, 4.0)]


def test_encode_metrics_of_many_series_sends_each_once_in_bounded_requests() -> None:
    page = MetricsBuilder()
    for partition in range(2 * MAX_POINTS + 5):
        page.add(SIZE, partition, labels(topic="t", partition=partition))
    requests = decoded_metrics(page)
    points = [list(metrics_by_name(request)[SIZE].gauge.data_points) for request in requests]
    assert [len(each) for each in points] == [MAX_POINTS, MAX_POINTS, 5]
    assert [int(x.as_double) for each in points for x in each] == list(range(2 * MAX_POINTS + 5))


class CountingEnv(ConnectionEnv):
    """`Env` whose random numbers are 0, and whose UUIDs are counted."""

    number = 0

    def random(self) -> float:
        return 0.0

    def uuid(self) -> bytes:
        self.number += 1
        return self.number.to_bytes(16, "big")


def trace(tracer: RequestTracer, waited_ms: float = 0.0, client_id: str | None = None) -> None:
    peer: Any = SimpleNamespace(
        host="10.0.0.9", listener="PLAINTEXT", request_started_ms=-8.0, request_waited_ms=waited_ms
    )
    request: Any = SimpleNamespace(
        key=ApiKey.FETCH, version=17, correlation_id=5, client_id=client_id, frame=memoryview(bytes(40))
    )
    tracer.answered(peer, request, [], 99)


def test_tracer_keeps_the_configured_part_of_requests() -> None:
    async def run() -> None:
        tracer = RequestTracer(CountingEnv(), 0.25)
        for _ in range(10):
            trace(tracer)
        assert len(tracer.pop_spans()) == 2
        assert tracer.pop_spans() == []
        for _ in range(2):
            trace(tracer)
        assert len(tracer.pop_spans()) == 1

    in_virtual_time(run)


def test_tracer_drops_and_counts_the_oldest_spans_beyond_the_limit() -> None:
    async def run() -> None:
        tracer = RequestTracer(CountingEnv(), 1.0)
        for _ in range(MAX_TRACED_REQUESTS + 3):
            trace(tracer)
        assert tracer.dropped == 3
        spans = tracer.pop_spans()
        assert len(spans) == MAX_TRACED_REQUESTS
        assert int.from_bytes(spans[0].trace_id, "big") == 4

    in_virtual_time(run)


def test_tracer_cuts_a_long_client_id() -> None:
    async def run() -> None:
        tracer = RequestTracer(CountingEnv(), 1.0)
        trace(tracer, client_id="c" * 32_000)
        (span,) = tracer.pop_spans()
        assert span.attributes["messaging.client.id"] == "c" * MAX_TRACED_CLIENT_ID_CHARS

    in_virtual_time(run)


def test_encode_spans_of_a_waiting_request_has_a_child_span_for_the_wait() -> None:
    async def run() -> None:
        tracer = RequestTracer(CountingEnv(), 1.0)
        trace(tracer)
        trace(tracer, waited_ms=3.0)
        taken = tracer.pop_spans()
        message = ExportTraceServiceRequest.FromString(run_to_end(encode_spans(taken, RESOURCE)))
        plain, waiting, wait = message.resource_spans[0].scope_spans[0].spans
        assert (plain.name, waiting.name, wait.name) == ("Fetch", "Fetch", "wait")
        assert (plain.trace_id, wait.trace_id) == (taken[0].trace_id, waiting.trace_id)
        assert wait.parent_span_id == waiting.span_id != wait.span_id
        elapsed = [x.end_time_unix_nano - x.start_time_unix_nano for x in (plain, waiting, wait)]
        assert [x // 1_000_000 for x in elapsed] == [int(taken[0].elapsed_ms), int(taken[1].elapsed_ms), 3]
        assert attributes(plain) == {
            "messaging.system": "kafka",
            "messaging.client.id": 0,  # an empty text
            "client.address": "10.0.0.9",
            "ottla.listener": "PLAINTEXT",
            "ottla.api.version": 17,
            "ottla.correlation_id": 5,
            "ottla.request.bytes": 44,
            "ottla.response.bytes": 99,
        }

    in_virtual_time(run)


def test_exporter_logs_the_first_failure_and_sends_again_at_the_next_interval(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter(["status 503", "status 503", "", ""])
    sent: list[tuple[str, dict[str, str], float]] = []

    async def post(env: Any, url: str, tls: None, headers: dict[str, str], body: bytes, kind: str) -> bytes:
        assert kind == "application/x-protobuf"
        assert ExportMetricsServiceRequest.FromString(body).resource_metrics
        sent.append((url, headers, env.monotonic_ms() / 1000))
        failure = next(results)
        if failure:
            raise HttpFetchError(failure)
        return b""

    def render() -> Job[list[bytes]]:
        page = MetricsBuilder()
        page.add("process_cpu_seconds_total", 2.5)
        return page.finish()

    monkeypatch.setattr(otlp_exporter, "http_post", post)
    caplog.set_level(logging.INFO, "ottla.otlp")

    async def run() -> None:
        env = CountingEnv()
        page = MetricsPage(env, render)
        began_s = env.monotonic_ms() / 1000
        exporter = OtlpExporter(env, "http://c:4318/", {"a": "b"}, RESOURCE, page, None, 60_000)
        with env.timeout(241):
            await exporter.run()
        assert [(url, headers, round(at_s - began_s)) for url, headers, at_s in sent] == [
            ("http://c:4318/v1/metrics", {"a": "b"}, 60 * number) for number in (1, 2, 3, 4)
        ]

    in_virtual_time(run)
    assert [record.getMessage() for record in caplog.records] == [
        "OTLP export to http://c:4318/v1/metrics failed: status 503",
        "OTLP export to http://c:4318/v1/metrics succeeded again",
    ]
