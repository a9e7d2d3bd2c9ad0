"""Activity of the Raft replica of a node: records appended and fetched, commit latency, traffic to other controllers.

Rates and averages are those of the last 30 to 90 seconds, or since the scrape before if scrapes are rarer: windows of
at least 30 seconds that end at a scrape. Kafka has two samples of 30 seconds.

Source: ``KafkaRaftMetrics.java``, ``KafkaRaftClient.appendBatch``, ``Rate.java``, ``Selector.SelectorMetrics``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.observability.metrics_builder import MetricsBuilder

if TYPE_CHECKING:
    from ottla.controller.raft.driver.raft_driver import RaftDriver
    from ottla.controller.raft.state_machine.events import Ready

WINDOW_MS = 30_000.0
"""Time between two rotations of the totals; shortest time that a rate is computed over."""


class UncommittedBatch(NamedTuple):
    """Batch that this node has appended as leader: its end offset (exclusive), records, and time of the append."""

    end_offset: int
    records_count: int
    appended_ms: float


class RaftTotals(NamedTuple):
    """Totals at a monotonic time in ms, since the metrics were created."""

    at_ms: float
    appended: int = 0
    """Records that this node appended as leader."""
    fetched: int = 0
    """Records that this node fetched from the leader and appended."""
    commits: int = 0
    """Batches that this node appended as leader and that were committed in the same leadership."""
    commit_ms: float = 0.0
    """Sum over these batches of the time per record from append to commit."""


class RaftMetrics:
    """Observer of the steps of a `RaftDriver`, and the samples of its activity."""

    def __init__(self, driver: RaftDriver, now_ms: float) -> None:
        """Create metrics without activity at the monotonic time ``now_ms``; `observe` gets the steps of ``driver``."""
        self._driver = driver
        self._totals = self._current = self._previous = RaftTotals(now_ms)
        self._uncommitted: deque[UncommittedBatch] = deque()

    def observe(self, now_ms: float, ready: Ready) -> None:
        """Count what a step appended and committed (`StepObserver`).

        Batches of a leader that lost the leadership before their commit have no commit latency.
        """
        _, appended, fetched, commits, commit_ms = self._totals
        if not self._driver.machine.is_leader:
            self._uncommitted.clear()
        for append in ready.appends:
            if append.verbatim:
                fetched += append.records_count
                continue
            appended += append.records_count
            end_offset = append.first_offset + append.records_count
            self._uncommitted.append(UncommittedBatch(end_offset, append.records_count, now_ms))
        committed = -1 if ready.committed is None else ready.committed
        while self._uncommitted and self._uncommitted[0].end_offset <= committed:
            batch = self._uncommitted.popleft()
            commits += 1
            commit_ms += (now_ms - batch.appended_ms) / batch.records_count
        self._totals = RaftTotals(now_ms, appended, fetched, commits, commit_ms)

    def add_metrics(self, page: MetricsBuilder, now_ms: float) -> None:
        """Add rates, commit latency and traffic to the metrics page; there is no latency without commits."""
        if now_ms - self._current.at_ms >= WINDOW_MS:
            self._previous, self._current = self._current, self._totals._replace(at_ms=now_ms)
        before, totals, name = self._previous, self._totals, "kafka_server_raftmetrics"
        elapsed_s = max(now_ms - before.at_ms, WINDOW_MS) / 1000
        page.add(f"{name}_append_records_rate", (totals.appended - before.appended) / elapsed_s)
        page.add(f"{name}_fetch_records_rate", (totals.fetched - before.fetched) / elapsed_s)
        if totals.commits > before.commits:
            average_ms = (totals.commit_ms - before.commit_ms) / (totals.commits - before.commits)
            page.add(f"{name}_commit_latency_avg", average_ms)
        traffic = self._driver.traffic
        for suffix, value in (
            ("request_total", 0 if traffic is None else traffic.requests),
            ("outgoing_byte_total", 0 if traffic is None else traffic.request_bytes),
            ("response_total", 0 if traffic is None else traffic.responses),
            ("incoming_byte_total", 0 if traffic is None else traffic.response_bytes),
        ):
            page.add(f"kafka_server_raftchannelmetrics_{suffix}", value)
