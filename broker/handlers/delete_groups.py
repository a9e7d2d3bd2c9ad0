"""DeleteGroups (42), v0-2: forget groups without members, and their positions.

Behaviour: a group with members is NON_EMPTY_GROUP, one nobody knows GROUP_ID_NOT_FOUND.
The empty id is a group like any other.

Source: ``GroupCoordinatorShard.deleteGroups`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ottla.broker.coordinator.slices import Waits, conclude
from ottla.broker.groups.machine import DeleteGroup
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

GROUPS_AT_ONCE = 20


def _take(row: DeletableGroupResult, answer: Any) -> None:
    row.error_code = answer.code if isinstance(answer, ProtocolError) else answer


def _ask(context: Context, request: DeleteGroupsRequest, out: DeleteGroupsResponse, waits: Waits) -> Iterator[None]:
    for number, name in enumerate(dict.fromkeys(request.groups_names), 1):
        row = DeletableGroupResult(name)
        out.results.append(row)
        ticket = context.services.groups.ask(name, partial(DeleteGroup, group_id=name))
        waits.append((ticket, partial(_take, row)))
        if number % GROUPS_AT_ONCE == 0:
            yield


def handle(context: Context, request: DeleteGroupsRequest) -> Answer:
    """Answer each group on its own."""
    response, waits = DeleteGroupsResponse(), Waits()
    return conclude(_ask(context, request, response, waits), waits, response)
