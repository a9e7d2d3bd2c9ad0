"""Small Kafka client of the command line tools, the console and the blocking client of embedded nodes.

It has one connection to each address and negotiates versions. `ClusterClient.partitions` waits for leaders,
`ClusterClient.produce` retries while a leader moves; other retries are left to the caller
(`ClusterClient.retry_while_leader_moves`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.client.channel import CLIENT_ID, Channel, Disconnected, open_channel
from ottla.client.connection_security import NO_SECURITY, AuthenticationFailed, ConnectionSecurity
from ottla.client.record_decoding import DecodedRecords, decode_committed
from ottla.env.env import Env
from ottla.env.hosts import format_address
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import describe_cluster, fetch, metadata, produce
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_batch import records
from ottla.wire.record_batch.compression import CompressionType

logger = logging.getLogger("ottla.client")
CONTROLLERS = 2
"""Endpoint type of controllers in DescribeCluster."""
LEADER_MOVE_TIMEOUT_MS = 30_000
LEADER_MOVE_CODES = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""Error codes of a partition that moves or was just created: nodes learn of that one after another."""
_MAX_ATTEMPTS = 20
_RETRY_S = 0.05
_MAX_RETRY_S = 1.0
T = TypeVar("T")


class _NotAppendedError(ProtocolError):
    """Retriable error of a batch that is certainly not in the log."""


class _LeaderUnreachableError(OSError):
    """The connection to a leader could not be opened, so that no batch was sent."""


@dataclass(slots=True)
class FetchedRecord:
    """Record of a Fetch response with the topic and partition that it comes from."""

    topic: str
    partition: int
    record: records.Record


def is_retriable(error: Exception) -> bool:
    """Return True for a ProtocolError with a retriable code, and for an OSError.

    False for a failed authentication, and a certificate that is not trusted (``ssl.SSLCertVerificationError``, which is
    a ValueError, too).
    """
    if isinstance(error, ProtocolError):
        return error.code.retriable
    return isinstance(error, OSError) and not isinstance(error, (AuthenticationFailed, ValueError))


def leader_may_move(error: Exception) -> bool:
    """Return True for a ProtocolError with one of `LEADER_MOVE_CODES`."""
    return isinstance(error, ProtocolError) and error.code in LEADER_MOVE_CODES


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


class ClusterClient:
    """Client of a cluster: connections to its brokers, which are discovered by Metadata from bootstrap servers.

    ``bootstrap``: ``host:port``, or several separated by commas. ``timeout_s``: maximum time to connect (see
    `channel.connect`), and of each wait for bytes of a response. All methods that send requests raise OSError if a
    connection or an authentication fails, and WireError for a malformed response or an unsupported version.
    """

    def __init__(
        self,
        env: Env,
        bootstrap: str,
        client_id: str = CLIENT_ID,
        timeout_s: float = 60.0,
        access: ConnectionSecurity = NO_SECURITY,
    ) -> None:
        self._env = env
        self._access = access or NO_SECURITY
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._open: dict[tuple[str, int], Channel] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    async def _connect(self, host: str, port: int) -> Channel:
        known = self._open.get((host, port))
        if known is None or known.closed:
            known = await open_channel(self._env, (host, port), self._client_id, self._timeout_s, self._access)
            self._open[host, port] = known
        return known

    async def bootstrap_channel(self) -> Channel:
        """Return the open connection to the first bootstrap broker that can be reached, or open it.

        Raises:
            OSError: no bootstrap broker can be reached; ValueError: the bootstrap servers are malformed.
        """
        *others, last = (_address(part) for part in self._bootstrap.split(","))
        for address in others:
            try:
                return await self._connect(*address)
            except OSError as error:
                logger.info("Connection to %s could not be established: %s", format_address(*address), error)
        return await self._connect(*last)

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request to a bootstrap broker and return its response; ``version`` None: the newest common one."""
        return await (await self.bootstrap_channel()).call(request, version)

    def avoid_brokers(self, node_ids: Collection[int]) -> None:
        """Use the known brokers except ``node_ids``, which are about to stop, as bootstrap servers from now on.

        Without other known brokers nothing changes.
        """
        others = (x for i, x in self._brokers.items() if i not in node_ids)
        named = [format_address(host, port) for host, port in others]
        self._bootstrap = ",".join(named) or self._bootstrap

    async def metadata(self, topics: list[str] | None, *, create: bool = False) -> metadata.MetadataResponse:
        """Return the Metadata response for ``topics`` (None: all) and cache its brokers and partition leaders.

        ``create``: allow the broker to create missing topics. Errors of topics are in the response.
        """
        wanted = None if topics is None else [metadata.MetadataRequestTopic(name=t) for t in topics]
        connection = await self.bootstrap_channel()
        version = connection.version_for(ApiKey.METADATA, 12)
        answer: metadata.MetadataResponse = await connection.call(metadata.MetadataRequest(wanted, create), version)
        self._brokers = {x.node_id: (x.host, x.port) for x in answer.brokers}
        for topic in answer.topics:
            for p in topic.partitions:
                self._leaders[topic.name or "", p.partition_index] = p.leader_id
        return answer

    async def controllers(self) -> describe_cluster.DescribeClusterResponse:
        """Return the DescribeCluster response of a controller, for a client whose bootstrap servers are controllers.

        The controllers take the place of the brokers in `broker`.

        Raises:
            ProtocolError: the error code of the response.
        """
        request = describe_cluster.DescribeClusterRequest(endpoint_type=CONTROLLERS)
        answer: describe_cluster.DescribeClusterResponse = await self.call(request)
        if answer.error_code:
            raise ProtocolError(ErrorCode(answer.error_code), answer.error_message)
        self._brokers = {row.broker_id: (row.host, row.port) for row in answer.brokers}
        return answer

    async def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        """Return the sorted partition numbers of a topic once all have leaders; Metadata is requested up to 20 times.

        ``create``: create the topic if it does not exist, and retry after retriable errors of the topic too.

        Raises:
            ProtocolError: the topic's error, at once without ``create``, or LEADER_NOT_AVAILABLE if partitions have no
                leader for a second.
        """
        for _ in range(_MAX_ATTEMPTS):
            row = (await self.metadata([topic], create=create)).topics[0]
            if not row.error_code and all(p.leader_id >= 0 for p in row.partitions):
                return sorted(p.partition_index for p in row.partitions)
            if row.error_code and not (create and ErrorCode(row.error_code).retriable):
                break
            await self._env.sleep(_RETRY_S)
        raise ProtocolError(ErrorCode(row.error_code or ErrorCode.LEADER_NOT_AVAILABLE), f"topic {topic}")

    def invalidate_leaders(self) -> None:
        """Clear the cached partition leaders, so that the next call of `leader` requests Metadata again."""
        self._leaders.clear()

    async def retry_while_leader_moves(
        self, work: Callable[[], Awaitable[T]], should_retry: Callable[[Exception], bool] = is_retriable
    ) -> T:
        """Call ``work`` until it returns, and return its result; retry for `LEADER_MOVE_TIMEOUT_MS`, at least once.

        Before a retry the cached leaders are dropped. The first is after 50 ms; the time doubles, up to 1 s.
        ``should_retry``: whether to retry after a ProtocolError or OSError of ``work``; by default as
        `is_retriable`, so that a request whose response was lost is sent twice.

        Raises:
            ProtocolError, OSError: ``work`` failed with one that is not retried, or still fails after the timeout.
        """
        deadline_ms, wait_s, is_retried = self._env.monotonic_ms() + LEADER_MOVE_TIMEOUT_MS, _RETRY_S, False
        while True:
            try:
                return await work()
            except (ProtocolError, OSError) as error:
                is_over = is_retried and self._env.monotonic_ms() >= deadline_ms
                if is_over or not should_retry(error):
                    raise
            self.invalidate_leaders()
            await self._env.sleep(wait_s)
            wait_s, is_retried = min(2 * wait_s, _MAX_RETRY_S), True

    async def leader(self, topic: str, partition: int) -> Channel:
        """Return a connection to a partition's leader, requesting Metadata if the partition is not cached.

        Raises:
            ProtocolError: the topic's error if it is not retriable, such as TOPIC_AUTHORIZATION_FAILED; else
                LEADER_NOT_AVAILABLE: the topic or partition does not exist, or has no leader; that it has none is
                cached too, until the next `metadata`.
            OSError: it cannot be reached.
        """
        if (topic, partition) not in self._leaders:
            code = ErrorCode((await self.metadata([topic])).topics[0].error_code)
            if code is not ErrorCode.NONE and not code.retriable:
                raise ProtocolError(code, f"topic {topic}")
        broker = self._leaders.get((topic, partition), -1)
        if broker not in self._brokers:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        try:
            return await self._connect(*self._brokers[broker])
        except OSError as error:
            if not is_retriable(error):
                raise
            raise _LeaderUnreachableError(*error.args) from error

    async def broker(self, node_id: int) -> Channel:
        """Return a connection to a broker in the last Metadata response, or a controller after `controllers`.

        Raises:
            ProtocolError: BROKER_NOT_AVAILABLE: the node is not in it.
        """
        if node_id not in self._brokers:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}")
        return await self._connect(*self._brokers[node_id])

    async def all_brokers(self) -> list[Channel]:
        """Request Metadata and return a connection to each broker, by node id; raises OSError if one fails."""
        await self.metadata([])
        return [await self.broker(node_id) for node_id in sorted(self._brokers)]

    async def produce(
        self,
        topic: str,
        partition: int,
        items: list[records.NewRecord],
        *,
        codec: CompressionType = CompressionType.NONE,
        acks: int = -1,
    ) -> int:
        """Produce records as one batch; return its base offset, -1 if ``acks`` is 0 or the broker does not return it.

        ``items``: the records; ``codec``: compression of the batch. The batch is sent again while the partition has no
        leader, its leader cannot be reached, or the leader returns one of `LEADER_MOVE_CODES` without a base offset: it
        has appended nothing, as it learns of a new partition after other brokers. A batch that failed otherwise is not
        sent again.

        Raises:
            ProtocolError: the partition's error in the response, or that of `leader`; those of a batch that was sent
                again after `LEADER_MOVE_TIMEOUT_MS`.
            OSError: the connection failed, and the records may be in the log; or the leader cannot be reached for
                `LEADER_MOVE_TIMEOUT_MS`.
        """
        raw = records.build_batch(items, codec=codec)
        data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, raw)])
        request = produce.ProduceRequest(None, acks, 30_000, [data])

        async def send() -> int:
            connection = await self._open_leader(topic, partition)
            answer = await connection.call(request, connection.version_for(ApiKey.PRODUCE, 12))
            if answer is None:
                return -1
            row = answer.responses[0].partition_responses[0]
            text = row.error_message or f"{topic}-{partition}"
            if row.error_code in LEADER_MOVE_CODES and row.base_offset < 0:
                raise _NotAppendedError(ErrorCode(row.error_code), text)
            self._check(topic, partition, row.error_code, text)
            return int(row.base_offset)

        not_sent = (_NotAppendedError, _LeaderUnreachableError)
        return await self.retry_while_leader_moves(send, lambda error: isinstance(error, not_sent))

    async def _open_leader(self, topic: str, partition: int) -> Channel:
        """Return a connection to a leader.

        Raises:
            _NotAppendedError, _LeaderUnreachableError: a retriable error of `leader`, or an open connection to a
                bootstrap server was closed.
        """
        try:
            return await self.leader(topic, partition)
        except ProtocolError as error:
            if not is_retriable(error):
                raise
            raise _NotAppendedError(error.code, error.message) from None
        except Disconnected as error:
            raise _LeaderUnreachableError(*error.args) from error

    def _check(self, topic: str, partition: int, error_code: int, text: str | None) -> None:
        """Raise ProtocolError with the message ``text`` if ``error_code`` is not NONE.

        The cached leader of the partition is removed then, as it may have changed.
        """
        if error_code:
            self._leaders.pop((topic, partition), None)
            raise ProtocolError(ErrorCode(error_code), text)

    async def list_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> int:
        """Return an offset by ListOffsets: ``timestamp`` in ms, or -1 latest, -2 earliest; -1 if there is none.

        ``committed``: read_committed, so that the latest offset is the last stable offset.

        Raises:
            ProtocolError: the partition's error in the response.
        """
        connection = await self.leader(topic, partition)
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=timestamp)])
        version = connection.version_for(ApiKey.LIST_OFFSETS, 10)
        answer = await connection.call(ListOffsetsRequest(-1, int(committed), [wanted]), version)
        row = answer.topics[0].partitions[0]
        self._check(topic, partition, row.error_code, f"{topic}-{partition}")
        return int(row.offset)

    async def fetch(self, topic: str, partition: int, offset: int, max_wait_ms: int = 500) -> list[FetchedRecord]:
        """Return the records of one Fetch from ``offset`` on; empty if none arrive within ``max_wait_ms``.

        The isolation is read_uncommitted. Control records are left out; if the response has no others, the result is
        empty too. Raises as `read_records`.
        """
        found = await self.read_records(topic, partition, offset, max_wait_ms)
        return [FetchedRecord(topic, partition, x) for x in found.records]

    async def read_records(
        self, topic: str, partition: int, offset: int, max_wait_ms: int = 500, *, committed: bool = False
    ) -> DecodedRecords:
        """Fetch the records from ``offset`` on, and the next offset; wait at most ``max_wait_ms`` for the first.

        ``committed``: with isolation read_committed. At most 1 MiB is requested; the leader returns at least one batch.

        Raises:
            ProtocolError: an error code in the response; WireError: a batch has a bad checksum or is malformed.
        """
        connection = await self.leader(topic, partition)
        part = fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=int(committed),
            topics=[fetch.FetchTopic(topic, partitions=[part])],
        )
        answer = await connection.call(request, connection.version_for(ApiKey.FETCH, 12))
        if answer.error_code:
            raise ProtocolError(ErrorCode(answer.error_code))
        row = answer.responses[0].partitions[0]
        self._check(topic, partition, row.error_code, f"{topic}-{partition} at {offset}")
        aborted = [(x.producer_id, x.first_offset) for x in row.aborted_transactions or ()]
        return decode_committed(row.records or b"", offset, aborted)

    def close(self) -> None:
        """Close the connections to all brokers; a later request opens new ones."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
