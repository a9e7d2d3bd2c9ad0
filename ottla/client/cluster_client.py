"""A small Kafka client over the same codec: what the command line and the simulator speak with.

It is no product: it keeps one connection to each broker, negotiates versions, and leaves retries to its caller.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity
from ottla.client.record_decoding import DecodedRecords, decode_committed
from ottla.env.env import Env, Stream
from ottla.env.hosts import format_address
from ottla.wire.api_keys import ApiKey, request_spec, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.framing import encode_request, parse_frame_size
from ottla.wire.messages import fetch, metadata, produce
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.headers import ResponseHeader
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_batch import records as r
from ottla.wire.record_batch.compression import CompressionType

logger = logging.getLogger("ottla.client")
CLIENT_ID = "ottla"
_FIRST_BUFFER_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 10.0
"""A host without power, or cut off, refuses nothing: the system alone would wait for minutes. Kafka's
``socket.connection.setup.timeout.ms``."""


class Disconnected(OSError):
    """The other side closed the connection."""


async def read_exactly(stream: Stream, size: int, timeout_s: float) -> bytearray:
    """So many bytes. The buffer grows as they come: who claims two gigabytes must send them.

    Raises:
        Disconnected: the other side hung up, or was silent for too long.
    """
    buffer = bytearray(min(size, _FIRST_BUFFER_BYTES))
    done = 0
    while done < size:
        if done == len(buffer):
            buffer += bytes(min(done, size - done))
        with memoryview(buffer) as whole, whole[done:] as rest:
            count = await stream.receive_into(rest, timeout_s)
        if count == 0:
            raise Disconnected("the broker closed the connection, or did not answer in time")
        done += count
    return buffer


class Channel:
    """One connection; one request at a time. A call that is broken off or answered wrongly ends it."""

    def __init__(self, stream: Stream, client_id: str = CLIENT_ID, timeout_s: float = 60.0) -> None:
        self.stream = stream
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._busy = False
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}

    async def negotiate(self) -> None:
        """Ask what the other side speaks."""
        answer = await self.call(ApiVersionsRequest("ottla", "0.1.0"), 3)
        self.versions = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}

    def version_for(self, key: ApiKey, at_most: int = 32767) -> int:
        """The newest version both sides speak.

        Raises:
            WireError: there is none.
        """
        spec = request_spec(key)
        low, high = self.versions.get(key, (0, -1))
        newest = spec.versions.high - (1 if spec.latest_unstable else 0)
        best = min(newest, high, at_most)
        if best < max(low, spec.versions.low):
            raise WireError(f"the broker does not speak {key.name}")
        return best

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Send a request and wait for its answer.

        Raises:
            OSError: the connection broke; WireError: the answer does not parse.
        """
        key = ApiKey(request.SPEC.key)  # type: ignore[attr-defined]
        if version is None:
            version = self.version_for(key)
        if self.closed or self._busy:
            raise Disconnected("an earlier request on this connection was broken off, or is still under way")
        self._busy = True
        self._correlation_id = number = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            await self.stream.send([encode_request(key, version, number, self._client_id, request)])
            if key is ApiKey.PRODUCE and getattr(request, "acks", 1) == 0:
                return None
            frame = await self._read_frame()
            header, pos = compiler.decode(ResponseHeader, response_header_version(key, version), frame)
            if header.correlation_id != number:
                raise WireError(f"answer {header.correlation_id} to request {number}")
            return compiler.decode(response_class(key), version, frame, pos)[0]
        except BaseException:
            self.close()  # what would come next is not known
            raise
        finally:
            self._busy = False

    async def _read_frame(self) -> bytearray:
        size = parse_frame_size(await read_exactly(self.stream, 4, self._timeout_s), 2**31 - 1)
        return await read_exactly(self.stream, size, self._timeout_s)

    def close(self) -> None:
        """Hang up."""
        self.closed = True
        self.stream.close()


async def open_channel(
    env: Env, address: tuple[str, int], client_id: str, timeout_s: float, access: ConnectionSecurity = NO_SECURITY
) -> Channel:
    """A new connection, over which versions were exchanged, and whose other side knows who we are.

    Raises:
        OSError: nobody is there, or it broke; NotLetIn: we are not let in.
        WireError: the answer does not parse; InvalidTlsConfig: our keys or certificates cannot be used.
    """
    made = Channel(await connect(env, address, timeout_s, access), client_id, timeout_s)
    try:
        await made.negotiate()
        if access.login is not None:
            from ottla.client.sasl_authentication import authenticate

            await authenticate(made, access.login, env, address[0])
    except BaseException:
        made.close()
        raise
    return made


async def connect(
    env: Env, address: tuple[str, int], timeout_s: float, access: ConnectionSecurity = NO_SECURITY
) -> Stream:
    """A new connection, encrypted where that is asked for, made within `CONNECT_TIMEOUT_S`; within ``timeout_s`` where
    answers must come sooner.

    Raises:
        OSError: nobody is there in time, or it is somebody else; InvalidTlsConfig: our keys or certificates cannot be
        used.
    """
    with env.timeout(min(timeout_s, CONNECT_TIMEOUT_S)):
        return await (env.net.connect(*address) if access.tls is None else env.net.connect(*address, access.tls))
    raise TimeoutError(errno.ETIMEDOUT, f"nobody answers at {address[0]}:{address[1]}")


class ReconnectingConnection:
    """One connection to somebody who may move: made when it is needed, and anew where it broke or he is elsewhere."""

    def __init__(
        self,
        env: Env,
        client_id: str,
        timeout_s: float,
        *,
        negotiates: bool = True,
        access: ConnectionSecurity | None = None,
    ) -> None:
        """``negotiates``: whether versions are exchanged first; ``timeout_s``: of one answer."""
        self._env = env
        self._access = access or NO_SECURITY
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._negotiates = negotiates
        self._channel: Channel | None = None
        self._address: tuple[str, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is one, as far as is known."""
        return self._channel is not None and not self._channel.closed

    async def channel_to(self, address: tuple[str, int] | None, who: str) -> Channel:
        """The connection there. ``who`` is named where no address is known.

        Raises:
            OSError, WireError: as `open_channel`; Disconnected: there is no address.
        """
        if self._channel is not None and not self._channel.closed and self._address == address:
            return self._channel
        self.close()
        if address is None:
            raise Disconnected(f"nobody knows where {who} is")
        if self._negotiates or self._access.login is not None:
            made = await open_channel(self._env, address, self._client_id, self._timeout_s, self._access)
        else:
            stream = await connect(self._env, address, self._timeout_s, self._access)
            made = Channel(stream, self._client_id, self._timeout_s)
        self._channel, self._address = made, address
        return made

    def close(self) -> None:
        """Hang up; the next one is new."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


@dataclass(slots=True)
class FetchedRecord:
    """One record with where it came from."""

    topic: str
    partition: int
    record: r.Record


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    return host.strip("[]"), int(port)


class ClusterClient:
    """Connections to the brokers of a cluster, found from one of them."""

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
        """A connection to the first of the bootstrap brokers that answers.

        Raises:
            OSError: nobody answers there; ValueError: not ``host:port``, or several of them with commas between.
        """
        *others, last = (_address(part) for part in self._bootstrap.split(","))
        for address in others:
            try:
                return await self._connect(*address)
            except OSError as error:
                logger.info("%s: %s", format_address(*address), error)
        return await self._connect(*last)

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Ask the bootstrap broker."""
        return await (await self.bootstrap_channel()).call(request, version)

    def avoid_brokers(self, node_ids: Collection[int]) -> None:
        """From now on any of the other brokers that the metadata named is asked: these are about to go."""
        others = (x for i, x in self._brokers.items() if i not in node_ids)
        named = [format_address(host, port) for host, port in others]
        self._bootstrap = ",".join(named) or self._bootstrap

    async def metadata(self, topics: list[str] | None, *, create: bool = False) -> metadata.MetadataResponse:
        """Brokers and leaders; None means all topics."""
        wanted = None if topics is None else [metadata.MetadataRequestTopic(name=t) for t in topics]
        connection = await self.bootstrap_channel()
        version = connection.version_for(ApiKey.METADATA, 12)
        answer: metadata.MetadataResponse = await connection.call(metadata.MetadataRequest(wanted, create), version)
        self._brokers = {x.node_id: (x.host, x.port) for x in answer.brokers}
        for topic in answer.topics:
            for p in topic.partitions:
                self._leaders[topic.name or "", p.partition_index] = p.leader_id
        return answer

    async def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        """Partition numbers of a topic.

        Raises:
            ProtocolError: there is no such topic.
        """
        for _ in range(20):
            row = (await self.metadata([topic], create=create)).topics[0]
            if not row.error_code and all(p.leader_id >= 0 for p in row.partitions):
                return sorted(p.partition_index for p in row.partitions)
            if row.error_code and not (create and ErrorCode(row.error_code).retriable):
                break
            await self._env.sleep(0.05)
        raise ProtocolError(ErrorCode(row.error_code or ErrorCode.LEADER_NOT_AVAILABLE), f"topic {topic}")

    def invalidate_leaders(self) -> None:
        """Who leads what is asked for again: it may be another by now."""
        self._leaders.clear()

    async def leader(self, topic: str, partition: int) -> Channel:
        """A connection to a partition's leader."""
        if (topic, partition) not in self._leaders:
            await self.metadata([topic])
        broker = self._leaders.get((topic, partition), -1)
        if broker not in self._brokers:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return await self._connect(*self._brokers[broker])

    async def broker(self, node_id: int) -> Channel:
        """A connection to a broker the metadata named.

        Raises:
            ProtocolError: no such broker.
        """
        if node_id not in self._brokers:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id}")
        return await self._connect(*self._brokers[node_id])

    async def all_brokers(self) -> list[Channel]:
        """A connection to each broker."""
        await self.metadata([])
        return [await self.broker(node_id) for node_id in sorted(self._brokers)]

    async def produce(
        self,
        topic: str,
        partition: int,
        items: list[r.NewRecord],
        *,
        codec: CompressionType = CompressionType.NONE,
        acks: int = -1,
    ) -> int:
        """Append records; gives the first offset, -1 where ``acks`` is 0 and nobody tells it.

        Raises:
            ProtocolError: refused.
        """
        connection = await self.leader(topic, partition)
        raw = r.build_batch(items, codec=codec)
        data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(partition, raw)])
        version = connection.version_for(ApiKey.PRODUCE, 12)
        answer = await connection.call(produce.ProduceRequest(None, acks, 30_000, [data]), version)
        if answer is None:
            return -1
        row = answer.responses[0].partition_responses[0]
        self._check(topic, partition, row.error_code, row.error_message)
        return int(row.base_offset)

    def _check(self, topic: str, partition: int, error_code: int, text: str | None) -> None:
        """Raise what a partition answered; another may lead it by now, so who did is asked for again.

        Raises:
            ProtocolError: an error.
        """
        if error_code:
            self._leaders.pop((topic, partition), None)
            raise ProtocolError(ErrorCode(error_code), text)

    async def list_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> int:
        """An offset by time: -1 latest, -2 earliest, else the first record as late. ``committed``: the latest is where
        a transaction is open.
        """
        connection = await self.leader(topic, partition)
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=timestamp)])
        version = connection.version_for(ApiKey.LIST_OFFSETS, 10)
        answer = await connection.call(ListOffsetsRequest(-1, int(committed), [wanted]), version)
        row = answer.topics[0].partitions[0]
        self._check(topic, partition, row.error_code, f"{topic}-{partition}")
        return int(row.offset)

    async def fetch(self, topic: str, partition: int, offset: int, max_wait_ms: int = 500) -> list[FetchedRecord]:
        """Records from ``offset`` on; none where nothing comes in time. Raises as `decode_committed`."""
        found = await self.read_records(topic, partition, offset, max_wait_ms)
        return [FetchedRecord(topic, partition, x) for x in found.records]

    async def read_records(
        self, topic: str, partition: int, offset: int, max_wait_ms: int = 500, *, committed: bool = False
    ) -> DecodedRecords:
        """Records from ``offset`` on, and where to go on; ``committed``: of transactions that have committed only.

        Raises:
            ProtocolError: the broker's answer; WireError: bytes with a bad checksum.
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
        """Hang up everywhere."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
