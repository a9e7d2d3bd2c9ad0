"""ReadShareGroupState (84), v0: persisted state of share partitions, read by their new leader.

Behaviour: requests with an older leader epoch are fenced afterwards; a state that was not initialized is
INVALID_REQUEST.

Source: ``ShareCoordinatorService.readState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.share import share_state_requests
from ottla.broker.share_state.share_group_offsets import ShareGroupOffset, SharePartitionKey
from ottla.broker.share_state.state_machine import ReadShareState
from ottla.wire.messages import read_share_group_state as wire


def _event(pending: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> ReadShareState:
    return ReadShareState(pending, key, part.leader_epoch)


def _fill(row: Any, state: ShareGroupOffset) -> None:
    row.state_epoch, row.start_offset = state.state_epoch, state.start_offset
    row.state_batches = [
        wire.StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.batches
    ]


def handle(context: RequestContext, request: wire.ReadShareGroupStateRequest) -> HandlerResult:
    """Read the state of each partition from the share coordinator, and persist its new leader epoch there.

    An error concerns only its partition.
    """
    kinds = wire.ReadShareGroupStateResponse, wire.ReadStateResult, wire.PartitionResult
    return share_state_requests.submit_state_requests(context, request, kinds, _event, _fill, "read")
