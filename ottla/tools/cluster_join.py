"""Discovery of a cluster from the address of one node, and the settings of a node that joins the cluster.

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
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.env.env import Env
from ottla.env.hosts import format_address
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.tools.join_settings import CannotJoin
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import describe_cluster, describe_quorum

JOIN_TIMEOUT_S = 10.0
LIVENESS_TIMEOUT_MS = 10_000
DYNAMIC_VOTERS_MIN_VERSION = 2
"""First version of DescribeQuorum whose response has the endpoints of the voters."""


class DiscoveredCluster(NamedTuple):
    """Cluster as described to a node that wants to join it."""

    cluster_id: str
    voters: dict[int, dict[str, tuple[str, int]]]
    """Host and port of each voter's listeners, by node id and listener name."""
    brokers: dict[int, tuple[str, int]]
    """Host and port of each live broker, by node id."""
    live_nodes: frozenset[int]
    """Node ids of live brokers, and of voters that fetched less than `LIVENESS_TIMEOUT_MS` before the newest fetch."""
    local_address: str
    """IP address of this machine on the connection to the cluster."""
    directories: dict[int, bytes]
    """Directory id of each voter; zero if the quorum does not know it (kraft.version 0)."""

    def has_lost_disk(self, node_id: int, directory_id: bytes | None) -> bool:
        """Return True if the quorum knows voter ``node_id`` by a directory id other than ``directory_id``.

        The node has lost its disk then. ``directory_id`` None stands for a directory that is new.
        """
        return self.directories.get(node_id, ZERO_UUID) not in (ZERO_UUID, directory_id)


async def discover_cluster(env: Env, address: str, access: ConnectionSecurity = NO_SECURITY) -> DiscoveredCluster:
    """Return the description of the cluster of the broker listener at ``address`` (``HOST:PORT``).

    ``access``: TLS and SASL configuration of the connection, which is closed at the end.

    Raises:
        CannotJoin: no connection or login, an error response (also of a controller listener), or too old a node.
    """
    client = ClusterClient(env, address, timeout_s=JOIN_TIMEOUT_S, access=access)
    try:
        channel = await client.bootstrap_channel()
        cluster = await channel.call(describe_cluster.DescribeClusterRequest())
        if channel.version_for(ApiKey.DESCRIBE_QUORUM) < DYNAMIC_VOTERS_MIN_VERSION:
            raise CannotJoin(f"{address} does not return addresses of its controllers: set {BOOTSTRAP_SERVERS}")
        return parse_cluster(cluster, await _describe(channel), channel.stream.local[0])
    except (OSError, ValueError, ProtocolError, WireError) as error:
        raise CannotJoin(f"{address}: {error}") from None
    finally:
        client.close()


async def _describe(channel: Channel) -> describe_quorum.DescribeQuorumResponse:
    topic = describe_quorum.DescribeQuorumRequestTopicData(
        METADATA_TOPIC, [describe_quorum.DescribeQuorumRequestPartitionData(0)]
    )
    answer: describe_quorum.DescribeQuorumResponse = await channel.call(describe_quorum.DescribeQuorumRequest([topic]))
    return answer


def parse_cluster(
    cluster: describe_cluster.DescribeClusterResponse, answer: describe_quorum.DescribeQuorumResponse, seen_from: str
) -> DiscoveredCluster:
    """Combine the responses to DescribeCluster and DescribeQuorum into the description of a cluster.

    Args:
        cluster: response to DescribeCluster.
        answer: response to DescribeQuorum.
        seen_from: IP address of this machine on the connection.

    Raises:
        ProtocolError: one of the responses has an error code.
    """
    code = cluster.error_code or answer.error_code or answer.topics[0].partitions[0].error_code
    if code:
        raise ProtocolError(ErrorCode(code))
    rows = answer.topics[0].partitions[0].current_voters
    newest_ms = max(v.last_fetch_timestamp for v in rows)
    live = {v.replica_id for v in rows if newest_ms - v.last_fetch_timestamp < LIVENESS_TIMEOUT_MS}
    places = {n.node_id: {x.name: (x.host, x.port) for x in n.listeners} for n in answer.nodes}
    voters = {v.replica_id: places.get(v.replica_id, {}) for v in sorted(rows, key=lambda v: v.replica_id)}
    brokers = {b.broker_id: (b.host, b.port) for b in cluster.brokers}
    directories = {v.replica_id: v.replica_directory_id for v in rows}
    return DiscoveredCluster(
        cluster.cluster_id, voters, brokers, frozenset(live | set(brokers)), seen_from, directories
    )


def join_settings(
    values: dict[str, str], node_id: int, quorum: DiscoveredCluster, quorum_size: int, directory_id: bytes | None = None
) -> dict[str, str]:
    """Return the settings of a node that joins: ``values``, controller addresses, and whether it becomes a voter.

    Args:
        values: settings of the user; they override what is derived, except the addresses and the node id.
        node_id: id of the joining node.
        quorum: the discovered cluster.
        quorum_size: the node becomes a voter if the quorum has fewer voters than this.
        directory_id: id of the node's metadata directory; None if the directory is new. A voter that lost its disk
            joins again with its new id: otherwise the quorum would lack one voter without a visible error.

    Raises:
        CannotJoin: no controller has the listener, or this machine cannot reach the addresses of the controllers.
    """
    known = sorted({name for places in quorum.voters.values() for name in places})
    listener = controller_listener_names(values)[0] if CONTROLLER_LISTENER_NAMES in values else (known or [""])[0]
    found = [places[listener] for places in quorum.voters.values() if listener in places]
    if not found:
        raise CannotJoin(f"the controllers have no listener {listener}; they have {', '.join(known) or 'none'}")
    if quorum.local_address not in LOCAL_HOST and all(host in (*LOCAL_HOST, *ANY_HOST) for host, _ in found):
        raise CannotJoin(
            f"controllers are advertised at {found[0][0]}:{found[0][1]}, which is not reachable from this machine: "
            "start them with --listen at an address that other machines can reach"
        )
    out = {**values, "node.id": str(node_id)}
    out.setdefault(CONTROLLER_LISTENER_NAMES, listener)
    out[BOOTSTRAP_SERVERS] = ",".join(format_address(host, port) for host, port in found)
    is_short = len(quorum.voters) < quorum_size and node_id not in quorum.voters
    if is_short or quorum.has_lost_disk(node_id, directory_id):
        out.setdefault(AUTO_JOIN, "true")
    return out


def check_node_id_unused(node_id: int, quorum: DiscoveredCluster) -> None:
    """Check that no live node of the cluster has the node id of a node with a new directory.

    A dead node with that id is accepted: it may have lost its disk and join again.

    Raises:
        CannotJoin: a live node has the id.
    """
    if node_id in quorum.live_nodes:
        host, port = quorum.brokers.get(node_id, ("", 0))
        owner = f"the node at {format_address(host, port)}" if port else "a controller that is alive"
        raise CannotJoin(f"node id {node_id} belongs to {owner}: set another --node-id")
