"""What the five requests to a share coordinator have in common: each share partition is asked for, and has its row.

Source: ``ShareCoordinatorService.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.coordinator.ticket import Ticket
from ottla.broker.handlers.rows import WAITS_AT_ONCE, Waits, settle
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.broker.share.state import SharePartitionKey
from ottla.broker.turn import Job, WaitingJob
from ottla.controller.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.schema import Message
from ottla.wire.written import StreamingArray

Event = Callable[[Ticket, SharePartitionKey, Any], Any]
Fill = Callable[[Any, Any], None]
Kinds = tuple[type[Any], type[Any], type[Any]]
"""The classes of the response, of a topic in it, and of a row."""


def _take(row: Any, fill: Fill, doing: str, answer: Any) -> None:
    if isinstance(answer, ProtocolError):
        row.error_code = answer.code
        row.error_message = answer.message or f"Unable to {doing} share group state: {answer.code.text}"
    else:
        fill(row, answer)


def _event(event_of: Event, at: SharePartitionKey, part: Any, ticket: Ticket) -> Any:
    return event_of(ticket, at, part)


def _each(
    context: RequestContext,
    request: Any,
    kinds: Kinds,
    event_of: Event,
    fill: Fill,
    doing: str,
    prepared: Callable[[Any], Job[None]] | None,
) -> WaitingJob[Message]:
    response_class, topic_class, row_class = kinds
    response, waits = response_class(results=StreamingArray(response_class, context.version)), Waits()
    empty = False
    for topic in request.topics:
        empty = empty or (not len(topic.partitions) and doing != "initialize")
        yield None
    topics = [] if empty or not request.group_id else request.topics
    allowed = context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    for topic in topics:
        rows: list[Any] = StreamingArray(response_class, context.version)
        for part in topic.partitions:
            row = row_class(part.partition)
            rows.append(row)
            if not allowed:
                _take(row, fill, doing, ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
                yield None
                continue
            if prepared is not None:
                yield from prepared(part)
            at = SharePartitionKey(request.group_id, topic.topic_id, part.partition)
            ticket = context.services.share_partition_manager.coordinator.ask(at, partial(_event, event_of, at, part))
            waits.append((ticket, partial(_take, row, fill, doing)))
            yield None
            if len(waits) >= WAITS_AT_ONCE:
                yield from settle(waits)
        yield from settle(waits)
        yield None
        response.results.append(topic_class(topic.topic_id, rows))
    out: Message = response
    return out


def answer(
    context: RequestContext,
    request: Any,
    kinds: Kinds,
    event_of: Event,
    fill: Fill,
    doing: str,
    prepared: Callable[[Any], Job[None]] | None = None,
) -> HandlerResult:
    """One row for every partition: what the coordinator said of it, or its refusal.

    ``prepared``: changes a partition of the request, in steps, before its event is made of it.
    """
    return context.time_slice.start(_each(context, request, kinds, event_of, fill, doing, prepared))


def nothing(row: Any, answer: Any) -> None:
    """No more is said than that it went well."""
