"""OffsetCommit (8), v2-10: store a group's positions; answered once they are committed to the log.

Behaviour: the empty group id is a group like any other.
An unknown topic or partition fails on its own (3, v10: unknown id 100), as does metadata that is too long
(12); the group's verdict holds for all the rest. v2-4 may carry a retention time.

Source: ``OffsetMetadataManager.commitOffset``, ``KafkaApis.handleOffsetCommitRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.coordinator import Ticket
from ottla.broker.groups.machine import Commit
from ottla.broker.groups.offsets import NewOffset
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.schema import Message


def _check(context: Context, name: str | None, part: OffsetCommitRequestPartition) -> ErrorCode:
    topic = context.image.topics.get(name) if name is not None else None
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or part.partition_index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(part.committed_metadata or "") > context.services.groups.settings.max_metadata_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _name(context: Context, topic: OffsetCommitRequestTopic) -> str | None:
    return topic.name if context.version < 10 else context.image.topic_names.get(topic.topic_id)


def handle(context: Context, request: OffsetCommitRequest) -> Answer:
    """Check each position, hand the good ones to the group's machine."""
    response = OffsetCommitResponse()
    good: list[NewOffset] = []
    rows: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        name = _name(context, topic)
        known = context.image.topics.get(name) if name is not None else None
        out = OffsetCommitResponseTopic(topic.name, topic.topic_id)
        response.topics.append(out)
        for part in topic.partitions:
            code = _check(context, name, part)
            row = OffsetCommitResponsePartition(part.partition_index, code)
            out.partitions.append(row)
            if code is ErrorCode.NONE and name is not None and known is not None:
                rows.append(row)
                good.append(
                    NewOffset(
                        name,
                        known.id,
                        part.partition_index,
                        part.committed_offset,
                        part.committed_leader_epoch,
                        part.committed_metadata or "",
                    )
                )
    if not good:
        return response
    ticket = context.services.groups.ask(
        request.group_id,
        lambda own: Commit(
            own,
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            request.retention_time_ms,
            good,
            context.version,
        ),
    )
    if ticket.answer is None:
        return _wait(ticket, response, rows)
    return _settle(response, rows, ticket.answer)


def _settle(response: OffsetCommitResponse, rows: list[OffsetCommitResponsePartition], code: object) -> Message:
    """Give every position that was handed in the group's verdict."""
    verdict = code.code if isinstance(code, ProtocolError) else code
    assert isinstance(verdict, int)
    for row in rows:
        row.error_code = verdict
    return response


async def _wait(ticket: Ticket, response: OffsetCommitResponse, rows: list[OffsetCommitResponsePartition]) -> Message:
    return _settle(response, rows, await ticket.wait())
