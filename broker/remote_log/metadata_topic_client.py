"""Appends to and reads from the leaders of `__remote_log_metadata`: in this process, else over a connection.

Source: ``ProducerManager.java``, ``ConsumerTask.java`` (apache/kafka 4.3.1), which use Kafka's clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.broker.interbroker.connections import BrokerConnections
from ottla.broker.replication.delayed_produce import DelayedProduce, wait_for_completion
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.broker.requests.purgatory import Purgatory
from ottla.broker.storage.log_dirs import DiskErrorHandler
from ottla.broker.storage.tiered.remote_log_metadata import REMOTE_LOG_METADATA_TOPIC as TOPIC
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.log_validator import AppendOrigin
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import fetch, produce
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_batch.legacy_records import iterate_any_batches
from ottla.wire.record_batch.records import NewRecord, build_batch, iterate_records

logger = logging.getLogger("ottla.tiered")
LATEST, EARLIEST = -1, -2
READ_BYTES = 65_536
"""Bytes of a metadata partition that are read at a time, unless a batch is larger."""
MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Maximum size of the decompressed records of a batch. Brokers write one record of at most 1 MB."""
RECORDS_PER_YIELD = 64
MAX_WAIT_MS = 500
WAKE_KEY = ("remote log metadata",)
"""Key of the purgatory that ends the wait of a local read."""
MetadataRecord = tuple[int, bytes | None]
"""Offset and value of a record."""


class MetadataBatches(NamedTuple):
    """Records of a metadata partition, and the next offset to read; with an error code none, and the same offset."""

    records: list[MetadataRecord]
    next_offset: int
    error_code: ErrorCode = ErrorCode.NONE


class MetadataTopicClient:
    """Client of the metadata topic within a broker. Reads and appends use separate connections."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        fail: DiskErrorHandler,
        connect: Callable[[str], BrokerConnections],
        timeout_ms: int,
    ) -> None:
        """Create a client, without connections.

        Args:
            env: Environment.
            node_id: Id of this broker.
            replicas: Partitions that this broker hosts.
            purgatory: Delayed operations of this broker.
            fail: Handler of disk errors of local partitions.
            connect: Function that returns connections to other brokers with a client id.
            timeout_ms: Maximum time in ms until an appended record is committed (``request.timeout.ms``).
        """
        self._env = env
        self._node_id = node_id
        self._replicas = replicas
        self._purgatory = purgatory
        self._fail = fail
        self._timeout_ms = timeout_ms
        prefix = f"__remote_log_metadata_client_{node_id}"
        self._producer, self._consumer = connect(f"{prefix}_producer"), connect(f"{prefix}_consumer")

    def close(self) -> None:
        """Close all connections."""
        self._producer.close()
        self._consumer.close()

    def partition_count(self) -> int | None:
        """Return the number of partitions of the metadata topic; None if it does not exist."""
        topic = self._replicas.image.topics.get(TOPIC)
        return None if topic is None else len(topic.partitions)

    def leader_of(self, partition: int) -> int:
        """Return the id of the broker that leads a partition of the metadata topic, -1 if there is none."""
        topic = self._replicas.image.topics.get(TOPIC)
        registration = None if topic is None else topic.partitions.get(partition)
        return -1 if registration is None else registration.leader

    # ------------------------------------------------------------------ appends

    async def append(self, partition: int, value: bytes) -> int:
        """Append a record to a metadata partition at its leader; return its offset once it is committed.

        Raises:
            ProtocolError, OSError, WireError: It is not known to be committed.
        """
        batch = build_batch([NewRecord(None, value, timestamp_ms=self._env.now_ms())])
        leader = self.leader_of(partition)
        if leader == self._node_id:
            return await self._append_locally(partition, bytearray(batch))
        if leader < 0:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE)
        data = produce.TopicProduceData(TOPIC, partition_data=[produce.PartitionProduceData(partition, batch)])
        request = produce.ProduceRequest(None, -1, self._timeout_ms, [data])
        answer = await self._producer.exchange(
            leader, lambda channel: channel.call(request, channel.version_for(ApiKey.PRODUCE, 12))
        )
        row = answer.responses[0].partition_responses[0]
        if row.error_code:
            raise ProtocolError(ErrorCode(row.error_code), row.error_message)
        return int(row.base_offset)

    async def _append_locally(self, partition: int, batch: bytearray) -> int:
        replica = self._replicas.leader(TOPIC, partition)
        replica.check_min_isr()
        try:
            done = replica.append(batch, self._env.now_ms(), AppendOrigin.CLIENT)
        except OSError as error:
            self._fail(error, replica.log)
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None
        pending = DelayedProduce.for_log_end(replica, None)
        await wait_for_completion(self._purgatory, [pending], self._timeout_ms)
        if pending.is_failed:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not pending.is_completed:
            raise ProtocolError(ErrorCode.REQUEST_TIMED_OUT)
        return done.first_offset

    # ------------------------------------------------------------------ reads

    async def find_offset(self, leader: int, partition: int, timestamp: int) -> int:
        """Return the first offset (`EARLIEST`) or the high watermark (`LATEST`) of a metadata partition.

        ``leader`` is the id of the broker that leads it.

        Raises:
            ProtocolError: OFFSET_NOT_AVAILABLE: the high watermark of a new leader lags; other errors.
            OSError, WireError: There is no valid response.
        """
        if leader == self._node_id:
            replica = self._replicas.leader(TOPIC, partition)
            if timestamp == EARLIEST:
                return replica.log.log_start_offset
            state = replica.state
            if type(state) is LeaderState and state.is_high_watermark_unknown(replica.log.high_watermark):
                raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return replica.log.high_watermark
        topic = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, timestamp=timestamp)])
        request = ListOffsetsRequest(-1, 0, [topic])
        answer = await self._consumer.exchange(
            leader, lambda channel: channel.call(request, channel.version_for(ApiKey.LIST_OFFSETS, 7))
        )
        row = answer.topics[0].partitions[0]
        if row.error_code:
            raise ProtocolError(ErrorCode(row.error_code))
        return int(row.offset)

    async def fetch(self, leader: int, positions: Mapping[int, int]) -> dict[int, MetadataBatches]:
        """Return the committed records of metadata partitions, which one broker leads, from their positions on.

        Waits at most `MAX_WAIT_MS` for the first record; a read in this process ends earlier after `wake`, or a change
        of a partition. A partition without new records may be missing in the result; an error of a partition is its
        error code.

        Raises:
            OSError, WireError: There is no valid response; ProtocolError: an error of the whole request.
        """
        if leader == self._node_id:
            return await self._fetch_locally(positions)
        parts = [
            fetch.FetchPartition(number, fetch_offset=at, partition_max_bytes=READ_BYTES)
            for number, at in positions.items()
        ]
        request = fetch.FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=READ_BYTES * 50,
            topics=[fetch.FetchTopic(TOPIC, partitions=parts)],
        )
        answer = await self._consumer.exchange(
            leader, lambda channel: channel.call(request, channel.version_for(ApiKey.FETCH, 12))
        )
        if answer.error_code:
            raise ProtocolError(ErrorCode(answer.error_code))
        out = {}
        for topic in answer.responses:
            for row in topic.partitions:
                number, code = row.partition_index, ErrorCode(row.error_code)
                at = positions.get(number, 0)
                read = MetadataBatches([], at, code)
                if not code:
                    read = await run_in_background(self._env, _decode_job(number, row.records or b"", at))
                out[number] = read
        return out

    async def _fetch_locally(self, positions: Mapping[int, int]) -> dict[int, MetadataBatches]:
        out = await run_in_background(self._env, self._read_all_job(positions))
        if not out:
            keys = [("fetch", TOPIC, number) for number in positions]
            await self._purgatory.wait_for_change([*keys, WAKE_KEY], lambda _: True, MAX_WAIT_MS)
            out = await run_in_background(self._env, self._read_all_job(positions))
        return out

    def _read_all_job(self, positions: Mapping[int, int]) -> Job[dict[int, MetadataBatches]]:
        """Read partitions that this broker leads, without waiting, as a job; return those with records or an error.

        The job does not yield before it has found a record, so that a caller that then waits misses no append.

        ``positions``: offset to read from by partition.
        """
        out = {}
        for number, at in positions.items():
            try:
                read = yield from self._read_job(self._replicas.leader(TOPIC, number), at)
            except ProtocolError as error:
                read = MetadataBatches([], at, error.code)
            if read.error_code or read.next_offset > at:
                out[number] = read
        return out

    def _read_job(self, replica: HostedPartition, at: int) -> Job[MetadataBatches]:
        """Return the committed records of a local partition from offset ``at`` on, about `READ_BYTES`, as a job.

        Raises:
            ProtocolError: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        log = replica.log
        log.check_readable(at)
        if at >= log.high_watermark:
            return MetadataBatches([], at)
        pieces: list[Buffer] = []
        size = 0
        try:
            for header, raw in log.segments.batches(at):
                if header.next_offset <= at:
                    continue
                if header.next_offset > log.high_watermark or size >= READ_BYTES:
                    break
                pieces.append(raw)
                size += len(raw)
        except OSError as error:
            self._fail(error, log)
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None
        except WireError:
            raise ProtocolError(ErrorCode.CORRUPT_MESSAGE) from None
        yield None
        return (yield from _decode_job(replica.partition, b"".join(pieces), at))

    def wake(self) -> None:
        """End the wait of a `fetch` in this process, as positions or leaders changed."""
        self._purgatory.check_and_complete(WAKE_KEY)


def _decode_job(partition: int, raw: Buffer, at: int) -> Job[MetadataBatches]:
    """Return the records in the fetched bytes ``raw`` from offset ``at`` on, as a job; control batches are left out.

    Records of a batch that cannot be decoded, or beyond `MAX_BATCH_BYTES`, are skipped, which is logged.
    """
    out: list[MetadataRecord] = []
    end = at
    for pos, header in iterate_any_batches(raw):
        end = max(end, header.next_offset)
        if header.is_control:
            continue
        try:
            for number, record in enumerate(iterate_records(raw, header, pos, MAX_BATCH_BYTES), 1):
                if record.offset >= at:
                    out.append((record.offset, record.value))
                if number % RECORDS_PER_YIELD == 0:
                    yield None
        except WireError as error:
            logger.error("Skipped the batch at offset %d of %s-%d: %s", header.base_offset, TOPIC, partition, error)
        yield None
    return MetadataBatches(out, end)
