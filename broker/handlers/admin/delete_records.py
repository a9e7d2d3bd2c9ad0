"""DeleteRecords (21), v0-2: advance the log start offset of partitions and delete the segments that lie below it.

Behaviour: offset -1 means the high watermark; a higher offset is OFFSET_OUT_OF_RANGE. A topic whose cleanup policy is
only ``compact`` is refused (POLICY_VIOLATION), an internal topic too (INVALID_TOPIC_EXCEPTION). The response carries
the low watermark of the partition, -1 with an error other than REQUEST_TIMED_OUT. It is sent when all live replicas
have reached the new log start offset, so that the records are deleted everywhere, or with REQUEST_TIMED_OUT after
``timeout_ms``: the records are deleted on the leader then.

Source: ``ReplicaManager.deleteRecords``, ``DelayedDeleteRecords.java`` (apache/kafka 4.3.1).
From KIP-107.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin.metadata import INTERNAL_TOPICS
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.peer import wait_while_connected
from ottla.jobs.job import Job
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.partition_log import PartitionLog
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


class PendingDeletion(NamedTuple):
    """Partition whose log start offset on the leader has reached the target: incomplete response row, target offset."""

    result: DeleteRecordsPartitionResult
    replica: HostedPartition
    is_raised: bool
    """True if the request advanced the log start offset; False if it was there already."""
    target_offset: int
    """Log start offset that every live replica has to reach."""


DeletionResult = PendingDeletion | ErrorCode
"""Pending deletion of a partition, or only its error code, which saves memory for very many partitions."""


def _raise_log_start(context: RequestContext, topic: str, partition: int, offset: int) -> PendingDeletion:
    known = context.image.topics.get(topic) if topic in INTERNAL_TOPICS else None
    if known is not None and partition in known.partitions:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION)  # checked before the leader, as in Kafka
    replica = context.services.replica_manager.leader(topic, partition)
    log = replica.log
    if log.config.compact and not log.config.delete:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION)
    wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0 or wanted > log.high_watermark:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return PendingDeletion(
        DeleteRecordsPartitionResult(partition, -1), replica, log.maybe_increment_log_start_offset(wanted), wanted
    )


def _delete_segments(context: RequestContext, rows: list[PendingDeletion]) -> Job[None]:
    """Checkpoint the new log start offsets, delete segments below them and set the rows' low watermarks, as a job.

    The checkpoint of each log directory is written once, before. An I/O error fails the log directory:
    KAFKA_STORAGE_ERROR is in all of its rows if the checkpoint failed, else in the row whose deletion failed. The low
    watermark is here the leader's log start offset.
    """
    storage = context.services.log_dirs
    by_directory: dict[LogDirectory, list[PartitionLog]] = {}
    for row in rows:
        if row.is_raised and not row.replica.log.closed:
            by_directory.setdefault(storage.directory_of(row.replica.log), []).append(row.replica.log)
    failed: set[PartitionLog] = set()
    for directory, logs in by_directory.items():
        try:
            directory.checkpoints.write_log_start_offsets(logs)
        except OSError as error:
            context.services.fail(error, directory)
            failed.update(logs)
    for row in rows:
        log = row.replica.log
        try:
            if row.is_raised and log not in failed and not log.closed:
                yield from log.delete_segments_below_start_job(context.now_ms)
                row.replica.notify_waiters()
        except OSError as error:
            context.services.fail(error, log)
            failed.add(log)
        if log in failed:
            row.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            row.result.low_watermark = log.log_start_offset
        yield None


class _LowWatermarkWait:
    """Delayed DeleteRecords operation: `wait` returns when the log start offsets of all live replicas reach targets.

    It is false if no partition is pending. A partition whose leader moves away is complete with NOT_LEADER_OR_FOLLOWER.
    """

    def __init__(self, context: RequestContext, rows: list[PendingDeletion], timeout_ms: int) -> None:
        self._context = context
        self._timeout_ms = timeout_ms
        self._pending: dict[Hashable, PendingDeletion] = {}
        for row in rows:
            if not row.replica.is_sole_replica and row.result.error_code == ErrorCode.NONE:
                self._pending["start", row.replica.topic, row.replica.partition] = row
        for key in list(self._pending):
            self._is_ready_after(key)

    def __bool__(self) -> bool:
        return bool(self._pending)

    def _is_ready_after(self, key: Hashable) -> bool:
        row = self._pending.get(key)
        if row is None:
            return not self._pending
        replica, result = row.replica, row.result
        brokers = self._context.image.brokers
        result.low_watermark = replica.low_watermark({i: b for i, b in brokers.items() if not b.fenced})
        if not replica.is_leader:
            result.error_code, result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if not replica.is_leader or result.low_watermark >= row.target_offset:
            del self._pending[key]
        return not self._pending

    def wait(self) -> Job[None]:
        """Wait for the replicas, as a job; set REQUEST_TIMED_OUT in rows that are incomplete after ``timeout_ms``."""
        context = self._context
        yield wait_while_connected(
            context.peer,
            context.services.purgatory.wait_for_change(list(self._pending), self._is_ready_after, self._timeout_ms),
        )
        for row in self._pending.values():
            row.result.error_code = ErrorCode.REQUEST_TIMED_OUT


def _try_raise_log_start(context: RequestContext, topic: str, part: DeleteRecordsPartition) -> DeletionResult:
    try:
        return _raise_log_start(context, topic, part.partition_index, part.offset)
    except ProtocolError as error:
        return error.code
    except OSError as error:
        replica = context.services.replica_manager.get(topic, part.partition_index)
        if replica is not None:
            context.services.fail(error, replica.log)
        return ErrorCode.KAFKA_STORAGE_ERROR


def handle(context: RequestContext, request: DeleteRecordsRequest) -> Job[DeleteRecordsResponse]:
    """Delete records of each partition on the leader, then wait for the other live replicas, at most ``timeout_ms``.

    An error concerns only its partition. The checkpoint of log start offsets is written before segments are deleted.
    """
    response, results, raised = (
        DeleteRecordsResponse(topics=context.response_array()),
        [],
        [],
    )
    for topic in request.topics:
        for part in topic.partitions:
            row = _try_raise_log_start(context, topic.name, part)
            results.append(row)
            if isinstance(row, PendingDeletion):
                raised.append(row)
            yield None
        yield None
    yield from _delete_segments(context, raised)
    elsewhere = _LowWatermarkWait(context, raised, request.timeout_ms)
    if elsewhere:
        yield from elsewhere.wait()
    each = iter(results)
    for topic in request.topics:
        rows: list[DeleteRecordsPartitionResult] = context.response_array()
        for part in topic.partitions:
            row = next(each)
            if isinstance(row, PendingDeletion):
                rows.append(row.result)
            else:
                rows.append(DeleteRecordsPartitionResult(part.partition_index, -1, row))
            yield None
        response.topics.append(DeleteRecordsTopicResult(topic.name, rows))
        yield None
    return response
