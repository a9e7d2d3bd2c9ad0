"""The node's numbers at an address of their own, as Prometheus reads them: ``ottla.metrics.listener=HOST:PORT``.

Names are those a Prometheus exporter gives Kafka's beans, where Kafka has the number; what only Ottla has begins with
``ottla_``. Everything is counted anyway: asking costs a walk over the partitions, not asking costs nothing. The walk
goes in slices: with 10,000 partitions it is 40,000 lines.

Source: ``LogManager``, ``LogCleanerManager``, ``ReplicaManager``, ``UnifiedLog``, ``RequestMetrics`` beans
(apache/kafka 4.3.1, docs/ops); the text form is Prometheus' own, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.broker.observability import quorum_metrics
from ottla.broker.observability.request_metrics import ApiMetrics, RequestMetrics
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.replication.replication_metrics import collect_metrics
from ottla.broker.storage.log_cleaner import LogCleaner
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.storage.scrubber import Scrubber
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from ottla.broker.observability.client_metrics_store import ClientMetricsStore
    from ottla.broker.replication.replication_metrics import ReplicationStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOGS_PER_STEP = 50
_LOG_METRICS: dict[str, tuple[str, Callable[[PartitionLog], int]]] = {
    "kafka_log_log_size": ("Bytes of all segments.", lambda log: log.size_bytes),
    "kafka_log_log_numlogsegments": ("Segments.", lambda log: len(log.segments)),
    "kafka_log_log_logstartoffset": ("First offset that is kept.", lambda log: log.log_start_offset),
    "kafka_log_log_logendoffset": ("Next offset to be written.", lambda log: log.log_end_offset),
}
_API_METRICS: dict[str, tuple[str, Callable[[ApiMetrics], int]]] = {
    "kafka_network_requestmetrics_requests_total": ("Requests that came.", lambda count: count.requests),
    "ottla_answers_total": ("Answers that left; what asks for none gets none.", lambda count: count.responses),
    "ottla_request_bytes_total": ("Bytes of the requests.", lambda count: count.request_bytes),
    "ottla_answer_bytes_total": ("Bytes of the answers.", lambda count: count.response_bytes),
}
MetricRow = tuple[str, str, int]
"""Name, what it is, value."""


class MetricSources(NamedTuple):
    """Where the numbers are."""

    log_dirs: LogDirs
    replica_manager: ReplicaManager
    cleaner: LogCleaner
    scrubber: Scrubber
    request_metrics: RequestMetrics
    connections: Callable[[], int]
    controller: Any
    """`ottla.broker.observability.quorum_metrics.QuorumMetricsSource`."""
    is_broker: bool
    """True if this node is a broker."""
    is_controller: bool
    """True if it is one of the controllers."""
    client_metrics: Callable[[], ClientMetricsStore | None] = lambda: None
    """What clients pushed, once one did."""

    def gauges(self, health: ReplicationStats) -> Iterable[MetricRow]:
        """What goes up and down, of the node as a whole."""
        replicas = self.replica_manager
        yield "kafka_server_replicamanager_partitioncount", "Partitions on this node.", len(replicas)
        name = "kafka_server_replicamanager"
        yield f"{name}_leadercount", "Partitions this node leads.", health.leader_count
        about = "Of those, the ones with replicas that are not in sync."
        yield f"{name}_underreplicatedpartitions", about, health.under_replicated
        about = "Of those, the ones with fewer in sync than min.insync.replicas."
        yield f"{name}_underminisrpartitioncount", about, health.under_min_isr
        about = "Of those, the ones with just as many in sync as that."
        yield f"{name}_atminisrpartitioncount", about, health.at_min_isr
        about = "Committed records the follower is without that is most behind."
        yield "kafka_server_replicafetchermanager_maxlag", about, health.max_lag
        offline = len(replicas.offline_partitions)
        yield "kafka_server_replicamanager_offlinereplicacount", "Partitions in failed directories.", offline
        failed = len(self.log_dirs.offline)
        yield "kafka_log_logmanager_offlinelogdirectorycount", "Data directories that failed.", failed
        about = "Compacted partitions that cannot be compacted."
        yield "kafka_log_logcleanermanager_uncleanable_partitions_count", about, self.cleaner.uncleanable_count

    def counters(self) -> Iterable[MetricRow]:
        """What only grows."""
        cleaner, scrubber, replicas = self.cleaner, self.scrubber, self.replica_manager
        name = "kafka_server_replicamanager"
        yield f"{name}_isrexpands", "Replicas that have come in sync.", replicas.isr_expands
        yield f"{name}_isrshrinks", "Times that replicas were let go for being behind.", replicas.isr_shrinks
        yield f"{name}_failedisrupdates", "Changes of an ISR that the controller refused.", replicas.isr_failures
        yield "ottla_cleaner_passes", "Passes of the compactor.", cleaner.passes
        yield "ottla_cleaner_read_bytes", "Bytes the compactor read.", cleaner.bytes_read
        yield "ottla_cleaner_written_bytes", "Bytes the compactor wrote.", cleaner.bytes_written
        yield "ottla_scrub_segments", "Old segments that were read again.", scrubber.segments_read
        yield "ottla_scrub_damage", "Damaged places that were found in them.", scrubber.damage_count


def _metric_header(name: str, about: str, kind: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def render_page(env: Env, numbers: MetricSources) -> Job[bytes]:
    """All numbers in Prometheus' text form. A topic's name has nothing in it that would have to be escaped."""
    out = (yield from _broker_metrics(env, numbers)) if numbers.is_broker else []
    for name, about, number in (
        *quorum_metrics.quorum_metrics(numbers.controller),
        *((yield from quorum_metrics.cluster_metrics(numbers.controller)) if numbers.is_controller else ()),
        ("ottla_connections", "Connections of clients, brokers and controllers.", numbers.connections()),
    ):
        out.append(f"{_metric_header(name, about, 'gauge')}{name} {number}\n")
    out += quorum_metrics.raft_state_metrics(numbers.controller)
    for name, (about, count_of) in _API_METRICS.items():
        out.append(_metric_header(name, about, "counter"))
        out += [f'{name}{{request="{count.name}"}} {count_of(count)}\n' for count in numbers.request_metrics]
    return "".join(out).encode()


def _broker_metrics(env: Env, numbers: MetricSources) -> Job[list[str]]:
    """Its logs, its partitions, and what goes on beside."""
    out: list[str] = []
    logs = numbers.log_dirs.logs()
    for name, (about, value) in _LOG_METRICS.items():
        out.append(_metric_header(name, about, "gauge"))
        for first in range(0, len(logs), LOGS_PER_STEP):
            out += [
                f'{name}{{topic="{log.topic}",partition="{log.partition}"}} {value(log)}\n'
                for log in logs[first : first + LOGS_PER_STEP]
            ]
            yield None
    open_files = 0
    for first in range(0, len(logs), LOGS_PER_STEP):
        open_files += sum(segment.is_open for log in logs[first : first + LOGS_PER_STEP] for segment in log.segments)
        yield None
    health = yield from collect_metrics(numbers.replica_manager)
    open_segments = ("ottla_open_segments", "Segments whose file is open.", open_files)
    for name, about, number in (*numbers.gauges(health), open_segments):
        out.append(f"{_metric_header(name, about, 'gauge')}{name} {number}\n")
    for name, about, number in numbers.counters():
        out.append(f"{_metric_header(name + '_total', about, 'counter')}{name}_total {number}\n")
    pushed = numbers.client_metrics()
    if pushed is not None:
        for name, about, number in pushed.push_counters():
            out.append(f"{_metric_header(name + '_total', about, 'counter')}{name}_total {number}\n")
        out += yield from pushed.render(env.monotonic_ms())
    return out


class MetricsPage:
    """The page as concurrent requests share it: those that arrive while it is rendered get the next one together."""

    def __init__(self, env: Env, sources: MetricSources) -> None:
        self._env = env
        self._sources = sources
        self._render_lock = trio.Lock()
        self._last_started = self._last_rendered = 0
        """Numbers of the last page that was begun, and of the last that was rendered."""
        self._page = b""

    async def render(self) -> bytes:
        """Return a page whose rendering began after the call."""
        before = self._last_started
        async with self._render_lock:
            if self._last_rendered <= before:
                self._last_started += 1
                self._page = await run_in_background(self._env, render_page(self._env, self._sources))
                self._last_rendered = self._last_started
            body = self._page
            if not self._render_lock.statistics().tasks_waiting:
                self._page, self._last_rendered = b"", 0  # megabytes, where there are many partitions
            return body
