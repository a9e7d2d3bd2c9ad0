"""Page of the cluster: metadata quorum, feature levels, and a table of leaders and replicas by partition and broker."""

from __future__ import annotations

from typing import Any

from ottla.console.page import PageRequest, View
from ottla.console.pages.feature_levels import describe_features
from ottla.console.pages.overview import ClusterState, fetch_cluster_state
from ottla.console.paging import paginate
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages.describe_quorum import DescribeQuorumResponsePartitionData
from ottla.wire.messages.metadata import MetadataResponsePartition


def describe_quorum(quorum: DescribeQuorumResponsePartitionData) -> list[dict[str, Any]]:
    """Return a row for each voter and observer of the quorum, with its lag in records behind the leader.

    Keys: ``node``, ``role`` (``leader``, ``voter``, ``observer``), ``end`` (log end offset), ``lag``, and ``caught_up``
    (ms since 1970; -1 if unknown). Without a leader among the voters the lag is that behind the high watermark.
    """
    leader = next((each for each in quorum.current_voters if each.replica_id == quorum.leader_id), None)
    end = quorum.high_watermark if leader is None else leader.log_end_offset
    return [
        {
            "node": replica.replica_id,
            "role": "leader" if replica.replica_id == quorum.leader_id else role,
            "end": replica.log_end_offset,
            "lag": max(end - replica.log_end_offset, 0),
            "caught_up": replica.last_caught_up_timestamp,
        }
        for role, replicas in (("voter", quorum.current_voters), ("observer", quorum.observers))
        for replica in replicas
    ]


def replica_state(partition: MetadataResponsePartition, broker: int) -> str:
    """Return ``leader``, ``in sync``, ``behind`` or ``offline`` for a broker's replica; empty if it has none."""
    if broker not in partition.replica_nodes:
        return ""
    if broker in partition.offline_replicas:
        return "offline"
    if broker == partition.leader_id:
        return "leader"
    return "in sync" if broker in partition.isr_nodes else "behind"


def has_problem(partition: MetadataResponsePartition) -> bool:
    """Return True if a partition has no leader, or a replica that is not in sync."""
    return partition.leader_id < 0 or len(partition.isr_nodes) < len(partition.replica_nodes)


def _find_partitions(page: PageRequest, state: ClusterState) -> Job[list[tuple[str, MetadataResponsePartition]]]:
    """Return the partitions that the query selects, with their topics, sorted by topic and number, as a job."""
    only_problems = page.fields.get("problems") == "1"
    wanted = page.fields.get("q", "").strip().lower()
    out: list[tuple[str, MetadataResponsePartition]] = []
    for topic in sorted(state.metadata.topics, key=lambda topic: topic.name or ""):
        if wanted in (topic.name or "").lower():
            found = [row for row in topic.partitions if not only_problems or has_problem(row)]
            found.sort(key=lambda row: row.partition_index)
            out += [(topic.name or "", row) for row in found]
            yield None
    return out


async def describe_replicas(page: PageRequest, state: ClusterState) -> dict[str, Any]:
    """Return the replica table: a row for each partition that the query selects, a column for each broker.

    Keys: ``brokers`` (ids, sorted), ``rows`` and ``paging`` of one page, and the query as ``q`` and ``problems``. The
    ``states`` of a row are those of `replica_state`, in the order of ``brokers``.

    Raises:
        InvalidInput: a number in the query is malformed.
    """
    only_problems = page.fields.get("problems") == "1"
    wanted = page.fields.get("q", "").strip().lower()
    partitions = await run_in_background(page.node.local.env, _find_partitions(page, state))
    shown, paging = paginate(page, partitions)
    brokers = sorted({b.broker_id for b in state.cluster.brokers}.union(*(p.replica_nodes for _, p in shown)))
    rows = [
        {
            "topic": topic,
            "partition": partition.partition_index,
            "epoch": partition.leader_epoch,
            "states": [replica_state(partition, broker) for broker in brokers],
            "has_problem": has_problem(partition),
        }
        for topic, partition in shown
    ]
    return {"brokers": brokers, "rows": rows, "paging": paging, "q": wanted, "problems": only_problems}


async def get_state(page: PageRequest) -> View:
    """Return the live block of the page: quorum, feature levels and replica table."""
    state = await fetch_cluster_state(page)
    values = {
        "quorum": state.quorum,
        "replicas_of_quorum": [] if state.quorum is None else describe_quorum(state.quorum),
        "features": describe_features(page),
        **(await describe_replicas(page, state)),
    }
    return View("cluster.html", values)


async def get_cluster(page: PageRequest) -> View:
    """Return the page with the members of the quorum, feature levels, and the replicas of partitions by broker."""
    view = await get_state(page)
    return View("cluster.html", {"title": "Cluster", **view.values})
