"""Decisions of the tasks of a tiered partition: segments to copy, and remote segments to delete.

Source: ``RemoteLogManager.RLMCopyTask``, ``RLMExpirationTask`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.broker.storage.tiered.leader_epoch_lineage import epochs_with_records, is_within_leader_epochs
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)
from ottla.jobs.job import Job

UNLIMITED = -1


class CopyRange(NamedTuple):
    """Segment to copy: its base offset, and the base offset of the following segment, which ends it."""

    base_offset: int
    next_base_offset: int


def segments_to_copy(
    base_offsets: Sequence[int], copied_offset: int, log_start_offset: int, last_stable_offset: int
) -> list[CopyRange]:
    """Return the segments to copy, oldest first: rolled, not copied, and wholly below the last stable offset.

    Args:
        base_offsets: Base offsets of the local segments, ascending; the last one is active.
        copied_offset: Last offset in the remote store, -1 if there is none.
        log_start_offset: Start offset of the log, above the copied offset after DeleteRecords.
        last_stable_offset: Offset from which on records are not committed, or not decided.
    """
    begin = max(copied_offset + 1, log_start_offset)
    return [
        CopyRange(base, following)
        for base, following in pairwise(base_offsets)
        if begin < following <= last_stable_offset
    ]


class TieredLogState(NamedTuple):
    """State of a log on which remote retention decides: leader epochs, offsets, local size and settings."""

    epochs: Sequence[tuple[int, int]]
    """Leader epochs with their start offsets, ascending."""
    log_start_offset: int
    log_end_offset: int
    only_local_bytes: int
    """Size of the segments that are not in the remote store."""
    retention_ms: int
    retention_bytes: int


class RemoteDeletions(NamedTuple):
    """Remote segments to delete, and the log start offset to set before."""

    segments: list[RemoteLogSegmentMetadata]
    log_start_offset: int | None
    """None: unchanged."""


def remote_log_size_job(cache: RemoteLogMetadataCache, state: TieredLogState, epochs: dict[int, int]) -> Job[int]:
    """Return the size in bytes of the copied segments that belong to the log, as a job; each is counted once.

    Segments below the log start offset are not counted. Kafka counts them, so that after DeleteRecords, or after a
    deletion that failed, it deletes as many bytes too many by ``retention.bytes``. ``epochs`` are those of the log with
    records.
    """
    counted: set[RemoteLogSegmentId] = set()
    size_bytes = 0
    for metadata in _in_epoch_order(cache, epochs):
        is_copied = metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        if is_copied and metadata.end_offset >= state.log_start_offset and metadata.segment_id not in counted:
            counted.add(metadata.segment_id)
            if is_within_leader_epochs(metadata, state.log_end_offset, epochs):
                size_bytes += metadata.segment_size_bytes
        yield None
    return size_bytes


class _Expiration:
    """State of a decision on segments, oldest first: bytes still above ``retention.bytes``, new log start offset."""

    def __init__(self, state: TieredLogState, epochs: dict[int, int], remote_bytes: int, now_ms: int) -> None:
        self._state = state
        self._first_epoch = min(epochs)
        self._expired_before_ms = now_ms - state.retention_ms if state.retention_ms > UNLIMITED else -1
        excess = state.only_local_bytes + remote_bytes - state.retention_bytes
        self._excess_bytes = max(excess, 0) if state.retention_bytes > UNLIMITED else 0
        self.log_start_offset: int | None = None

    def is_below_log_start(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return whether a segment ends below the log start offset and has no epoch after the log's first."""
        is_old = all(epoch <= self._first_epoch for epoch in metadata.segment_leader_epochs)
        return is_old and metadata.end_offset < self._state.log_start_offset

    def has_expired(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return whether a segment of the log expired by time or size.

        Then its bytes are subtracted from the excess and `log_start_offset` is raised behind it. Call it oldest segment
        first.
        """
        size = metadata.segment_size_bytes
        if metadata.max_timestamp_ms < self._expired_before_ms:
            self._excess_bytes = max(0, self._excess_bytes - size)
        elif self._excess_bytes > 0 and size <= self._excess_bytes:
            self._excess_bytes -= size
        else:
            return False
        self.log_start_offset = max(self.log_start_offset or 0, metadata.end_offset + 1)
        return True


def expired_remote_segments_job(
    cache: RemoteLogMetadataCache, state: TieredLogState, being_copied: Collection[RemoteLogSegmentId], now_ms: int
) -> Job[RemoteDeletions]:
    """Return the remote segments to delete by time, size and log start offset, oldest first, as a job.

    The search ends at the first segment that stays, or is in ``being_copied``. Segments whose deletion was interrupted
    are always returned, and segments whose copy was interrupted once they expire. Segments that are not of this log's
    leader epochs are skipped; those of epochs before the log's first are returned by `unreferenced_segments`.
    ``now_ms`` is the wall clock.
    """
    epochs = epochs_with_records(state.epochs)
    deletions = {
        metadata.segment_id: metadata
        for metadata in cache.list_segments()
        if metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED and metadata.segment_id not in being_copied
    }
    if not epochs:
        return RemoteDeletions(list(deletions.values()), None)
    remote_bytes = yield from remote_log_size_job(cache, state, epochs)
    expiration = _Expiration(state, epochs, remote_bytes, now_ms)
    for metadata in _in_epoch_order(cache, epochs):
        yield None
        if metadata.segment_id in being_copied:
            break
        if metadata.segment_id in deletions:
            continue
        if expiration.is_below_log_start(metadata):
            deletions[metadata.segment_id] = metadata
        elif is_within_leader_epochs(metadata, state.log_end_offset, epochs):
            if not expiration.has_expired(metadata):
                break
            deletions[metadata.segment_id] = metadata
    return RemoteDeletions(list(deletions.values()), expiration.log_start_offset)


def _in_epoch_order(cache: RemoteLogMetadataCache, epochs: Iterable[int]) -> Iterable[RemoteLogSegmentMetadata]:
    for epoch in epochs:
        yield from cache.list_segments(epoch)


def unreferenced_segments(
    cache: RemoteLogMetadataCache, earliest_epoch: int, being_copied: Collection[RemoteLogSegmentId] = ()
) -> list[RemoteLogSegmentMetadata]:
    """Return the remote segments whose leader epochs are all before the earliest one of the log, to be deleted.

    They remain after an unclean election and after the log start offset advanced. Those in ``being_copied`` are left
    out.
    """
    return [
        metadata
        for metadata in cache.list_segments()
        if metadata.segment_id not in being_copied
        and all(epoch < earliest_epoch for epoch in metadata.segment_leader_epochs)
    ]
