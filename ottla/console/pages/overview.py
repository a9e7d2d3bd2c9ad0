"""Overview page: nodes, roles, partitions with problems, traffic, and warnings with their remedies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla import __version__
from ottla.console.page import PageRequest, View
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.env.hosts import format_address
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_cluster, describe_quorum
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

KAFKA_VERSION = "4.3.1"


class TopicTotals(NamedTuple):
    """Numbers of topics and partitions that the session may describe, and of partitions with problems."""

    topics: int
    partitions: int
    under_replicated: int
    offline: int


class ClusterWarning(NamedTuple):
    """Problem of the cluster, and its remedy by the operator."""

    problem: str
    remedy: str


class ClusterState(NamedTuple):
    """Responses about brokers, topics and the metadata quorum, with what the session is authorized to describe."""

    cluster: describe_cluster.DescribeClusterResponse
    metadata: MetadataResponse
    quorum: describe_quorum.DescribeQuorumResponsePartitionData | None
    """Quorum of the metadata log; None if the session may not describe it."""


def count_partitions(topics: Sequence[MetadataResponseTopic]) -> Job[TopicTotals]:
    """Return the number of topics, partitions, under-replicated and offline partitions, as a job."""
    partitions = under_replicated = offline = 0
    for topic in topics:
        partitions += len(topic.partitions)
        under_replicated += sum(len(p.isr_nodes) < len(p.replica_nodes) for p in topic.partitions)
        offline += sum(p.leader_id < 0 for p in topic.partitions)
        yield None
    return TopicTotals(len(topics), partitions, under_replicated, offline)


async def fetch_cluster_state(page: PageRequest) -> ClusterState:
    """Request brokers, partitions and quorum of the cluster.

    Error codes are not raised: ``quorum`` is None then, other responses are left as they are.

    Raises:
        OSError: no response; WireError: a malformed one.
    """
    channel = await page.client.bootstrap_channel()
    cluster = await channel.call(describe_cluster.DescribeClusterRequest(include_fenced_brokers=True))
    metadata = await page.client.metadata(None)
    topic = describe_quorum.DescribeQuorumRequestTopicData(
        METADATA_TOPIC, [describe_quorum.DescribeQuorumRequestPartitionData(0)]
    )
    response = await channel.call(describe_quorum.DescribeQuorumRequest([topic]))
    quorum = None
    if not response.error_code and response.topics and not response.topics[0].partitions[0].error_code:
        quorum = response.topics[0].partitions[0]
    return ClusterState(cluster, metadata, quorum)


def describe_nodes(state: ClusterState) -> Job[list[dict[str, Any]]]:
    """Return a row for each broker, voter and observer, sorted by node id, as a job.

    Keys: ``node``, ``address``, ``rack``, ``broker`` (``alive``, ``fenced``), ``quorum`` (``leader``, ``voter``,
    ``observer``), and the numbers of partitions ``leads`` and ``replicas``. A text is empty if it is not known.
    """
    quorum = state.quorum
    brokers = {b.broker_id: b for b in state.cluster.brokers}
    voters = {} if quorum is None else {v.replica_id: v for v in quorum.current_voters}
    observers = {} if quorum is None else {v.replica_id: v for v in quorum.observers}
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in state.metadata.topics:
        for partition in topic.partitions:
            leads[partition.leader_id] = leads.get(partition.leader_id, 0) + 1
            for node in partition.replica_nodes:
                replicas[node] = replicas.get(node, 0) + 1
        yield None
    rows = []
    for node in sorted({*brokers, *voters, *observers}):
        broker = brokers.get(node)
        role = "voter" if node in voters else "observer" if node in observers else ""
        rows.append(
            {
                "node": node,
                "address": "" if broker is None else format_address(broker.host, broker.port),
                "rack": "" if broker is None else broker.rack or "",
                "broker": "" if broker is None else "fenced" if broker.is_fenced else "alive",
                "quorum": "leader" if quorum is not None and node == quorum.leader_id else role,
                "leads": leads.get(node, 0),
                "replicas": replicas.get(node, 0),
            }
        )
    return rows


def find_warnings(page: PageRequest, state: ClusterState, counts: TopicTotals) -> Iterator[ClusterWarning]:
    """Yield warnings about offline and under-replicated partitions, fenced brokers, and failed log directories.

    The latter are those of this node; they need DESCRIBE on the cluster.
    """
    if counts.offline:
        yield ClusterWarning(
            f"{counts.offline} partitions have no leader.",
            "Start the brokers that have their replicas, or elect another leader: ottla cluster elect --unclean.",
        )
    if counts.under_replicated:
        yield ClusterWarning(
            f"{counts.under_replicated} under-replicated partitions: not all replicas are in sync.",
            "Start the brokers that are down; see the logs of brokers that are alive.",
        )
    for broker in state.cluster.brokers:
        if broker.is_fenced:
            yield ClusterWarning(
                f"Broker {broker.broker_id} is fenced.", "Start it, or remove it: ottla cluster remove."
            )
    if page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        for path in page.node.components.log_dirs.offline:
            yield ClusterWarning(
                f"Log directory {path} of node {page.node.local.node_id} failed.",
                "Replace the disk and restart the node.",
            )


async def find_tiering_warnings(page: PageRequest) -> list[ClusterWarning]:
    """Return the warnings about tiered storage on this node; none without it, or without DESCRIBE on the cluster."""
    manager = page.node.components.remote_log_manager
    if manager is None or not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return []
    # lazy: 0.8 ms, 35 kB: only with tiered storage
    from ottla.console.tiering import find_remote_warnings

    env = page.node.local.env
    found = await run_in_background(env, find_remote_warnings(manager, env.monotonic_ms()))
    return [ClusterWarning(*each) for each in found]


async def get_traffic(page: PageRequest) -> View:
    """Return the live block of the page: traffic of this node, and charts of the last hour.

    Its value ``traffic`` is None if the session may not describe the cluster.
    """
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return View("overview.html", {"traffic": None})
    history, components = page.node.traffic, page.node.components
    traffic = {
        "now": history.now,
        "charts": [
            ("Messages in a second", "count", history.now.messages_in, history.chart(lambda x: x.messages_in)),
            ("Bytes in a second, in", "size", history.now.bytes_in, history.chart(lambda x: x.bytes_in)),
            ("Bytes in a second, out", "size", history.now.bytes_out, history.chart(lambda x: x.bytes_out)),
        ],
        "connections": sum(len(acceptor) for acceptor in components.acceptors),
    }
    return View("overview.html", {"traffic": traffic})


async def get_overview(page: PageRequest) -> View:
    """Return the first page of the console: state of the cluster, number of partitions, and traffic."""
    state = await fetch_cluster_state(page)
    topics = [topic for topic in state.metadata.topics if topic.error_code == ErrorCode.NONE]
    env = page.node.local.env
    counts = await run_in_background(env, count_partitions(topics))
    traffic = await get_traffic(page)
    values = {
        "title": "Overview",
        "cluster_id": state.cluster.cluster_id,
        "ottla_version": __version__,
        "kafka_version": KAFKA_VERSION,
        "counts": counts,
        "nodes": await run_in_background(env, describe_nodes(state)),
        "quorum": state.quorum,
        "warnings": [*find_warnings(page, state, counts), *await find_tiering_warnings(page)],
        **traffic.values,
    }
    return View("overview.html", values)
