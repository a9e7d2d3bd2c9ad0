"""DescribeTopicPartitions (75), v0: topics in order of their names, a page of partitions per response.

Behaviour: no topics means all. A page holds at most ``response_partition_limit`` partitions (1 to 2,000);
``next_cursor`` is the position of the next page, null after the last one. Topics before the request's cursor are left
out. Topics that are not authorized come last.

Source: ``DescribeTopicPartitionsRequestHandler.java`` (apache/kafka 4.3.1).
From KIP-966.
"""

from __future__ import annotations

from ottla.broker.config.limits import MAX_DESCRIBED_PARTITIONS
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.admin.metadata import INTERNAL_TOPICS
from ottla.controller.control.create_and_delete_topics import topic_name_error
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.directory_id import offline_replicas
from ottla.controller.metadata.image import MetadataImage, TopicImage
from ottla.jobs.sequences import sort_job
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def _partitions(
    image: MetadataImage, topic: TopicImage, first: int, limit: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    rows = []
    for number, p in sorted(topic.partitions.items())[first : first + limit]:
        code = ErrorCode.LEADER_NOT_AVAILABLE if p.leader < 0 else ErrorCode.NONE
        rows.append(
            DescribeTopicPartitionsResponsePartition(
                code,
                number,
                p.leader,
                p.leader_epoch,
                list(p.replicas),
                list(p.isr),
                list(p.elr),
                list(p.last_known_elr),
                offline_replicas(image, p),
            )
        )
    return rows


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> ResponseJob:
    """Return one page of partitions, from the cursor of the request on.

    If the cursor has a negative partition, or a topic that the request does not name, every topic that the request
    names is INVALID_REQUEST. Topics that the client may not describe are rows with an error if the request names them,
    otherwise left out.
    """
    image = context.image
    cursor = request.cursor
    requested: set[str] = set()
    for wanted_topic in request.topics:
        requested.add(wanted_topic.name)
        yield None
    if cursor is not None and (cursor.partition_index < 0 or (requested and cursor.topic_name not in requested)):
        refused = DescribeTopicPartitionsResponse(topics=context.response_array())
        for wanted_topic in request.topics:
            row = DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, wanted_topic.name)
            refused.topics.append(row)
            yield None
        return refused
    names = yield from sort_job(requested or image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    left = min(max(request.response_partition_limit, 1), MAX_DESCRIBED_PARTITIONS)
    response = DescribeTopicPartitionsResponse(topics=context.response_array())
    denied: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield None
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if requested:  # an unauthorized topic is reported only if the request names it
                denied.append(DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        topic, operations = image.topics.get(name), context.authorized_operations(ResourceType.TOPIC, name)
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if topic is None:
            bad = topic_name_error(name) is not None
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row = DescribeTopicPartitionsResponseTopic(code, name, topic_authorized_operations=operations)
            response.topics.append(row)
            continue
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, first)
            break
        rows = _partitions(image, topic, max(first, 0), left)
        left -= len(rows)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(0, name, topic.id, name in INTERNAL_TOPICS, rows, operations)
        )
        if first + len(rows) < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, first + len(rows))
            break
    for row in denied:
        response.topics.append(row)
        yield None
    return response
