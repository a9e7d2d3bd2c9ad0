"""Append of one partition's batch of a Produce request to the log, and the partition's row of the response."""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin.metadata import INTERNAL_TOPICS
from ottla.broker.handlers.produce.batch_precheck import ADMIN_CLIENT_ID
from ottla.broker.replication.hosted_partition import HostedPartition, TopicTraffic
from ottla.log.log_validator import AppendOrigin, RecordValidationError, ValidatedBatch, parse_single_batch
from ottla.log.producers.transaction_verification import NO_TXN_CONTEXT, TxnAppendContext
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse

MIN_ZSTD_VERSION = 7
_ACKS = (-1, 0, 1)
_CLIENT = AppendOrigin.CLIENT

_EXPECTED = (
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Errors that are not counted as failures and have no log start offset in the response (``appendToLocalLog``)."""
_COUNTED = (
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Errors of batches that do not reach the log but are counted; others are found before ``appendToLocalLog``."""


def partition_error(
    part: PartitionProduceData, error: ProtocolError, log_start_offset: int = -1
) -> PartitionProduceResponse:
    """Return the row of a partition whose batch was rejected, with its record errors if there are any.

    The error's message is set only with record errors. ``log_start_offset`` -1: it is not returned.
    """
    out = PartitionProduceResponse(part.index, error.code, -1, log_start_offset=log_start_offset)
    if isinstance(error, RecordValidationError) and error.record_errors:
        out.error_message = error.message
        out.record_errors = [BatchIndexAndErrorMessage(index, text) for index, text in error.record_errors]
    return out


def partition_rejection(
    part: PartitionProduceData, error: ProtocolError, replica: HostedPartition
) -> PartitionProduceResponse:
    """Return the row of a batch that the log rejected; the error code decides whether it has the log start offset."""
    return partition_error(part, error, -1 if error.code in _EXPECTED else replica.log.log_start_offset)


def _append(
    context: RequestContext,
    replica: HostedPartition,
    part: PartitionProduceData,
    checked: ValidatedBatch | None,
    txn: TxnAppendContext,
) -> PartitionProduceResponse:
    """Append one partition's batch to the log of its leader; count it in the traffic metrics; return its row.

    A batch that the log rejects has its error in the row. An I/O error fails the log directory.

    Raises:
        ProtocolError: The batch is rejected before it reaches the log, or its log directory failed.
        ValidationPending: The batch has many records, which have to be validated in time slices first.
    """
    data = part.records
    if data is None or len(data) == 0:
        raise ProtocolError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {context.version} must have at least one record batch per partition",
        )
    header = parse_single_batch(data)
    if header.attributes & 0x07 == 4 and context.version < MIN_ZSTD_VERSION:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {context.version} are not allowed to use ZStandard compression",
        )
    try:
        done = replica.append(data, context.now_ms, _CLIENT, header, checked, at_once=False, txn=txn)
    except OSError as error:
        context.services.fail(error, replica.log)
        raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None
    except ProtocolError as error:
        count_rejection(replica.traffic, error.code, len(data))
        return partition_rejection(part, error, replica)
    traffic = replica.traffic
    traffic.produces += 1
    traffic.bytes_in += len(data)
    traffic.messages_in += header.last_offset_delta + 1
    return PartitionProduceResponse(
        part.index, 0, done.first_offset, done.log_append_time_ms, replica.log.log_start_offset
    )


def count_rejection(traffic: TopicTraffic, code: ErrorCode, size_bytes: int) -> None:
    """Count a batch that the log or its leader rejected: as a produce, and as a failed one unless it is `_EXPECTED`.

    If it exceeds ``max.message.bytes``, its bytes are counted, too. ``size_bytes``: 0 if it did not reach the log.

    Source: ``ReplicaManager.appendToLocalLog`` (apache/kafka 4.3.1).
    """
    traffic.produces += 1
    if code not in _EXPECTED:
        traffic.failed_produces += 1
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        traffic.bytes_rejected += size_bytes


def append_batch(
    context: RequestContext,
    name: str | None,
    part: PartitionProduceData,
    acks: int,
    checked: ValidatedBatch | None = None,
    txn: TxnAppendContext = NO_TXN_CONTEXT,
) -> tuple[PartitionProduceResponse, HostedPartition | None]:
    """Authorize and append one partition's batch; an error becomes the error code of its row.

    Args:
        context: Context of the request.
        name: Name of the topic; None for an unknown topic id.
        part: Row of the request with the batch.
        acks: Required acknowledgements: -1 (all in-sync replicas), 0 or 1; another value is an error.
        checked: Result of a validation in time slices; None before.
        txn: Result of a transaction verification.

    Returns:
        Row of the response, and the partition; None in its place if this broker does not lead it, or if the batch is
        rejected before the leader is looked up (unknown topic id, no authorization, internal topic).

    Raises:
        ValidationPending: The batch has many records, which have to be validated in time slices first.
    """
    replica = None
    try:
        if name is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID)
        authorizer = context.services.authorizer
        if (
            authorizer is not None
            and name not in context.peer.authorization_cache.writable_topics
            and not authorizer.may_write(context, name)
        ):
            raise ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name in INTERNAL_TOPICS and name in context.image.topics and context.client_id != ADMIN_CLIENT_ID:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION if acks in _ACKS else ErrorCode.INVALID_REQUIRED_ACKS)
        replica = context.services.replica_manager.leader(name, part.index)
        if acks not in _ACKS:
            raise ProtocolError(ErrorCode.INVALID_REQUIRED_ACKS)
        if acks == -1 and not replica.is_sole_replica:
            replica.check_min_isr()
        return _append(context, replica, part, checked, txn), replica
    except ProtocolError as error:
        if error.code in _COUNTED:
            count_rejection(context.services.replica_manager.topic_traffic(name or ""), error.code, 0)
        if replica is not None and error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
            return partition_rejection(part, error, replica), replica
        return partition_error(part, error), replica
