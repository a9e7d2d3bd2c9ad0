"""OffsetDelete (47), v0: forget positions of a group.

Behaviour: a topic that members are subscribed to is GROUP_SUBSCRIBED_TO_TOPIC; a group that uses another protocol
type must be empty; a group nobody knows is GROUP_ID_NOT_FOUND. A position that was never there is no error.

Source: ``OffsetMetadataManager.deleteOffsets`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.machine import DeleteOffsets
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(context: Context, request: OffsetDeleteRequest) -> Answer:
    """Check the partitions, hand the good ones to the group's machine."""
    image = context.image
    wanted: list[tuple[str, int]] = []
    response = OffsetDeleteResponse()
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
        response.topics.append(OffsetDeleteResponseTopic(topic.name, rows))
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    group_id = request.group_id
    answer: Any = context.services.groups.ask(
        group_id, lambda own: DeleteOffsets(own, group_id, wanted), patient=False
    ).answer
    if isinstance(answer, ProtocolError):
        return OffsetDeleteResponse(error_code=answer.code)
    for out in response.topics:
        for row in out.partitions:
            if row.error_code == 0:
                row.error_code = answer.get((out.name, row.partition_index), 0)
    return response
