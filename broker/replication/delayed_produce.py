"""Delayed Produce: wait of an appended batch for the high watermark of the leader that appended it.

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
    """Appended batch that waits until the high watermark reaches its end offset."""

    replica: HostedPartition
    response: Any
    """Partition's row in the Produce response."""
    required_offset: int
    """High watermark at which the batch is committed: the offset after its last record."""
    leadership_count: int
    log: PartitionLog
    """Log that the batch was appended to; a move between log directories replaces the log of the partition."""
    truncations: int
    """Number of truncations of the log when the batch was appended."""

    @classmethod
    def for_log_end(cls, replica: HostedPartition, row: Any) -> DelayedProduce:
        """Create a wait for the commit of all records that the log has now, with ``row`` as the row of the response."""
        log = replica.log
        return cls(replica, row, log.log_end_offset, replica.leadership_count, log, log.truncations)

    @property
    def is_outcome_unknown(self) -> bool:
        """True if this node cannot know whether the batch is committed: it may have been truncated since.

        On a follower that is so without a leader, or after a truncation or replacement of the log; on a leader if this
        node was a follower meanwhile.
        """
        replica = self.replica
        if type(replica.state) is FollowerState:
            # another log object: its truncation count does not apply to the batch
            is_other = replica.log is not self.log
            return replica.state.leader < 0 or is_other or replica.log.truncations != self.truncations
        return replica.leadership_count != self.leadership_count

    @property
    def is_led_elsewhere(self) -> bool:
        """True if this broker no longer leads the batch's partition; the new leader may still commit the batch."""
        return not self.replica.is_leader

    @property
    def is_completed(self) -> bool:
        """True if the batch is committed, or its outcome is unknown."""
        return self.replica.log.high_watermark >= self.required_offset or self.is_outcome_unknown

    @property
    def is_failed(self) -> bool:
        """True if the batch is not known to be committed after the wait: outcome unknown, or led by another broker."""
        return self.is_outcome_unknown or (self.is_led_elsewhere and not self.is_completed)


async def wait_for_completion(purgatory: Purgatory, waiting: Sequence[DelayedProduce], timeout_ms: float) -> None:
    """Wait until each batch is completed or led elsewhere, at most ``timeout_ms``; their properties have the outcome.

    Then wait until those led elsewhere are completed, too, at most the lesser of `UNCERTAIN_COMMIT_MS` and
    ``timeout_ms`` more.
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
    """Wait until ``is_done`` holds for all batches in ``waiting``, or ``timeout_ms`` has passed; the caller checks."""
    left: dict[Hashable, DelayedProduce] = {}
    for one in waiting:  # of two batches of a partition the second is committed later
        left["hw", one.replica.topic, one.replica.partition] = one

    def is_ready_after(key: Hashable) -> bool:  # constant cost per change, for any number of batches
        if key in left and is_done(left[key]):
            del left[key]
        return not left

    for key in list(left):
        is_ready_after(key)
    if left:
        await purgatory.wait_for_change(list(left), is_ready_after, timeout_ms)
