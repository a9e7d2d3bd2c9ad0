"""DeleteShareGroupState (86), v0: forget a share partition.

Behaviour: forgetting what nobody knows succeeds.

Source: ``ShareCoordinatorService.deleteState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from ottla.broker.coordinator.ticket import PendingBrokerRequest
from ottla.broker.handlers import share_states
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.broker.share.machine import DeleteShareState
from ottla.broker.share.state import SharePartitionKey
from ottla.wire.messages import delete_share_group_state as wire


def _event(ticket: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> DeleteShareState:
    return DeleteShareState(ticket, key)


def handle(context: RequestContext, request: wire.DeleteShareGroupStateRequest) -> HandlerResult:
    """Answer each partition on its own."""
    kinds = wire.DeleteShareGroupStateResponse, wire.DeleteStateResult, wire.PartitionResult
    return share_states.submit_state_requests(context, request, kinds, _event, share_states.write_no_result, "delete")
