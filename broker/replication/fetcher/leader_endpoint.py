"""Connection of a fetcher to its leader, requests other than Fetch, request versions, and common dependencies.

Source: ``BrokerBlockingSender.scala``, ``RemoteLeaderEndPoint.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.fetcher.fetch_state import DEFAULT_FETCH_LIMITS, ReplicaFetchLimits
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.client.channel import Disconnected
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.client.node_connection import NodeConnection
from ottla.env.env import Env
from ottla.log.partition_log import PartitionLog
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
    from ottla.broker.storage.tiered.remote_storage import RemoteStorage
    from ottla.broker.storage.tiered.remote_topic_stats import RemoteTopicStats

T = TypeVar("T")
LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP = -1, -2, -4, -6


class LeaderOffset(NamedTuple):
    """Offset in the leader's log, and the leader epoch of its record; each is -1 if the leader does not know it.

    With the exclusive end offset of an epoch, it is that epoch.
    """

    offset: int
    epoch: int


class RemoteLog(Protocol):
    """Interface of tiered storage on this broker, as far as followers use it; implemented by `RemoteLogManager`."""

    @property
    def storage(self) -> RemoteStorage:
        """Remote store. Its calls block: they are made in threads."""

    def cache(self, topic_id: bytes, partition: int) -> RemoteLogMetadataCache | None:
        """Return the remote segments of a partition; None while their metadata is not loaded."""

    async def in_reader_thread(self, work: Callable[[], T]) -> T:
        """Run a call of the store in a thread and return its result; its errors are raised.

        Raises:
            RemoteReadQueueFullError: Too many calls wait for a thread.
        """

    def topic_stats(self, topic: str) -> RemoteTopicStats:
        """Return the counters of a topic, which the caller may increment."""


class FetcherDependencies(NamedTuple):
    """Common dependencies of the fetchers of a node: settings, callbacks and state of the node."""

    env: Env
    node_id: int
    timeout_s: float
    """``replica.socket.timeout.ms`` in seconds: timeout of connecting, and of each wait for bytes of a response."""
    broker_epoch: Callable[[], int]
    metadata_version: Callable[[], int]
    """Function that returns the ``metadata.version`` level of the image, which selects request versions (R-312)."""
    address: Callable[[int], tuple[str, int] | None]
    """Function that returns a broker's host and port for the inter-broker listener, None if the image has none."""
    fail: DiskErrorHandler
    limits: ReplicaFetchLimits = DEFAULT_FETCH_LIMITS
    is_throttled: Callable[[HostedPartition], bool] = lambda replica: False
    """Predicate of partitions that ``follower.replication.throttled.replicas`` includes."""
    record_throttled_bytes: Callable[[int], None] = lambda size_bytes: None
    """Callback with the bytes received for throttled partitions."""
    is_quota_exceeded: Callable[[], bool] = lambda: False
    """Function that returns True while the follower replication quota is exceeded."""
    access: ConnectionSecurity = NO_SECURITY
    """Security settings of the inter-broker listener."""
    remote_log: Callable[[], RemoteLog | None] = lambda: None
    """Function that returns the manager of tiered storage; None while this broker has none (KIP-405)."""
    skips_tiered_offsets: Callable[[], bool] = lambda: False
    """Function that returns ``follower.fetch.last.tiered.offset.enable`` (KIP-1023)."""


def skips_tiered_offsets(dependencies: FetcherDependencies, log: PartitionLog, leader_end: int) -> bool:
    """Return whether a log with end offset 0 is to start after the last segment that the leader has copied (KIP-1023).

    It is if ``follower.fetch.last.tiered.offset.enable`` is set, the topic is tiered and not compacted, and
    ``leader_end``, the leader's log end offset, is not 0.
    """
    return (
        log.log_end_offset == 0
        and leader_end != 0
        and log.config.tiering.is_enabled
        and not log.config.compact
        and dependencies.skips_tiered_offsets()
    )


def fetch_limits_of(config: NodeConfig) -> ReplicaFetchLimits:
    """Return the fetch limits of a follower from the settings ``replica.fetch.*`` of the node."""
    prefix = "replica.fetch."
    names = ("wait.max.ms", "min.bytes", "response.max.bytes", "max.bytes", "backoff.ms")
    return ReplicaFetchLimits(*(config.number(prefix + name) for name in names))


def fetch_version(metadata_version: int) -> int:
    """Return the version of Fetch between brokers for a ``metadata.version`` level (R-312); at least 13."""
    steps = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14))
    return next((version for level, version in steps if metadata_version >= level), 13)


def list_offsets_version(metadata_version: int) -> int:
    """Return the version of ListOffsets between brokers for a ``metadata.version`` level (R-312); at least 7."""
    steps = ((29, 11), (25, 10), (21, 9), (9, 8))
    return next((version for level, version in steps if metadata_version >= level), 7)


def connect_to_leader(dependencies: FetcherDependencies, leader_id: int, client_id: str) -> NodeConnection:
    """Return an unopened connection of a fetcher to its leader, which sends ApiVersions only before SASL (R-311)."""
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
) -> LeaderOffset:
    """Request an offset of the leader's log by ListOffsets, and return it with its leader epoch.

    ``which`` is a special timestamp, such as `LATEST_TIMESTAMP`; ``leader_epoch`` the current leader epoch.

    Raises:
        ProtocolError: error response.
        Disconnected, WireError: no response.
    """
    wanted = ListOffsetsPartition(replica.partition, leader_epoch, which)
    request = ListOffsetsRequest(dependencies.node_id, 0, [ListOffsetsTopic(replica.topic, [wanted])])
    version = list_offsets_version(dependencies.metadata_version())
    row = await call_for_partition(connection, "ListOffsets", request, version)
    return LeaderOffset(row.offset, row.leader_epoch)


async def call_for_partition(connection: NodeConnection, api: str, request: Message, version: int) -> Any:
    """Send a request for one partition to its leader, and return the row of the partition in the response.

    ``api`` is the name of the API for error messages.

    Raises:
        ProtocolError: error response.
        Disconnected, WireError: no response.
    """
    try:
        answer = await connection.call(request, version)
    except OSError as error:
        raise Disconnected(str(error)) from error
    row = answer.topics[0].partitions[0]
    if row.error_code:
        raise leader_error(api, row.error_code)
    return row


def leader_error(api: str, code: int) -> ProtocolError:
    """Return the error for an error code of the leader, with the name of the API in its message."""
    error = ErrorCode(code)
    return ProtocolError(error, f"{api} of the leader failed: {error.text}")
