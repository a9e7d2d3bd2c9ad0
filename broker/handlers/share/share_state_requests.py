"""Common part of the five APIs of a share coordinator: one event and one row of the response per share partition.

Source: ``ShareCoordinatorService.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.item_results import MAX_PENDING_RESULTS, PendingResults, wait_for_results
from ottla.broker.share_state.coordinator import as_coordinator_key
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError

EventFactory = Callable[[PendingBrokerRequest, SharePartitionKey, Any], Any]
ResultWriter = Callable[[Any, Any], None]
ResponseClasses = tuple[type[Any], type[Any], type[Any]]
"""Message classes of the response, of its topics and of its partitions."""


def _apply_result(row: Any, fill: ResultWriter, doing: str, answer: Any) -> None:
    if isinstance(answer, ProtocolError):
        row.error_code = answer.code
        row.error_message = answer.message or f"Unable to {doing} share group state: {answer.code.text}"
    else:
        fill(row, answer)


def _event(event_of: EventFactory, at: SharePartitionKey, part: Any, pending: PendingBrokerRequest) -> Any:
    return event_of(pending, at, part)


def submit_state_requests(
    context: RequestContext,
    request: Any,
    kinds: ResponseClasses,
    event_of: EventFactory,
    fill: ResultWriter,
    doing: str,
    prepared: Callable[[Any], Job[None]] | None = None,
) -> Job[Message]:
    """Submit an event to the share coordinator for each partition; return the response with their results; as a job.

    An error concerns only its partition. Without a group id the response is empty, and, unless ``doing`` is
    "initialize", also with a topic without partitions.

    Args:
        context: Context of the request.
        request: Request of a share coordinator API.
        kinds: Message classes of the response.
        event_of: Creates the event of a partition.
        fill: Sets the fields of a partition's row from a successful result.
        doing: Verb for error messages, such as "read".
        prepared: Converts a partition of the request, in time slices, before its event is created.
    """
    response_class, topic_class, row_class = kinds
    response, waits = response_class(results=context.response_array()), PendingResults()
    empty = False
    for topic in request.topics:
        empty = empty or (not len(topic.partitions) and doing != "initialize")
        yield None
    topics = [] if empty or not request.group_id else request.topics
    allowed = context.may(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    for topic in topics:
        rows: list[Any] = context.response_array()
        for part in topic.partitions:
            row = row_class(part.partition)
            rows.append(row)
            if not allowed:
                _apply_result(row, fill, doing, ProtocolError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
                yield None
                continue
            if prepared is not None:
                yield from prepared(part)
            at = SharePartitionKey(request.group_id, topic.topic_id, part.partition)
            pending = context.services.share_partition_manager.coordinator.submit(
                as_coordinator_key(at), partial(_event, event_of, at, part)
            )
            waits.append((pending, partial(_apply_result, row, fill, doing)))
            yield None
            if len(waits) >= MAX_PENDING_RESULTS:
                yield from wait_for_results(waits)
        yield from wait_for_results(waits)
        yield None
        response.results.append(topic_class(topic.topic_id, rows))
    out: Message = response
    return out


def write_no_result(row: Any, answer: Any) -> None:
    """Leave the row of a successful partition unchanged: the API returns only errors."""
