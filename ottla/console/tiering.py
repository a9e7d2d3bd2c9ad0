"""State of tiered storage on this node for the pages: warnings, and the remote part of a topic's partitions.

All of it is in memory; no request is sent to the remote store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.env.log_escaping import escape
from ottla.jobs.job import Job

if TYPE_CHECKING:
    from ottla.broker.remote_log.remote_log_manager import RemoteLogManager
    from ottla.broker.storage.tiered.remote_topic_stats import RemoteFailure

FAILURE_WINDOW_MS = 60_000
"""Time in ms for which a failure is a warning; at least two intervals of the tasks, which repeat what failed."""
LAG_WINDOW_MS = 600_000
"""Time in ms after which segments that are not copied are a warning."""
TOPICS_PER_STEP = 200
OPERATIONS = {
    "copy_errors": ("Copies to the remote store", "The local disks fill up until the copies succeed"),
    "delete_errors": ("Deletions in the remote store", "Expired segments stay in the store"),
    "fetch_errors": ("Reads of the remote store", "Consumers get no records that are only there"),
    "aux_state_errors": ("Followers' reads of the remote store", "New replicas cannot begin"),
}
"""Operation and effect of its failure, by the counter of its errors."""
REMEDY = "Check the store, its credentials and the network; the log of the node names each failure."


class RemoteWarning(NamedTuple):
    """Problem of tiered storage on this node, and its remedy by the operator."""

    problem: str
    remedy: str


class RemotePartitionRow(NamedTuple):
    """Remote part of a partition with a replica on this node; sizes in bytes, None unless this node leads it."""

    local_start: int
    """First offset on the local disk."""
    size: int | None
    """Size of the remote segments."""
    lag_segments: int | None
    """Rolled segments that are not copied, as of the last run of the tasks, and their size."""
    lag_bytes: int | None


class RemoteTopicState(NamedTuple):
    """Tiered storage of a topic on this node: partitions by number, and a sentence for each kind of failure."""

    partitions: dict[int, RemotePartitionRow]
    failures: list[str]


def find_remote_warnings(manager: RemoteLogManager, now_ms: float) -> Job[list[RemoteWarning]]:
    """Return a warning for each operation of the store that fails now, and one for copies that lag, as a job.

    ``now_ms``: monotonic time in ms.
    """
    window_ms = max(FAILURE_WINDOW_MS, 2 * manager.settings.task_interval_ms)
    failing: dict[str, list[tuple[RemoteFailure, str]]] = {}
    for number, (topic, stats) in enumerate(list(manager.stats.items()), 1):
        for counter, failure in stats.failures.items():
            if now_ms - failure.at_ms <= window_ms:
                failing.setdefault(counter, []).append((failure, topic))
        if number % TOPICS_PER_STEP == 0:
            yield None
    found = []
    for counter, (operation, effect) in OPERATIONS.items():
        if counter in failing:
            failure, topic = max(failing[counter])
            others = f" and {len(failing[counter]) - 1} others" if len(failing[counter]) > 1 else ""
            problem = f"{operation} fail, for topic {topic}{others}: {escape(failure.text)}."
            found.append(RemoteWarning(problem, f"{effect}. {REMEDY}"))
    gauges = yield from manager.gauges_by_topic_job()
    lagging = {
        topic: each
        for topic, each in gauges.items()
        if each.lagging_since_ms is not None and now_ms - each.lagging_since_ms >= LAG_WINDOW_MS
    }
    if lagging:
        segments = sum(each.copy_lag_segments for each in lagging.values())
        minutes = LAG_WINDOW_MS // 60_000
        problem = f"Copies to the remote store lag for {minutes} minutes: {segments} segments, topics {_some(lagging)}."
        remedy = "Raise remote.log.manager.copy.max.bytes.per.second or the copier threads, or repair the store."
        found.append(RemoteWarning(problem, remedy))
    return found


def _some(topics: Iterable[str]) -> str:
    """Return the first three names in order, and the number of the others."""
    names = sorted(topics)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def describe_remote_topic(
    manager: RemoteLogManager, replicas: ReplicaManager, topic: str, numbers: Sequence[int], now_ms: float
) -> RemoteTopicState | None:
    """Return the remote part of partitions of a topic; None if this node has no tiered replica of them.

    ``now_ms``: monotonic time in ms.
    """
    rows = {}
    for number in numbers:
        replica = replicas.get(topic, number)
        if replica is None or not replica.log.config.tiering.is_enabled:
            continue
        start, gauges = replica.log.local_log_start_offset, manager.gauges(replica.topic_id, number)
        if gauges is None:
            rows[number] = RemotePartitionRow(start, None, None, None)
        else:
            lag = gauges.copy_lag_segments, gauges.copy_lag_bytes
            rows[number] = RemotePartitionRow(start, gauges.size_bytes, *lag)
    if not rows:
        return None
    stats = manager.stats.get(topic)
    failures = {} if stats is None else stats.failures
    return RemoteTopicState(
        rows,
        [
            f"{OPERATIONS[counter][0]} failed {(now_ms - failure.at_ms) / 1000:,.0f} s ago: {escape(failure.text)}"
            for counter, failure in sorted(failures.items(), key=lambda item: -item[1].at_ms)
        ],
    )
