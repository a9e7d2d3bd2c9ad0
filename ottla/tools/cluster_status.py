"""Table of the nodes of a cluster for ``ottla cluster status``: broker state, leaders, replicas, role in the quorum."""

from __future__ import annotations

from typing import Any

from ottla.client.cluster_client import ClusterClient
from ottla.env.hosts import format_address
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.messages import describe_cluster, describe_quorum, metadata

Row = dict[str, Any]


def build_status_table(
    cluster: describe_cluster.DescribeClusterResponse,
    topics: metadata.MetadataResponse,
    quorum: describe_quorum.DescribeQuorumResponse,
) -> list[Row]:
    """Return a row for each broker, voter and observer, sorted by node id, from the responses of a broker.

    Keys: ``node``, ``address``, ``rack``, ``broker`` (``alive``, ``fenced``), ``quorum`` (``leader``, ``voter``,
    ``observer``), ``metadata lag`` (records behind the leader), and the numbers of partitions ``leads``, ``replicas``
    and ``not in sync``. A value that is not known is ``-``.

    Args:
        cluster: response to DescribeCluster, with fenced brokers.
        topics: response to Metadata for all topics.
        quorum: response to DescribeQuorum.
    """
    part = quorum.topics[0].partitions[0]
    brokers = {b.broker_id: b for b in cluster.brokers}
    voters = {v.replica_id: v for v in part.current_voters}
    observers = {o.replica_id: o for o in part.observers}
    partitions = [p for topic in topics.topics for p in topic.partitions]
    rows = []
    for node in sorted({*brokers, *voters, *observers}):
        broker = brokers.get(node)
        state = voters.get(node) or observers.get(node)
        mine = [p for p in partitions if node in p.replica_nodes]
        rows.append(
            {
                "node": node,
                "address": "-" if broker is None else format_address(broker.host, broker.port),
                "rack": "-" if broker is None or broker.rack is None else broker.rack,
                "broker": "-" if broker is None else "fenced" if broker.is_fenced else "alive",
                "quorum": _quorum_role(node, part.leader_id, node in voters, node in observers),
                "metadata lag": "-" if state is None else max(_end(voters, part.leader_id) - state.log_end_offset, 0),
                "leads": sum(p.leader_id == node for p in partitions),
                "replicas": len(mine),
                "not in sync": sum(node not in p.isr_nodes for p in mine),
            }
        )
    return rows


def _quorum_role(node: int, leader_id: int, votes: bool, observes: bool) -> str:  # noqa: FBT001
    if node == leader_id:
        return "leader"
    return "voter" if votes else "observer" if observes else "-"


def _end(voters: dict[int, describe_quorum.ReplicaState], leader_id: int) -> int:
    leader = voters.get(leader_id)
    return 0 if leader is None else leader.log_end_offset


async def fetch_cluster_status(client: ClusterClient) -> tuple[list[Row], int, str | None]:
    """Request the status of a cluster from a broker.

    Returns:
        The rows of `build_status_table`, error code 0 and None; or on an error response no rows, its error code and its
        message, which is None if it has none.
    """
    channel = await client.bootstrap_channel()
    cluster = await channel.call(describe_cluster.DescribeClusterRequest(include_fenced_brokers=True))
    topics = await client.metadata(None)
    topic = describe_quorum.DescribeQuorumRequestTopicData(
        METADATA_TOPIC, [describe_quorum.DescribeQuorumRequestPartitionData(0)]
    )
    quorum = await channel.call(describe_quorum.DescribeQuorumRequest([topic]))
    code = cluster.error_code or quorum.error_code or quorum.topics[0].partitions[0].error_code
    if code:
        return [], code, cluster.error_message or quorum.error_message
    return build_status_table(cluster, topics, quorum), 0, None
