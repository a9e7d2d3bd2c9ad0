"""DeleteGroups (42), v0-2: forget groups without members, and their positions.

Behaviour: a group with members is NON_EMPTY_GROUP, one nobody knows GROUP_ID_NOT_FOUND. Of a share group what the
share coordinator may remember is forgotten first; where it cannot be, the group stays, and says what is left to forget.
The empty id is a group like any other.

Source: ``GroupCoordinatorShard.deleteGroups``, ``sharePartitionDeleteRequests`` (apache/kafka 4.3.1).

From KIP-229.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.groups.state_machine import DeleteGroup, ShareGroupCommand
from ottla.broker.handlers.item_results import MAX_PENDING_RESULTS, PendingResults, distinct, wait_for_results
from ottla.jobs.time_slice import WaitingJob
from ottla.wire.codec.streaming_array import StreamingArray
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def _apply_result(row: DeletableGroupResult, answer: Any) -> None:
    row.error_code = answer.code if isinstance(answer, ProtocolError) else answer


class _ShareGroupStateDeletion:
    """What is remembered of the partitions an empty share group shares: forgotten before the group is."""

    def __init__(self, context: RequestContext, group_id: str) -> None:
        self._services = context.services
        self._group_id = group_id
        self.failure: ProtocolError | None = None

    async def wait(self) -> None:
        """Have the group let go of it, and then all of it forgotten."""
        from ottla.broker.groups.share.offset_changes import ShareOffsetsToDelete, start_group_deletion

        rule = partial(start_group_deletion, group_id=self._group_id)
        answer: Any = await self._services.groups.submit(
            self._group_id, lambda own: ShareGroupCommand(own, rule)
        ).wait()
        if isinstance(answer, ShareOffsetsToDelete):
            topics = {topic: sorted(numbers) for topic, numbers in answer.partitions.items()}
            self.failure = await self._services.share_partition_manager.delete_state(self._group_id, topics)
        elif answer.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # gone meanwhile: what is left to be done will say so
            self.failure = answer


def _share_group_state_deletion(context: RequestContext, group_id: str) -> _ShareGroupStateDeletion | None:
    try:
        share = state_machine_of(context.services.groups.shard_for(group_id)).find_share_group(group_id)
    except ProtocolError:
        return None
    return None if share is None else _ShareGroupStateDeletion(context, group_id)


def _delete(context: RequestContext, request: DeleteGroupsRequest) -> WaitingJob[HandlerResult]:
    response, waits = (
        DeleteGroupsResponse(results=StreamingArray(DeleteGroupsResponse, context.version)),
        PendingResults(),
    )
    for name in distinct(request.groups_names):
        yield None
        if name is None:
            continue
        row = DeletableGroupResult(name)
        response.results.append(row)
        states = _share_group_state_deletion(context, name)
        if states is not None:
            yield states
            if states.failure is not None:
                row.error_code = states.failure.code
                continue
        ticket = context.services.groups.submit(name, partial(DeleteGroup, group_id=name))
        waits.append((ticket, partial(_apply_result, row)))
        if len(response.results) % MAX_PENDING_RESULTS == 0:  # while the rows are still at hand
            yield from wait_for_results(waits)
    yield from wait_for_results(waits)
    return response


def handle(context: RequestContext, request: DeleteGroupsRequest) -> HandlerResult:
    """Answer each group on its own."""
    return context.time_slice.start(_delete(context, request))
