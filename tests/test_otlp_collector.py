"""Node that exports to a stand-in for an OpenTelemetry collector, which decodes the official messages."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import ottla
from ottla.broker.observability import otlp_exporter


class Collector(ThreadingHTTPServer):
    """HTTP server that keeps the bodies that it receives, by path."""

    def __init__(self) -> None:
        self.bodies: dict[str, queue.Queue[bytes]] = {"/v1/metrics": queue.Queue(), "/v1/traces": queue.Queue()}
        self.headers: dict[str, str] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.headers = dict(self.headers.items())
                collector.bodies[self.path].put(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_node_exports_metrics_and_traces_to_a_collector(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_exporter, "SPAN_INTERVAL_S", 0.2)
    settings = {
        "ottla.otlp.endpoint": f"http://127.0.0.1:{collector.server_port}",
        "ottla.otlp.headers": "authorization=Bearer 1234",
        "ottla.otlp.interval.ms": "1000",
        "ottla.otlp.trace.ratio": "1",
    }
    with ottla.Broker(settings=settings) as broker:
        broker.produce("t", b"x")
        spans: list[Any] = []
        while not {"Metadata", "Produce"} <= {span.name for span in spans}:
            traces = ExportTraceServiceRequest.FromString(collector.bodies["/v1/traces"].get(timeout=300))
            spans += traces.resource_spans[0].scope_spans[0].spans
        names: set[str] = set()
        while "kafka_server_brokertopicmetrics_messagesin_total" not in names:
            metrics = ExportMetricsServiceRequest.FromString(collector.bodies["/v1/metrics"].get(timeout=300))
            names |= {metric.name for metric in metrics.resource_metrics[0].scope_metrics[0].metrics}
    assert collector.headers["authorization"] == "Bearer 1234"
    assert len({span.trace_id for span in spans}) == len([span for span in spans if not span.parent_span_id])


def test_node_without_opentelemetry_serves_and_logs_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ottla.broker.components.otlp_export", None)
    with ottla.Broker(settings={"ottla.otlp.endpoint": "http://127.0.0.1:1"}) as broker:
        broker.produce("t", b"x")
    assert [x for x in caplog.messages if x.startswith("OTLP export is not available: ")]
