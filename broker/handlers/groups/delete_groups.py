"""DeleteGroups (42), v0-2: delete groups without members, with their committed offsets.

Behaviour: a group with members is NON_EMPTY_GROUP, an unknown one GROUP_ID_NOT_FOUND. The share state of a share group
is deleted first; if that fails, the group remains, with the partitions whose state is still to be deleted. The empty
group id is valid.

Source: ``GroupCoordinatorShard.deleteGroups``, ``sharePartitionDeleteRequests`` (apache/kafka 4.3.1).
From KIP-229.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.groups.state_machine import DeleteGroup, ShareGroupCommand
from ottla.broker.handlers.item_results import PendingResults, distinct, wait_before_encoding, wait_for_results
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def _apply_result(row: DeletableGroupResult, answer: Any) -> None:
    row.error_code = answer.code if isinstance(answer, ProtocolError) else answer


def _delete_share_state(context: RequestContext, group_id: str) -> Job[ProtocolError | None]:
    """Delete the share state of an empty share group before the group, as a job.

    Returns:
        The error; None on success, or if this broker knows no share group with this id, so that DeleteGroup decides.
    """
    # lazy: 9.2 ms, 397 kB
    from ottla.broker.groups.share.offset_changes import ShareOffsetsToDelete, start_group_deletion

    services = context.services
    try:
        share = state_machine_of(services.groups.shard_for(group_id)).find_share_group(group_id)
    except ProtocolError:
        return None
    if share is None:
        return None
    rule = partial(start_group_deletion, group_id=group_id)
    answer: Any = yield services.groups.submit(group_id, lambda own: ShareGroupCommand(own, rule)).wait()
    if isinstance(answer, ShareOffsetsToDelete):
        topics = {topic: sorted(numbers) for topic, numbers in answer.partitions.items()}
        failure: ProtocolError | None = yield services.share_partition_manager.delete_state(group_id, topics)
        return failure
    # if the group was deleted meanwhile, DeleteGroup reports it
    return None if answer.code is ErrorCode.GROUP_ID_NOT_FOUND else cast("ProtocolError", answer)


def handle(context: RequestContext, request: DeleteGroupsRequest) -> ResponseJob:
    """Delete each distinct group of the request, a share group after its share state; an error concerns only its group.

    The response is returned once the deletions are committed.
    """
    response, waits = (
        DeleteGroupsResponse(results=context.response_array()),
        PendingResults(),
    )
    for name in distinct(request.groups_names):
        yield None
        if name is None:
            continue
        yield from wait_before_encoding(response.results, waits)
        row = DeletableGroupResult(name)
        response.results.append(row)
        failure = yield from _delete_share_state(context, name)
        if failure is not None:
            row.error_code = failure.code
            continue
        pending = context.services.groups.submit(name, partial(DeleteGroup, group_id=name))
        waits.append((pending, partial(_apply_result, row)))
    yield from wait_for_results(waits)
    return response
