"""Export of metrics and request spans to an OpenTelemetry collector by OTLP over HTTP.

The metrics are those of the page ``/metrics``. A failed export is not sent again: the next one has the counters' later
values; spans are lost. Of failures in succession only the first is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio

from ottla.broker.observability.metrics_endpoint import MetricsPage
from ottla.broker.observability.otlp_encoder import MAX_POINTS, OtlpResource, encode_metrics, encode_spans
from ottla.broker.observability.request_tracer import RequestTracer
from ottla.client.http_client import HttpFetchError, http_post
from ottla.env.env import Env
from ottla.jobs.time_slice import run_in_background

logger = logging.getLogger("ottla.otlp")
SPAN_INTERVAL_S = 5.0
CONTENT_TYPE = "application/x-protobuf"


class OtlpExporter:
    """Background task that sends metrics every ``interval_ms``, and spans, if any, every `SPAN_INTERVAL_S`."""

    def __init__(
        self,
        env: Env,
        endpoint: str,
        headers: Mapping[str, str],
        resource: OtlpResource,
        page: MetricsPage,
        tracer: RequestTracer | None,
        interval_ms: int,
    ) -> None:
        self._env = env
        self._endpoint = endpoint.rstrip("/")
        self._headers = headers
        self._resource = resource
        self._page = page
        self._tracer = tracer
        self._interval_s = interval_ms / 1000
        self._started_ms = env.now_ms()
        self._failed_paths: set[str] = set()
        """Paths whose last export failed."""

    async def run(self) -> None:
        """Export until cancelled; the first metrics are sent after one interval."""
        async with trio.open_nursery() as nursery:
            if self._tracer is not None:
                nursery.start_soon(self._run_spans, self._tracer)
            while True:
                await self._env.sleep(self._interval_s)
                await self.export_metrics()

    async def _run_spans(self, tracer: RequestTracer) -> None:
        while True:
            await self._env.sleep(SPAN_INTERVAL_S)
            await self.export_spans(tracer)

    async def export_metrics(self) -> None:
        """Render the metrics page and send it; after a failed request (`_send`) the rest of the page is not sent."""
        pieces, now_ms = await self._page.render(), self._env.now_ms()
        job = encode_metrics(pieces, self._resource, self._started_ms, now_ms)
        for body in await run_in_background(self._env, job):
            if not await self._send("/v1/metrics", body):
                return

    async def export_spans(self, tracer: RequestTracer) -> None:
        """Remove all spans from the tracer and send them; after a failed request (`_send`) the unsent ones are lost.

        The number of spans that the tracer dropped is logged and reset.
        """
        dropped, tracer.dropped = tracer.dropped, 0
        if dropped:
            logger.warning("OTLP export dropped %d spans: too many requests are traced", dropped)
        spans = tracer.pop_spans()
        for first in range(0, len(spans), MAX_POINTS):
            job = encode_spans(spans[first : first + MAX_POINTS], self._resource)
            if not await self._send("/v1/traces", await run_in_background(self._env, job)):
                return

    async def _send(self, path: str, body: bytes) -> bool:
        """Send one request by POST; return False, without raising, if that failed.

        The first failure of a path is logged, and its first success afterwards.
        """
        url = self._endpoint + path
        try:
            await http_post(self._env, url, None, self._headers, body, CONTENT_TYPE)
        except HttpFetchError as error:
            if path not in self._failed_paths:
                logger.warning("OTLP export to %s failed: %s", url, error)
                self._failed_paths.add(path)
            return False
        if path in self._failed_paths:
            logger.info("OTLP export to %s succeeded again", url)
            self._failed_paths.discard(path)
        return True
