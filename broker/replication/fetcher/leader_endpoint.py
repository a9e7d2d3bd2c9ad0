"""The connection a fetcher has to its leader: where it goes, and the versions spoken on it.

Source: ``BrokerBlockingSender.scala``, ``RemoteLeaderEndPoint.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.fetcher.fetch_state import DEFAULT_FETCH_LIMITS, ReplicaFetchLimits
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.client.channel import Disconnected
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.client.node_connection import NodeConnection
from ottla.env.env import Env
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2


class FetcherDependencies(NamedTuple):
    """Common dependencies of the fetchers of a node."""

    env: Env
    node_id: int
    timeout_s: float
    """``replica.socket.timeout.ms``: for a connection, and for each answer."""
    broker_epoch: Callable[[], int]
    metadata_version: Callable[[], int]
    """The level of the image's ``metadata.version``: it fixes the versions spoken (R-312)."""
    address: Callable[[int], tuple[str, int] | None]
    """Function that returns a broker's inter-broker address in the image."""
    fail: DiskErrorHandler
    limits: ReplicaFetchLimits = DEFAULT_FETCH_LIMITS
    is_throttled: Callable[[HostedPartition], bool] = lambda replica: False
    """True if a partition may be held back while it is behind."""
    record_throttled_bytes: Callable[[int], None] = lambda size_bytes: None
    """Callback with the bytes of throttled partitions."""
    is_quota_exceeded: Callable[[], bool] = lambda: False
    """True if they were too many of late."""
    access: ConnectionSecurity = NO_SECURITY
    """Security settings of the inter-broker listener."""


def fetch_limits_of(config: NodeConfig) -> ReplicaFetchLimits:
    """Return the fetch settings of a follower."""
    prefix = "replica.fetch."
    names = ("wait.max.ms", "min.bytes", "response.max.bytes", "max.bytes", "backoff.ms")
    return ReplicaFetchLimits(*(config.number(prefix + name) for name in names))


def fetch_version(metadata_version: int) -> int:
    """Return the version of Fetch between brokers (R-312)."""
    steps = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
    return next((version for level, version in steps if metadata_version >= level), 13)


def list_offsets_version(metadata_version: int) -> int:
    """Return the version of ListOffsets between brokers (R-312)."""
    steps = ((29, 11), (25, 10), (21, 9), (9, 8))
    return next((version for level, version in steps if metadata_version >= level), 7)


def connect_to_leader(dependencies: FetcherDependencies, leader_id: int, client_id: str) -> NodeConnection:
    """Return the connection of a fetcher to its leader; no ApiVersions comes first (R-311)."""
    return NodeConnection(
        dependencies.env,
        client_id,
        f"broker {leader_id}",
        partial(dependencies.address, leader_id),
        dependencies.timeout_s,
        access=lambda: dependencies.access,
        negotiates=False,
    )


async def fetch_leader_offset(
    connection: NodeConnection,
    dependencies: FetcherDependencies,
    replica: HostedPartition,
    leader_epoch: int,
    which: int,
) -> int:
    """Fetch the leader's log end (`LATEST_TIMESTAMP`) or start (`EARLIEST_TIMESTAMP`) as a replica.

    Raises:
        ProtocolError: error response; OSError, WireError: no response.
    """
    wanted = ListOffsetsPartition(replica.partition, leader_epoch, which)
    request = ListOffsetsRequest(dependencies.node_id, 0, [ListOffsetsTopic(replica.topic, [wanted])])
    try:
        answer = await connection.call(request, list_offsets_version(dependencies.metadata_version()))
    except OSError as error:
        raise Disconnected(str(error)) from error
    row = answer.topics[0].partitions[0]
    if row.error_code:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ListOffsets of the leader failed: error {row.error_code}")
    return int(row.offset)
