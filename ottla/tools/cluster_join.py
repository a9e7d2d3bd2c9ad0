"""Discovery of a cluster from one address, and the settings to join it.

Source: ``DescribeClusterResponse``, ``DescribeQuorumResponse`` v2 (apache/kafka 4.3.1; KIP-853).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.config.listener_config import (
    ANY_HOST,
    AUTO_JOIN,
    BOOTSTRAP_SERVERS,
    CONTROLLER_LISTENER_NAMES,
    LOCAL_HOST,
    controller_listener_names,
)
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.env.env import Env
from ottla.env.hosts import format_address
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.tools.join_settings import CannotJoin
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import describe_cluster as dc
from ottla.wire.messages import describe_quorum as dq

JOIN_TIMEOUT_S = 10.0
LIVENESS_TIMEOUT_MS = 10_000
DYNAMIC_VOTERS_MIN_VERSION = 2
"""First version of DescribeQuorum with the voters' endpoints."""


class DiscoveredCluster(NamedTuple):
    """A cluster as a newcomer sees it."""

    cluster_id: str
    voters: dict[int, dict[str, tuple[str, int]]]
    """Endpoints of each voter, by listener name."""
    brokers: dict[int, tuple[str, int]]
    """The brokers that have a session."""
    live_nodes: frozenset[int]
    """Brokers with a session, and voters that have fetched recently."""
    local_address: str
    """Address of this machine on the connection to the cluster."""
    directories: dict[int, bytes]
    """Directory id of each voter; zero where the quorum does not know it (kraft.version 0)."""

    def has_lost_disk(self, node_id: int, directory_id: bytes | None) -> bool:
        """Return True if the voter of that id lost its disk: its directory id has changed."""
        return self.directories.get(node_id, ZERO_UUID) not in (ZERO_UUID, directory_id)


async def discover_cluster(env: Env, address: str) -> DiscoveredCluster:
    """Describe the cluster of a node.

    Raises:
        CannotJoin: no response, or the API is not supported.
    """
    client = ClusterClient(env, address, timeout_s=JOIN_TIMEOUT_S)
    try:
        channel = await client.bootstrap_channel()
        cluster = await channel.call(dc.DescribeClusterRequest())
        if channel.version_for(ApiKey.DESCRIBE_QUORUM) < DYNAMIC_VOTERS_MIN_VERSION:
            raise CannotJoin(f"{address} does not tell where its controllers are: name them in {BOOTSTRAP_SERVERS}")
        return parse_cluster(cluster, await _describe(channel), channel.stream.local[0])
    except (OSError, ValueError, ProtocolError, WireError) as error:
        raise CannotJoin(f"{address}: {error}") from None
    finally:
        client.close()


async def _describe(channel: Channel) -> dq.DescribeQuorumResponse:
    asked = dq.DescribeQuorumRequestTopicData(METADATA_TOPIC, [dq.DescribeQuorumRequestPartitionData(0)])
    answer: dq.DescribeQuorumResponse = await channel.call(dq.DescribeQuorumRequest([asked]))
    return answer


def parse_cluster(
    cluster: dc.DescribeClusterResponse, answer: dq.DescribeQuorumResponse, seen_from: str
) -> DiscoveredCluster:
    """Combine both responses; ``seen_from`` is the address of this machine on the connection.

    Raises:
        ProtocolError: an error of either response.
    """
    code = cluster.error_code or answer.error_code or answer.topics[0].partitions[0].error_code
    if code:
        raise ProtocolError(ErrorCode(code))
    rows = answer.topics[0].partitions[0].current_voters
    newest_ms = max(v.last_fetch_timestamp for v in rows)
    heard = {v.replica_id for v in rows if newest_ms - v.last_fetch_timestamp < LIVENESS_TIMEOUT_MS}
    places = {n.node_id: {x.name: (x.host, x.port) for x in n.listeners} for n in answer.nodes}
    voters = {v.replica_id: places.get(v.replica_id, {}) for v in sorted(rows, key=lambda v: v.replica_id)}
    brokers = {b.broker_id: (b.host, b.port) for b in cluster.brokers}
    directories = {v.replica_id: v.replica_directory_id for v in rows}
    return DiscoveredCluster(
        cluster.cluster_id, voters, brokers, frozenset(heard | set(brokers)), seen_from, directories
    )


def join_settings(
    values: dict[str, str], node_id: int, quorum: DiscoveredCluster, quorum_size: int, directory_id: bytes | None = None
) -> dict[str, str]:
    """Return the settings of a node that joins: its bootstrap servers, and whether it becomes a voter.

    ``directory_id``: of its metadata directory; None where that is new. A voter that lost its disk replaces its former
    directory id: otherwise the quorum would lack one voter without a visible error.

    Raises:
        CannotJoin: the controllers are out of reach.
    """
    known = sorted({name for places in quorum.voters.values() for name in places})
    listener = controller_listener_names(values)[0] if CONTROLLER_LISTENER_NAMES in values else (known or [""])[0]
    found = [places[listener] for places in quorum.voters.values() if listener in places]
    if not found:
        raise CannotJoin(f"the controllers have no listener {listener}; they have {', '.join(known) or 'none'}")
    if quorum.local_address not in LOCAL_HOST and all(host in (*LOCAL_HOST, *ANY_HOST) for host, _ in found):
        raise CannotJoin(
            f"the controllers say they are at {found[0][0]}:{found[0][1]}, which leads nowhere from here: "
            "have them --listen at an address that others reach"
        )
    out = {**values, "node.id": str(node_id)}
    out.setdefault(CONTROLLER_LISTENER_NAMES, listener)
    out[BOOTSTRAP_SERVERS] = ",".join(format_address(host, port) for host, port in found)
    is_short = len(quorum.voters) < quorum_size and node_id not in quorum.voters
    if is_short or quorum.has_lost_disk(node_id, directory_id):
        out.setdefault(AUTO_JOIN, "true")
    return out


def check_node_id_unused(node_id: int, quorum: DiscoveredCluster) -> None:
    """Check that no live node has the node id of a new directory. A node that lost its disk may return.

    Raises:
        CannotJoin: the id is in use.
    """
    if node_id in quorum.live_nodes:
        host, port = quorum.brokers.get(node_id, ("", 0))
        whose = f"the node at {format_address(host, port)}" if port else "a controller that is alive"
        raise CannotJoin(f"node id {node_id} belongs to {whose}: give another --node-id")
