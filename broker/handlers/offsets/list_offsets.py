"""ListOffsets (2), v1-11: offsets of partitions by timestamp.

Behaviour: -1 is the latest offset (high watermark, or last stable offset with read_committed), -2 the earliest, -3 the
record of the local log with the largest timestamp (v7), -4 the earliest local offset (v8; the same as -2 without tiered
storage), -5 the latest tiered offset (v9) and -6 the earliest pending upload (v11), both -1 without tiered storage. For
another timestamp the first record, in offset order, with that or a later timestamp is returned, from either tier.
A special value before its version is UNSUPPORTED_VERSION; a partition that occurs twice is INVALID_REQUEST. A consumer
gets no record at or above the high watermark, or the last stable offset with read_committed, neither by timestamp nor
by the largest timestamp. For any replica id but -1 the limit is the log end offset; for -2 a follower responds too.
While the high watermark of a new leader lags, a consumer gets OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5)
instead of the latest offset, and instead of "not found" by timestamp.

Source: ``ListOffsetsRequest.java``, ``UnifiedLog.fetchOffsetByTimestamp`` (apache/kafka 4.3.1).
By time: KIP-79; epochs: KIP-320; the largest timestamp: KIP-734; local and tiered ends: KIP-405, KIP-1005.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.jobs.job import Job
from ottla.jobs.sequences import free_job
from ottla.log.partition_log import PartitionLog
from ottla.log.timestamp_lookup import TimestampAndOffset, find_max_timestamp_job, find_offset_by_timestamp_job
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.handlers.offsets.remote_list_offsets import RemoteOffset, RemoteOffsets

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID = -1, -2
NOT_AVAILABLE_SINCE = 5


def _tier_end(log: PartitionLog, timestamp: int) -> int:
    """Return the offset for a special timestamp of tiered storage: -4, -5 or -6; -1 if there is none.

    -4 is the local log start offset, -5 the highest remote offset, -6 the first offset that is not copied.

    Source: ``UnifiedLog.fetchOffsetByTimestamp``, ``fetchEarliestPendingUploadOffset`` (apache/kafka 4.3.1).
    """
    highest = log.highest_remote_offset
    if timestamp == EARLIEST_LOCAL:
        return log.local_log_start_offset
    if not log.config.tiering.is_enabled:
        return -1
    if timestamp == LATEST_TIERED:
        return highest
    if highest >= 0:
        return max(highest + 1, log.log_start_offset)
    # with segments that were copied already, this leader has not read the metadata of the remote segments yet
    return log.log_start_offset if log.local_log_start_offset == log.log_start_offset else -1


def _find(
    replica: HostedPartition,
    part: ListOffsetsPartition,
    upper: int,
    unpackings: DecompressionLimiter,
    remote: RemoteOffset | None,
    *,
    unknown: bool,
) -> Job[tuple[int, int, int]]:
    """Return timestamp, offset and leader epoch for a requested timestamp, as a job; -1 for values without a record.

    Args:
        replica: Partition.
        part: Row of the request with the timestamp in ms, or a special value.
        upper: First offset that is not readable.
        unpackings: Limiter of decompressions for a search of records.
        remote: Search in both tiers, which is done; None for a log without a remote one.
        unknown: Records from ``upper`` on may be committed already, as the high watermark of a new leader lags.

    Raises:
        ProtocolError: OFFSET_NOT_AVAILABLE, or the error of the search in both tiers.
        WireError: A batch is damaged. OSError: The disk failed.
    """
    log = replica.log
    found: TimestampAndOffset | None = None
    match part.timestamp:
        case -1:
            if unknown:
                raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return -1, upper, replica.leader_epoch
        case -2:
            return -1, log.log_start_offset, log.epochs.epoch_for_offset(log.log_start_offset)
        case -4 | -5 | -6:
            offset = _tier_end(log, part.timestamp)
            if offset < upper or part.timestamp == EARLIEST_LOCAL:
                return -1, offset, log.epochs.epoch_for_offset(offset)
        case -3:
            found = yield from unpackings.as_job(find_max_timestamp_job(log))
        case _:
            if remote is None:
                search = find_offset_by_timestamp_job(log, part.timestamp, log.log_end_offset)
                found = yield from unpackings.as_job(search)
            elif remote.error:
                raise ProtocolError(remote.error)
            else:
                found = remote.result
    if found is not None and found.offset < upper:
        return found.timestamp_ms, found.offset, found.leader_epoch
    if unknown:
        raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return -1, -1, -1


def _last_fetchable_offset(replica: HostedPartition, request: ListOffsetsRequest) -> int:
    """Return the exclusive upper limit of offsets that the requester may read (``lastFetchableOffset``)."""
    log = replica.log
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


def _is_high_watermark_unknown(replica: HostedPartition, request: ListOffsetsRequest) -> bool:
    """Return whether a new leader's high watermark still lags behind records that may be committed.

    False for requests of followers and on a follower.
    """
    state = replica.state
    if request.replica_id != CONSUMER_REPLICA_ID or type(state) is not LeaderState:
        return False
    return state.is_high_watermark_unknown(replica.log.high_watermark)


def _list_partition(
    context: RequestContext,
    topic: str,
    twice: set[int],
    request: ListOffsetsRequest,
    part: ListOffsetsPartition,
    remote: RemoteOffset | None,
) -> Job[ListOffsetsPartitionResponse]:
    """Return one partition's row, as a job; an I/O error fails the log directory.

    ``twice``: partitions of the topic that the request has more than once; ``remote``: finished search in both tiers,
    None without one.

    Raises:
        ProtocolError: The error code of the partition.
    """
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # as Kafka does for an IllegalArgumentException
    if part.partition_index in twice:
        raise ProtocolError(ErrorCode.INVALID_REQUEST)
    if part.timestamp < EARLIEST_PENDING or context.version < _SINCE.get(part.timestamp, 0):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    replica = context.services.replica_manager.hosted(topic, part.partition_index)
    if request.replica_id == DEBUGGING_REPLICA_ID:
        replica.check_epoch(part.current_leader_epoch)
    else:
        replica.check_leader(part.current_leader_epoch)
    upper, unknown = _last_fetchable_offset(replica, request), _is_high_watermark_unknown(replica, request)
    try:
        timestamp_ms, offset, epoch = yield from _find(
            replica, part, upper, context.services.decompression_limiter, remote, unknown=unknown
        )
    except WireError:
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE) from None
    except OSError as error:
        context.services.fail(error, replica.log)
        raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None
    leader_epoch = epoch if context.version >= 4 else -1
    return ListOffsetsPartitionResponse(
        part.partition_index, timestamp=timestamp_ms, offset=offset, leader_epoch=leader_epoch
    )


def handle(context: RequestContext, request: ListOffsetsRequest) -> ResponseJob:
    """Return the offset of each partition for its timestamp; an error concerns only its partition."""
    response = ListOffsetsResponse(topics=context.response_array())
    seen: defaultdict[str, set[int]] = defaultdict(set)
    twice: defaultdict[str, set[int]] = defaultdict(set)
    for topic in request.topics:
        before = seen[topic.name]
        for part in topic.partitions:
            (twice[topic.name] if part.partition_index in before else before).add(part.partition_index)
            yield None
        yield None
    yield from free_job(seen)
    remote: RemoteOffsets = {}
    if context.services.remote_reads is not None:
        # lazy: 10.9 ms, 372 kB: only for tiered storage
        from ottla.broker.handlers.offsets.remote_list_offsets import find_remote_offsets

        leader_only = request.replica_id != DEBUGGING_REPLICA_ID
        remote = yield from find_remote_offsets(context, request, leader_only=leader_only)
    for topic in request.topics:
        rows: list[ListOffsetsPartitionResponse] = context.response_array()
        for part in topic.partitions:
            try:
                found = remote.get((topic.name, part.partition_index)) if remote else None
                row = yield from _list_partition(context, topic.name, twice[topic.name], request, part, found)
            except ProtocolError as error:
                code = error.code
                if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < NOT_AVAILABLE_SINCE:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                row = ListOffsetsPartitionResponse(part.partition_index, code)
            rows.append(row)
            yield None
        response.topics.append(ListOffsetsTopicResponse(topic.name, rows))
        yield None
    yield from free_job(twice)
    return response
