"""DeleteGroups (42), v0-2: forget groups without members, and their positions.

Behaviour: a group with members is NON_EMPTY_GROUP, one nobody knows GROUP_ID_NOT_FOUND.
The empty id is a group like any other.

Source: ``GroupCoordinatorShard.deleteGroups`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.machine import DeleteGroup
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def _delete(context: Context, group_id: str) -> int:
    answer: Any = context.services.groups.ask(group_id, lambda own: DeleteGroup(own, group_id), patient=False).answer
    return answer.code if isinstance(answer, ProtocolError) else int(answer)


def handle(context: Context, request: DeleteGroupsRequest) -> Answer:
    """Answer each group on its own."""
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=[DeletableGroupResult(name, _delete(context, name)) for name in names])
