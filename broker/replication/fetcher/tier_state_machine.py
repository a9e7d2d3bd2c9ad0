"""Restart of a follower's log where the leader's local log starts: the records below are in the remote store (KIP-405).

The follower asks the leader for the offset to start at, finds the remote segment that ends before it, and reads that
segment's leader epochs and producers. Only then is its own log truncated.

With ``follower.fetch.last.tiered.offset.enable`` an empty follower starts after the last copied segment (KIP-1023).

Source: ``TierStateMachine.java``, ``AbstractFetcherThread.handleOffsetsMovedToTieredStorage``,
``ReplicaFetcherThread.shouldFetchFromLastTieredOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from ottla.broker.replication.fetcher.leader_endpoint import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetcherDependencies,
    LeaderOffset,
    RemoteLog,
    call_for_partition,
    fetch_leader_offset,
    skips_tiered_offsets,
)
from ottla.broker.replication.fetcher.pending_outcome import PendingOutcome
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.storage.tiered.leader_epoch_lineage import epoch_entries_in_range
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.broker.storage.tiered.remote_thread_pool import RemoteReadQueueFullError
from ottla.client.node_connection import NodeConnection
from ottla.env.env import ThreadPool
from ottla.log.checkpoints.checkpoint_files import CorruptFile, parse_epochs
from ottla.log.partition_log import RemoteLogAuxState
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segment.log_segment import segment_file_name
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger("ottla.fetcher")
OFFSET_FOR_LEADER_EPOCH_VERSION = 4
MAX_LEADER_EPOCH = 2**31 - 1


class TierStart(NamedTuple):
    """Offsets of the leader's log that decide where a follower's local log is to start."""

    log_start_offset: int
    log_end_offset: int
    first_local_offset: int
    """Local log start offset, or first offset that is not copied."""
    previous_epoch: int
    """Leader epoch of the record before ``first_local_offset``."""


async def request_tier_start(
    connection: NodeConnection, dependencies: FetcherDependencies, replica: HostedPartition, leader_epoch: int
) -> TierStart:
    """Request the leader's offsets for the start of a follower's local log, by several requests.

    Raises:
        ProtocolError: error response, or OFFSET_NOT_AVAILABLE while the leader does not know which offsets are copied.
        Disconnected, WireError: no response.
    """
    request = partial(fetch_leader_offset, connection, dependencies, replica, leader_epoch)
    end = (await request(LATEST_TIMESTAMP)).offset
    log_start = (await request(EARLIEST_TIMESTAMP)).offset
    if skips_tiered_offsets(dependencies, replica.log, end):
        first = await request(EARLIEST_PENDING_UPLOAD_TIMESTAMP)
        if first.offset < 0:
            first = await request(EARLIEST_LOCAL_TIMESTAMP)
            if first.offset != log_start:
                text = "Segments are uploaded to remote storage, but the leader does not know the earliest pending"
                raise ProtocolError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{text} upload offset.")
    else:
        first = await request(EARLIEST_LOCAL_TIMESTAMP)
    epoch = first.epoch
    if epoch > 0:
        earlier = await _epoch_end_offset(connection, dependencies, replica, leader_epoch, epoch - 1)
        if earlier.offset >= first.offset:
            epoch = earlier.epoch
    return TierStart(log_start, end, first.offset, epoch)


async def _epoch_end_offset(
    connection: NodeConnection,
    dependencies: FetcherDependencies,
    replica: HostedPartition,
    leader_epoch: int,
    epoch: int,
) -> LeaderOffset:
    """Request the end offset, exclusive, of the leader's largest epoch not above ``epoch``; return it with that epoch.

    Both are -1 if the leader has none. ``leader_epoch``: the current one; the leader rejects another one.

    Raises:
        ProtocolError: error response.
        Disconnected, WireError: no response.
    """
    wanted = OffsetForLeaderTopic(replica.topic, [OffsetForLeaderPartition(replica.partition, leader_epoch, epoch)])
    request = OffsetForLeaderEpochRequest(dependencies.node_id, [wanted])
    row = await call_for_partition(connection, "OffsetForLeaderEpoch", request, OFFSET_FOR_LEADER_EPOCH_VERSION)
    return LeaderOffset(row.end_offset, row.leader_epoch)


async def check_segment_lineage(
    connection: NodeConnection,
    dependencies: FetcherDependencies,
    replica: HostedPartition,
    leader_epoch: int,
    start: TierStart,
) -> None:
    """Check that the leader has all records of the remote segment after which the follower's log is to start.

    After an unclean election its last records may be those of the former leader only. Kafka starts after them: the
    follower then lacks what the leader has at their offsets. Nothing is checked if this broker does not know the
    segment: `build_remote_log_aux_state` fails then.

    Raises:
        ProtocolError: OFFSET_NOT_AVAILABLE: the leader has other records, until its local log starts above them;
            error response.
        Disconnected, WireError: no response.
    """
    remote = dependencies.remote_log()
    cache = None if remote is None else remote.cache(replica.topic_id, replica.partition)
    metadata = None if cache is None else cache.segment_for(start.previous_epoch, start.first_local_offset - 1)
    if metadata is None:
        return
    last = max(metadata.segment_leader_epochs)
    own = await _epoch_end_offset(connection, dependencies, replica, leader_epoch, last)
    if own.epoch != last or own.offset <= metadata.end_offset:
        text = f"Remote segment of {replica.log.label} ends at offset {metadata.end_offset} of leader epoch {last}"
        raise ProtocolError(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"{text}, but the leader's epoch {own.epoch} ends at {own.offset}."
        )


async def build_remote_log_aux_state(
    dependencies: FetcherDependencies,
    outcome: PendingOutcome,
    start: TierStart,
    is_current: Callable[[PendingOutcome], bool],
) -> None:
    """Restart a follower's log after the remote segment that ends before ``start``, and flush it.

    All records of the log are removed; leader epochs and producers are those of the remote segment. Nothing is changed
    if the outcome is not current any more once the remote store has answered.

    Raises:
        RemoteStorageError: The remote store or its metadata does not have the state, or not yet; the log is unchanged.
        OSError: The local disk failed.
    """
    env, log, remote = dependencies.env, outcome.replica.log, dependencies.remote_log()
    if remote is None or not log.config.tiering.is_enabled:
        text = f"Couldn't build the state from remote store for partition {log.label}"
        raise RemoteStorageError(f"{text}, as remote log storage is not yet enabled")
    stats = remote.topic_stats(log.topic)
    stats.aux_state_builds += 1
    try:
        aux, first = await _read_aux_state(remote, outcome, start)
    except RemoteStorageError as error:
        stats.count_failure("aux_state_errors", error, env.monotonic_ms())
        raise
    if not is_current(outcome) or outcome.replica.log is not log:
        return
    log.truncate_fully_and_start_at(first, env.now_ms(), aux)
    text = "Updated the epoch cache from remote tier till offset: %d with size: %d for %s"
    logger.info(text, start.first_local_offset, len(aux.epochs), log.label)
    outcome.replica.notify_waiters()
    flush = log.start_flush(first, [f"{log.directory}/{segment_file_name(first, '.snapshot')}"])
    await env.in_thread(flush, ThreadPool.SYNC)
    log.complete_flush(flush)


async def _read_aux_state(
    remote: RemoteLog, outcome: PendingOutcome, start: TierStart
) -> tuple[RemoteLogAuxState, int]:
    """Return leader epochs and producers as of the start of the local log, and that start offset.

    Raises:
        RemoteStorageError: As `build_remote_log_aux_state`.
    """
    replica, name = outcome.replica, outcome.replica.log.label
    cache = remote.cache(replica.topic_id, replica.partition)
    if cache is None:
        raise RetriableRemoteStorageError(f"RemoteLogManager is not ready for partition: {name}")
    metadata = cache.segment_for(start.previous_epoch, start.first_local_offset - 1)
    if metadata is None:
        raise RemoteStorageError(
            f"Couldn't build the state from remote store for partition: {name}, "
            f"currentLeaderEpoch: {outcome.leader_epoch}, leaderLocalLogStartOffset: {start.first_local_offset}, "
            f"leaderLogStartOffset: {start.log_start_offset}, epoch: {start.previous_epoch} as the previous remote log "
            "segment metadata was not found"
        )
    first = metadata.end_offset + 1
    if not start.log_start_offset <= first <= start.log_end_offset:
        bounds = f"the leader's log, {start.log_start_offset} to {start.log_end_offset}"
        raise CorruptRemoteSegmentError(f"remote segment of {name} ends at {metadata.end_offset}, not within {bounds}")
    try:
        aux = await remote.in_reader_thread(partial(_fetch_aux_state, remote.storage, metadata, start.log_start_offset))
    except (OSError, RemoteReadQueueFullError) as error:
        raise RetriableRemoteStorageError(str(error)) from error
    return aux, first


def _fetch_aux_state(storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, log_start: int) -> RemoteLogAuxState:
    """Return leader epochs and producers at the end of a remote segment; it blocks: call it in a thread.

    ``log_start``: the leader's log start offset; earlier epochs are left out, and the first one begins there.
    Without a producer snapshot there are no producers.

    Raises:
        RemoteStorageError: The epochs or the snapshot cannot be read or are damaged, or no epoch is left.
    """
    name, end = metadata.segment_id.id.hex(), metadata.end_offset + 1
    try:
        entries = parse_epochs(storage.fetch_index(metadata, IndexType.LEADER_EPOCH), f"of remote segment {name}")
        epochs = epoch_entries_in_range(entries, log_start, end)
        if not _is_lineage(epochs):
            raise CorruptFile(f"leader epochs of remote segment {name}: {entries[:10]}")
        return RemoteLogAuxState(log_start, epochs, _fetch_producers(storage, metadata))
    except CorruptFile as error:
        raise CorruptRemoteSegmentError(str(error)) from error


def _is_lineage(epochs: list[tuple[int, int]]) -> bool:
    """Return whether the (leader epoch, start offset) pairs are valid: both ascend strictly, each epoch is a valid one.

    A valid epoch is from 0 to `MAX_LEADER_EPOCH`. False without any pair.
    """
    ascend = all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(epochs))
    return ascend and bool(epochs) and epochs[0][0] >= 0 and epochs[-1][0] <= MAX_LEADER_EPOCH


def _fetch_producers(storage: RemoteStorage, metadata: RemoteLogSegmentMetadata) -> ProducerStateManager:
    """Return the producers as of the end of a remote segment; none if it was copied without a producer snapshot.

    Kafka copies no such segment. The leader has recovered its producers since, from batches that it still has.

    Raises:
        CorruptFile: The producer snapshot is damaged. RemoteStorageError: It cannot be read.
    """
    name, end = metadata.segment_id.id.hex(), metadata.end_offset + 1
    try:
        return ProducerStateManager.unpack(storage.fetch_index(metadata, IndexType.PRODUCER_SNAPSHOT), name, end)
    except RemoteResourceNotFoundError:
        logger.warning("Remote segment %s has no producer snapshot: continuing without its producers", name)
        return ProducerStateManager()
