"""When a produced batch counts: once it is below the high watermark, of the leader that took it, at enough replicas.

Source: ``DelayedProduce.java``, ``Partition.checkEnoughReplicasReachOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from ottla.broker.replica.replica import Replica
from ottla.broker.server.dispatch import Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from ottla.wire.schema import Message


class Waiting(NamedTuple):
    """A batch in the log whose end is not committed yet."""

    replica: Replica
    row: PartitionProduceResponse
    end: int
    reign: int

    @property
    def is_lost(self) -> bool:
        """Whether somebody else has led since it was appended: it may be gone, and others in its place."""
        return not self.replica.is_leader or self.replica.reign != self.reign

    @property
    def is_decided(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.replica.log.high_watermark >= self.end or self.is_lost


def _why_gone(context: Context, replica: Replica) -> ErrorCode:
    """What a client is told of a replica that stopped leading while its batch waited."""
    try:
        context.services.replicas.leader(replica.topic, replica.partition)
    except ProtocolError as error:
        return error.code
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


async def acknowledged(
    context: Context, request: ProduceRequest, response: ProduceResponse, waiting: list[Waiting]
) -> Message | None:
    """Wait until every batch is below its high watermark; what is not in time says so, though it stays in the log."""
    left: dict[Hashable, Waiting] = {}
    for one in waiting:  # of a partition named twice the second ends later
        left["hw", one.replica.topic, one.replica.partition] = one

    def is_ready_after(key: Hashable) -> bool:  # each change costs its own size, however many are waited for
        if key in left and left[key].is_decided:
            del left[key]
        return not left

    for key in list(left):
        is_ready_after(key)
    if left:
        await context.services.purgatory.wait_for_change(list(left), is_ready_after, request.timeout_ms)
    for one in waiting:
        if one.is_lost:
            one.row.error_code = _why_gone(context, one.replica)
        elif not one.is_decided:
            one.row.error_code = ErrorCode.REQUEST_TIMED_OUT
        elif request.acks == -1 and not one.replica.has_enough():
            one.row.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return response
