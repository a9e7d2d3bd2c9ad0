"""OffsetDelete (47), v0: forget positions of a group.

Behaviour: a topic that members are subscribed to is GROUP_SUBSCRIBED_TO_TOPIC; a group that uses another protocol
type must be empty; a group nobody knows is GROUP_ID_NOT_FOUND. A position that was never there is no error.

Source: ``OffsetMetadataManager.deleteOffsets`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ottla.broker.coordinator.slices import SLICE, Waits, conclude
from ottla.broker.groups.machine import DeleteOffsets
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def _sort_out(
    context: Context, request: OffsetDeleteRequest, out: OffsetDeleteResponse, wanted: list[tuple[str, int]]
) -> Iterator[None]:
    """Answer for what is not there, keep the rest."""
    image = context.image
    work = 0
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
            work += 1
            if work % SLICE == 0:
                yield
        out.topics.append(OffsetDeleteResponseTopic(topic.name, rows))


def _take(out: OffsetDeleteResponse, answer: Any) -> None:
    if isinstance(answer, ProtocolError):
        out.error_code, out.topics = answer.code, []
        return
    for topic in out.topics:
        for row in topic.partitions if topic.name in answer else ():
            row.error_code = row.error_code or ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def _delete(context: Context, request: OffsetDeleteRequest, out: OffsetDeleteResponse, waits: Waits) -> Iterator[None]:
    wanted: list[tuple[str, int]] = []
    yield from _sort_out(context, request, out, wanted)
    ticket = context.services.groups.ask(request.group_id, lambda own: DeleteOffsets(own, request.group_id, wanted))
    waits.append((ticket, partial(_take, out)))


def handle(context: Context, request: OffsetDeleteRequest) -> Answer:
    """Check the partitions, hand the good ones to the group's machine."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    response, waits = OffsetDeleteResponse(), Waits()
    return conclude(_delete(context, request, response, waits), waits, response)
