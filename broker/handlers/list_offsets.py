"""ListOffsets (2), v1-11: offsets by time.

Behaviour: -1 latest (high watermark, or last stable offset with read_committed), -2 earliest, -3 the record with the
largest timestamp (v7), -4 earliest local (v8; the same as -2 without tiered storage), -5 latest tiered (v9) and -6
earliest pending upload (v11), both -1 here. A timestamp finds the first record, in offset order, as late as it.
A special value before its version is UNSUPPORTED_VERSION; a partition named twice is INVALID_REQUEST.

Source: ``ListOffsetsRequest.java``, ``UnifiedLog.fetchOffsetByTimestamp`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import Counter

from ottla.broker.replica.replica import Replica
from ottla.broker.server.dispatch import Answer, Context
from ottla.log.by_time import find_by_time, find_max_time
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
READ_COMMITTED = 1


def _find(replica: Replica, part: ListOffsetsPartition, *, committed: bool) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); -1 for what is not there."""
    log = replica.log
    upper = log.last_stable_offset if committed else log.high_watermark
    match part.timestamp:
        case -1:
            return -1, upper, replica.leader_epoch
        case -2 | -4:
            return -1, log.log_start_offset, log.epochs.epoch_at(log.log_start_offset)
        case -3:
            found = find_max_time(log)
            return (-1, -1, -1) if found is None else (found.timestamp_ms, found.offset, found.leader_epoch)
        case -5 | -6:
            return -1, -1, -1
        case _:
            at = find_by_time(log, part.timestamp, upper)
            return (-1, -1, -1) if at is None else (at.timestamp_ms, at.offset, at.leader_epoch)


def handle(context: Context, request: ListOffsetsRequest) -> Answer:
    """Answer each partition on its own."""
    committed = request.isolation_level == READ_COMMITTED
    response = ListOffsetsResponse()
    counts = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            row = ListOffsetsPartitionResponse(part.partition_index)
            try:
                if counts[topic.name, part.partition_index] > 1:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST)
                if part.timestamp < EARLIEST_PENDING or context.version < _SINCE.get(part.timestamp, 0):
                    raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
                replica = context.services.replicas.leader(topic.name, part.partition_index)
                replica.check_epoch(part.current_leader_epoch)
                row.timestamp, row.offset, epoch = _find(replica, part, committed=committed)
                row.leader_epoch = epoch if context.version >= 4 else -1
            except ProtocolError as error:
                row.error_code = error.code
            except WireError:
                row.error_code = ErrorCode.CORRUPT_MESSAGE
            except OSError as error:
                context.services.fail(error, replica.log)
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            rows.append(row)
        response.topics.append(ListOffsetsTopicResponse(topic.name, rows))
    return response
