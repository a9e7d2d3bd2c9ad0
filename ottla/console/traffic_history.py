"""Traffic of this node at present and over the last hour, its charts, and recent rates of its topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.broker.replication.hosted_partition import TopicTraffic
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background

SAMPLE_S = 2.0
SAMPLES_PER_POINT = 15
POINTS = 120
"""Number of points in a chart, each of 30 seconds: one hour."""
CHART_WIDTH, CHART_HEIGHT = 600, 80
SAMPLES_PER_TOPIC_COUNT = 5
"""Number of samples between two copies of the topics' counters: 10 seconds."""


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


class TopicRates(NamedTuple):
    """Recent traffic of a topic per second on this node: produced records, and their bytes."""

    messages_in: float
    bytes_in: float


class _TopicCounts(NamedTuple):
    """Counters of produced records and bytes by topic at a time; a topic without has come later, with zeros."""

    at_ms: float
    by_topic: dict[str, tuple[int, int]]


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
        self._counts: deque[_TopicCounts] = deque([_TopicCounts(env.monotonic_ms(), {})], maxlen=2)
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
            if self._samples % SAMPLES_PER_TOPIC_COUNT == 0:
                await run_in_background(self._env, self.count_topics())

    def sample(self) -> None:
        """Compute the present rates, and add a point to the history after every `SAMPLES_PER_POINT` samples."""
        totals = self._totals()
        self.now = _rates(self._last, totals)
        self._last = totals
        self._samples += 1
        if self._samples % SAMPLES_PER_POINT == 0:
            self._points.append(_rates(self._point_start, totals))
            self._point_start = totals

    def count_topics(self) -> Job[None]:
        """Copy the counters of all topics, as a job: `topic_rates` compares them with later ones."""
        at_ms, counts = self._env.monotonic_ms(), {}
        for topic, traffic in list(self._replicas.traffic.items()):
            counts[topic] = traffic.messages_in, traffic.bytes_in
            yield None
        self._counts.append(_TopicCounts(at_ms, counts))

    def topic_rates(self, topic: str) -> TopicRates | None:
        """Return the rates of a topic since the older one of the last two copies of its counters.

        That is 10 to 20 s, and less in the first 10 s, but 2 s at least. None: this node hosts no partition of it.
        """
        traffic = self._replicas.traffic.get(topic)
        if traffic is None:
            return None
        at_ms, by_topic = self._counts[0]
        messages, size = by_topic.get(topic, (0, 0))
        if messages > traffic.messages_in or size > traffic.bytes_in:  # the topic is a new one of the same name
            messages = size = 0
        seconds = max((self._env.monotonic_ms() - at_ms) / 1000, SAMPLE_S)
        return TopicRates((traffic.messages_in - messages) / seconds, (traffic.bytes_in - size) / seconds)

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
