"""Copies and deletions of the remote segments of one partition, on its leader.

The order keeps each record in one tier at least: the metadata of a copied segment is committed before the local segment
may be deleted, and the log start offset passes a remote segment before its deletion begins. A store that fails delays
copies and deletions and nothing else.

A copy that fails is deleted at once, also after a failure that may pass, where Kafka leaves it until it expires. A
deletion that fails is repeated with the next round.

Source: ``RemoteLogManager.RLMCopyTask``, ``RLMExpirationTask``, ``deleteRemoteLogSegment`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from ottla.broker.storage.tiered.leader_epoch_lineage import (
    epoch_entries_in_range,
    find_copied_offset,
    find_log_start_offset,
)
from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadataUpdate,
)
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_retention import (
    CopyRange,
    TieredLogState,
    expired_remote_segments_job,
    segments_to_copy,
    unreferenced_segments,
)
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteStorage,
    RemoteStorageError,
    SegmentFiles,
)
from ottla.broker.storage.tiered.remote_topic_stats import RemotePartitionGauges, RemoteTopicStats
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.log.partition_log import PartitionLog
from ottla.log.segment.log_segment import LogSegment, segment_file_name

T = TypeVar("T")
logger = logging.getLogger("ottla.tiered")
SEGMENTS_PER_STEP = 1000


class RemoteLogMetadataWriter(Protocol):
    """Interface of the writer of `__remote_log_metadata`."""

    async def write(self, record: RemoteLogMetadata) -> None:
        """Append a record; return once it is committed and the caches of this broker have replayed it.

        Raises:
            RemoteStorageError: It is not known to be committed, or was not replayed in time.
        """


class RemoteLogTasks:
    """Copies and deletions of one partition's remote segments while this broker leads it.

    The caller starts rounds of `copy_segments` and of `expire_segments`; one round of each runs at a time.
    """

    def __init__(
        self,
        env: Env,
        broker_id: int,
        log: PartitionLog,
        cache: RemoteLogMetadataCache,
        writer: RemoteLogMetadataWriter,
        store: RemoteStorage,
        call_store: Callable[[Callable[[], T]], Awaitable[T]],
        max_custom_metadata_bytes: int,
        wait_for_quota: Callable[[int], Awaitable[None]] | None = None,
        stats: RemoteTopicStats | None = None,
        gauges: RemotePartitionGauges | None = None,
    ) -> None:
        """Create the tasks.

        Args:
            env: Environment.
            broker_id: Node id of this broker.
            log: Log of the partition.
            cache: Remote segments of the partition, initialized.
            writer: Writer of the metadata topic.
            store: Remote store.
            call_store: Function that runs a call of the store in a thread.
            max_custom_metadata_bytes: ``remote.log.metadata.custom.metadata.max.bytes``.
            wait_for_quota: Function that waits until a number of bytes may be copied; None: there is no quota.
            stats: Counters of the topic.
            gauges: Gauges of the partition.
        """
        self._env = env
        self._broker_id = broker_id
        self.log = log
        self._cache = cache
        self._writer = writer
        self._store = store
        self._call_store: Callable[[Callable[[], object]], Awaitable[object]] = call_store  # type: ignore[assignment]
        self._max_custom_metadata_bytes = max_custom_metadata_bytes
        self._wait_for_quota = wait_for_quota
        self._stats = stats or RemoteTopicStats()
        self._gauges = gauges or RemotePartitionGauges()
        self._being_copied: set[RemoteLogSegmentId] = set()
        self.is_cancelled = False
        """True once this broker does not lead the partition any more: no further copy or deletion is started."""
        self.are_copies_stopped = False
        """True after a store returned custom metadata above the limit: a repetition would, too."""

    def on_leadership(self) -> None:
        """Raise the log start offset and the highest remote offset of the log to those of its remote segments.

        Called once after this broker became the leader. Only segments of the log's leader epochs count.

        Raises:
            OSError: The epoch file could not be written.
        """
        log = self.log
        start = find_log_start_offset(self._cache, log.epochs, log.local_log_start_offset)
        log.maybe_increment_log_start_offset(start)
        copied = find_copied_offset(self._cache, log.epochs, log.log_start_offset, log.log_end_offset)
        log.raise_highest_remote_offset(copied)

    # ------------------------------------------------------------------ copies

    async def copy_segments(self) -> int:
        """Copy the rolled segments that are not in the remote store, oldest first; return the number of copied ones.

        The round ends early once copies must stop. Segments with records that are not committed, or of an open
        transaction, are not copied.

        Raises:
            RemoteStorageError: The store or the metadata topic failed; the next round begins with the same segment.
            OSError: A local file could not be read.
        """
        log, count = self.log, 0
        bases = list(log.segments.base_offsets)
        for part in segments_to_copy(bases, log.highest_remote_offset, log.log_start_offset, log.last_stable_offset):
            if not self._may_copy(part):
                break
            segment = log.segments.segment_for(part.base_offset)
            if self._wait_for_quota is not None:
                await self._wait_for_quota(segment.size_bytes)
                if not self._may_copy(part):
                    break
                segment = log.segments.segment_for(part.base_offset)
            await self._copy_segment(segment, part)
            count += 1
        return count

    def _may_copy(self, part: CopyRange) -> bool:
        """Return whether the next copy may start: copies continue, and the segment is still in the log."""
        log = self.log
        if self.is_cancelled or self.are_copies_stopped or log.closed or not log.config.tiering.has_copies:
            return False
        return part.base_offset in log.segments.base_offsets

    async def _copy_segment(self, segment: LogSegment, part: CopyRange) -> None:
        log, truncations = self.log, self.log.truncations
        _repair_index_files(segment)
        started = self._describe(segment, part)
        self._being_copied.add(started.segment_id)
        try:
            await self._writer.write(started)
            self._stats.copies += 1
            try:
                copy = partial(self._store.copy_segment, started, self._files(segment, part))
                custom_metadata = await self._call_store(copy)
                assert custom_metadata is None or isinstance(custom_metadata, bytes)
                finished = self._update(started, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, custom_metadata)
                self._check_custom_metadata(custom_metadata)
            except (RemoteStorageError, OSError) as error:
                self._stats.count_failure("copy_errors", error, self._env.monotonic_ms())
                logger.warning("Failed to copy segment %s of %s: %s", part.base_offset, log.label, error)
                await self._delete_failed_copy(started)
                raise
            await self._writer.write(finished)
            self._stats.copied_bytes += started.segment_size_bytes
        finally:
            self._being_copied.discard(started.segment_id)
        if log.truncations == truncations:
            log.raise_highest_remote_offset(started.end_offset)

    def _check_custom_metadata(self, custom_metadata: bytes | None) -> None:
        size, most = len(custom_metadata or b""), self._max_custom_metadata_bytes
        if size > most:
            self.are_copies_stopped = True
            raise RemoteStorageError(f"custom metadata of {size} bytes exceeds the limit of {most}: copies are stopped")

    async def _delete_failed_copy(self, started: RemoteLogSegmentMetadata) -> None:
        try:
            await self._delete_segment(started)
        except RemoteStorageError as error:
            logger.warning(
                "Failed to delete the failed copy %s, to be repeated: %s", started.segment_id.id.hex(), error
            )

    def _describe(self, segment: LogSegment, part: CopyRange) -> RemoteLogSegmentMetadata:
        """Return the metadata of a segment whose copy begins, with a new id and state COPY_SEGMENT_STARTED."""
        log = self.log
        segment.load_max_timestamp()
        newest_ms = segment.max_timestamp
        if newest_ms < 0:
            newest_ms = log.disk.stat(f"{segment.path}.log").mtime_ms
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(log.topic_id, log.topic, log.partition, self._env.uuid()),
            start_offset=part.base_offset,
            end_offset=part.next_base_offset - 1,
            max_timestamp_ms=newest_ms,
            broker_id=self._broker_id,
            event_timestamp_ms=self._env.now_ms(),
            segment_size_bytes=segment.size_bytes,
            segment_leader_epochs=dict(epoch_entries_in_range(log.epochs.entries, *part)),
            txn_index_empty=not segment.aborted_txns,
        )

    def _files(self, segment: LogSegment, part: CopyRange) -> SegmentFiles:
        """Return the files of a segment to copy, with the leader epochs of the log up to the segment's end."""
        log = self.log
        epochs = epoch_entries_in_range(log.epochs.entries, -1, part.next_base_offset)
        lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
        snapshot = f"{log.directory}/{segment_file_name(part.next_base_offset, '.snapshot')}"
        return SegmentFiles(
            log=Path(f"{segment.path}.log"),
            offset_index=Path(f"{segment.path}.index"),
            time_index=Path(f"{segment.path}.timeindex"),
            producer_snapshot=Path(snapshot) if log.disk.exists(snapshot) else None,
            transaction_index=Path(f"{segment.path}.txnindex") if segment.aborted_txns else None,
            leader_epochs="".join(f"{line}\n" for line in lines).encode(),
        )

    # ------------------------------------------------------------------ deletions

    async def expire_segments(self, persist_log_start: Callable[[], Awaitable[None]]) -> int:
        """Delete the remote segments that expired, and those of leader epochs before the log; return their number.

        The log start offset is advanced behind the expired segments, and persisted, before their deletion.

        Args:
            persist_log_start: Function that writes the advanced log start offset to the checkpoint.

        Raises:
            RemoteStorageError: The store or the metadata topic failed; the next round repeats the deletion.
            OSError: The log start offset could not be written; nothing is deleted.
        """
        log, settings = self.log, self.log.config
        only_local = [s.size_bytes for s in log.segments if s.base_offset >= log.highest_remote_offset]
        state = TieredLogState(
            epochs=tuple(log.epochs.entries),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            only_local_bytes=sum(only_local),
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
        )
        job = expired_remote_segments_job(self._cache, state, self._being_copied, self._env.now_ms())
        deletions = await run_in_background(self._env, job)
        if self.is_cancelled or log.closed:
            return 0
        start = deletions.log_start_offset
        if start is not None and log.maybe_increment_log_start_offset(start):
            await persist_log_start()
        segments = [each for each in deletions.segments if not self._is_readable(each)]
        if log.epochs.entries:
            segments += unreferenced_segments(self._cache, log.epochs.entries[0][0], self._being_copied)
        due = list({each.segment_id: each for each in segments}.values())
        self._gauges.delete_lag_segments = len(due)
        self._gauges.delete_lag_bytes = sum(each.segment_size_bytes for each in due)
        for deleted, metadata in enumerate(due):
            if self.is_cancelled:
                return deleted
            await self._delete_segment(metadata)
            self._gauges.delete_lag_segments -= 1
            self._gauges.delete_lag_bytes -= metadata.segment_size_bytes
        return len(due)

    def measure_job(self, now_ms: float) -> Job[None]:
        """Update copy lag, and number and size of the remote segments, in the partition's gauges, as a job.

        The caller runs it after each round; ``now_ms``: monotonic time in ms. Disabled copies have no lag.
        """
        log, gauges = self.log, self._gauges
        rolled = [s for s in log.segments if s.base_offset > log.highest_remote_offset][:-1]
        if not log.config.tiering.has_copies:
            rolled = []
        gauges.set_copy_lag({s.base_offset: s.size_bytes for s in rolled}, now_ms)
        known, size_bytes = self._cache.list_segments(), 0
        for number, metadata in enumerate(known, 1):
            if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                size_bytes += metadata.segment_size_bytes
            if number % SEGMENTS_PER_STEP == 0:
                yield None
        gauges.metadata_count, gauges.size_bytes = len(known), size_bytes

    async def delete_all_segments(self) -> None:
        """Delete all remote segments of the partition, also those that are being copied, from store and metadata.

        Raises:
            RemoteStorageError: The store or the metadata topic failed; another call deletes the remaining ones.
        """
        for metadata in self._cache.list_segments():
            await self._delete_segment(metadata)

    def _is_readable(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return whether a copied segment has records at or above the log start offset, so that it must not be deleted.

        The log start offset does not pass the high watermark.
        """
        is_copied = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        return is_copied and metadata.end_offset >= self.log.log_start_offset

    async def _delete_segment(self, metadata: RemoteLogSegmentMetadata) -> None:
        custom = metadata.custom_metadata
        await self._writer.write(self._update(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, custom))
        self._stats.deletions += 1
        try:
            await self._call_store(partial(self._store.delete_segment, metadata))
        except RemoteStorageError as error:
            self._stats.count_failure("delete_errors", error, self._env.monotonic_ms())
            raise
        await self._writer.write(self._update(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, custom))

    def _update(
        self, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState, custom_metadata: bytes | None
    ) -> RemoteLogSegmentMetadataUpdate:
        now_ms = self._env.now_ms()
        return RemoteLogSegmentMetadataUpdate(metadata.segment_id, now_ms, custom_metadata, state, self._broker_id)


def _repair_index_files(segment: LogSegment) -> None:
    """Write the index files of a segment if they are missing, malformed or stale: a copy must have valid ones.

    Raises:
        OSError: The segment could not be read, or a file not be written.
    """
    _ = segment.offset_index  # loads both indexes, or rebuilds them from the batches
    if segment.are_index_files_stale:
        segment.write_index_files()
