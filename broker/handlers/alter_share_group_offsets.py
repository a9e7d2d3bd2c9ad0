"""AlterShareGroupOffsets (91), v0: where an empty share group goes on reading.

Behaviour: the group is made where it is not there; what it knew of the partitions is forgotten. A group with members is
NON_EMPTY_GROUP, one of another kind GROUP_ID_NOT_FOUND, each for the whole request.

Source: ``KafkaApis.handleAlterShareGroupOffsetsRequest``, ``GroupCoordinatorService.alterShareGroupOffsets``
(apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.groups.machine import OfShare
from ottla.broker.groups.share.offsets import ToAlter, alter
from ottla.broker.handlers.share_acks import is_served
from ottla.broker.handlers.share_group_heartbeat import tell_initialized
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.share.several import for_each
from ottla.broker.share.state import SharePartitionKey
from ottla.broker.turn import Steps
from ottla.controller.acl import Operation, Resource
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import alter_share_group_offsets as m
from ottla.wire.schema import ZERO_UUID, Message

Topic = m.AlterShareGroupOffsetsResponseTopic


def _refuse(code: ErrorCode, message: str | None = None) -> Message:
    return m.AlterShareGroupOffsetsResponse(error_code=code, error_message=message or code.text)


def handle(context: Context, request: m.AlterShareGroupOffsetsRequest) -> Answer:
    """Ask the group, then have the persister begin anew."""
    if not is_served(context):
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return _refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    return _alter(context, request)


def _rows(context: Context, topic: m.AlterShareGroupOffsetsRequestTopic) -> Steps[Topic]:
    known, refusal = context.image.topics.get(topic.topic_name), ErrorCode.NONE
    if not context.may(Operation.READ, Resource.TOPIC, topic.topic_name):
        refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif known is None:
        refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    row = Topic(topic.topic_name, ZERO_UUID if known is None else known.id)
    for part in topic.partitions:
        code = refusal
        if not code and known is not None and part.partition_index not in known.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = code.text if code else None
        row.partitions.append(m.AlterShareGroupOffsetsResponsePartition(part.partition_index, code, text))
        yield
    return row


async def _alter(context: Context, request: m.AlterShareGroupOffsetsRequest) -> Message:
    response = m.AlterShareGroupOffsetsResponse()
    for topic in request.topics:
        response.responses.append(await context.turn.through(_rows(context, topic)))
        await context.turn.step()
    good = {
        row.topic_name: frozenset(part.partition_index for part in row.partitions if not part.error_code)
        for row in response.responses
    }
    rule = partial(
        alter, group_id=request.group_id, topics={name: numbers for name, numbers in good.items() if numbers}
    )
    answer: Any = await context.services.groups.ask(request.group_id, lambda own: OfShare(own, rule)).wait()
    if isinstance(answer, ProtocolError):
        return _refuse(answer.code, answer.message)
    assert isinstance(answer, ToAlter)
    offsets = {
        (topic.topic_name, part.partition_index): part.start_offset
        for topic in request.topics
        for part in topic.partitions
    }
    failed: list[ErrorCode] = []

    async def begin(at: tuple[Topic, m.AlterShareGroupOffsetsResponsePartition]) -> None:
        topic, row = at
        key = SharePartitionKey(request.group_id, topic.topic_id, row.partition_index)
        offset = offsets[topic.topic_name, row.partition_index]
        try:
            await context.services.shares.persister.initialize(key, answer.epoch, offset)
        except ProtocolError as error:
            row.error_code, row.error_message = error.code, error.message
            failed.append(error.code)

    good_rows = ((topic, row) for topic in response.responses for row in topic.partitions if not row.error_code)
    await for_each(good_rows, begin)
    if answer.partitions:
        await tell_initialized(context, request.group_id, answer.partitions, done=not failed)
    return response
