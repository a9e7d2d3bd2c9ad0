"""Offsets by timestamp in the remote tier, for ListOffsets: all partitions of a request are searched at a time.

The request waits for all searches, for its timeout (v10) or ``remote.list.offsets.request.timeout.ms``. A partition
whose search is not done then gets REQUEST_TIMED_OUT.

Source: ``DelayedRemoteListOffsets.java``, ``ReplicaManager.fetchOffset`` (apache/kafka 4.3.1); KIP-1075.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.requests.peer import wait_while_connected
from ottla.broker.storage.tiered.remote_reads import RemoteRead, RemoteReads
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.partition_log import PartitionLog
from ottla.log.timestamp_lookup import TimestampAndOffset, find_offset_by_timestamp_job
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.list_offsets import ListOffsetsRequest

RemoteOffset = RemoteRead[TimestampAndOffset | None]
"""Search in both tiers; its result is None if there is no such record."""
RemoteOffsets = dict[tuple[str, int], RemoteOffset]
"""Searches by topic and partition."""


async def _search(
    context: RequestContext, remote: RemoteReads, log: PartitionLog, timestamp: int
) -> TimestampAndOffset | None:
    """Search the remote tier for the first record from ``timestamp`` on, and if it has none at once the local segments.

    A later local search could miss segments that are deleted meanwhile. Return None if neither has such a record.

    Raises:
        ProtocolError: REPLICA_NOT_AVAILABLE: the metadata is not loaded; KAFKA_STORAGE_ERROR: the local disk failed.
        RemoteStorageError: the store failed. WireError: a batch is damaged.
        RemoteReadQueueFullError: too many reads wait for a thread.
    """
    limiter = context.services.decompression_limiter
    found = await remote.reader.find_offset_by_timestamp(log, timestamp, limiter)
    if found is not None:
        return found
    search = limiter.as_job(find_offset_by_timestamp_job(log, timestamp, log.log_end_offset))
    try:
        return await run_in_background(context.services.env, search)
    except OSError as error:
        context.services.fail(error, log)
        raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR) from None


def find_remote_offsets(
    context: RequestContext, request: ListOffsetsRequest, *, leader_only: bool
) -> Job[RemoteOffsets]:
    """Search both tiers for each timestamp of a tiered partition and wait for the searches, as a job.

    Returns:
        The searches, each with a result or an error; REQUEST_TIMED_OUT for those not done in time. Left out are special
        (negative) timestamps, empty logs, and partitions that this broker does not host, or, with ``leader_only``, does
        not lead.
    """
    remote = context.services.remote_reads
    assert remote is not None
    found: RemoteOffsets = {}
    keys: list[Hashable] = []
    for topic in request.topics:
        for part in topic.partitions:
            at = (topic.name, part.partition_index)
            replica = context.services.replica_manager.get(*at) if part.timestamp >= 0 and at not in found else None
            if replica is not None and (replica.is_leader or not leader_only):
                log = replica.log
                if log.config.tiering.is_enabled and log.log_start_offset < log.log_end_offset:
                    read = found[at] = remote.start_read(log, partial(_search, context, remote, log, part.timestamp))
                    keys += (read.key, ("fetch", *at))
            yield None
        yield None
    if not found:
        return found

    def is_ready() -> bool:
        hosted = context.services.replica_manager
        return all(read.is_done or hosted.get(*at) is None for at, read in found.items())

    timeout_ms = request.timeout_ms if request.timeout_ms > 0 else remote.remote.settings.list_offsets_timeout_ms
    try:
        if not (yield wait_while_connected(context.peer, context.services.purgatory.wait(keys, is_ready, timeout_ms))):
            remote.expired_list_offsets += 1
    finally:
        remote.abandon(found.values())
    for read in found.values():
        if not read.is_done:
            read.error = ErrorCode.REQUEST_TIMED_OUT
        yield None
    return found
