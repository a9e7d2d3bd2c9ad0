"""Remote segments against the leader epochs of the local log: which of them belong to it, and where copies end.

After a change of leaders, and above all after an unclean election, the remote store can hold segments of records that
the current log does not have. They are neither read nor counted.

Source: ``RemoteLogManager.isRemoteSegmentWithinLeaderEpochs``, ``buildFilteredLeaderEpochMap``,
``findHighestRemoteOffset``, ``findLogStartOffset`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata, RemoteLogSegmentState
from ottla.log.checkpoints.leader_epoch_cache import UNDEFINED_EPOCH, LeaderEpochFileCache


class OffsetAndEpoch(NamedTuple):
    """Offset of a record and its leader epoch; (-1, -1) if there is none."""

    offset: int
    epoch: int


NO_OFFSET = OffsetAndEpoch(-1, UNDEFINED_EPOCH)


def epochs_with_records(entries: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the leader epochs that have records as a map from epoch to start offset, ascending.

    ``entries`` are epochs with their start offsets; one without records begins at the same offset as the next one.
    """
    result: dict[int, int] = {}
    previous: tuple[int, int] | None = None
    for epoch, start in sorted(entries):
        if previous is not None and previous[1] != start:
            result[previous[0]] = previous[1]
        previous = epoch, start
    if previous is not None:
        result[previous[0]] = previous[1]
    return result


def is_within_leader_epochs(metadata: RemoteLogSegmentMetadata, log_end_offset: int, epochs: dict[int, int]) -> bool:
    """Return whether all records of a remote segment are records of the log with these leader epochs.

    The first epochs of the segment may be older than those of the log if its start offset advanced since.

    Args:
        metadata: Segment.
        log_end_offset: End offset of the log.
        epochs: Result of `epochs_with_records` of the log.
    """
    if not epochs or metadata.end_offset >= log_end_offset:
        return False
    segment = list(epochs_with_records(metadata.segment_leader_epochs.items()).items())
    last, earliest = segment[-1][0], next(iter(epochs))
    if last not in epochs:
        return False
    segment = [entry for entry in segment if entry[0] >= earliest]
    log = [entry for entry in epochs.items() if entry[0] >= segment[0][0]]
    if len(log) < len(segment) or log[0][0] != segment[0][0] or log[1 : len(segment)] != segment[1:]:
        return False
    if segment[0][0] > earliest and segment[0][1] < log[0][1]:
        return False
    return len(log) == len(segment) or metadata.end_offset < log[len(segment)][1]


def find_highest_remote_offset(
    cache: RemoteLogMetadataCache, epochs: LeaderEpochFileCache, log_end_offset: int
) -> OffsetAndEpoch:
    """Return the last offset of the log that was ever copied to the remote store, even if it was deleted since.

    It is `NO_OFFSET` if nothing was copied of the log's leader epochs, and bounded by the end of its leader epoch in
    this log: the previous leader may have copied records that this log does not have.
    """
    for epoch, _ in reversed(epochs.entries):
        highest = cache.highest_offset_for_epoch(epoch)
        if highest is not None:
            own_epoch, end = epochs.end_offset_for(epoch, log_end_offset)
            return OffsetAndEpoch(end - 1, own_epoch) if end <= highest else OffsetAndEpoch(highest, epoch)
    return NO_OFFSET


def find_copied_offset(
    cache: RemoteLogMetadataCache, epochs: LeaderEpochFileCache, log_start_offset: int, log_end_offset: int
) -> int:
    """Return the last offset up to which the log need not be copied, inclusive, -1 if there is none.

    It is the highest remote offset, unless the segments there were deleted although the log still has their records:
    tiered storage of the topic ended and began again. Kafka neither copies nor keeps these records then.
    """
    highest = find_highest_remote_offset(cache, epochs, log_end_offset)
    if highest.offset < log_start_offset or cache.segment_for(highest.epoch, highest.offset) is not None:
        return highest.offset
    own = epochs_with_records(epochs.entries)
    copied = [each for each in cache.list_segments() if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    copied.sort(key=attrgetter("end_offset"), reverse=True)  # mostly the first one decides
    ends = (each.end_offset for each in copied if is_within_leader_epochs(each, log_end_offset, own))
    return min(highest.offset, next(ends, -1))


def find_log_start_offset(
    cache: RemoteLogMetadataCache, epochs: LeaderEpochFileCache, local_log_start_offset: int
) -> int:
    """Return the start offset of the log with its remote segments; the local one if there are none.

    The first remote segment of the oldest leader epoch that has any decides, also one that is being copied or deleted.
    """
    for epoch, _ in epochs.entries:
        segments = cache.list_segments(epoch)
        if segments:
            return segments[0].start_offset
    return local_log_start_offset


def epoch_entries_in_range(entries: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return the leader epochs of the records from ``start`` to before ``end``, with their start offsets in that range.

    An epoch that began before ``start`` begins there in the result.

    Args:
        entries: Leader epochs with their start offsets, ascending.
        start: First offset.
        end: Offset after the last one.
    """
    result = []
    for number, (epoch, first) in enumerate(entries):
        epoch_end = entries[number + 1][1] if number + 1 < len(entries) else end
        if first < end and epoch_end > start:
            result.append((epoch, max(first, start)))
    return result
