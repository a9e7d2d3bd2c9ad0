"""State of one read of all partitions of a Fetch: rows, bytes, and reasons against a delay.

Source: ``ReplicaManager.readFromLog`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition, FetchRowBuffer
from ottla.broker.handlers.fetch.delayed_fetch import UnreadablePartitions
from ottla.broker.requests.peer import CachedQuota
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import LeaderIdAndEpoch, PartitionData


class TieredPartition(NamedTuple):
    """Partition of a Fetch to read from the remote tier: its row of the response, and the limit in bytes."""

    want: CachedPartition
    row: PartitionData
    """Row of the response, without records."""
    max_bytes: int
    """Maximum of bytes to return, by the limits of partition and request."""
    may_exceed: bool
    """True if a first batch that exceeds `max_bytes` is returned whole."""


class ReadAttempt:
    """Result of one read of all partitions of a Fetch, which is filled while they are read.

    Args:
        limit: Maximum number of bytes of records.
        rows: Rows of the response, to which partitions are appended.
        takes: Cached fetch quota of the client; None without quotas and for followers.
    """

    tiered: Sequence[TieredPartition] = ()
    """Partitions to read from the remote tier, with the bytes reserved for each, which `bytes` includes."""

    def __init__(self, limit: int, rows: FetchRowBuffer, takes: CachedQuota | None) -> None:
        self.max_bytes = self.remaining_bytes = limit
        self.bytes = 0
        self.count = 0
        self.urgent = False
        self.unreadable = UnreadablePartitions()
        """Positions of the partitions that were rejected before they were read."""
        self.partition_responses = rows
        self.allowance = takes
        """Cached fetch quota of the client; None without quotas and for followers."""
        self.leaders: set[int] = set()
        """Broker ids of current leaders of partitions not led here, whose endpoints the response lists (v16)."""

    def add_tiered(self, context: RequestContext, want: CachedPartition, row: PartitionData, *, arrives: bool) -> None:
        """Clear the error of a partition in the remote tier, and reserve bytes for a read, which is not started here.

        Only the first read of a request (``arrives``) reads the remote tier (``readFromPurgatory``). In later ones,
        without bytes left, or while remote reads are throttled, nothing is reserved: the row stays without records and
        without an error.
        """
        assert want.topic is not None, "the partition was found"
        replica = context.services.replica_manager.get(want.topic, want.partition)
        assert replica is not None, "the partition was read in the same step"
        row.error_code, row.last_stable_offset = ErrorCode.NONE, replica.log.last_stable_offset
        limit, remote = min(want.max_bytes, self.remaining_bytes), context.services.remote_reads
        if limit > 0 and arrives and remote is not None and not remote.is_throttled():
            self.tiered = [*self.tiered, TieredPartition(want, row, limit, self.bytes == 0)]
            self.bytes += limit
            self.remaining_bytes -= limit

    def add_current_leader(self, context: RequestContext, want: CachedPartition, row: PartitionData) -> None:
        """Set the current leader, -1 for none, in a row with a leader error, if the metadata image has it."""
        topic = context.image.topics.get(want.topic) if want.topic is not None else None
        partition = topic.partitions.get(want.partition) if topic is not None else None
        if partition is not None:
            row.current_leader = LeaderIdAndEpoch(partition.leader, partition.leader_epoch)
            self.leaders.add(partition.leader)
