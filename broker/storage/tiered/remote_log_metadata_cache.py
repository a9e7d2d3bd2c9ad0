"""Metadata of the remote segments of one partition, by leader epoch and offset, replayed from `__remote_log_metadata`.

| state | read by epoch and offset | listed |
|---|---|---|
| COPY_SEGMENT_STARTED | no | yes |
| COPY_SEGMENT_FINISHED | yes | yes |
| DELETE_SEGMENT_STARTED | no | yes |
| DELETE_SEGMENT_FINISHED | no | no |

A segment that a later one with the same leader epoch replaces is listed, so that it is deleted, but no longer read.

Source: ``RemoteLogMetadataCache.java``, ``RemoteLogLeaderEpochState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right

from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogSegmentMetadataUpdate,
    is_valid_transition,
    updated,
)
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteResourceNotFoundError,
)
from ottla.jobs.job import Job

logger = logging.getLogger("ottla.tiered")
SEGMENTS_PER_STEP = 100
"""Segments that a search considers between two yields."""


def last_offset_of_epoch(metadata: RemoteLogSegmentMetadata, epoch: int) -> int:
    """Return the last offset, inclusive, of a leader epoch in a segment: before the next epoch, or its end offset."""
    epochs = metadata.segment_leader_epochs
    following = min((other for other in epochs if other > epoch), default=None)
    return metadata.end_offset if following is None else epochs[following] - 1


class _EpochSegments:
    """Segments with records of one leader epoch: readable ones by start offset, and unreferenced others."""

    __slots__ = ("highest_offset", "ids", "starts", "unreferenced")

    def __init__(self) -> None:
        self.starts: list[int] = []
        """Offsets of the epoch's first record in each readable segment, ascending."""
        self.ids: list[RemoteLogSegmentId] = []
        """Readable segments, in the order of `starts`."""
        self.unreferenced: dict[RemoteLogSegmentId, None] = {}
        """Segments that are being copied or deleted, or that another one replaced."""
        self.highest_offset: int | None = None
        """Last offset of this epoch that was ever copied; a deletion does not lower it."""

    def find(self, offset: int) -> RemoteLogSegmentId | None:
        """Return the readable segment with the largest start offset at or below ``offset``; None if there is none."""
        at = bisect_right(self.starts, offset)
        return self.ids[at - 1] if at else None

    def on_copied(self, start: int, end: int, segment_id: RemoteLogSegmentId) -> None:
        """Make a segment with the epoch's offsets ``start`` to ``end``, inclusive, readable; raise `highest_offset`.

        If it reaches the highest offset copied before, readable segments from ``start`` on become unreferenced: after a
        change of leaders the new leader copies a range again that the previous one copied in other segments. A segment
        with the same ``start`` is replaced in any case.
        """
        highest = self.highest_offset
        if highest is not None and highest <= end:
            while self.starts and self.starts[-1] >= start:
                self.starts.pop()
                self.unreferenced[self.ids.pop()] = None
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start:
            self.ids[at] = segment_id
        else:
            self.starts.insert(at, start)
            self.ids.insert(at, segment_id)
        self.unreferenced.pop(segment_id, None)
        if highest is None or end > highest:
            self.highest_offset = end

    def on_delete_started(self, start: int, segment_id: RemoteLogSegmentId) -> None:
        """Make a segment unreadable; ``start`` is the offset of the epoch's first record in it."""
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start and self.ids[at] == segment_id:
            del self.starts[at], self.ids[at]
        self.unreferenced[segment_id] = None


class RemoteLogMetadataCache:
    """Remote segments of a partition that are not deleted yet. Its only input are the records of the metadata topic."""

    def __init__(self) -> None:
        self.is_initialized = False
        """True once the records that existed when the partition was assigned have been replayed."""
        self._segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _EpochSegments] = {}

    def segment_for(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment with the record of ``offset`` that leader epoch ``epoch`` wrote; or None."""
        segments = self._epochs.get(epoch)
        segment_id = segments.find(offset) if segments is not None else None
        if segment_id is None:
            return None
        metadata = self._segments[segment_id]
        return metadata if offset <= last_offset_of_epoch(metadata, epoch) else None

    def next_segment_with_txn_index_job(self, epoch: int, offset: int) -> Job[RemoteLogSegmentMetadata | None]:
        """Return the first segment of the epoch from ``offset`` on that may have aborted transactions, as a job.

        None if there is none up to the first offset that no readable segment has.
        """
        metadata, count = self.segment_for(epoch, offset), 0
        while metadata is not None and metadata.txn_index_empty:
            count += 1
            if count % SEGMENTS_PER_STEP == 0:
                yield None
            metadata = self.segment_for(epoch, metadata.end_offset + 1)
        return metadata

    def highest_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the last offset, inclusive, of a leader epoch that was ever copied, even if deleted since; or None."""
        segments = self._epochs.get(epoch)
        return None if segments is None else segments.highest_offset

    def list_segments(self, epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """Return the segments with records of a leader epoch, by start offset; for None all, in no order.

        Empty for an unknown epoch. Also those that are being copied or deleted, or are replaced: only
        COPY_SEGMENT_FINISHED may be read.
        """
        if epoch is None:
            return list(self._segments.values())
        segments = self._epochs.get(epoch)
        if segments is None:
            return []
        ids = (*segments.ids, *segments.unreferenced)  # an id may be stale if its first record was repeated differently
        found = [self._segments[segment_id] for segment_id in ids if segment_id in self._segments]
        found.sort(key=lambda metadata: metadata.start_offset)
        return found

    def add(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Add a segment that is being copied and return True; return False, unchanged, for any other record.

        Others have another state than COPY_SEGMENT_STARTED, or are out of order, which is logged.
        """
        segment_id = metadata.segment_id
        existing = self._segments.get(segment_id)
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED or not _check_transition(
            segment_id, existing, metadata.state
        ):
            return False
        for epoch in metadata.segment_leader_epochs:
            self._epochs.setdefault(epoch, _EpochSegments()).unreferenced[segment_id] = None
        self._segments[segment_id] = metadata
        return True

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """Apply a segment's new state and return True; return False, with the cache unchanged, if it is out of order.

        That is logged. COPY_SEGMENT_STARTED is no update (False). Before the cache is initialized, an update of an
        unknown segment is skipped (False).

        Raises:
            RemoteResourceNotFoundError: The segment is unknown, and the cache is initialized.
        """
        segment_id = update.segment_id
        existing = self._segments.get(segment_id)
        if existing is None:
            if self.is_initialized:
                raise RemoteResourceNotFoundError(f"no metadata of remote log segment {segment_id}")
            return False  # records of segments that were deleted since
        state = update.state
        if state is RemoteLogSegmentState.COPY_SEGMENT_STARTED or not _check_transition(segment_id, existing, state):
            return False
        metadata = updated(existing, update)
        epochs = sorted(metadata.segment_leader_epochs.items())
        ends = [*(start - 1 for _, start in epochs[1:]), metadata.end_offset]
        for (epoch, start), end in zip(epochs, ends, strict=True):
            segments = self._epochs.setdefault(epoch, _EpochSegments())
            if state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                segments.on_copied(start, end, segment_id)
            elif state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                segments.on_delete_started(start, segment_id)
            else:
                segments.unreferenced.pop(segment_id, None)
        if state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[segment_id]
        else:
            self._segments[segment_id] = metadata
        return True


def _check_transition(
    segment_id: RemoteLogSegmentId, existing: RemoteLogSegmentMetadata | None, target: RemoteLogSegmentState
) -> bool:
    state = None if existing is None else existing.state
    if is_valid_transition(state, target):
        return True
    logger.error(
        "Ignored a record of __remote_log_metadata: remote log segment %s cannot change from %s to %s",
        *(segment_id, None if state is None else state.name, target.name),
    )
    return False
