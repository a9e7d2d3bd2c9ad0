"""ShareAcknowledge (79), v1-2: acknowledgements of the records that a share group member has acquired.

Behaviour: requires a share session opened by ShareFetch, and increments its epoch; epoch -1 closes the session and
releases the member's records. Each partition has its own result, returned once its new state is persisted: one invalid
batch rejects all batches of the partition.
Version notes: v2 can renew acquisition locks, and returns their duration (KIP-1222).

Source: ``KafkaApis.handleShareAcknowledgeRequest`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.share import share_acknowledgements as acks
from ottla.broker.requests.error_responses import with_error_response
from ottla.broker.share_partitions.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import share_acknowledge as wire


@with_error_response
def handle(context: RequestContext, request: wire.ShareAcknowledgeRequest) -> ResponseJob:
    """Continue the share session, submit all acknowledgements, and respond once they are persisted.

    Session epoch -1 closes the session then. An error of session or group is the error code of the response, others
    concern only their partition.
    """
    acks.check_request(context, request.group_id, request.member_id)
    shares, epoch = context.services.share_partition_manager, request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise ProtocolError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    shares.sessions.continue_session(request.group_id or "", request.member_id or "", epoch)
    batches: dict[TopicIdPartition, list[Any]] = {}
    for topic in request.topics:
        for part in topic.partitions:
            batches[TopicIdPartition(topic.topic_id, part.partition_index)] = part.acknowledgement_batches
            yield None
        yield None
    submitted = yield from acks.submit_acknowledgements(context, request, batches)
    rows: dict[bytes, list[wire.PartitionData]] = {}
    leaders: set[int] = set()
    for place, pending in submitted:
        if pending.answer is None:
            yield pending.wait()
        row = wire.PartitionData(place.partition)
        if isinstance(pending.answer, ProtocolError):
            row.error_code, row.error_message = pending.answer.code, pending.answer.message
            if row.error_code in acks.LEADER_ERRORS:
                row.current_leader = wire.LeaderIdAndEpoch(*acks.leader_of(context, place))
                leaders.add(row.current_leader.leader_id)
        rows.setdefault(place.topic_id, []).append(row)
        yield None
    if request.share_session_epoch == FINAL_EPOCH:
        shares.sessions.close(request.group_id or "", request.member_id or "")
    endpoints = context.services.metadata.endpoints(context.peer) if leaders else []
    return wire.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.group_config.limits(request.group_id or "").lock_duration_ms,
        responses=[wire.ShareAcknowledgeTopicResponse(topic_id, parts) for topic_id, parts in rows.items()],
        node_endpoints=[wire.NodeEndpoint(*each) for each in endpoints if each[0] in leaders],
    )
