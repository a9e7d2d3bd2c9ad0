"""DeleteRecords (21), v0-2: move the log start forward; segments that lie wholly below it are removed.

Behaviour: -1 means the high watermark; above it OFFSET_OUT_OF_RANGE. A topic whose cleanup policy lacks ``delete`` is
refused (POLICY_VIOLATION), an internal topic too (INVALID_TOPIC_EXCEPTION). The answer carries the new log start, and
-1 with an error.

Source: ``ReplicaManager.deleteRecords`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.handlers.metadata import INTERNAL_TOPICS
from ottla.broker.server.dispatch import Answer, Context
from ottla.controller.config_keys import TOPIC_KEYS
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


def _delete(context: Context, topic: str, partition: int, offset: int) -> int:
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
    if log.raise_start(wanted):
        services.storage.of(log).write_checkpoints(sync=False)
        log.drop_below_start(context.now_ms)
        replica.changed()
    return log.log_start_offset


def handle(context: Context, request: DeleteRecordsRequest) -> Answer:
    """Answer each partition on its own."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            row = DeleteRecordsPartitionResult(part.partition_index, -1)
            try:
                row.low_watermark = _delete(context, topic.name, part.partition_index, part.offset)
            except ProtocolError as error:
                row.error_code = error.code
            except OSError as error:
                replica = context.services.replicas.get(topic.name, part.partition_index)
                if replica is not None:
                    context.services.fail(error, replica.log)
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            rows.append(row)
        response.topics.append(DeleteRecordsTopicResult(topic.name, rows))
    return response
