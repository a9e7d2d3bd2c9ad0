"""WriteShareGroupState (85), v0-1: persist the delivery state of a share partition's records.

Behaviour: an older leader epoch is FENCED_LEADER_EPOCH, an older state epoch FENCED_STATE_EPOCH; a state that was not
initialized is INVALID_REQUEST. Start offset -1 keeps the persisted one.
Version notes: v1 has the number of records after the start offset whose delivery is complete.

Source: ``ShareCoordinatorService.writeState``, ``ShareCoordinatorShard.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from ottla.broker.config.limits import MAX_WRITTEN_SHARE_BATCHES
from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext
from ottla.broker.handlers.share import share_state_requests
from ottla.broker.share_state.share_group_offsets import SharePartitionKey
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.broker.share_state.state_machine import WriteShareState
from ottla.jobs.job import Job
from ottla.jobs.sequences import collect_job
from ottla.wire.messages import write_share_group_state as wire


def _limit_batches(part: wire.PartitionData) -> Job[None]:
    """Convert the state batches of a partition, in place, to the class of the share coordinator, as a job.

    Only `MAX_WRITTEN_SHARE_BATCHES` and one more are kept; for that one the coordinator rejects the partition.
    """
    some = islice(part.state_batches, MAX_WRITTEN_SHARE_BATCHES + 1)
    made: list[Any] = yield from collect_job(
        PersisterStateBatch(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in some
    )
    part.state_batches = made


def _event(pending: PendingBrokerRequest, key: SharePartitionKey, part: wire.PartitionData) -> WriteShareState:
    prepared: Any = part.state_batches  # converted by `_limit_batches`
    return WriteShareState(
        pending,
        key,
        part.state_epoch,
        part.leader_epoch,
        part.start_offset,
        part.delivery_complete_count,
        tuple(prepared),
    )


def handle(context: RequestContext, request: wire.WriteShareGroupStateRequest) -> HandlerResult:
    """Persist the state batches of each partition in the share coordinator; respond once they are committed.

    An error concerns only its partition.
    """
    kinds = wire.WriteShareGroupStateResponse, wire.WriteStateResult, wire.PartitionResult
    return share_state_requests.submit_state_requests(
        context, request, kinds, _event, share_state_requests.write_no_result, "write", _limit_batches
    )
