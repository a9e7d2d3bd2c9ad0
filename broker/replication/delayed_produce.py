"""What was appended, and is waited for: it counts once it is below the high watermark of the leader that took it.

Source: ``DelayedProduce.java``, ``Partition.checkEnoughReplicasReachOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ottla.broker.replication.hosted_partition import UNCERTAIN_COMMIT_MS, HostedPartition
from ottla.broker.replication.partition_state import FollowerState
from ottla.broker.requests.purgatory import Purgatory
from ottla.log.partition_log import PartitionLog


class DelayedProduce(NamedTuple):
    """A batch in the log whose end is not committed yet."""

    replica: HostedPartition
    response: Any
    """What is answered about it."""
    required_offset: int
    leadership_count: int
    log: PartitionLog
    """The log it was appended to. A move between directories puts another one in its place."""
    truncations: int
    """How often that log had been cut when it was appended."""

    @classmethod
    def for_log_end(cls, replica: HostedPartition, row: Any) -> DelayedProduce:
        """Wait for everything that is in the log now."""
        log = replica.log
        return cls(replica, row, log.log_end_offset, replica.leadership_count, log, log.truncations)

    @property
    def is_outcome_unknown(self) -> bool:
        """True if nobody here can say what has become of it: it may be gone, and others in its place."""
        replica = self.replica
        if type(replica.state) is FollowerState:
            is_other = replica.log is not self.log  # whose cuts say nothing of the batch
            return replica.state.leader < 0 or is_other or replica.log.truncations != self.truncations
        return replica.leadership_count != self.leadership_count

    @property
    def is_led_elsewhere(self) -> bool:
        """True if somebody else leads now, who may have it."""
        return not self.replica.is_leader

    @property
    def is_completed(self) -> bool:
        """True if there is nothing more to wait for."""
        return self.replica.log.high_watermark >= self.required_offset or self.is_outcome_unknown

    @property
    def is_failed(self) -> bool:
        """Once the waiting is over: whether it was not committed while this node led, as far as is known here."""
        return self.is_outcome_unknown or (self.is_led_elsewhere and not self.is_completed)


async def wait_for_completion(purgatory: Purgatory, waiting: Sequence[DelayedProduce], timeout_ms: float) -> None:
    """Wait until there is nothing more to wait for, or the time is over. What another leader may have is waited for a
    little longer.
    """
    await _wait_until(purgatory, waiting, lambda one: one.is_completed or one.is_led_elsewhere, timeout_ms)
    doubtful = [one for one in waiting if one.is_led_elsewhere and not one.is_completed]
    if doubtful:
        await _wait_until(purgatory, doubtful, lambda one: one.is_completed, min(UNCERTAIN_COMMIT_MS, timeout_ms))


async def _wait_until(
    purgatory: Purgatory,
    waiting: Sequence[DelayedProduce],
    is_done: Callable[[DelayedProduce], bool],
    timeout_ms: float,
) -> None:
    """Wait until all are done, or the time is over."""
    left: dict[Hashable, DelayedProduce] = {}
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
