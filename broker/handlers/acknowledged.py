"""When a produced batch counts: once it is below the high watermark, of the leader that took it, at enough replicas.

Deviation: where the leadership goes to a broker that is alive, Kafka answers NOT_LEADER_OR_FOLLOWER at once, though the
batch mostly lies at the new leader already: a producer without idempotence writes it twice then, and librdkafka with it
too where it has raised its epoch meanwhile. Here the answer waits a moment for what the new leader says: a high
watermark above a batch that still lies here is above the same batch there.

Source: ``DelayedProduce.java``, ``Partition.checkEnoughReplicasReachOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from ottla.broker.replica.partition import Following
from ottla.broker.replica.replica import IN_DOUBT_MS, Replica
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
    cuts: int
    """How often the log had been cut when it was appended."""

    @classmethod
    def begin(cls, replica: Replica, row: PartitionProduceResponse) -> Waiting:
        """Wait for everything that is in the log now."""
        return cls(replica, row, replica.log.log_end_offset, replica.reign, replica.log.truncations)

    @property
    def is_lost(self) -> bool:
        """Whether nobody here can say what has become of it: it may be gone, and others in its place."""
        replica = self.replica
        if type(replica.state) is Following:
            return replica.state.leader < 0 or replica.log.truncations != self.cuts
        return replica.reign != self.reign

    @property
    def is_in_doubt(self) -> bool:
        """Whether somebody else leads now, who may have it."""
        return not self.replica.is_leader

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
    await _until(context, waiting, lambda one: one.is_decided or one.is_in_doubt, request.timeout_ms)
    doubtful = [one for one in waiting if one.is_in_doubt and not one.is_decided]
    if doubtful:
        await _until(context, doubtful, lambda one: one.is_decided, min(IN_DOUBT_MS, request.timeout_ms))
    for one in waiting:
        if one.is_lost or (one.is_in_doubt and not one.is_decided):
            one.row.error_code = _why_gone(context, one.replica)
        elif not one.is_decided:
            one.row.error_code = ErrorCode.REQUEST_TIMED_OUT
        elif request.acks == -1 and not one.is_in_doubt and not one.replica.has_enough():
            one.row.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return response


async def _until(
    context: Context, waiting: list[Waiting], is_done: Callable[[Waiting], bool], timeout_ms: float
) -> None:
    """Wait until all are done, or the time is over."""
    left: dict[Hashable, Waiting] = {}
    for one in waiting:  # of a partition named twice the second ends later
        left["hw", one.replica.topic, one.replica.partition] = one

    def is_ready_after(key: Hashable) -> bool:  # each change costs its own size, however many are waited for
        if key in left and is_done(left[key]):
            del left[key]
        return not left

    for key in list(left):
        is_ready_after(key)
    if left:
        await context.services.purgatory.wait_for_change(list(left), is_ready_after, timeout_ms)
