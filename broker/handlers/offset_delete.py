"""OffsetDelete (47), v0: forget positions of a group.

Behaviour: a topic that members are subscribed to is GROUP_SUBSCRIBED_TO_TOPIC; a group that uses another protocol
type must be empty; a group nobody knows is GROUP_ID_NOT_FOUND. A position that was never there is no error.

Source: ``OffsetMetadataManager.deleteOffsets`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.machine import DeleteOffsets
from ottla.broker.handlers.rows import settled
from ottla.broker.server.dispatch import Answer, Context
from ottla.broker.turn import Steps, Waiting
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def _sort_out(
    context: Context, request: OffsetDeleteRequest, out: OffsetDeleteResponse, wanted: list[tuple[str, int]]
) -> Steps[None]:
    """Answer for what is not there, keep the rest."""
    image = context.image
    for topic in request.topics:
        known = image.topics.get(topic.name)
        rows = []
        for part in topic.partitions:
            row = OffsetDeleteResponsePartition(part.partition_index)
            if known is None or part.partition_index not in known.partitions:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append((topic.name, part.partition_index))
            rows.append(row)
            yield
        out.topics.append(OffsetDeleteResponseTopic(topic.name, rows))


def _take(out: OffsetDeleteResponse, answer: Any) -> Steps[None]:
    if isinstance(answer, ProtocolError):
        out.error_code, out.topics = answer.code, []
        return
    for topic in out.topics:
        for row in topic.partitions if topic.name in answer else ():
            row.error_code = row.error_code or ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            yield


def _delete(context: Context, request: OffsetDeleteRequest) -> Waiting[Answer]:
    out = OffsetDeleteResponse()
    wanted: list[tuple[str, int]] = []
    yield from _sort_out(context, request, out, wanted)
    ticket = context.services.groups.ask(request.group_id, lambda own: DeleteOffsets(own, request.group_id, wanted))
    yield from _take(out, (yield from settled(ticket)))
    return out


def handle(context: Context, request: OffsetDeleteRequest) -> Answer:
    """Check the partitions, hand the good ones to the group's machine."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return context.turn.go(_delete(context, request))
