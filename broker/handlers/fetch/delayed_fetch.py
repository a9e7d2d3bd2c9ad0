"""Number of bytes that a waiting Fetch would return: only the partition that changed is looked at again.

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
"""Partitions looked at between two yields."""


class UnreadablePartitions:
    """Positions of partitions in a request, from 1 on; a byte for each up to the last."""

    __slots__ = ("_flags", "count")

    def __init__(self) -> None:
        self._flags = bytearray()
        self.count = 0

    def add(self, number: int) -> None:
        """Add a position behind those that were added."""
        self._flags.extend(bytes(number - 1 - len(self._flags)))
        self._flags.append(1)
        self.count += 1

    def __contains__(self, number: int) -> bool:
        return number <= len(self._flags) and self._flags[number - 1] == 1


class AvailableBytes:
    """Number of bytes a read would return; a change only updates the affected partition."""

    def __init__(self, context: RequestContext, reader: FetchParams, enough: int, besides: Hashable) -> None:
        self._context = context
        self._params = reader
        self._min_bytes = enough
        self._partition_by_key: dict[Hashable, CachedPartition] = {}
        self._other_partitions_key = besides
        """Woken, there is something in a partition that is not among these."""
        self._follower_key = None if reader.replica_id < 0 else follower_fetch_key(reader.replica_id)
        self._bytes: dict[Hashable, int] = {}
        self._total = 0

    def count_available(
        self,
        purgatory: Purgatory,
        parked: DelayedOperation,
        wanted: Iterable[CachedPartition | None],
        unreadable: UnreadablePartitions,
    ) -> Job[bool]:
        """Count the bytes of all but the ``unreadable`` partitions, in steps; return True if they suffice.

        Each is watched before it is counted, as it may change meanwhile.
        """
        enough, what = False, "fetch" if self._params.replica_id < 0 else "end"
        for key in (self._other_partitions_key, self._follower_key):
            if key is not None:
                purgatory.watch(parked, key)
        for number, want in enumerate(wanted, 1):
            if want is not None and number not in unreadable:
                key = (what, want.topic, want.partition)
                if key not in self._partition_by_key:
                    purgatory.watch(parked, key)
                self._partition_by_key[key] = want
                enough = self.is_enough_after(key) or enough
            if number % PARTITIONS_PER_STEP == 0:
                yield None
        return enough or parked.event.is_set()

    def is_enough_after(self, key: Hashable) -> bool:
        """Look at one partition again."""
        if key in (self._other_partitions_key, self._follower_key):
            return True
        found = self._partition_bytes(self._partition_by_key[key])
        if found is None:
            return True
        self._total += found - self._bytes.get(key, 0)
        self._bytes[key] = found
        return self._total >= self._min_bytes

    def _partition_bytes(self, want: CachedPartition) -> int | None:
        """Bytes of one partition, at most its limit; None where the fetch is to be answered at once."""
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
        """Of a consumer only: the log of a leader, which followers read, is not truncated."""
        if self._params.replica_id >= 0 or want.last_fetched_epoch < 0:
            return False
        try:
            return diverging_epoch(replica, want) is not None
        except ProtocolError:
            return True
