"""Fetch of records in the remote tier: the request waits for all its reads, at most ``remote.fetch.max.wait.ms``.

Each partition of a consumer's request whose offset lies below the local log start offset is read, as long as the bytes
of the request allow it: each read counts with the most that it may return. The other partitions return what the first
read found. A read that is not done in time leaves its partition without records, and without an error.

Source: ``DelayedRemoteFetch.java``, ``ReplicaManager.processRemoteFetches`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition
from ottla.broker.requests.peer import wait_while_connected
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchData, RemoteFetchInfo
from ottla.broker.storage.tiered.remote_reads import RemoteRead
from ottla.jobs.job import Job
from ottla.wire.messages.fetch import AbortedTransaction, PartitionData


class TieredPartition(NamedTuple):
    """Partition of a Fetch that is read from the remote tier."""

    want: CachedPartition
    row: PartitionData
    """Row of the response, without records."""
    max_bytes: int
    """Maximum of bytes to return, by the limits of partition and request."""
    at_least_one: bool
    """True if a first batch that exceeds `max_bytes` is returned whole."""


class _DelayedRemoteFetch:
    """Reads of one request from the remote tier, and the predicate that ends the wait for them."""

    def __init__(self, context: RequestContext, tiered: Sequence[TieredPartition], *, read_committed: bool) -> None:
        self._context = context
        self.reads: list[tuple[TieredPartition, RemoteRead[RemoteFetchData]]] = []
        self.keys: list[Hashable] = []
        for each in tiered:
            want = each.want
            replica = context.services.replica_manager.get(want.topic, want.partition)
            if replica is not None:
                info = RemoteFetchInfo(
                    replica.log, want.fetch_offset, each.max_bytes, each.at_least_one, read_committed
                )
                read = context.services.remote_reads.start_fetch(info)
                self.reads.append((each, read))
                self.keys += (read.key, ("fetch", want.topic, want.partition))

    def is_ready(self) -> bool:
        """Return True if all reads are done, or a partition is no longer on this broker."""
        hosted = self._context.services.replica_manager
        return all(read.is_done for _, read in self.reads) or any(
            hosted.get(each.want.topic, each.want.partition) is None for each, _ in self.reads
        )

    def apply(self, each: TieredPartition, read: RemoteRead[RemoteFetchData]) -> int:
        """Write the result of a read into the partition's row; return the bytes of its records."""
        row, found = each.row, read.result
        if not read.is_done or (found is None and not read.error):
            return 0
        if found is None:
            self._context.peer.add_request_error(read.error)
            row.error_code = read.error
            row.high_watermark = row.last_stable_offset = row.log_start_offset = -1
            return 0
        row.records = found.records
        if found.aborted_txns is not None:
            row.aborted_transactions = [AbortedTransaction(a.producer_id, a.first_offset) for a in found.aborted_txns]
        replica = self._context.services.replica_manager.get(each.want.topic, each.want.partition)
        if replica is not None:
            replica.traffic.bytes_out += len(found.records)
        return len(found.records)


def read_tiered_partitions(
    context: RequestContext, tiered: Sequence[TieredPartition], *, read_committed: bool
) -> Job[int]:
    """Read partitions from the remote tier into their rows; return the bytes read less those that were reserved."""
    remote, delayed = context.services.remote_reads, _DelayedRemoteFetch(context, tiered, read_committed=read_committed)
    timeout_ms = remote.remote.settings.fetch_max_wait_ms
    wait = context.services.purgatory.wait(delayed.keys, delayed.is_ready, timeout_ms)
    try:
        if not (yield wait_while_connected(context.peer, wait)):
            remote.expired_fetches += 1
    finally:
        remote.abandon(read for _, read in delayed.reads)
    context.now_ms = context.services.env.now_ms()
    size = 0
    for each, read in delayed.reads:
        size += delayed.apply(each, read)
        yield None
    return size - sum(each.max_bytes for each in tiered)
