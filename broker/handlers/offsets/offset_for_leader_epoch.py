"""OffsetForLeaderEpoch (23), v2-4: end offsets of leader epochs.

Behaviour: the result is the largest epoch not above the requested one, and its end offset; if the log has only later
epochs, it is the requested one and the start offset of the first. An epoch above the latest of the log returns -1/-1
without an error. Consumers use it to detect log truncation (KIP-320).

Source: ``ReplicaManager.lastOffsetForLeaderEpoch``, ``LeaderEpochFileCache.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.handlers.item_results import collect_results
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def _epoch_end_offset(context: RequestContext, topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    replica = context.services.replica_manager.hosted(topic, part.partition)
    replica.check_leader(part.current_leader_epoch)
    log = replica.log
    epoch, end = log.epochs.end_offset_for(part.leader_epoch, log.log_end_offset)
    return EpochEndOffset(0, part.partition, epoch, end)


def _error_result(part: OffsetForLeaderPartition, error: ProtocolError) -> EpochEndOffset:
    return EpochEndOffset(error.code, part.partition)


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> ResponseJob:
    """Return for each partition the largest epoch not above the requested one, with its exclusive end offset.

    Both are -1 if the requested epoch is above the latest in the log; if the log has only later epochs, they are the
    requested epoch and the start offset of the first. An error concerns only its partition.
    """
    response = OffsetForLeaderEpochResponse(topics=context.response_array())
    for topic in request.topics:
        rows = yield from collect_results(
            context.response_array(),
            topic.partitions,
            partial(_epoch_end_offset, context, topic.topic),
            _error_result,
        )
        response.topics.append(OffsetForLeaderTopicResult(topic.topic, rows))
        yield None
    return response
