"""Traffic of this node at present and over the last hour, and its charts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.broker.replication.hosted_partition import TopicTraffic
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.env.env import Env

SAMPLE_S = 2.0
SAMPLES_PER_POINT = 15
POINTS = 120
"""Number of points in a chart, each of 30 seconds: one hour."""
CHART_WIDTH, CHART_HEIGHT = 600, 80


class Rates(NamedTuple):
    """Traffic per second: produced messages, bytes in and bytes out."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0


class _Totals(NamedTuple):
    at_ms: float
    messages_in: int
    bytes_in: int
    bytes_out: int


class Chart(NamedTuple):
    """Points ``x,y`` of an SVG polyline, scaled to `CHART_WIDTH` and `CHART_HEIGHT`, and the maximum of its values."""

    points: str
    maximum: float


class TrafficHistory:
    """Rates computed from the counters of a node's topics, of which `run` takes samples: `now`, and the last hour."""

    def __init__(self, env: Env, replicas: ReplicaManager) -> None:
        self._env = env
        self._replicas = replicas
        self._points: deque[Rates] = deque(maxlen=POINTS)
        self._last = self._point_start = self._totals()
        self._samples = 0
        self.now = Rates()

    def _totals(self) -> _Totals:
        replicas = self._replicas
        messages = bytes_in = bytes_out = 0
        every: Iterable[TopicTraffic] = (
            replicas.removed_traffic,
            replicas.unknown_traffic,
            *replicas.traffic.values(),
        )
        for traffic in every:
            messages += traffic.messages_in
            bytes_in += traffic.bytes_in
            bytes_out += traffic.bytes_out
        return _Totals(self._env.monotonic_ms(), messages, bytes_in, bytes_out)

    async def run(self) -> None:
        """Take a sample every `SAMPLE_S` seconds until cancelled."""
        while True:
            await self._env.sleep(SAMPLE_S)
            self.sample()

    def sample(self) -> None:
        """Compute the present rates, and add a point to the history after every `SAMPLES_PER_POINT` samples."""
        totals = self._totals()
        self.now = _rates(self._last, totals)
        self._last = totals
        self._samples += 1
        if self._samples % SAMPLES_PER_POINT == 0:
            self._points.append(_rates(self._point_start, totals))
            self._point_start = totals

    def chart(self, series: Callable[[Rates], float]) -> Chart:
        """Return the chart of a series, such as ``lambda rates: rates.bytes_in``; the newest point is at the right."""
        values = [series(point) for point in self._points] + [series(self.now)]
        maximum = max(values)
        step = CHART_WIDTH / POINTS
        start = CHART_WIDTH - step * (len(values) - 1)
        points = (
            f"{start + step * number:.1f},{CHART_HEIGHT * (1 - value / (maximum or 1)):.1f}"
            for number, value in enumerate(values)
        )
        return Chart(" ".join(points), maximum)


def _rates(before: _Totals, after: _Totals) -> Rates:
    seconds = max((after.at_ms - before.at_ms) / 1000, 0.001)
    return Rates(*((new - old) / seconds for new, old in zip(after[1:], before[1:], strict=True)))
