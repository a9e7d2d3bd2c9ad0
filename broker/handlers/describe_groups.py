"""DescribeGroups (15), v0-6: state and members of classic groups.

Behaviour: a group nobody knows is "Dead" without an error up to v5, GROUP_ID_NOT_FOUND with a message from v6.
Member metadata and assignments are shown for a stable group only, metadata empty otherwise.

Source: ``GroupMetadataManager.describeGroups``, ``ClassicGroup.describe`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.state import Group, GroupState
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS (AclEntry.java).
ALL_GROUP_OPERATIONS = 3400


def _members(group: Group) -> list[DescribedGroupMember]:
    stable = group.state is GroupState.STABLE
    return [
        DescribedGroupMember(
            m.id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.metadata(group.protocol or "") if stable else b"",
            m.assignment,
        )
        for m in group.members.values()
    ]


def _describe(context: Context, group_id: str) -> DescribedGroup:
    try:
        machine = context.services.groups.shard_of(group_id).machine
    except ProtocolError as error:
        return DescribedGroup(error.code, group_id=group_id)
    group = machine.groups.groups.get(group_id)
    if group is not None:
        stable = group.state is GroupState.STABLE
        protocol = (group.protocol or "") if stable else ""
        return DescribedGroup(
            0, None, group_id, group.state.value, group.protocol_type or "", protocol, _members(group)
        )
    if context.version >= 6:
        return DescribedGroup(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.", group_id, GroupState.DEAD.value
        )
    return DescribedGroup(0, None, group_id, GroupState.DEAD.value)


def handle(context: Context, request: DescribeGroupsRequest) -> Answer:
    """Answer each group on its own."""
    rows = [_describe(context, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for row in rows:
            if row.error_code == 0:
                row.authorized_operations = ALL_GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=rows)
