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
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.peer import wait_while_connected
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchData, RemoteFetchInfo
from ottla.broker.storage.tiered.remote_reads import RemoteRead, RemoteReads
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


class _PartitionRead(NamedTuple):
    """Read of a partition, and where its result goes."""

    row: PartitionData
    replica: HostedPartition
    read: RemoteRead[RemoteFetchData]


def _start_reads(
    context: RequestContext, remote: RemoteReads, tiered: Sequence[TieredPartition], *, read_committed: bool
) -> list[_PartitionRead]:
    """Start the reads; a partition that left this broker since its first read is left out."""
    out = []
    for want, row, max_bytes, at_least_one in tiered:
        assert want.topic is not None, "the partition was found"
        replica = context.services.replica_manager.get(want.topic, want.partition)
        if replica is not None:
            info = RemoteFetchInfo(replica.log, want.fetch_offset, max_bytes, at_least_one, read_committed)
            out.append(_PartitionRead(row, replica, remote.start_fetch(info)))
    return out


def _apply(context: RequestContext, each: _PartitionRead) -> int:
    """Write the result of a read into the row of its partition; return the bytes of its records."""
    row, found, error = each.row, each.read.result, each.read.error
    if found is not None:
        row.records = found.records
        if found.aborted_txns is not None:
            row.aborted_transactions = [AbortedTransaction(a.producer_id, a.first_offset) for a in found.aborted_txns]
        each.replica.traffic.bytes_out += len(found.records)
        return len(found.records)
    if error:
        context.peer.add_request_error(error)
        row.error_code = error
        row.high_watermark = row.last_stable_offset = row.log_start_offset = -1
    return 0


def read_tiered_partitions(
    context: RequestContext, tiered: Sequence[TieredPartition], *, read_committed: bool
) -> Job[int]:
    """Read partitions from the remote tier into their rows; return the bytes read less those that were reserved.

    The wait ends when all reads are done, or when a partition leaves this broker.
    """
    services = context.services
    remote, hosted = services.remote_reads, services.replica_manager
    assert remote is not None
    reads = _start_reads(context, remote, tiered, read_committed=read_committed)

    def is_ready() -> bool:
        return all(each.read.is_done for each in reads) or any(
            hosted.get(each.replica.topic, each.replica.partition) is None for each in reads
        )

    keys: list[Hashable] = [each.read.key for each in reads]
    keys += [("fetch", each.replica.topic, each.replica.partition) for each in reads]
    wait = services.purgatory.wait(keys, is_ready, remote.remote.settings.fetch_max_wait_ms)
    try:
        if not (yield wait_while_connected(context.peer, wait)):
            remote.expired_fetches += 1
    finally:
        remote.abandon(each.read for each in reads)
    context.now_ms = services.env.now_ms()
    size = 0
    for each in reads:
        size += _apply(context, each)
        yield None
    return size - sum(each.max_bytes for each in tiered)
