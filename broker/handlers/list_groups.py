"""ListGroups (16), v0-5: the groups this node coordinates.

Behaviour: v4 filters by state, v5 by type, both without regard to case; a name nobody knows matches nothing. While a
shard is still being read the answer is COORDINATOR_LOAD_IN_PROGRESS.

Source: ``GroupCoordinatorService.listGroups`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.state import GroupState
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"


def handle(context: Context, request: ListGroupsRequest) -> Answer:
    """List every group that passes the filters."""
    coordinator = context.services.groups
    if coordinator.loading:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {s.lower() for s in request.states_filter}
    types = {t.lower() for t in request.types_filter}
    rows = []
    for shard in coordinator.shards():
        groups = shard.machine.groups.groups
        for group in groups.values():
            rows.append(ListedGroup(group.id, group.protocol_type or "", group.state.value, CLASSIC))
        rows += (
            ListedGroup(group_id, "", GroupState.EMPTY.value, CLASSIC)
            for group_id in shard.machine.offsets.committed
            if group_id not in groups
        )
    rows = [
        row
        for row in rows
        if (not states or row.group_state.lower() in states) and (not types or row.group_type in types)
    ]
    return ListGroupsResponse(groups=rows)
