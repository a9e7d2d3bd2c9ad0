"""OffsetForLeaderEpoch (23), v2-4: where a leader epoch ended.

Behaviour: the largest epoch not above the one asked for, and its end; an epoch above the current one gives -1/-1
without an error. Consumers use it to see whether the log was cut behind them (KIP-320).

Source: ``ReplicaManager.lastOffsetForLeaderEpoch``, ``LeaderEpochFileCache.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(context: Context, request: OffsetForLeaderEpochRequest) -> Answer:
    """Answer each partition on its own."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            row = EpochEndOffset(partition=part.partition)
            try:
                replica = context.services.replicas.leader(topic.topic, part.partition)
                replica.check_epoch(part.current_leader_epoch)
                log = replica.log
                row.leader_epoch, row.end_offset = log.epochs.end_offset_of(part.leader_epoch, log.log_end_offset)
            except ProtocolError as error:
                row.error_code = error.code
            rows.append(row)
        response.topics.append(OffsetForLeaderTopicResult(topic.topic, rows))
    return response
