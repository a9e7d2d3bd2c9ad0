"""InitializeShareGroupState (83), v0: create the persisted state of share partitions, on the share coordinator.

Behaviour: an older state epoch is FENCED_STATE_EPOCH, an unknown partition UNKNOWN_TOPIC_OR_PARTITION. An existing
state is replaced. With start offset -1 the leader of the share partition determines the start offset.

Source: ``ShareCoordinatorService.initializeState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.share import share_state_requests
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.share_state.state_machine import InitializeShareState
from ottla.wire.messages import initialize_share_group_state as wire


def _event(pending: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> InitializeShareState:
    return InitializeShareState(pending, key, part.state_epoch, part.start_offset)


def handle(context: RequestContext, request: wire.InitializeShareGroupStateRequest) -> HandlerResult:
    """Create or replace each partition's state in the share coordinator; respond once this is committed.

    An error concerns only its partition.
    """
    kinds = wire.InitializeShareGroupStateResponse, wire.InitializeStateResult, wire.PartitionResult
    return share_state_requests.submit_state_requests(
        context, request, kinds, _event, share_state_requests.write_no_result, "initialize"
    )
