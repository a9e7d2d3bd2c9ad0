"""Samples of tiered storage, for the metrics page.

Source: ``RemoteStorageMetrics.java``, ``DelayedRemoteFetch.java``, ``DelayedRemoteListOffsets.java`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config.limits import MAX_METRICS_TOPICS
from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.broker.storage.tiered.remote_topic_stats import RemotePartitionGauges, RemoteTopicStats
from ottla.jobs.job import Job

if TYPE_CHECKING:
    from ottla.broker.remote_log.remote_log_manager import RemoteLogManager
    from ottla.broker.storage.tiered.remote_reads import RemoteReads

TOPICS_PER_STEP = 20
_COUNTERS = (
    ("kafka_server_brokertopicmetrics_remotecopybytes_total", "copied_bytes"),
    ("kafka_server_brokertopicmetrics_remotecopyrequests_total", "copies"),
    ("kafka_server_brokertopicmetrics_remotecopyerrors_total", "copy_errors"),
    ("kafka_server_brokertopicmetrics_remotedeleterequests_total", "deletions"),
    ("kafka_server_brokertopicmetrics_remotedeleteerrors_total", "delete_errors"),
    ("kafka_server_brokertopicmetrics_remotefetchbytes_total", "fetched_bytes"),
    ("kafka_server_brokertopicmetrics_remotefetchrequests_total", "fetches"),
    ("kafka_server_brokertopicmetrics_remotefetcherrors_total", "fetch_errors"),
    ("kafka_server_brokertopicmetrics_buildremotelogauxstaterequests_total", "aux_state_builds"),
    ("kafka_server_brokertopicmetrics_buildremotelogauxstateerrors_total", "aux_state_errors"),
)
_GAUGES = (
    ("kafka_server_brokertopicmetrics_remotecopylagbytes", "copy_lag_bytes"),
    ("kafka_server_brokertopicmetrics_remotecopylagsegments", "copy_lag_segments"),
    ("kafka_server_brokertopicmetrics_remotedeletelagbytes", "delete_lag_bytes"),
    ("kafka_server_brokertopicmetrics_remotedeletelagsegments", "delete_lag_segments"),
    ("kafka_server_brokertopicmetrics_remotelogmetadatacount", "metadata_count"),
    ("kafka_server_brokertopicmetrics_remotelogsizebytes", "size_bytes"),
)


def add_remote_log_metrics(page: MetricsBuilder, manager: RemoteLogManager, reads: RemoteReads) -> Job[None]:
    """Add the metrics of tiered storage, as a job.

    They are those of each tiered topic, their totals without a label, those of the threads, and the requests that ended
    before their ``reads`` did. Only the first `MAX_METRICS_TOPICS` topics, by name, get samples of their own; the
    totals are of all.
    """
    counted, measured = RemoteTopicStats(), RemotePartitionGauges()
    gauges = yield from manager.gauges_by_topic_job()
    for number, topic in enumerate(sorted(manager.stats.keys() | gauges.keys()), 1):
        stats, current = manager.stats.get(topic), gauges.get(topic)
        at = labels(topic=topic)
        if stats is not None:
            counted.add(stats)
            _add(page, _COUNTERS, stats, at, number)
        if current is not None:
            measured.add(current)
            _add(page, _GAUGES, current, at, number)
        if number % TOPICS_PER_STEP == 0:
            yield None
    _add(page, _COUNTERS, counted, "", 0)
    _add(page, _GAUGES, measured, "", 0)
    idle = "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"
    page.add(idle, manager.copiers.idle_percent)
    page.add("kafka_log_remote_remotestoragethreadpool_remotelogreadertaskqueuesize", manager.readers.pending_count)
    page.add("kafka_log_remote_remotestoragethreadpool_remotelogreaderavgidlepercent", manager.readers.idle_percent)
    page.add("kafka_server_delayedremotefetchmetrics_expires_total", reads.expired_fetches)
    page.add("kafka_server_delayedremotelistoffsetsmetrics_expires_total", reads.expired_list_offsets)


def _add(
    page: MetricsBuilder,
    families: tuple[tuple[str, str], ...],
    values: RemoteTopicStats | RemotePartitionGauges,
    at: str,
    number: int,
) -> None:
    """Add a sample to each family if the topic with this 1-based ``number`` is within the limit; 0 for the totals.

    ``families``: (family, attribute of ``values``) pairs; ``at``: label set in the text format.
    """
    if number <= MAX_METRICS_TOPICS:
        for name, attribute in families:
            page.add(name, getattr(values, attribute), at)
