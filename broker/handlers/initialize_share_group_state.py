"""InitializeShareGroupState (83), v0: begin to remember a share partition.

Behaviour: an older state epoch is FENCED_STATE_EPOCH, a partition nobody knows UNKNOWN_TOPIC_OR_PARTITION. What was
there is forgotten. Start offset -1 leaves it to the first reader.

Source: ``ShareCoordinatorService.initializeState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from ottla.broker.coordinator.ticket import PendingBrokerRequest
from ottla.broker.handlers import share_states
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.broker.share.machine import InitializeShareState
from ottla.broker.share.state import SharePartitionKey
from ottla.wire.messages import initialize_share_group_state as wire


def _event(ticket: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> InitializeShareState:
    return InitializeShareState(ticket, key, part.state_epoch, part.start_offset)


def handle(context: RequestContext, request: wire.InitializeShareGroupStateRequest) -> HandlerResult:
    """Answer each partition on its own."""
    kinds = wire.InitializeShareGroupStateResponse, wire.InitializeStateResult, wire.PartitionResult
    return share_states.submit_state_requests(
        context, request, kinds, _event, share_states.write_no_result, "initialize"
    )
