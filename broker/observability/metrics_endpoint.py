"""The `/metrics` page of a node in the Prometheus text format, without the HTTP server that sends it.

A job collects the samples of partitions, topics and groups in time slices. `metric_families` describes the families.

Source: the MBeans that docs/ops of apache/kafka 4.3.1 lists; Prometheus text format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import trio

from ottla.broker.metadata.broker_lifecycle import BrokerState
from ottla.broker.observability import quorum_metrics
from ottla.broker.observability.election_metrics import LeaderElectionCounter
from ottla.broker.observability.group_metrics import GroupMetricsCollector, active_machines
from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.broker.observability.partition_metrics import add_log_metrics, add_replica_metrics, add_traffic_metrics
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.broker.observability.request_samples import RequestSampler
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.log_cleaner import LogCleaner
from ottla.broker.storage.log_dirs import LogDirs
from ottla.broker.storage.scrubber import Scrubber
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background

if TYPE_CHECKING:
    from ottla.broker.coordinator.shard import Shard
    from ottla.broker.observability.client_metrics_store import ClientMetricsStore
    from ottla.broker.observability.raft_metrics import RaftMetrics
    from ottla.broker.remote_log.remote_log_manager import RemoteLogManager
    from ottla.broker.storage.tiered.remote_reads import RemoteReads

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ListenerConnections(Protocol):
    """Interface of a listener and its number of connections (`ottla.broker.network.acceptor.Acceptor`)."""

    @property
    def listener(self) -> str:
        """Name of the listener."""

    def __len__(self) -> int: ...

    def report_prepared(self) -> Job[None]:
        """Return a job that reports to `RequestMetrics` all requests that connections have counted themselves."""


class MetricSources(NamedTuple):
    """Components of a node, and functions that return its current state, from which metrics are collected."""

    log_dirs: LogDirs
    replica_manager: ReplicaManager
    cleaner: LogCleaner
    scrubber: Scrubber
    request_metrics: RequestMetrics
    acceptors: Sequence[ListenerConnections]
    controller: Any
    """Quorum controller of this node (`ottla.controller.quorum_controller.QuorumController`)."""
    is_broker: bool
    is_controller: bool
    broker_state: Callable[[], BrokerState]
    group_shards: Callable[[], Iterable[Shard[Any]]]
    transaction_shards: Callable[[], Iterable[Shard[Any]]]
    """Returns the transaction coordinator's shards (partitions); none before its first use."""
    elections: LeaderElectionCounter
    raft_metrics: RaftMetrics
    client_metrics: Callable[[], ClientMetricsStore | None] = lambda: None
    """Returns the store of metrics that clients pushed; None before the first request about them."""
    remote_log_manager: RemoteLogManager | None = None
    """Manager of tiered storage; None if it is not enabled."""
    remote_reads: RemoteReads | None = None
    """Reads of remote segments for consumers; None if tiered storage is not enabled."""


class MetricsCollector:
    """Collector of a node's samples for the metrics page.

    It stores the CPU time at the previous scrape: the idle ratio is that since then.
    """

    def __init__(self, env: Env, sources: MetricSources) -> None:
        self._env = env
        self._sources = sources
        self._requests = RequestSampler(sources.request_metrics)
        self._last_cpu_s = self._last_ms = 0.0

    def render(self) -> Job[list[bytes]]:
        """Collect all samples and return the encoded page in pieces, as a job."""
        page = MetricsBuilder()
        pieces: list[bytes] = []
        if self._sources.is_broker:
            yield from self._add_broker(page)
        for acceptor in self._sources.acceptors:
            yield from acceptor.report_prepared()
        yield from self._requests.add_samples(page, self._env.monotonic_ms())
        self._add_connections(page)
        quorum_metrics.add_quorum_metrics(page, self._sources.controller)
        self._sources.raft_metrics.add_metrics(page, self._env.monotonic_ms())
        if self._sources.is_controller:
            yield from quorum_metrics.add_cluster_metrics(page, self._sources.controller)
            self._sources.elections.add_metrics(page)
        self._add_process(page)
        pushed = self._sources.client_metrics()
        if pushed is not None:
            for name, value in pushed.push_counters():
                page.add(name, value)
            pieces = [line.encode() for line in (yield from pushed.render(self._env.monotonic_ms()))]
        return (yield from page.finish()) + pieces

    def _add_broker(self, page: MetricsBuilder) -> Job[None]:
        sources, replicas = self._sources, self._sources.replica_manager
        page.add("ottla_open_segments", (yield from add_log_metrics(page, sources.log_dirs)))
        yield from add_replica_metrics(page, replicas)
        yield from add_traffic_metrics(page, replicas)
        if sources.remote_log_manager is not None and sources.remote_reads is not None:
            # lazy: 1.0 ms, 20 kB: only with tiered storage
            from ottla.broker.observability.remote_log_metrics import add_remote_log_metrics

            yield from add_remote_log_metrics(page, sources.remote_log_manager, sources.remote_reads)
        yield from GroupMetricsCollector(page, replicas).collect(sources.group_shards())
        ids = sum(machine.transactional_id_count for machine in active_machines(sources.transaction_shards()))
        page.add("ottla_transactional_ids", ids)
        cleaner, scrubber = sources.cleaner, sources.scrubber
        for name, value in (
            ("kafka_server_kafkaserver_brokerstate", int(sources.broker_state())),
            ("kafka_server_replicamanager_offlinereplicacount", len(replicas.offline_partitions)),
            ("kafka_server_replicamanager_isrexpands_total", replicas.isr_expands),
            ("kafka_server_replicamanager_isrshrinks_total", replicas.isr_shrinks),
            ("kafka_server_replicamanager_failedisrupdates_total", replicas.isr_failures),
            ("kafka_log_logmanager_offlinelogdirectorycount", len(sources.log_dirs.offline)),
            ("kafka_log_logcleanermanager_uncleanable_partitions_count", cleaner.uncleanable_count),
            ("ottla_cleaner_passes_total", cleaner.passes),
            ("ottla_cleaner_read_bytes_total", cleaner.bytes_read),
            ("ottla_cleaner_written_bytes_total", cleaner.bytes_written),
            ("ottla_scrub_segments_total", scrubber.segments_read),
            ("ottla_scrub_damage_total", scrubber.damage_count),
        ):
            page.add(name, value)

    def _add_connections(self, page: MetricsBuilder) -> None:
        for acceptor in self._sources.acceptors:
            name = "kafka_server_socket_server_metrics_connection_count"
            page.add(name, len(acceptor), labels(listener=acceptor.listener))
        page.add("ottla_connections", sum(len(acceptor) for acceptor in self._sources.acceptors))

    def _add_process(self, page: MetricsBuilder) -> None:
        stats, now_ms = self._env.process_stats(), self._env.monotonic_ms()
        page.add("process_cpu_seconds_total", stats.cpu_s)
        page.add("process_resident_memory_bytes", stats.resident_bytes)
        page.add("process_virtual_memory_bytes", stats.virtual_bytes)
        page.add("process_open_fds", stats.open_descriptors)
        page.add("process_max_fds", stats.max_descriptors)
        page.add("process_start_time_seconds", stats.started_s)
        page.add("kafka_server_kafkaserver_linux_disk_read_bytes", stats.disk_read_bytes)
        page.add("kafka_server_kafkaserver_linux_disk_write_bytes", stats.disk_written_bytes)
        if self._last_ms and now_ms > self._last_ms:
            busy = (stats.cpu_s - self._last_cpu_s) * 1000 / (now_ms - self._last_ms)
            idle = min(max(1.0 - busy, 0.0), 1.0)
            page.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
            page.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
        self._last_cpu_s, self._last_ms = stats.cpu_s, now_ms


class MetricsPage:
    """Metrics page that concurrent HTTP requests share: those that arrive during a rendering share the next one."""

    def __init__(self, env: Env, render: Callable[[], Job[list[bytes]]]) -> None:
        self._env = env
        self._render = render
        self._render_lock = trio.Lock()
        self._last_started = self._last_rendered = 0
        """Numbers of the last page whose rendering was started, and of the last one rendered."""
        self._page: list[bytes] = []

    async def render(self) -> list[bytes]:
        """Return the encoded pieces of a page that was rendered after the call."""
        before = self._last_started
        async with self._render_lock:
            if self._last_rendered <= before:
                self._last_started += 1
                self._page = await run_in_background(self._env, self._render())
                self._last_rendered = self._last_started
            body = self._page
            if not self._render_lock.statistics().tasks_waiting:
                self._page, self._last_rendered = [], 0  # a page may have megabytes
            return body
