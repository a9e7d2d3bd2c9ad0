"""Reads of a partition from the remote tier: records from an offset, and offsets by timestamp.

The leader epochs of the log decide which remote segments belong to it. The store is read in threads; everything else
runs on the event loop.

Source: ``RemoteLogManager.read``, ``addAbortedTransactions``, ``findOffsetByTimestamp`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ottla.broker.requests.decompression_limiter import DecompressionLimiter
from ottla.broker.storage.tiered.chunk_cache import ChunkNotOpenError
from ottla.broker.storage.tiered.leader_epoch_lineage import epochs_with_records, is_within_leader_epochs
from ottla.broker.storage.tiered.remote_index_cache import RemoteIndexCache
from ottla.broker.storage.tiered.remote_log_access import RemoteLogAccess
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_segment_reader import (
    RemoteRecords,
    RemoteSegmentReader,
    SegmentRecords,
    aborted_txns_in_range,
    is_in_page_cache,
    read_records,
    records_below,
)
from ottla.broker.storage.tiered.remote_storage import (
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from ottla.env.env import Env
from ottla.jobs.time_slice import run_in_background
from ottla.log.checkpoints.leader_epoch_cache import UNDEFINED_EPOCH
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.indexes import AbortedTxn
from ottla.log.timestamp_lookup import TimestampAndOffset
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.record_batch import records

METADATA_WAIT_S = 0.1
"""Time in s that a read waits for the metadata of the remote segments."""
SEGMENTS_PER_YIELD = 100
"""Remote segments that a search by timestamp considers between two yields to the event loop."""


class RemoteFetchInfo(NamedTuple):
    """Parameters of a read of a partition for a consumer's Fetch, or for a ShareFetch.

    Source: ``RemoteStorageFetchInfo.java`` (apache/kafka 4.3.1).
    """

    log: PartitionLog
    offset: int
    max_bytes: int
    may_exceed: bool
    """True if a first batch that exceeds ``max_bytes`` is returned whole."""
    read_committed: bool
    is_parsed: bool = False
    """True if the records are parsed on the event loop: what is not in the page cache is returned in memory."""


class RemoteFetchData(NamedTuple):
    """Records from the remote tier for a Fetch response, with their aborted transactions."""

    records: RemoteRecords
    aborted_txns: list[AbortedTxn] | None
    """Aborted transactions for read_committed; None for read_uncommitted, and if the first batch is too large."""


class RemoteLogReader:
    """Reader of records and of offsets by timestamp from the remote tier, for this broker's partitions."""

    def __init__(self, env: Env, remote: RemoteLogAccess) -> None:
        self._env = env
        self._remote = remote
        self.indexes = RemoteIndexCache(self._fetch_index, remote.settings.index_cache_bytes)
        self._segments = RemoteSegmentReader(lambda: remote.storage, self.indexes)

    def _fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        self.indexes.resize(self._remote.settings.index_cache_bytes)  # the setting is dynamic
        return self._remote.storage.fetch_index(metadata, index)

    # ------------------------------------------------------------------ records

    def read_open(self, info: RemoteFetchInfo) -> RemoteFetchData | None:
        """Return what `read` does, if that needs no wait: from open files of the chunk cache; else None.

        Raises:
            WireError: a batch header is damaged.
        """
        log = info.log
        segments = self._remote.cache(log.topic_id, log.partition)
        metadata = None if segments is None else _segment_for(log, segments, info.offset)
        if metadata is None:
            return None
        try:
            found, aborted, is_complete = self._read_open_segment(
                metadata, info, _lineage_end(log, metadata, info.offset)
            )
        except ChunkNotOpenError:
            return None
        if found is None or (info.read_committed and found.records and not is_complete):
            return None
        is_committed = info.read_committed and len(found.records) > 0
        return RemoteFetchData(found.records, list(dict.fromkeys(aborted)) if is_committed else None)

    async def read(self, info: RemoteFetchInfo) -> RemoteFetchData:
        """Return the records from an offset below the local log start offset, of one segment.

        They are empty if the first batch exceeds ``max_bytes`` and may not, or if no remote segment has a batch from
        the offset on.

        Raises:
            ProtocolError: OFFSET_OUT_OF_RANGE: no remote segment of the log's leader epochs has the offset;
                REPLICA_NOT_AVAILABLE: the metadata is not loaded.
            RemoteStorageError: the store failed. WireError: a batch header is damaged.
            RemoteReadQueueFullError: too many reads wait for a thread.
            OSError: a file of the chunk cache cannot be read.
        """
        log, offset = info.log, info.offset
        segments = await self._metadata_cache(log)
        metadata = _segment_for(log, segments, offset)
        if metadata is None:
            epoch = log.epochs.epoch_for_offset(offset)
            text = f"Received request for offset {offset} for leader epoch {epoch} and partition {log.label} which does"
            raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text} not exist in remote tier")
        while metadata is not None:
            lineage_end = _lineage_end(log, metadata, offset)
            try:
                found, aborted, is_complete = self._read_open_segment(metadata, info, lineage_end)
            except (ChunkNotOpenError, WireError):  # a chunk that was damaged on the disk of the cache is read again
                found, aborted, is_complete = await self._remote.in_reader_thread(
                    partial(self._read_segment, metadata, info, lineage_end)
                )
            if found is not None:
                if not info.read_committed:
                    return RemoteFetchData(found.records, None)
                if not found.records:
                    return RemoteFetchData(b"", None)
                if not is_complete:
                    aborted += await self._later_aborted_txns(log, segments, metadata, found)
                return RemoteFetchData(found.records, list(dict.fromkeys(aborted)))
            metadata = _segment_for(log, segments, metadata.end_offset + 1)  # a batch of the segment was compacted away
        return RemoteFetchData(b"", [] if info.read_committed else None)

    def _read_segment(
        self, metadata: RemoteLogSegmentMetadata, info: RemoteFetchInfo, lineage_end: int | None
    ) -> tuple[SegmentRecords | None, list[AbortedTxn], bool]:
        """Return the records of one segment, the aborted transactions of its index, and whether these are all.

        The records are None if the segment has no whole batch from the offset on. ``lineage_end``: offset from which on
        the records of the segment are not those of the log; None: all are.
        """
        in_memory = info.is_parsed or lineage_end is not None
        found = self._segments.read(
            metadata, info.offset, info.max_bytes, at_least_one=info.may_exceed, in_memory=in_memory
        )
        if found is not None and lineage_end is not None:
            found = found._replace(records=records_below(read_records(found.records), lineage_end))
        if found is None or not found.records or not info.read_committed:
            return found, [], False
        entries = self.indexes.aborted_txns(metadata)
        return found, *aborted_txns_in_range(entries, found.base_offset, found.upper_offset)

    def _read_open_segment(
        self, metadata: RemoteLogSegmentMetadata, info: RemoteFetchInfo, lineage_end: int | None
    ) -> tuple[SegmentRecords | None, list[AbortedTxn], bool]:
        """Return what `_read_segment` does, without blocking.

        Raises:
            ChunkNotOpenError: that is not possible.
        """
        entries = self.indexes.cached_aborted_txns(metadata) if info.read_committed else []
        if entries is None or lineage_end is not None:
            raise ChunkNotOpenError
        found = self._segments.read_open(metadata, info.offset, info.max_bytes, at_least_one=info.may_exceed)
        if found is not None and info.is_parsed and not is_in_page_cache(found.records):
            raise ChunkNotOpenError
        if found is None or not found.records or not info.read_committed:
            return found, [], False
        return found, *aborted_txns_in_range(entries, found.base_offset, found.upper_offset)

    async def _later_aborted_txns(
        self,
        log: PartitionLog,
        segments: RemoteLogMetadataCache,
        metadata: RemoteLogSegmentMetadata,
        found: SegmentRecords,
    ) -> list[AbortedTxn]:
        """Return the aborted transactions of the records ``found`` with markers in later segments, remote or local."""
        start, end, out = found.base_offset, found.upper_offset, list[AbortedTxn]()
        following = await self._next_segment_with_txn_index(log, segments, metadata.end_offset + 1)
        while following is not None:
            entries = await self._remote.in_reader_thread(partial(self.indexes.aborted_txns, following))
            some, is_complete = aborted_txns_in_range(entries, start, end)
            out += some
            if is_complete:
                return out
            following = await self._next_segment_with_txn_index(log, segments, following.end_offset + 1)
        return out + log.segments.collect_aborted_txns(start, end)

    async def _next_segment_with_txn_index(
        self, log: PartitionLog, segments: RemoteLogMetadataCache, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """Return the first remote segment from ``offset`` on that may have aborted transactions; None without one.

        In later leader epochs of the log the search continues at their start offsets.
        """
        first_epoch = log.epochs.epoch_for_offset(offset)
        if first_epoch == UNDEFINED_EPOCH:
            return None
        for epoch, start in log.epochs.entries:
            if epoch >= first_epoch:
                search = segments.next_segment_with_txn_index_job(epoch, max(start, offset))
                found = await run_in_background(self._env, search)
                if found is not None:
                    return found
        return None

    async def _metadata_cache(self, log: PartitionLog) -> RemoteLogMetadataCache:
        """Return the remote segments of a partition; wait `METADATA_WAIT_S` once if their metadata is not loaded.

        Source: ``RemotePartitionMetadataStore.getRemoteLogMetadataCache`` (apache/kafka 4.3.1).

        Raises:
            ProtocolError: REPLICA_NOT_AVAILABLE: the metadata is not loaded.
        """
        segments = self._remote.cache(log.topic_id, log.partition)
        if segments is None:
            await self._env.sleep(METADATA_WAIT_S)  # clients repeat their requests at once
            segments = self._remote.cache(log.topic_id, log.partition)
        if segments is None:
            text = f"Remote log metadata cache is not initialized for partition: {log.label}"
            raise ProtocolError(ErrorCode.REPLICA_NOT_AVAILABLE, text)
        return segments

    # ------------------------------------------------------------------ offsets by timestamp

    async def find_offset_by_timestamp(
        self, log: PartitionLog, timestamp_ms: int, decompressions: DecompressionLimiter
    ) -> TimestampAndOffset | None:
        """Return the first record by offset, in the remote segments, with a timestamp of at least ``timestamp_ms``.

        None if the local segments must be searched: they begin at or below the segment that would be searched, no
        remote segment of the log's leader epochs has such a timestamp, or the first that has one has it only below the
        log start offset. ``decompressions`` limits concurrent decompressions.

        Raises:
            ProtocolError: REPLICA_NOT_AVAILABLE: the metadata is not loaded.
            RemoteStorageError: the store failed. WireError: a batch is damaged.
            RemoteReadQueueFullError: too many reads wait for a thread.
        """
        segments, start = await self._metadata_cache(log), log.log_start_offset
        first_epoch = log.epochs.epoch_for_offset(start)
        if first_epoch == UNDEFINED_EPOCH:
            return None
        epochs, seen = epochs_with_records(log.epochs.entries), 0
        for epoch in [epoch for epoch, _ in log.epochs.entries if epoch >= first_epoch]:
            for metadata in segments.list_segments(epoch):
                seen += 1
                if seen % SEGMENTS_PER_YIELD == 0:
                    await self._env.sleep(0)
                if (
                    metadata.max_timestamp_ms >= timestamp_ms
                    and metadata.end_offset >= start
                    and metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
                    and is_within_leader_epochs(metadata, log.log_end_offset, epochs)
                ):
                    if metadata.start_offset >= log.segments.base_offsets[0]:
                        return None
                    return await self._find_in_segment(metadata, timestamp_ms, start, decompressions)
        return None

    async def _find_in_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        timestamp_ms: int,
        from_offset: int,
        decompressions: DecompressionLimiter,
    ) -> TimestampAndOffset | None:
        find = partial(self._segments.find_batch_by_timestamp, metadata, timestamp_ms, from_offset)
        position: int | None = None
        batch = await self._remote.in_reader_thread(find)
        while batch is not None:
            header = batch.header
            search = records.find_first_by_timestamp_job(batch.raw, header, timestamp_ms, from_offset)
            try:
                record = await run_in_background(self._env, decompressions.as_job(search))
            except WireError:  # a chunk that was damaged on the disk of the cache is read again
                if not await self._remote.in_reader_thread(partial(self._segments.drop_damaged, batch.chunks)):
                    raise
                batch = await self._remote.in_reader_thread(partial(find, position))
                continue
            if record is not None:
                return TimestampAndOffset(record[1], record[0], header.partition_leader_epoch)
            position = batch.next_position
            batch = await self._remote.in_reader_thread(partial(find, position))
        return None


def _segment_for(log: PartitionLog, segments: RemoteLogMetadataCache, offset: int) -> RemoteLogSegmentMetadata | None:
    """Return the remote segment with an offset of the log, by the leader epoch of the offset; None if there is none."""
    epoch = log.epochs.epoch_for_offset(offset)
    return None if epoch == UNDEFINED_EPOCH else segments.segment_for(epoch, offset)


def _lineage_end(log: PartitionLog, metadata: RemoteLogSegmentMetadata, offset: int) -> int | None:
    """Return the offset from which on a segment may have other records than the log; None if it has only the log's.

    After an unclean election the last records of a segment may be those of the former leader only.
    """
    if is_within_leader_epochs(metadata, log.log_end_offset, epochs_with_records(log.epochs.entries)):
        return None
    return log.epochs.end_offset_for(log.epochs.epoch_for_offset(offset), log.log_end_offset)[1]
