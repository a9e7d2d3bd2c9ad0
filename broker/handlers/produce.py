"""Produce (0), v3-13 (advertised from 0, as Kafka does).

Behaviour: one batch of format 2 for each partition. Its header is checked, base offset and leader epoch are stamped
where it lies in the receive buffer, and it goes to the page cache: no record is looked at unless a topic's settings
ask for it. Internal topics take records from coordinators, and from clients only under an admin tool's client id.
acks=0 gets no answer; an error then closes the connection. acks=-1 waits for the high watermark.

Version notes: v8 names the records at fault; v10 tells the current leader; v13 has topic ids (unknown: 100).
Deviation: transactional batches are refused until transactions are served.

Source: ``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.handlers.metadata import INTERNAL_TOPICS
from ottla.broker.replica.replica import Replica
from ottla.broker.server.connection import CloseConnection
from ottla.broker.server.dispatch import Answer, Context
from ottla.log.validate import InvalidRecords, parse_single
from ottla.wire.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, TRANSACTIONAL_BIT, overhead
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.schema import Message

MIN_ZSTD_VERSION = 7
ADMIN_CLIENT_ID = "__admin_client"
"""The only client whose records go to internal topics: coordinators believe what stands there (``AdminUtils``)."""
_ACKS = (-1, 0, 1)
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def _malformed(request: ProduceRequest) -> bool:
    """Whether some partition's bytes are no batch at all: then nothing of the request is looked at further."""
    for topic in request.topic_data:
        for part in topic.partition_data:
            data = part.records
            if data is not None and len(data) >= LOG_OVERHEAD_BYTES + 5:
                size = overhead(data)[1]
                if size < 26 or (size < HEADER_BYTES and data[16] == 2):
                    return True
    return False


# Refusals that say nothing of the log they were meant for; all others tell its start (`appendToLocalLog`).
_WITHOUT_LOG_START = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


def _failed(part: PartitionProduceData, error: ProtocolError, log_start_offset: int = -1) -> PartitionProduceResponse:
    out = PartitionProduceResponse(part.index, error.code, -1, log_start_offset=log_start_offset)
    if isinstance(error, InvalidRecords) and error.record_errors:
        out.error_message = error.message
        out.record_errors = [BatchIndexAndErrorMessage(index, text) for index, text in error.record_errors]
    return out


def _append(context: Context, replica: Replica, part: PartitionProduceData) -> PartitionProduceResponse:
    """Append one partition's batch.

    Raises:
        ProtocolError: it was refused.
    """
    data = part.records
    if data is None or len(data) == 0:
        raise ProtocolError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {context.version} must have at least one record batch per partition",
        )
    header = parse_single(data)
    if header.attributes & 0x07 == 4 and context.version < MIN_ZSTD_VERSION:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {context.version} are not allowed to use ZStandard compression",
        )
    if header.attributes & TRANSACTIONAL_BIT:
        raise ProtocolError(ErrorCode.INVALID_TXN_STATE, "transactions are not served here")
    try:
        done = replica.append(data, context.now_ms, header=header)
    except OSError as error:
        context.services.fail(error, replica.log)
        raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None
    except ProtocolError as error:
        return _failed(part, error, -1 if error.code in _WITHOUT_LOG_START else replica.log.log_start_offset)
    return PartitionProduceResponse(
        part.index, 0, done.first_offset, done.log_append_time_ms, replica.log.log_start_offset
    )


def _topic_name(context: Context, topic: TopicProduceData) -> str | None:
    if context.version < 13:
        return topic.name
    return context.image.topic_names.get(topic.topic_id)


def _one(
    context: Context, name: str | None, part: PartitionProduceData, acks: int
) -> tuple[PartitionProduceResponse, Replica | None]:
    replica = None
    try:
        if name is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
        if name in INTERNAL_TOPICS and name in context.image.topics and context.client_id != ADMIN_CLIENT_ID:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION if acks in _ACKS else ErrorCode.INVALID_REQUIRED_ACKS)
        replica = context.services.replicas.leader(name, part.index)
        if acks not in _ACKS:
            raise ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS)
        if acks == -1:
            replica.check_min_isr()
        return _append(context, replica, part), replica
    except ProtocolError as error:
        return _failed(part, error), replica


def handle(context: Context, request: ProduceRequest) -> Answer:
    """Append every partition's batch; each has its own outcome."""
    response = ProduceResponse()
    failed = False
    waiting: list[tuple[Replica, PartitionProduceResponse, int]] = []
    corrupt = ProtocolError(ErrorCode.CORRUPT_MESSAGE) if _malformed(request) else None
    leaders: set[int] = set()
    for topic in request.topic_data:
        name = _topic_name(context, topic)
        rows = []
        for part in topic.partition_data:
            replica = None
            if corrupt is not None:
                row = _failed(part, corrupt)
            else:
                row, replica = _one(context, name, part, request.acks)
            if row.error_code:
                failed = True
                if row.error_code in _LEADER_ERRORS and name is not None and context.version >= 10:
                    _tell_leader(context, name, part.index, row, leaders)
            elif replica is not None and (request.acks == -1 or replica.flushing):
                end = replica.log.log_end_offset
                if replica.log.high_watermark < end:
                    waiting.append((replica, row, end))
            rows.append(row)
        response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, rows))
    if request.acks == 0:
        if failed:
            raise CloseConnection
        return None
    if leaders:
        endpoints = context.services.metadata.endpoints(context.peer.local)
        response.node_endpoints = [NodeEndpoint(*e) for e in endpoints if e[0] in leaders]
    if waiting:
        return _wait(context, response, waiting, request.timeout_ms)
    return response


def _tell_leader(context: Context, topic: str, index: int, row: PartitionProduceResponse, leaders: set[int]) -> None:
    known = context.image.topics.get(topic)
    partition = known.partitions.get(index) if known is not None else None
    if partition is not None:
        row.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
        leaders.add(partition.leader)


def _why_gone(context: Context, replica: Replica) -> ErrorCode:
    """What a client is told of a replica that stopped leading while its batch waited."""
    try:
        context.services.replicas.leader(replica.topic, replica.partition)
    except ProtocolError as error:
        return error.code
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


async def _wait(
    context: Context,
    response: ProduceResponse,
    waiting: list[tuple[Replica, PartitionProduceResponse, int]],
    timeout_ms: int,
) -> Message | None:
    """Wait until every batch is below its high watermark; what is not in time says so, though it stays in the log."""
    keys = [("hw", replica.topic, replica.partition) for replica, _, _ in waiting]

    def ready() -> bool:
        return all(replica.log.high_watermark >= end or not replica.is_leader for replica, _, end in waiting)

    await context.services.purgatory.wait(keys, ready, timeout_ms)
    for replica, row, end in waiting:
        if not replica.is_leader:
            row.error_code = _why_gone(context, replica)
        elif replica.log.high_watermark < end:
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
    return response
