"""The workload: an idempotent producer and a group of consumers, small enough to reason about."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.peers.client import Channel, decode_records
from ottla.wire import records as r
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import fetch, produce
from ottla.wire.messages import find_coordinator as fc
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import init_producer_id as ip
from ottla.wire.messages import join_group as jg
from ottla.wire.messages import offset_commit as oc
from ottla.wire.messages import offset_fetch as of
from ottla.wire.messages import sync_group as sg

if TYPE_CHECKING:
    from sim.world import World

PORT = 9092
TOPIC = "t"
PARTITIONS = 2
GROUP = "g"
SESSION_MS = 6000
PAUSE_S = 0.2


class Again(Exception):
    """The broker said something that a client answers by starting over."""


class SimClient:
    """A connection that is made anew whenever it breaks."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._connection: Channel | None = None

    async def call(self, request: Any, version: int | None = None) -> Any:
        """Ask the node; raises Again when the connection broke."""
        try:
            if self._connection is None:
                connection = Channel(await self.world.network.connect("node", PORT), self.name, timeout_s=10)
                await connection.negotiate()
                self._connection = connection
            return await self._connection.call(request, version)
        except (OSError, WireError) as error:
            self.drop()
            raise Again(str(error)) from None

    def drop(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def until_done(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Try until it works."""
        while True:
            try:
                return await work()
            except Again:
                await trio.sleep(PAUSE_S * (0.5 + self.world.rng.random()))


async def make_topic(world: World) -> None:
    """Create the topic, whoever is up."""
    client = SimClient(world, "admin")

    async def once() -> None:
        answer = await client.call(ct.CreateTopicsRequest([ct.CreatableTopic(TOPIC, PARTITIONS, 1)], 5000))
        if answer.topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Again(ErrorCode(answer.topics[0].error_code).name)

    await client.until_done(once)
    client.drop()


class SimProducer(SimClient):
    """Writes numbered records with acks=all and idempotence; each batch is sent until it is acknowledged."""

    def __init__(self, world: World, name: str, first: int) -> None:
        super().__init__(world, name)
        self._next = first
        self._pid = -1
        self._sequences: dict[int, int] = {}

    async def run(self) -> None:
        """Produce until the world says that it is enough."""
        while not self.world.draining:
            partition = int(self.world.rng.random() * PARTITIONS)
            count = 1 + int(self.world.rng.random() * 4)
            values = list(range(self._next, self._next + count))
            self._next += count
            await self._send(partition, values)
            await trio.sleep(self.world.rng.random() * 0.3)
        self.drop()

    async def _send(self, partition: int, values: list[int]) -> None:
        self.world.ledger.sent(partition, values)

        async def once() -> int:
            if self._pid < 0:
                await self._init()
            return await self._produce(partition, values)

        offset = await self.until_done(once)
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        self.world.ledger.acknowledged(partition, values, offset)

    async def _init(self) -> None:
        answer = await self.call(ip.InitProducerIdRequest(None, 60_000), 4)
        if answer.error_code:
            raise Again(ErrorCode(answer.error_code).name)
        self._pid = answer.producer_id
        self._sequences = {}

    async def _produce(self, partition: int, values: list[int]) -> int:
        records = [r.NewRecord(b"%s" % self.name.encode(), struct.pack(">q", v), 1000) for v in values]
        sequence = self._sequences.get(partition, 0)
        raw = r.build(records, producer_id=self._pid, producer_epoch=0, base_sequence=sequence)
        data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(partition, raw)])
        answer = await self.call(produce.ProduceRequest(None, -1, 5000, [data]), 9)
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self.world.ledger.out_of_order(partition)
            self._pid = -1
        if row.error_code:
            raise Again(ErrorCode(row.error_code).name)
        return int(row.base_offset)


class SimConsumer(SimClient):
    """A member of the group: joins, reads its partitions, commits what it has read."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._member = ""
        self._generation = -1
        self._mine: dict[int, int] = {}

    async def run(self) -> None:
        """Consume until the world stops it."""
        while True:
            try:
                await self._coordinator()
                await self._join()
                while True:
                    await self._turn()
            except Again:
                await trio.sleep(PAUSE_S * (0.5 + self.world.rng.random()))

    async def _coordinator(self) -> None:
        answer = await self.call(fc.FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
        self._check(answer.coordinators[0].error_code)

    def _check(self, code: int) -> None:
        if code:
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self._member = ""
            raise Again(ErrorCode(code).name)

    async def _join(self) -> None:
        protocols = [jg.JoinGroupRequestProtocol("halves", b"")]
        request = jg.JoinGroupRequest(GROUP, SESSION_MS, SESSION_MS, self._member, None, "consumer", protocols)
        answer = await self.call(request, 6)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = answer.member_id
            raise Again("member id")
        self._check(answer.error_code)
        self._member, self._generation = answer.member_id, answer.generation_id
        shares = []
        if answer.leader == self._member:
            ids = [m.member_id for m in answer.members]
            for number, member in enumerate(ids):
                mine = bytes(p for p in range(PARTITIONS) if p % len(ids) == number)
                shares.append(sg.SyncGroupRequestAssignment(member, mine))
        synced = await self.call(
            sg.SyncGroupRequest(GROUP, self._generation, self._member, None, assignments=shares), 4
        )
        self._check(synced.error_code)
        self._mine = dict.fromkeys(synced.assignment, 0)
        await self._positions()

    async def _positions(self) -> None:
        topic = of.OffsetFetchRequestTopic(TOPIC, list(self._mine))
        answer = await self.call(of.OffsetFetchRequest(GROUP, [topic]), 7)
        self._check(answer.error_code)
        for row in answer.topics[0].partitions if answer.topics else ():
            self._mine[row.partition_index] = max(row.committed_offset, 0)
            self.world.ledger.position_read(row.partition_index, max(row.committed_offset, 0))

    async def _turn(self) -> None:
        """Heartbeat, read, commit."""
        alive = await self.call(hb.HeartbeatRequest(GROUP, self._generation, self._member, None), 3)
        self._check(alive.error_code)
        for partition, position in list(self._mine.items()):
            records = await read(self, partition, position, 200)
            if records:
                self._mine[partition] = records[-1].offset + 1
                await self._commit(partition, records[-1].offset + 1)
        await trio.sleep(0.1 + self.world.rng.random() * 0.3)

    async def _commit(self, partition: int, offset: int) -> None:
        part = oc.OffsetCommitRequestPartition(partition, offset)
        topic = oc.OffsetCommitRequestTopic(TOPIC, partitions=[part])
        self.world.ledger.committing(partition, offset)
        answer = await self.call(oc.OffsetCommitRequest(GROUP, self._generation, self._member, None, topics=[topic]), 7)
        self._check(answer.topics[0].partitions[0].error_code)
        self.world.ledger.committed(partition, offset)


async def read(client: SimClient, partition: int, offset: int, wait_ms: int) -> list[r.Record]:
    """One fetch; a batch with a bad checksum is a violation."""
    part = fetch.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 24, topics=[fetch.FetchTopic(TOPIC, partitions=[part])]
    )
    answer = await client.call(request, 12)
    row = answer.responses[0].partitions[0]
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        client.world.ledger.out_of_range(partition, offset)
    if row.error_code:
        raise Again(ErrorCode(row.error_code).name)
    try:
        return list(decode_records(row.records or b"", offset))
    except WireError as error:
        client.world.ledger.violation("bad-crc", str(error))
        return []
