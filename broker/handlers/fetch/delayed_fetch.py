"""Delayed Fetch: number of bytes that it would return, updated only for the partition that has changed.

Source: ``DelayedFetch.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition
from ottla.broker.handlers.fetch.fetch_params import FetchParams, diverging_epoch
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import follower_fetch_key
from ottla.broker.requests.purgatory import DelayedOperation, Purgatory
from ottla.jobs.job import Job
from ottla.wire.errors import ProtocolError

PARTITIONS_PER_STEP = 16
"""Partitions processed between two yields to the event loop."""


class UnreadablePartitions:
    """Set of 1-based positions of a request's partitions that were answered with an error instead of being read.

    One byte for each position up to the last one of the set.
    """

    __slots__ = ("_flags", "count")

    def __init__(self) -> None:
        self._flags = bytearray()
        self.count = 0

    def add(self, number: int) -> None:
        """Add a 1-based position, which must be greater than all positions of the set."""
        self._flags.extend(bytes(number - 1 - len(self._flags)))
        self._flags.append(1)
        self.count += 1

    def __contains__(self, number: int) -> bool:
        return number <= len(self._flags) and self._flags[number - 1] == 1


class AvailableBytes:
    """Count of the bytes that a delayed Fetch would return; as callback of its `DelayedOperation` it ends the delay.

    Args:
        context: Context of the request.
        reader: Fetch parameters of the consumer or follower.
        enough: Minimum number of bytes that completes the fetch.
        besides: Purgatory key of the fetch session's other partitions; None without such partitions.
    """

    def __init__(self, context: RequestContext, reader: FetchParams, enough: int, besides: Hashable) -> None:
        self._context = context
        self._params = reader
        self._min_bytes = enough
        self._partition_by_key: dict[Hashable, CachedPartition] = {}
        self._other_partitions_key = besides
        """Purgatory key: its completion means records in a partition of the session that the request does not read."""
        self._follower_key = None if reader.replica_id < 0 else follower_fetch_key(reader.replica_id)
        self._bytes: dict[Hashable, int] = {}
        self._total = 0

    def count_available(
        self,
        purgatory: Purgatory,
        parked: DelayedOperation,
        partitions: Iterable[CachedPartition | None],
        unreadable: UnreadablePartitions,
    ) -> Job[bool]:
        """Register a delayed fetch for its partitions and count their bytes, as a job; True if it can be completed.

        Each partition is registered in the purgatory before it is counted, as it may change during a yield.

        Args:
            purgatory: Purgatory of the broker.
            parked: Delayed operation to register.
            partitions: Partitions of the fetch; None is skipped.
            unreadable: Positions in ``partitions`` of partitions that had an error before, which are skipped, too.
        """
        enough, kind = False, "fetch" if self._params.replica_id < 0 else "end"
        for key in (self._other_partitions_key, self._follower_key):
            if key is not None:
                purgatory.watch(parked, key)
        for number, want in enumerate(partitions, 1):
            if want is not None and number not in unreadable:
                key = (kind, want.topic, want.partition)
                if key not in self._partition_by_key:
                    purgatory.watch(parked, key)
                self._partition_by_key[key] = want
                enough = self.is_enough_after(key) or enough
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        return enough or parked.event.is_set()

    def is_enough_after(self, key: Hashable) -> bool:
        """Update the count for the changed purgatory key; return True if the fetch can be completed.

        It can if ``enough`` bytes are available, if `_partition_bytes` returns None, or if the key is not that of a
        partition but of the follower or of the session's other partitions.
        """
        if key in (self._other_partitions_key, self._follower_key):
            return True
        found = self._partition_bytes(self._partition_by_key[key])
        if found is None:
            return True
        self._total += found - self._bytes.get(key, 0)
        self._bytes[key] = found
        return self._total >= self._min_bytes

    def _partition_bytes(self, want: CachedPartition) -> int | None:
        """Return the readable bytes of one partition, at most its limit; 0 for a throttled follower.

        Returns:
            None if the fetch is to be completed at once: this broker cannot serve the partition, its leader epoch or
            fetch offset does not match the log, or the readable records reach into a later segment.
        """
        assert want.topic is not None
        params, replica = self._params, self._context.services.replica_manager.get(want.topic, want.partition)
        if replica is None or (params.leader_only and not replica.is_leader):
            return None
        if want.current_leader_epoch not in (-1, replica.leader_epoch) or self._has_diverged(replica, want):
            return None
        log, upper, offset = replica.log, params.last_fetchable_offset(replica), want.fetch_offset
        if not log.log_start_offset <= offset <= log.log_end_offset or log.segments.is_batch_above(offset, upper):
            return None
        if params.quota is not None and params.is_throttled(self._context, replica):
            return 0
        available = log.bytes_between(offset, upper)
        return None if available is None else min(available, want.max_bytes)

    def _has_diverged(self, replica: HostedPartition, want: CachedPartition) -> bool:
        """Return whether a consumer's position diverges from the log, so that its fetch would return the divergence.

        False for followers, which read from a leader, and without a last fetched epoch.
        """
        if self._params.replica_id >= 0 or want.last_fetched_epoch < 0:
            return False
        try:
            return diverging_epoch(replica, want) is not None
        except ProtocolError:
            return True
