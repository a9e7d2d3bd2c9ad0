"""What was appended, and is waited for: it counts once it is below the high watermark of the leader that took it.

Source: ``DelayedProduce.java``, ``Partition.checkEnoughReplicasReachOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ottla.broker.replica.partition import Following
from ottla.broker.replica.replica import IN_DOUBT_MS, Replica
from ottla.broker.server.purgatory import Purgatory
from ottla.log.partition_log import PartitionLog


class Waiting(NamedTuple):
    """A batch in the log whose end is not committed yet."""

    replica: Replica
    row: Any
    """What is answered about it."""
    end: int
    reign: int
    log: PartitionLog
    """The log it was appended to. A move between directories puts another one in its place."""
    cuts: int
    """How often that log had been cut when it was appended."""

    @classmethod
    def begin(cls, replica: Replica, row: Any) -> Waiting:
        """Wait for everything that is in the log now."""
        log = replica.log
        return cls(replica, row, log.log_end_offset, replica.reign, log, log.truncations)

    @property
    def is_lost(self) -> bool:
        """Whether nobody here can say what has become of it: it may be gone, and others in its place."""
        replica = self.replica
        if type(replica.state) is Following:
            is_other = replica.log is not self.log  # whose cuts say nothing of the batch
            return replica.state.leader < 0 or is_other or replica.log.truncations != self.cuts
        return replica.reign != self.reign

    @property
    def is_in_doubt(self) -> bool:
        """Whether somebody else leads now, who may have it."""
        return not self.replica.is_leader

    @property
    def is_decided(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self.replica.log.high_watermark >= self.end or self.is_lost

    @property
    def is_gone(self) -> bool:
        """Once the waiting is over: whether it was not committed while this node led, as far as is known here."""
        return self.is_lost or (self.is_in_doubt and not self.is_decided)


async def decided(purgatory: Purgatory, waiting: Sequence[Waiting], timeout_ms: float) -> None:
    """Wait until there is nothing more to wait for, or the time is over. What another leader may have is waited for a
    little longer.
    """
    await _until(purgatory, waiting, lambda one: one.is_decided or one.is_in_doubt, timeout_ms)
    doubtful = [one for one in waiting if one.is_in_doubt and not one.is_decided]
    if doubtful:
        await _until(purgatory, doubtful, lambda one: one.is_decided, min(IN_DOUBT_MS, timeout_ms))


async def _until(
    purgatory: Purgatory, waiting: Sequence[Waiting], is_done: Callable[[Waiting], bool], timeout_ms: float
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
        await purgatory.wait_for_change(list(left), is_ready_after, timeout_ms)
