"""Samples of the partitions, topics and traffic of a broker, for the metrics page.

A metric of a partition that several brokers know is exported by its leader, so that a sum over all brokers is right.
"""

from __future__ import annotations

from ottla.broker.config.limits import MAX_METRICS_PARTITIONS, MAX_METRICS_TOPICS
from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.broker.replication.hosted_partition import HostedPartition, TopicTraffic
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.storage.log_dirs import LogDirs
from ottla.jobs.job import Job

PARTITIONS_PER_STEP = 20
_TRAFFIC = (
    ("messagesin", "messages_in"),
    ("bytesin", "bytes_in"),
    ("bytesout", "bytes_out"),
    ("bytesrejected", "bytes_rejected"),
    ("totalproducerequests", "produces"),
    ("totalfetchrequests", "fetches"),
    ("failedproducerequests", "failed_produces"),
    ("failedfetchrequests", "failed_fetches"),
)


def add_log_metrics(page: MetricsBuilder, log_dirs: LogDirs) -> Job[int]:
    """Add size, segments and offsets of each log to the metrics page, as a job; return the number of open segments.

    Only the first `MAX_METRICS_PARTITIONS` logs are added; the segments of all are counted.
    """
    open_segments = 0
    sizes, segments = page.samples("kafka_log_log_size"), page.samples("kafka_log_log_numlogsegments")
    starts, ends = page.samples("kafka_log_log_logstartoffset"), page.samples("kafka_log_log_logendoffset")
    for number, log in enumerate(list(log_dirs.logs()), 1):
        for segment in log.segments:
            open_segments += segment.is_open
        if number <= MAX_METRICS_PARTITIONS:
            at = f'{{topic="{log.topic}",partition="{log.partition}"}}'
            sizes.append(f"kafka_log_log_size{at} {log.size_bytes}\n")
            segments.append(f"kafka_log_log_numlogsegments{at} {len(log.segments)}\n")
            starts.append(f"kafka_log_log_logstartoffset{at} {log.log_start_offset}\n")
            ends.append(f"kafka_log_log_logendoffset{at} {log.log_end_offset}\n")
        if number % PARTITIONS_PER_STEP == 0:
            page.encode()
            yield None
    return open_segments


def add_replica_metrics(page: MetricsBuilder, replicas: ReplicaManager) -> Job[None]:
    """Add replication metrics of each partition led here, and the totals over all hosted partitions, as a job.

    Of the hosted partitions only the first `MAX_METRICS_PARTITIONS` get samples of their own.
    """
    leader_count = under_replicated = under_min_isr = at_min_isr = max_lag = 0
    hosted = list(replicas)
    for number, replica in enumerate(hosted, 1):
        if number % PARTITIONS_PER_STEP == 0:
            page.encode()
            yield None
        state = replica.state
        if type(state) is not LeaderState:
            max_lag = max(max_lag, replica.lag)
            continue
        in_sync = len(state.committed_isr)
        least = state.effective_min_isr(replica.log.config.min_insync_replicas)
        leader_count += 1
        under_replicated += in_sync <= len(state.followers)
        under_min_isr += in_sync < least
        at_min_isr += in_sync == least
        if number <= MAX_METRICS_PARTITIONS:
            _add_led_partition(page, replicas, replica, in_sync, least)
    name = "kafka_server_replicamanager"
    page.add(f"{name}_partitioncount", len(hosted))
    page.add(f"{name}_leadercount", leader_count)
    page.add(f"{name}_underreplicatedpartitions", under_replicated)
    page.add(f"{name}_underminisrpartitioncount", under_min_isr)
    page.add(f"{name}_atminisrpartitioncount", at_min_isr)
    page.add("kafka_server_replicafetchermanager_maxlag", max_lag)
    page.add("ottla_metrics_omitted_partitions", max(len(hosted) - MAX_METRICS_PARTITIONS, 0))


def _add_led_partition(
    page: MetricsBuilder, replicas: ReplicaManager, replica: HostedPartition, in_sync: int, min_isr: int
) -> None:
    at = f'{{topic="{replica.topic}",partition="{replica.partition}"}}'
    log, state = replica.log, replica.state
    assert type(state) is LeaderState
    page.add("kafka_cluster_partition_underminisr", int(in_sync < min_isr), at)
    page.add("kafka_cluster_partition_atminisr", int(in_sync == min_isr), at)
    page.add("kafka_cluster_partition_replicascount", len(state.followers) + 1, at)
    page.add("kafka_topic_partition_current_offset", log.high_watermark, at)
    page.add("kafka_topic_partition_oldest_offset", log.log_start_offset, at)
    page.add("kafka_partition_latest_offset", log.high_watermark, at)
    page.add("kafka_partition_earliest_offset", log.log_start_offset, at)
    page.add("kafka_topic_partition_replicas", len(state.followers) + 1, at)
    page.add("kafka_topic_partition_in_sync_replica", in_sync, at)
    page.add("kafka_topic_partition_under_replicated_partition", int(in_sync <= len(state.followers)), at)
    topic = replicas.image.topics.get(replica.topic)
    registration = None if topic is None else topic.partitions.get(replica.partition)
    if topic is None or registration is None:
        return
    page.add("kafka_topic_partition_leader", registration.leader, at)
    is_preferred = registration.leader == registration.replicas[0]
    page.add("kafka_topic_partition_leader_is_preferred", int(is_preferred), at)
    if replica.partition == 0:
        page.add("kafka_topic_partitions", len(topic.partitions), labels(topic=replica.topic))


def add_traffic_metrics(page: MetricsBuilder, replicas: ReplicaManager) -> Job[None]:
    """Add the traffic metrics of each topic, and their totals over all topics without a label, as a job.

    Only the first `MAX_METRICS_TOPICS` topics get samples of their own; the totals include removed topics.
    """
    total = TopicTraffic()
    total.add(replicas.removed_traffic)
    total.add(replicas.unknown_traffic)
    for number, (topic, traffic) in enumerate(list(replicas.traffic.items()), 1):
        total.add(traffic)
        if number <= MAX_METRICS_TOPICS:
            _add_traffic(page, traffic, labels(topic=topic))
        if number % PARTITIONS_PER_STEP == 0:
            page.encode()
            yield None
    _add_traffic(page, total, "")
    page.add("kafka_server_brokertopicmetrics_replicationbytesin_total", total.replication_bytes_in)
    page.add("kafka_server_brokertopicmetrics_replicationbytesout_total", total.replication_bytes_out)


def _add_traffic(page: MetricsBuilder, traffic: TopicTraffic, at: str) -> None:
    for name, attribute in _TRAFFIC:
        page.add(f"kafka_server_brokertopicmetrics_{name}_total", getattr(traffic, attribute), at)
