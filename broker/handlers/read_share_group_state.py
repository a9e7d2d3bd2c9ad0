"""ReadShareGroupState (84), v0: what is remembered of a share partition, for its new leader.

Behaviour: older leaders are fenced from then on; what was never begun is INVALID_REQUEST.

Source: ``ShareCoordinatorService.readState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.ticket import PendingBrokerRequest
from ottla.broker.handlers import share_states
from ottla.broker.server.dispatch import HandlerResult, RequestContext
from ottla.broker.share.machine import ReadShareState
from ottla.broker.share.state import ShareGroupOffset, SharePartitionKey
from ottla.wire.messages import read_share_group_state as wire


def _event(ticket: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> ReadShareState:
    return ReadShareState(ticket, key, part.leader_epoch)


def _fill(row: Any, state: ShareGroupOffset) -> None:
    row.state_epoch, row.start_offset = state.state_epoch, state.start_offset
    row.state_batches = [
        wire.StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.batches
    ]


def handle(context: RequestContext, request: wire.ReadShareGroupStateRequest) -> HandlerResult:
    """Answer each partition on its own."""
    kinds = wire.ReadShareGroupStateResponse, wire.ReadStateResult, wire.PartitionResult
    return share_states.submit_state_requests(context, request, kinds, _event, _fill, "read")
