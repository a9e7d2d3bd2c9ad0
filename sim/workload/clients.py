"""Simulated Kafka clients: base class, idempotent producer, and functions that create topics and read partitions."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.channel import Channel
from ottla.client.record_decoding import decode_records
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import create_topics, fetch, init_producer_id, list_offsets, metadata, produce
from ottla.wire.record_batch.batch_header import iterate_batches
from ottla.wire.record_batch.records import NewRecord, Record, build_batch
from sim.checkers.history import HistoryPartition, OperationOutcome, PollStep, SendStep, decode_value, encode_value

if TYPE_CHECKING:
    from ottla.env.env import Stream
    from sim.engine.simulation import Simulation

Address = tuple[str, int]
"""Host and port."""

PORT = 9092
NODE = "node"
BOOTSTRAP: tuple[Address, ...] = ((NODE, PORT),)
TOPIC = "t"
PARTITIONS = 2
PAUSE_S = 0.2
TIMEOUT_S = 10.0
EARLIEST = -2
DELAYED_CLIENT_PREFIXES = ("txn-", "copier-", "consumer-")
"""Prefixes of the names of clients whose requests may be delayed past their reconnection."""
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class ClusterService(NamedTuple):
    """Cluster as the clients of a run use it: addresses of brokers, settings of topics, and form of record values."""

    bootstrap: tuple[Address, ...] = BOOTSTRAP
    partitions: int = PARTITIONS
    """Number of partitions of each topic, except those of the admin client."""
    replicas: int = 1
    timeout_s: float = TIMEOUT_S
    """Timeout of a response in seconds."""
    has_checksums: bool = False
    """True if each record's value has a checksum."""

    def pack(self, place: HistoryPartition, value: int) -> bytes:
        """Return the bytes of a number as a record's value, with a checksum if ``has_checksums`` is set."""
        return encode_value(place, value) if self.has_checksums else struct.pack(">q", value)

    def unpack(self, place: HistoryPartition, raw: bytes | None) -> int | None:
        """Return the number encoded by `pack`; None for other bytes or a checksum of another partition."""
        if self.has_checksums:
            return decode_value(place, raw)
        return int(struct.unpack(">q", raw)[0]) if raw is not None and len(raw) == 8 else None


SINGLE_NODE = ClusterService()


class RetriableError(Exception):
    """Raised for an error response after which a client retries."""


class UnknownOutcome(RetriableError):
    """Raised if there is no response: the request may have been executed, or may be executed later."""


class SimClient:
    """Client in a process on a host of its own, with one connection to each broker, reconnected after failures."""

    def __init__(self, simulation: Simulation, name: str, service: ClusterService = SINGLE_NODE) -> None:
        self.simulation = simulation
        self.name = name
        self.service = service
        self.process = simulation.process(name)
        self._bootstrap = deque(service.bootstrap)
        self._channels: dict[Address, Channel] = {}
        self._leaders: dict[tuple[str, int], Address] = {}
        self._led_under: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[bytes, int], int] = {}
        """Newest known leader epoch by topic id and partition (KIP-320)."""
        self._committed_under: dict[tuple[str, int], int] = {}
        """Leader epochs of committed offsets by partition: an older leader may lack the records below these offsets."""

    async def call(self, request: Any, version: int | None = None, address: Address | None = None) -> Any:
        """Send a request to ``address``, or to the current bootstrap server, and return the response.

        Connects if needed. ``version`` None: the highest version of both sides.

        Raises:
            UnknownOutcome: no connection, no valid response, or a timeout; all connections of the client are closed.
        """
        server = address or self._bootstrap[0]
        try:
            channel = self._channels.get(server)
            if channel is None:
                stream = await self._connect(server)
                channel = self._channels[server] = Channel(stream, self.name, timeout_s=self.service.timeout_s)
                await channel.negotiate()
            return await channel.call(request, version)
        except (OSError, WireError) as error:
            self.close_connections()
            raise UnknownOutcome(str(error)) from None

    async def _connect(self, address: Address) -> Stream:
        """Return a new connection; with several bootstrap servers the timeout is that of a response.

        Raises:
            OSError: no connection, or a timeout.
        """
        env = self.process.env
        if len(self.service.bootstrap) == 1:
            return await env.net.connect(*address)
        with env.timeout(self.service.timeout_s):
            return await env.net.connect(*address)
        raise TimeoutError("no answer")

    async def leader(self, topic: str, partition: int) -> Address:
        """Return the address of the last known leader of a partition, from Metadata if there is none.

        Raises:
            RetriableError: no leader, or only one of an older leader epoch than the client knows.
        """
        if (topic, partition) not in self._leaders:
            answer = await self.call(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)], False), 12)
            brokers = {x.node_id: (x.host, x.port) for x in answer.brokers}
            topic_row = answer.topics[0]
            for row in topic_row.partitions:
                if row.leader_epoch < self._committed_under.get((topic, row.partition_index), -1):
                    continue
                if row.leader_id in brokers and self._is_not_older(
                    (topic_row.topic_id, row.partition_index), row.leader_epoch
                ):
                    self._leaders[topic, row.partition_index] = brokers[row.leader_id]
                    self._led_under[topic, row.partition_index] = row.leader_epoch
        address = self._leaders.get((topic, partition))
        if address is None:
            raise RetriableError(f"No leader: {topic}-{partition}")
        return address

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of the last known leader, -1 if unknown.

        With it, a node that does not lead the partition in this epoch rejects a read.
        """
        return self._led_under.get((topic, partition), -1)

    def require_leader_epoch(self, topic: str, partition: int, leader_epoch: int) -> None:
        """Use no leader of a partition with a lower epoch from now on: a committed offset has this leader epoch."""
        place = (topic, partition)
        self._committed_under[place] = max(leader_epoch, self._committed_under.get(place, -1))
        if self._led_under.get(place, leader_epoch) < leader_epoch:
            self._leaders.pop(place, None)

    def _is_not_older(self, at: tuple[bytes, int], leader_epoch: int) -> bool:
        """Record a leader epoch of a partition and return True; if a higher one is known, only return False.

        An isolated node returns an old one, for example. ``at``: topic id and partition number.
        """
        if leader_epoch < self._epochs.get(at, -1):
            return False
        self._epochs[at] = leader_epoch
        return True

    def invalidate_leaders(self) -> None:
        """Forget the leaders of partitions; use the next bootstrap server, if there are several. Nothing is closed."""
        self._bootstrap.rotate(-1)
        self._leaders.clear()

    def close_connections(self) -> None:
        """Close all connections; the next call uses another bootstrap server if there are several."""
        self.invalidate_leaders()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds of this client's clock."""
        await self.process.env.sleep(seconds)

    async def retry_until_done(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Call ``work`` until it returns, and return its result; pause and look up leaders after a RetriableError."""
        while True:
            try:
                return await work()
            except RetriableError:
                self.invalidate_leaders()
                await self.sleep(PAUSE_S * (0.5 + self.simulation.rng.random()))


async def create_topic(
    simulation: Simulation,
    topic: str = TOPIC,
    settings: Mapping[str, str] = NO_SETTINGS,
    service: ClusterService = SINGLE_NODE,
    placed: Sequence[list[int]] = (),
) -> None:
    """Create a topic, or accept that it exists; retry until there is a successful response.

    ``placed``: node ids of each partition's replicas, the preferred leader first; empty: placed by the cluster.
    """
    client = SimClient(simulation, f"maker-{topic}", service)
    configs = [create_topics.CreatableTopicConfig(name, value) for name, value in settings.items()]

    async def once() -> None:
        creatable = create_topics.CreatableTopic(topic, service.partitions, service.replicas, configs=configs)
        if placed:
            rows = [create_topics.CreatableReplicaAssignment(number, nodes) for number, nodes in enumerate(placed)]
            creatable = create_topics.CreatableTopic(topic, -1, -1, rows, configs)
        answer = await client.call(create_topics.CreateTopicsRequest([creatable], 5000))
        if answer.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RetriableError(ErrorCode(answer.topics[0].error_code).name)

    await client.retry_until_done(once)
    client.close_connections()


class SimProducer(SimClient):
    """Idempotent producer of records with ascending numbers and acks=all; each batch is retried until acknowledged."""

    def __init__(
        self,
        simulation: Simulation,
        name: str,
        first: int,
        topic: str = TOPIC,
        keys: int = 0,
        service: ClusterService = SINGLE_NODE,
    ) -> None:
        super().__init__(simulation, name, service)
        self._topic = topic
        self._keys = keys
        self._next = first
        self._pid = -1
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        """Send batches to random partitions until the simulation is draining."""
        while not self.simulation.draining:
            partition = int(self.simulation.rng.random() * self.service.partitions)
            count = 1 + int(self.simulation.rng.random() * 4)
            values = list(range(self._next, self._next + count))
            self._next += count
            await self.send(partition, values)
            await self.sleep(self.simulation.rng.random() * 0.3)
        self.close_connections()

    async def send(self, partition: int, values: list[int]) -> None:
        """Send one batch of values until it is acknowledged; record it in the ledger and the history."""
        place, simulation = (self._topic, partition), self.simulation
        simulation.ledger.record_sent(place, values)
        if self._keys:
            simulation.ledger.key_of.update({v: self._key(v) for v in values})
        number = simulation.history.start(self.name, "send", [SendStep(place, v) for v in values], simulation.now_s())

        async def once() -> tuple[int, int]:
            if self._pid < 0:
                await self._init()
            cuts = simulation.ledger.power_cuts
            return await self._produce(partition, values), cuts

        offset, cuts = await self.retry_until_done(once)
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        simulation.ledger.record_acknowledged(place, values, offset, cuts)
        done = [SendStep(place, v, offset + index) for index, v in enumerate(values)]
        simulation.history.end(number, OperationOutcome.OK, simulation.now_s(), done)

    async def _init(self) -> None:
        answer = await self.call(init_producer_id.InitProducerIdRequest(None, 60_000), 4)
        if answer.error_code:
            raise RetriableError(ErrorCode(answer.error_code).name)
        self._pid = answer.producer_id
        self._sequences = {}

    async def _produce(self, partition: int, values: list[int]) -> int:
        now = self.process.env.now_ms()
        place = (self._topic, partition)
        records = [NewRecord(self._key(v), self.service.pack(place, v), now) for v in values]
        sequence = self._sequences.get(partition, 0)
        raw = build_batch(records, producer_id=self._pid, producer_epoch=0, base_sequence=sequence)
        data = produce.TopicProduceData(self._topic, partition_data=[produce.PartitionProduceData(partition, raw)])
        at = await self.leader(self._topic, partition)
        answer = await self.call(produce.ProduceRequest(None, -1, 5000, [data]), 9, at)
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self.simulation.ledger.report_out_of_order(place)
            self._pid = -1
        if row.error_code:
            raise RetriableError(ErrorCode(row.error_code).name)
        return int(row.base_offset)

    def _key(self, value: int) -> bytes:
        """Return the key of a record: the producer's name; with ``keys`` above 0, one of that many keys of its own."""
        return f"{self.name}.{value % self._keys}".encode() if self._keys else self.name.encode()


async def fetch_records(
    client: SimClient, partition: int, offset: int, wait_ms: int, topic: str = TOPIC
) -> list[Record]:
    """Fetch records of a partition once from its leader, and record the read in the history.

    Raises:
        RetriableError: no response, or an error response.
    """
    return (await _read(client, partition, offset, wait_ms, topic))[0]


async def _read(client: SimClient, partition: int, offset: int, wait_ms: int, topic: str) -> tuple[list[Record], int]:
    """Fetch records once and record the read; return the records and the next offset to read.

    Raises:
        RetriableError: no response, or an error response.
    """
    simulation, place = client.simulation, (topic, partition)
    number = simulation.history.start(client.name, "poll", now_s=simulation.now_s())
    try:
        records, following = await _fetch(client, partition, offset, wait_ms, topic)
    except RetriableError:
        simulation.history.end(number, OperationOutcome.FAIL, simulation.now_s())
        raise
    found = tuple((x.offset, client.service.unpack(place, x.value)) for x in records)
    simulation.history.end(number, OperationOutcome.OK, simulation.now_s(), [PollStep(place, found)])
    return records, following


async def _fetch(client: SimClient, partition: int, offset: int, wait_ms: int, topic: str) -> tuple[list[Record], int]:
    """Fetch records once; return them and the next offset. A batch with an invalid checksum is a violation.

    Raises:
        RetriableError: no response, or an error response.
    """
    at = await client.leader(topic, partition)
    part = fetch.FetchPartition(partition, client.leader_epoch(topic, partition), offset, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 24, topics=[fetch.FetchTopic(topic, partitions=[part])]
    )
    answer = await client.call(request, 12, at)
    row = answer.responses[0].partitions[0]
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        client.simulation.ledger.report_out_of_range((topic, partition), offset)
    if row.error_code:
        raise RetriableError(ErrorCode(row.error_code).name)
    try:
        raw = row.records or b""
        following = max((header.next_offset for _, header in iterate_batches(raw)), default=offset)
        return list(decode_records(raw, offset)), following
    except WireError as error:
        client.simulation.ledger.report_violation("bad-crc", str(error))
        return [], offset


async def log_start_offset(client: SimClient, topic: str, partition: int) -> int:
    """Return the log start offset of a partition from its leader.

    Raises:
        RetriableError: no response, or an error response.
    """
    at = await client.leader(topic, partition)
    requested = list_offsets.ListOffsetsTopic(
        topic, [list_offsets.ListOffsetsPartition(partition, client.leader_epoch(topic, partition), EARLIEST)]
    )
    answer = await client.call(list_offsets.ListOffsetsRequest(-1, topics=[requested]), 7, at)
    row = answer.topics[0].partitions[0]
    if row.error_code:
        raise RetriableError(ErrorCode(row.error_code).name)
    return int(row.offset)


async def read_partition(client: SimClient, topic: str, partition: int) -> list[Record]:
    """Return all records of a partition, from its log start offset to its end; retry after errors.

    A batch with an invalid checksum ends the read.
    """
    simulation = client.simulation
    number = simulation.history.start(client.name, "assign", now_s=simulation.now_s())
    simulation.history.end(number, OperationOutcome.OK, simulation.now_s(), places=[])
    out: list[Record] = []
    at = await client.retry_until_done(partial(log_start_offset, client, topic, partition))
    while True:
        more, following = await client.retry_until_done(partial(_read, client, partition, at, 50, topic))
        if following == at:
            break
        out += more
        at = following
    simulation.trace_event(f"{topic}-{partition}: {[(x.offset, x.value) for x in out]}")
    return out
