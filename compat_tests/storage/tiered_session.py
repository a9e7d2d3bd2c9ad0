"""Topics with tiered storage on a node, requests for them, and the responses in comparable form.

Topic `TOPIC` has 20 segments of 5 batches, of which the last two are local. `TXN_TOPIC` has transactions, every second
of which is aborted, and its last segments are local.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any

from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.scenarios.scenario_session import BASE_MS, ScenarioSession
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.messages import (
    add_partitions_to_txn,
    create_topics,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    offset_for_leader_epoch,
    produce,
)
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_batch.batch_header import LOG_OVERHEAD_BYTES, TRANSACTIONAL_BIT, parse_header
from ottla.wire.record_batch.records import NewRecord, build_batch

TOPIC, TXN_TOPIC, LOCAL_TOPIC = "tiered", "tiered-txn", "local"
SEGMENTS, BATCHES_PER_SEGMENT, RECORDS_PER_BATCH, LOCAL_SEGMENTS = 20, 5, 4, 2
VALUE_BYTES = 200
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TRANSACTIONS, BATCHES_PER_TRANSACTION = 12, 3
TRANSACTIONAL_ID = "tiered-script"
NO_LIMIT = 1 << 20

SEGMENT_RECORDS = BATCHES_PER_SEGMENT * RECORDS_PER_BATCH
END_OFFSET = SEGMENTS * SEGMENT_RECORDS
LOCAL_START = END_OFFSET - LOCAL_SEGMENTS * SEGMENT_RECORDS
COPIED_END = END_OFFSET - SEGMENT_RECORDS
"""End offset of the copied segments: the active one is not copied."""


def timestamp_of(offset: int) -> int:
    """Return the timestamp of a record of `TOPIC`."""
    return BASE_MS + 1000 * offset


def batch(first: int, **header: int) -> bytes:
    """Return a batch of `RECORDS_PER_BATCH` records with values of `VALUE_BYTES` bytes."""
    numbers = range(first, first + RECORDS_PER_BATCH)
    records = [NewRecord(b"%06d" % n, b"%08d" % n * (VALUE_BYTES // 8), timestamp_of(n)) for n in numbers]
    return bytes(build_batch(records, **header))  # type: ignore[arg-type]


BATCH_BYTES = len(batch(0))
SEGMENT_BYTES = BATCHES_PER_SEGMENT * BATCH_BYTES
MAX_SEGMENT_BYTES = SEGMENT_BYTES + BATCH_BYTES // 2
MARKER_BYTES = 78
LOCAL_RETENTION_BYTES = LOCAL_SEGMENTS * SEGMENT_BYTES
TIERED_CONFIG = {
    "remote_storage_enable": "true",
    "internal_segment_bytes": str(MAX_SEGMENT_BYTES),
    "index_interval_bytes": str(BATCH_BYTES),
    "local_retention_bytes": str(LOCAL_RETENTION_BYTES),
    "retention_ms": "-1",
    "segment_ms": str(2**60),  # a marker is years later than the records
}


class TieredSession(ScenarioSession):
    """Connections to a node, and the responses to the script; records are recorded as a list of batches."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.topic_ids: dict[str, bytes] = {}
        self._txn_segments = [(0, 0)]
        """Base offset and size of each segment of `TXN_TOPIC`."""

    # ------------------------------------------------------------------ requests

    def fetch_partitions(
        self, label: str, *rows: tuple[str, fetch.FetchPartition], version: int = 12, **more: Any
    ) -> list[fetch.PartitionData]:
        """Fetch a partition of each topic, record the response, and return its rows."""
        topics = [
            fetch.FetchTopic(name, self.topic_ids[name] if version >= 13 else ZERO_UUID, [part]) for name, part in rows
        ]
        options: dict[str, Any] = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": NO_LIMIT} | more
        answer = self["a"].call(ApiKey.FETCH, version, fetch.FetchRequest(topics=topics, **options))
        text = to_json_value(answer)
        for topic, topic_text in zip(answer.responses, text["responses"], strict=True):
            for row, part in zip(topic.partitions, topic_text["partitions"], strict=True):
                part["records"] = None if row.records is None else describe_records(bytes(row.records))
        self.record_normalized(label, self._named(text))
        return [row for topic in answer.responses for row in topic.partitions]

    def fetch_offset(
        self,
        label: str,
        offset: int,
        partition_max_bytes: int = NO_LIMIT,
        *,
        topic: str = TOPIC,
        epochs: tuple[int, int] = (-1, -1),
        **more: Any,
    ) -> fetch.PartitionData:
        """Fetch one partition; ``epochs``: current leader epoch and last fetched epoch."""
        current, last = epochs
        part = fetch.FetchPartition(0, current, offset, last, partition_max_bytes=partition_max_bytes)
        (row,) = self.fetch_partitions(label, (topic, part), **more)
        return row

    def list_offsets(
        self,
        label: str,
        timestamp: int,
        version: int = 11,
        *,
        topic: str = TOPIC,
        epoch: int = -1,
        isolation: int = READ_UNCOMMITTED,
        replica: int = -1,
    ) -> None:
        """Request an offset by timestamp."""
        request = ListOffsetsRequest(replica, isolation, [_list_topic(topic, epoch, timestamp)])
        self.call(label, ApiKey.LIST_OFFSETS, version, request)

    def offset_of(self, topic: str, timestamp: int, isolation: int = READ_UNCOMMITTED) -> int:
        """Return an offset without recording the response; -1 for an error."""
        request = ListOffsetsRequest(-1, isolation, [_list_topic(topic, -1, timestamp)])
        row = self["a"].call(ApiKey.LIST_OFFSETS, 11, request).topics[0].partitions[0]
        return -1 if row.error_code else int(row.offset)

    def epoch_end(self, label: str, epoch: int, current: int = -1, version: int = 4) -> None:
        """Request the end offset of a leader epoch."""
        part = offset_for_leader_epoch.OffsetForLeaderPartition(0, current, epoch)
        request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            -1, [offset_for_leader_epoch.OffsetForLeaderTopic(TOPIC, [part])]
        )
        self.call(label, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)

    def delete_records(self, label: str, offset: int, topic: str = TOPIC) -> None:
        """Delete the records below an offset."""
        rows = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, offset)])]
        self.call(label, ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(rows, 10_000))

    def validate_topic(self, label: str, **configs: str) -> None:
        """Validate a topic without creating it."""
        rows = [create_topics.CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
        request = create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic("validated", 1, 1, configs=rows)], 10_000, True
        )
        self.call(label, ApiKey.CREATE_TOPICS, 7, request)

    # ------------------------------------------------------------------ topics

    def fill_topics(self) -> None:
        """Create the topics, append their records, and wait until rolled segments are copied and deleted locally."""
        self.topic_ids[TOPIC] = self.topic(TOPIC, **TIERED_CONFIG)
        self.topic_ids[LOCAL_TOPIC] = self.topic(LOCAL_TOPIC, retention_ms="-1")
        self.topic_ids[TXN_TOPIC] = self.topic(TXN_TOPIC, **TIERED_CONFIG)
        for number in range(SEGMENTS * BATCHES_PER_SEGMENT):
            self._append(TOPIC, batch(number * RECORDS_PER_BATCH))
        self._append(LOCAL_TOPIC, batch(0))
        self._run_transactions()
        wait_until(lambda: self.offset_of(TOPIC, LATEST_TIERED) == COPIED_END - 1)
        wait_until(lambda: self.offset_of(TOPIC, EARLIEST_LOCAL) == LOCAL_START)
        wait_until(lambda: self.offset_of(TXN_TOPIC, EARLIEST_PENDING) == self._txn_segments[-1][0])
        wait_until(lambda: self.offset_of(TXN_TOPIC, EARLIEST_LOCAL) == self._txn_local_start())

    def _append(self, topic: str, raw: bytes, transactional_id: str | None = None) -> int:
        data = produce.TopicProduceData(topic, partition_data=[produce.PartitionProduceData(0, raw)])
        answer = self["a"].call(ApiKey.PRODUCE, 11, produce.ProduceRequest(transactional_id, -1, 10_000, [data]))
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == 0, f"{topic}: error {row.error_code}"
        return int(row.base_offset)

    def _run_transactions(self) -> None:
        peer, sequence = self["a"], 0

        def init() -> init_producer_id.InitProducerIdResponse:
            answer: init_producer_id.InitProducerIdResponse = peer.call(
                ApiKey.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest(TRANSACTIONAL_ID, 60_000)
            )
            return answer

        find = find_coordinator.FindCoordinatorRequest(
            key_type=1, coordinator_keys=[TRANSACTIONAL_ID]
        )  # creates the topic
        wait_until(lambda: not peer.call(ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code)
        wait_until(lambda: not init().error_code)
        made = init()
        producer = made.producer_id, made.producer_epoch
        for number in range(TRANSACTIONS):
            wait_until(partial(self._add_partition, *producer))
            for _ in range(BATCHES_PER_TRANSACTION):
                header = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
                raw = batch(sequence, attributes=TRANSACTIONAL_BIT, **header)
                end_offset = self._append(TXN_TOPIC, raw, TRANSACTIONAL_ID) + RECORDS_PER_BATCH
                self._count_txn_segment(end_offset - RECORDS_PER_BATCH, len(raw))
                sequence += RECORDS_PER_BATCH
            end = end_txn.EndTxnRequest(TRANSACTIONAL_ID, *producer, committed=number % 2 == 0)
            wait_until(partial(self._end_transaction, end))
            wait_until(partial(self._is_committed, end_offset + 1))
            self._count_txn_segment(end_offset, MARKER_BYTES)

    def _is_committed(self, end_offset: int) -> bool:
        return self.offset_of(TXN_TOPIC, LATEST, READ_COMMITTED) == end_offset

    def _count_txn_segment(self, offset: int, size: int) -> None:
        base, before = self._txn_segments[-1]
        if before + size > MAX_SEGMENT_BYTES:
            self._txn_segments.append((offset, size))
        else:
            self._txn_segments[-1] = base, before + size

    def _txn_local_start(self) -> int:
        """Return the local log start offset once local retention has deleted all segments that it may."""
        excess = sum(size for _, size in self._txn_segments) - LOCAL_RETENTION_BYTES
        for base, size in self._txn_segments:
            if excess < size:
                return base
            excess -= size
        raise AssertionError(f"No segment remains: {excess} bytes above local retention")

    def _add_partition(self, producer_id: int, producer_epoch: int) -> bool:
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(TXN_TOPIC, [0])]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            [], TRANSACTIONAL_ID, producer_id, producer_epoch, topics
        )
        answer = self["a"].call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
        return not answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

    def _end_transaction(self, request: end_txn.EndTxnRequest) -> bool:
        return not self["a"].call(ApiKey.END_TXN, 3, request).error_code


def _list_topic(topic: str, epoch: int, timestamp: int) -> ListOffsetsTopic:
    return ListOffsetsTopic(topic, [ListOffsetsPartition(0, epoch, timestamp)])


def split_records(raw: bytes) -> tuple[list[bytes], int]:
    """Return the whole batches of a response, and the bytes of an incomplete one behind them."""
    batches, position = [], 0
    while len(raw) - position >= LOG_OVERHEAD_BYTES:
        size = LOG_OVERHEAD_BYTES + int.from_bytes(raw[position + 8 : position + 12], "big")
        if position + size > len(raw):
            break
        batches.append(raw[position : position + size])
        position += size
    return batches, len(raw) - position


def describe_records(raw: bytes) -> dict[str, Any]:
    """Return size and batches of a response's records."""
    batches, rest = split_records(raw)
    return {"bytes": len(raw), "incomplete_bytes": rest, "batches": [_describe_batch(each) for each in batches]}


def _describe_batch(raw: bytes) -> str:
    """Return offsets, leader epoch and a checksum without CRC and producer id, which differ between nodes."""
    masked = bytearray(raw)
    masked[17:21], masked[43:51] = bytes(4), bytes(8)
    if int.from_bytes(raw[21:23], "big") & 0x20:
        masked[27:43] = bytes(16)  # a marker has the time of its append
    header = parse_header(raw)
    offsets = f"{header.base_offset}+{header.last_offset_delta}"
    return f"{offsets} epoch {header.partition_leader_epoch} {zlib.crc32(masked):08x}"
