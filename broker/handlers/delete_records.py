"""DeleteRecords (21), v0-2: move the log start forward; segments that lie wholly below it are removed.

Behaviour: -1 means the high watermark; above it OFFSET_OUT_OF_RANGE. A topic whose cleanup policy lacks ``delete`` is
refused (POLICY_VIOLATION), an internal topic too (INVALID_TOPIC_EXCEPTION). The answer carries the new log start, and
-1 with an error.

Source: ``ReplicaManager.deleteRecords`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.handlers.metadata import INTERNAL_TOPICS
from ottla.broker.handlers.rows import each
from ottla.broker.replica.replica import Replica
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps
from ottla.controller.config_keys import TOPIC_KEYS
from ottla.log.directory import LogDirectory
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


class Row(NamedTuple):
    """One partition's answer on its way."""

    result: DeleteRecordsPartitionResult
    replica: Replica | None
    raised: bool
    """Whether the log start moved."""


def _raise(context: Context, topic: str, partition: int, offset: int) -> Row:
    services = context.services
    replica = services.replicas.leader(topic, partition)
    if topic in INTERNAL_TOPICS:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    policy = services.config.topic_text(context.image, topic, TOPIC_KEYS["cleanup.policy"]) or ""
    if "delete" not in policy.split(","):
        raise ProtocolError(ErrorCode.POLICY_VIOLATION)
    log = replica.log
    wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
    if wanted < 0 or wanted > log.high_watermark:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return Row(DeleteRecordsPartitionResult(partition, -1), replica, log.raise_start(wanted))


def _drop(context: Context, rows: list[Row]) -> Steps[None]:
    """Note the new log starts, each directory's at once; then segments may go, and the answers say so."""
    storage = context.services.storage
    raised = [row for row in rows if row.raised and row.replica is not None and not row.replica.log.closed]
    by_directory: dict[LogDirectory, list[PartitionLog]] = {}
    for row in raised:
        assert row.replica is not None
        by_directory.setdefault(storage.of(row.replica.log), []).append(row.replica.log)
    failed: set[PartitionLog] = set()
    for directory, logs in by_directory.items():
        try:
            directory.note_starts(logs)
        except OSError as error:
            context.services.fail(error, directory)
            failed.update(logs)
    for row in rows:
        if row.replica is None:
            continue
        log = row.replica.log
        try:
            if row.raised and log not in failed and not log.closed:
                yield from log.dropping_below_start(context.now_ms)
                row.replica.changed()
        except OSError as error:
            context.services.fail(error, log)
            failed.add(log)
        if log in failed:
            row.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            row.result.low_watermark = log.log_start_offset
        yield


def _steps(context: Context, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse]:
    response, every = DeleteRecordsResponse(), []
    for topic in request.topics:

        def one(part: DeleteRecordsPartition, name: str = topic.name) -> Row:
            try:
                return _raise(context, name, part.partition_index, part.offset)
            except OSError as error:
                replica = context.services.replicas.get(name, part.partition_index)
                if replica is not None:
                    context.services.fail(error, replica.log)
                raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from error

        def refused(part: DeleteRecordsPartition, error: ProtocolError) -> Row:
            return Row(DeleteRecordsPartitionResult(part.partition_index, -1, error.code), None, raised=False)

        rows = yield from each(topic.partitions, one, refused)
        response.topics.append(DeleteRecordsTopicResult(topic.name, [row.result for row in rows]))
        every += rows
    yield from _drop(context, every)
    return response


def handle(context: Context, request: DeleteRecordsRequest) -> Answer:
    """Answer each partition on its own; the checkpoint of log starts is written once, before any segment goes."""
    return context.turn.go(_steps(context, request))
