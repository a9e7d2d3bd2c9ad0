"""Samples of request metrics: counters, errors, and latency quantiles.

Quantiles are those of the requests of the last one to two minutes, or since the scrape before the last if scrapes are
rarer: a scrape subtracts the histograms of at least a minute ago. Kafka's quantiles weight the last five minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.broker.observability.request_metrics import ApiMetrics, RequestMetrics
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode

QUANTILES = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
WINDOW_MS = 60_000.0
STAGES = ("totaltimems", "localtimems", "remotetimems")
_KNOWN_ERRORS = {int(code): code.name for code in ErrorCode}


def bucket_end_ms(bucket: int) -> float:
    """Return the exclusive upper limit of a histogram bucket in ms."""
    if bucket < 12:
        return (bucket + 1 if bucket < 4 else 4) / 1000
    bits, part = divmod(bucket, 4)
    return ((4 + part + 1) << (bits - 3)) / 1000


def quantiles(counts: Sequence[int]) -> list[float] | None:
    """Return for each of `QUANTILES` the exclusive upper limit in ms of its bucket; None for an empty histogram.

    ``counts``: number of requests in each bucket of `bucket_of`.
    """
    total = sum(counts)
    if not total:
        return None
    out, seen, bucket = [], 0, -1
    for _, fraction in QUANTILES:
        while seen < fraction * total or bucket < 0:
            bucket += 1
            seen += counts[bucket]
        out.append(bucket_end_ms(bucket))
    return out


class RequestSampler:
    """Collector of the samples of request metrics; stores the histograms at the start of the quantiles' time window."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics
        self._rotated_ms = 0.0
        self._current: dict[tuple[str, str], list[int]] = {}
        """Histograms at the last rotation, by API name and stage."""
        self._previous: dict[tuple[str, str], list[int]] = {}
        """Histograms at the rotation before the last, by API name and stage."""

    def add_samples(self, page: MetricsBuilder, now_ms: float) -> Job[None]:
        """Add the samples of each API that had requests, as a job; rotate the histograms every `WINDOW_MS`.

        ``now_ms``: monotonic time.
        """
        rotates = now_ms - self._rotated_ms >= WINDOW_MS
        if rotates:
            self._rotated_ms, self._previous, self._current = now_ms, self._current, {}
        for api in self._metrics:
            self._add_counts(page, api)
            for stage, histograms in _stages(api):
                counts = _sum(histograms)
                if rotates:
                    self._current[api.name, stage] = counts
                self._add_times(page, api.name, stage, counts)
            yield None

    def _add_counts(self, page: MetricsBuilder, api: ApiMetrics) -> None:
        at = labels(request=api.name)
        page.add("kafka_network_requestmetrics_requests_total", api.requests, at)
        page.add("ottla_answers_total", api.responses, at)
        page.add("ottla_request_bytes_total", api.request_bytes, at)
        page.add("ottla_answer_bytes_total", api.response_bytes, at)
        for code, count in list(api.errors.items()):
            error = labels(request=api.name, error=_KNOWN_ERRORS.get(code, str(code)))
            page.add("kafka_network_requestmetrics_errors_total", count, error)

    def _add_times(self, page: MetricsBuilder, name: str, stage: str, counts: list[int]) -> None:
        before = self._previous.get((name, stage))
        recent = counts if before is None else [now - then for now, then in zip(counts, before, strict=True)]
        family = f"kafka_network_requestmetrics_{stage}"
        for (label, _), value in zip(QUANTILES, quantiles(recent) or (), strict=False):
            page.add(family, value, labels(request=name, quantile=label))
        page.add_count(family, sum(counts), labels(request=name))


def _stages(api: ApiMetrics) -> Iterable[tuple[str, list[list[int]]]]:
    """Yield each stage (total, local, remote time) with the histograms whose sum is the stage's histogram."""
    waiting, local, remote = api.waiting_times, api.local_times, api.remote_times
    yield "totaltimems", [api.times, *([waiting] if waiting is not None else [])]
    yield "localtimems", [api.times, *([local] if local is not None else [])]
    if remote is not None:
        yield "remotetimems", [remote]


def _sum(histograms: list[list[int]]) -> list[int]:
    if len(histograms) == 1:
        return list(histograms[0])
    return [sum(counts) for counts in zip(*histograms, strict=True)]
