"""ReadShareGroupStateSummary (87), v0-1: start offsets of a share group's partitions, from the share coordinator.

Behaviour: the start offset is -1 without a state.
Version notes: v1 has the number of records after the start offset whose delivery is complete.

Source: ``ShareCoordinatorService.readStateSummary``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.share import share_state_requests
from ottla.broker.share_state.share_group_offsets import ShareGroupOffset, SharePartitionKey
from ottla.broker.share_state.state_machine import ReadShareStateSummary
from ottla.wire.messages import read_share_group_state_summary as wire


def _event(pending: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> ReadShareStateSummary:
    return ReadShareStateSummary(pending, key)


def _fill(row: Any, state: ShareGroupOffset) -> None:
    row.state_epoch, row.leader_epoch = state.state_epoch, state.leader_epoch
    row.start_offset, row.delivery_complete_count = state.start_offset, state.delivery_complete_count


def handle(context: RequestContext, request: wire.ReadShareGroupStateSummaryRequest) -> HandlerResult:
    """Read the summary of each partition's state from the share coordinator; an error concerns only its partition."""
    kinds = wire.ReadShareGroupStateSummaryResponse, wire.ReadStateSummaryResult, wire.PartitionResult
    return share_state_requests.submit_state_requests(context, request, kinds, _event, _fill, "read")
