"""Fetch of records in the remote tier: the request waits for all its reads, at most ``remote.fetch.max.wait.ms``.

Each partition of a consumer's request whose offset lies below the local log start offset is read, as long as the bytes
of the request allow it: each read counts with the most that it may return. The other partitions return what the first
read found. A read that is not done in time leaves its partition without records, and without an error. ShareFetch uses
the wait and `RemoteRecordsFile`, too.

Source: ``DelayedRemoteFetch.java``, ``ReplicaManager.processRemoteFetches`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.fetch.read_attempt import TieredPartition
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.requests.peer import wait_while_connected
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchData, RemoteFetchInfo
from ottla.broker.storage.tiered.remote_reads import RemoteRead, RemoteReads
from ottla.broker.storage.tiered.remote_segment_reader import RemoteRecords, read_records
from ottla.env.disk import FileSlice
from ottla.jobs.job import Job
from ottla.wire.codec.chunk_sequence import ChunkSequence
from ottla.wire.messages.fetch import AbortedTransaction, PartitionData


class _PartitionRead(NamedTuple):
    """Read of a partition from the remote tier, and the row of the response that its result is written to."""

    row: PartitionData
    replica: HostedPartition
    read: RemoteRead[RemoteFetchData]


def _start_reads(
    context: RequestContext, remote: RemoteReads, tiered: Sequence[TieredPartition], *, read_committed: bool
) -> Job[list[_PartitionRead]]:
    """Start the reads from the remote tier and return them, as a job: one from open files is done by its start.

    A partition that left this broker meanwhile is left out.
    """
    out: list[_PartitionRead] = []
    try:
        for want, row, max_bytes, may_exceed in tiered:
            assert want.topic is not None, "the partition was found"
            replica = context.services.replica_manager.get(want.topic, want.partition)
            if replica is not None:
                info = RemoteFetchInfo(replica.log, want.fetch_offset, max_bytes, may_exceed, read_committed)
                out.append(_PartitionRead(row, replica, remote.start_fetch(info)))
            yield None
    except BaseException:
        remote.abandon(each.read for each in out)
        raise
    return out


def _apply(context: RequestContext, each: _PartitionRead) -> int:
    """Write the result of a read into the row of its partition; return the bytes of its records.

    An error replaces the row. A read that is not done leaves it unchanged. Both return 0.
    """
    row, found, error = each.row, each.read.result, each.read.error
    if found is not None:
        row.records = found.records
        if found.aborted_txns is not None:
            row.aborted_transactions = [AbortedTransaction(a.producer_id, a.first_offset) for a in found.aborted_txns]
        each.replica.traffic.bytes_out += len(found.records)
        return len(found.records)
    if error:
        context.peer.add_request_error(error)
        failed = PartitionData(row.partition_index, error, -1, records=b"", aborted_transactions=None)
        for name in row.__struct_fields__:
            setattr(row, name, getattr(failed, name))
    return 0


class RemoteRecordsFile:
    """Records of the remote tier with the interface of a file, for reads of ranges."""

    def __init__(self, records: RemoteRecords) -> None:
        self._slices: Sequence[bytes | memoryview | FileSlice]
        self._slices = records.chunks if isinstance(records, ChunkSequence) else [records]

    def pread(self, count: int, offset: int) -> bytes:
        """Return a range, fewer bytes at the end. Raises OSError: a file of the chunk cache cannot be read."""
        return b"".join(map(read_records, self._ranges(offset, count)))

    def slice(self, offset: int, count: int) -> RemoteRecords:
        """Return a range without reading it."""
        ranges = self._ranges(offset, count)
        return ranges[0] if len(ranges) == 1 else ChunkSequence(ranges)

    def _ranges(self, offset: int, count: int) -> list[bytes | memoryview | FileSlice]:
        out: list[bytes | memoryview | FileSlice] = []
        for piece in self._slices:
            start, end = max(offset, 0), min(offset + count, len(piece))
            if start < end:
                if isinstance(piece, FileSlice):
                    out.append(FileSlice(piece.file, piece.offset + start, end - start))
                else:
                    out.append(piece[start:end])
            offset -= len(piece)
        return out


def wait_for_remote_reads(
    context: RequestContext, remote: RemoteReads, reads: Sequence[tuple[HostedPartition, RemoteRead[RemoteFetchData]]]
) -> Job[None]:
    """Wait until all reads are done or a partition leaves this broker, at most ``remote.fetch.max.wait.ms``, as a job.

    Reads that are not done then are abandoned. If the time has passed, a time-out is counted.

    Raises:
        PeerDisconnectedError: The client has disconnected meanwhile; the reads are abandoned, too.
    """
    hosted = context.services.replica_manager

    def is_ready() -> bool:
        return all(read.is_done for _, read in reads) or any(
            hosted.get(replica.topic, replica.partition) is None for replica, _ in reads
        )

    if all(read.is_done for _, read in reads):
        return
    keys: list[Hashable] = [read.key for _, read in reads]
    keys += [("fetch", replica.topic, replica.partition) for replica, _ in reads]
    wait = context.services.purgatory.wait(keys, is_ready, remote.remote.settings.fetch_max_wait_ms)
    try:
        if not (yield wait_while_connected(context.peer, wait)):
            remote.expired_fetches += 1
    finally:
        remote.abandon(read for _, read in reads)
    context.now_ms = context.services.env.now_ms()


def read_tiered_partitions(
    context: RequestContext, tiered: Sequence[TieredPartition], *, read_committed: bool
) -> Job[int]:
    """Read partitions from the remote tier into their rows, as a job; an error replaces the row of its partition.

    Returns:
        Bytes read minus the bytes reserved for the reads: 0 or less, unless a first batch exceeds its limit.
    """
    remote = context.services.remote_reads
    assert remote is not None
    reads = yield from _start_reads(context, remote, tiered, read_committed=read_committed)
    yield from wait_for_remote_reads(context, remote, [(each.replica, each.read) for each in reads])
    size = 0
    for each in reads:
        size += _apply(context, each)
        yield None
    return size - sum(each.max_bytes for each in tiered)
