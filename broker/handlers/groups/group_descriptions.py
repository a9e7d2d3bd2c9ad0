"""Description of consumer, share and streams groups: common part of their Describe handlers.

Source: ``KafkaApis.scala``, ``GroupCoordinatorService.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.broker.handlers.item_results import PendingResults, distinct, wait_before_encoding, wait_for_results
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.job import Job
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError


class GroupDescriber(NamedTuple):
    """Functions and message classes by which `describe_groups` describes groups of one type."""

    messages: Any
    response: type[Any]
    is_served: Callable[[RequestContext], bool]
    group: Callable[[GroupStateMachine, str], Any]
    """Return the group with this id. Raises ProtocolError if it is unknown or of another type."""
    group_fields: Callable[[RequestContext, GroupStateMachine, Any], Job[Mapping[str, Any]]]
    """Return the type-specific fields of a group's row. Raises `TopicsHidden`."""
    member: Callable[[RequestContext, Any, Any], Any]
    """Return the row of a group's member. Raises `TopicsHidden`."""
    hidden_message: str = "The group has described topic(s) that the client is not authorized to describe."


class TopicsHidden(Exception):
    """Raised when a group uses a topic that the client may not describe; the row has TOPIC_AUTHORIZATION_FAILED."""


def assignor_fields(assignor: Callable[[GroupStateMachine, Any], str]) -> Callable[..., Job[Mapping[str, Any]]]:
    """Return a function for `GroupDescriber.group_fields` that sets only the name of the group's assignor."""

    def head(context: RequestContext, machine: GroupStateMachine, group: Any) -> Job[Mapping[str, Any]]:
        yield from ()
        return {"assignor_name": assignor(machine, group)}

    return head


def named_assignment(context: RequestContext, messages: Any, partitions: Mapping[bytes, Iterable[int]]) -> Any:
    """Return an assignment as messages with topic names; deleted topics are left out.

    ``messages`` is the module of the message classes; ``partitions`` has the partitions by topic id.

    Raises:
        TopicsHidden: The client may not describe one of the topics.
    """
    rows = []
    for topic, numbers in partitions.items():
        name = context.image.topic_names.get(topic)
        if name is None:
            continue
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise TopicsHidden
        rows.append(messages.TopicPartitions(topic, name, list(numbers)))
    return messages.Assignment(rows)


def _describe(context: RequestContext, kind: GroupDescriber, machine: GroupStateMachine, group: Any) -> Job[Any]:
    try:
        row = kind.messages.DescribedGroup(
            group_id=group.id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            **(yield from kind.group_fields(context, machine, group)),
        )
        row.members = context.response_array()
        for member in list(group.members.values()):
            row.members.append(kind.member(context, group, member))
            yield None
    except TopicsHidden:
        return kind.messages.DescribedGroup(ErrorCode.TOPIC_AUTHORIZATION_FAILED, kind.hidden_message, group.id)
    return row


def _describe_group(context: RequestContext, kind: GroupDescriber, group_id: str, waits: PendingResults) -> Job[Any]:
    """Return the row of a group, as a job; an error becomes its error code.

    If the described state is not committed yet, a pending result is added to ``waits``; it makes the row an error row
    in place if the commit fails: the row is final only after that wait.
    """
    if not group_id:
        return kind.messages.DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id=group_id)
    try:
        shard = context.services.groups.shard_for(group_id)
        machine = state_machine_of(shard)
        group = kind.group(machine, group_id)
    except ProtocolError as error:
        return kind.messages.DescribedGroup(error.code, error.message or None, group_id)
    row = yield from _describe(context, kind, machine, group)
    pending = shard.read_barrier()
    if pending is not None:
        waits.append((pending, partial(_apply_result, row)))
    return row


def _apply_result(row: Any, answer: Any) -> None:
    """Replace the row by an error if ``answer`` is a `ProtocolError`.

    ``answer`` is the result of a wait until the described state is committed to the log.
    """
    if isinstance(answer, ProtocolError):
        empty = type(row)(answer.code, None, row.group_id)
        for name in row.__struct_fields__:
            setattr(row, name, getattr(empty, name))


def describe_groups(context: RequestContext, kind: GroupDescriber, request: Any) -> ResponseJob:
    """Describe each distinct group of the request with the functions of its type; an error concerns only its group.

    The response is returned once the described states are committed.
    """
    out, waits = kind.response(groups=context.response_array()), PendingResults()
    described = kind.messages.DescribedGroup
    for group_id in distinct(request.group_ids):
        yield None
        if group_id is None:
            continue
        yield from wait_before_encoding(out.groups, waits)
        if not kind.is_served(context):
            row = described(ErrorCode.UNSUPPORTED_VERSION, group_id=group_id)
        elif not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            row = described(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
        else:
            row = yield from _describe_group(context, kind, group_id, waits)
            if request.include_authorized_operations and not row.error_code:
                row.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
        out.groups.append(row)
    yield from wait_for_results(waits)
    answer: Message = out
    return answer
