"""OffsetDelete (47), v0: delete committed offsets of a group.

Behaviour: a topic that members are subscribed to is GROUP_SUBSCRIBED_TO_TOPIC; a group with another protocol type than
consumer must be empty; an unknown group is GROUP_ID_NOT_FOUND. Deleting an offset that does not exist succeeds.

Source: ``OffsetMetadataManager.deleteOffsets`` (apache/kafka 4.3.1).
From KIP-496.
"""

from __future__ import annotations

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.state_machine import DeleteOffsets
from ottla.broker.handlers.item_results import wait_for_success
from ottla.broker.requests.error_responses import with_error_response
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@with_error_response
def handle(context: RequestContext, request: OffsetDeleteRequest) -> ResponseJob:
    """Delete the offsets of existing partitions in the group coordinator; return a row for each partition."""
    if not request.group_id:
        raise ProtocolError(ErrorCode.INVALID_GROUP_ID)
    image, out = context.image, OffsetDeleteResponse()
    wanted: list[tuple[str, int]] = []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        for part in topic.partitions:
            if known is not None and part.partition_index in known.partitions:
                wanted.append((topic.name, part.partition_index))
            yield None
        yield None
    pending = context.services.groups.submit(request.group_id, lambda own: DeleteOffsets(own, request.group_id, wanted))
    answer = yield from wait_for_success(pending)
    for topic in request.topics:
        known = image.topics.get(topic.name)
        good = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in answer else ErrorCode.NONE
        rows = context.response_array()
        for part in topic.partitions:
            is_there = known is not None and part.partition_index in known.partitions
            code = good if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(OffsetDeleteResponsePartition(part.partition_index, code))
            yield None
        out.topics.append(OffsetDeleteResponseTopic(topic.name, rows))
        yield None
    return out
