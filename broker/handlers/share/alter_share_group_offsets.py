"""AlterShareGroupOffsets (91), v0: set the start offsets of an empty share group.

Behaviour: a missing group is created; the previous share state of the partitions is discarded. A group with members is
NON_EMPTY_GROUP, one of another type GROUP_ID_NOT_FOUND, each for the whole request.

Source: ``KafkaApis.handleAlterShareGroupOffsetsRequest``, ``GroupCoordinatorService.alterShareGroupOffsets``
(apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.share.offset_changes import ShareOffsetsToAlter, alter_offsets
from ottla.broker.groups.state_machine import ShareGroupCommand
from ottla.broker.handlers.item_results import wait_for_success
from ottla.broker.handlers.share.share_acknowledgements import is_served
from ottla.broker.handlers.share.share_group_heartbeat import report_initialization
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

TopicResponse = AlterShareGroupOffsetsResponseTopic
PartitionResponse = AlterShareGroupOffsetsResponsePartition


class _PartitionReset(NamedTuple):
    """Partition whose start offset is to be set: the offset, and the partition's rows of the response."""

    topic: TopicResponse
    row: PartitionResponse
    start_offset: int


def _topic_response(
    context: RequestContext, topic: AlterShareGroupOffsetsRequestTopic, begun: list[_PartitionReset]
) -> Job[TopicResponse]:
    """Return a topic's row, as a job; append its existing, authorized partitions to ``begun``."""
    known, refusal = context.image.topics.get(topic.topic_name), ErrorCode.NONE
    if not context.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif known is None:
        refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    row = TopicResponse(topic.topic_name, ZERO_UUID if known is None else known.id)
    for part in topic.partitions:
        code = refusal
        if not code and known is not None and part.partition_index not in known.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = code.text if code else None
        row.partitions.append(PartitionResponse(part.partition_index, code, text))
        if not code:
            begun.append(_PartitionReset(row, row.partitions[-1], part.start_offset))
        yield None
    return row


@with_error_response
def handle(context: RequestContext, request: AlterShareGroupOffsetsRequest) -> ResponseJob:
    """Validate the request with the group coordinator, then initialize the share state with the new start offsets.

    The result of the initialization, a failure if that of one partition failed, is reported to the group coordinator
    before the response is returned.
    """
    if not is_served(context):
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise ProtocolError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
    response, begun = AlterShareGroupOffsetsResponse(), list[_PartitionReset]()
    for topic in request.topics:
        response.responses.append((yield from _topic_response(context, topic, begun)))
        yield None
    good, starts, rows = (
        dict[str, set[int]](),
        dict[SharePartitionKey, int](),
        dict[SharePartitionKey, list[PartitionResponse]](),
    )
    for of, row, start_offset in begun:
        key = SharePartitionKey(request.group_id, of.topic_id, row.partition_index)
        starts[key] = start_offset  # for a duplicate partition the last offset applies
        rows.setdefault(key, []).append(row)
        good.setdefault(of.topic_name, set()).add(row.partition_index)
        yield None
    topics = {name: frozenset(numbers) for name, numbers in good.items()}
    rule = partial(alter_offsets, group_id=request.group_id, topics=topics)
    answer = yield from wait_for_success(
        context.services.groups.submit(request.group_id, lambda own: ShareGroupCommand(own, rule))
    )
    assert isinstance(answer, ShareOffsetsToAlter)
    failures: list[ProtocolError] = []

    def failed(key: SharePartitionKey, error: ProtocolError) -> None:
        failures.append(error)
        for row in rows[key]:
            row.error_code, row.error_message = error.code, error.message

    yield context.services.share_partition_manager.initialize_each(
        request.group_id, answer.epoch, starts.items(), failed
    )
    if answer.partitions:
        yield report_initialization(context, request.group_id, answer.partitions, done=not failures)
    return response
