"""DescribeGroups (15), v0-6: state and members of classic groups.

Behaviour: an unknown group, or one of another type, is "Dead" without an error up to v5, GROUP_ID_NOT_FOUND with a
message from v6. The metadata of members is returned only for a stable group, and is empty otherwise. Deviation: a group
that occurs twice is described once.

Source: ``GroupMetadataManager.describeGroups``, ``ClassicGroup.describe`` (apache/kafka 4.3.1).
Static members: KIP-345; authorized operations: KIP-430; GROUP_ID_NOT_FOUND from v6: KIP-1043.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.handlers.item_results import PendingResults, distinct, wait_before_encoding, wait_for_results
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def _members(group: ClassicGroup) -> list[DescribedGroupMember]:
    stable = group.state is ClassicGroupState.STABLE
    return [
        DescribedGroupMember(
            m.id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.metadata_for(group.protocol or "") if stable else b"",
            m.assignment,
        )
        for m in group.members.values()
    ]


def _describe(context: RequestContext, group: ClassicGroup | None, group_id: str, *, other: bool) -> DescribedGroup:
    """Return the response row of a classic group.

    ``group`` is None if no classic group has this id: the row has the state Dead, from v6 also GROUP_ID_NOT_FOUND.
    ``other``: a group of another type has the id.
    """
    if group is not None:
        stable = group.state is ClassicGroupState.STABLE
        protocol = (group.protocol or "") if stable else ""
        return DescribedGroup(
            0, None, group_id, group.state.value, group.protocol_type or "", protocol, _members(group)
        )
    if context.version >= 6:
        why = f"Group {group_id} is not a classic group." if other else f"Group {group_id} not found."
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, why, group_id, ClassicGroupState.DEAD.value)
    return DescribedGroup(0, None, group_id, ClassicGroupState.DEAD.value)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> ResponseJob:
    """Describe each distinct group of the request, once its state is committed; an error concerns only its group."""
    out, waits = (
        DescribeGroupsResponse(groups=context.response_array()),
        PendingResults(),
    )
    for group_id in distinct(request.groups):
        yield None
        if group_id is None:
            continue
        yield from wait_before_encoding(out.groups, waits)
        if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            out.groups.append(DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id))
            continue
        try:
            shard = context.services.groups.shard_for(group_id)
        except ProtocolError as error:
            out.groups.append(DescribedGroup(error.code, group_id=group_id))
        else:
            machine = state_machine_of(shard)
            row = _describe(
                context, machine.classic_groups.groups.get(group_id), group_id, other=machine.has_group(group_id)
            )
            if request.include_authorized_operations and row.error_code == 0:
                row.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
            out.groups.append(row)
            pending = shard.read_barrier()
            if pending is not None:
                waits.append((pending, partial(_apply_result, row)))
    yield from wait_for_results(waits)
    return out


def _apply_result(row: DescribedGroup, answer: Any) -> None:
    """Replace the row by an error if ``answer`` is a `ProtocolError`.

    ``answer`` is the result of a wait until the described state is committed to the log.
    """
    if isinstance(answer, ProtocolError):
        row.error_code, row.error_message, row.group_state = answer.code, None, ""
        row.protocol_type = row.protocol_data = ""
        row.members, row.authorized_operations = [], DescribedGroup().authorized_operations
