"""DeleteShareGroupState (86), v0: delete the persisted state of share partitions, on the share coordinator.

Behaviour: deleting a state that does not exist succeeds.

Source: ``ShareCoordinatorService.deleteState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.share import share_state_requests
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.share_state.state_machine import DeleteShareState
from ottla.wire.messages import delete_share_group_state as wire


def _event(pending: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> DeleteShareState:
    return DeleteShareState(pending, key)


def handle(context: RequestContext, request: wire.DeleteShareGroupStateRequest) -> HandlerResult:
    """Delete each partition's state in the share coordinator; respond once this is committed.

    An error concerns only its partition.
    """
    kinds = wire.DeleteShareGroupStateResponse, wire.DeleteStateResult, wire.PartitionResult
    return share_state_requests.submit_state_requests(
        context, request, kinds, _event, share_state_requests.write_no_result, "delete"
    )
