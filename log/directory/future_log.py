"""Future log: a copy of a log in another directory of the same node, which will replace it.

It lies in ``<topic>-<partition>.<id>-future``, is filled from the log it is a copy of as a follower is from its leader,
and takes its name in the end. The steps are here; `broker.replication.alter_log_dirs` schedules them.

Source: ``LogManager.getOrCreateLog``, ``LogManager.replaceCurrentWithFutureLog``, ``ReplicaAlterLogDirsThread.scala``
(apache/kafka 4.3.1; KIP-113).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.env.disk import FileSlice
from ottla.log.directory.directory_listing import list_suffixed_dirs
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import FUTURE_DIR_SUFFIX, TopicPartition
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import create_log
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import offset_range

MAX_DIR_NAME_LENGTH = 255


def future_dir_name(topic: str, partition: int, tag: str) -> str:
    """Return the name of a future log's directory; unlike that of a deleted one it is never shortened."""
    return f"{topic}-{partition}.{tag}{FUTURE_DIR_SUFFIX}"


def list_future_dirs(directory: LogDirectory) -> Iterator[tuple[TopicPartition, str]]:
    """Yield the partitions with future logs in a directory, with their paths; a partition may have several."""
    for marked, path in list_suffixed_dirs(directory.disk, directory.path, FUTURE_DIR_SUFFIX):
        yield (marked.topic, marked.partition), path


def create_future_log(
    directory: LogDirectory, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int, tag: str
) -> PartitionLog:
    """Create the files of a new future log; may run in a thread. The directory adopts the log afterwards.

    Raises:
        OSError: the disk failed, or the process is out of resources.
    """
    path = f"{directory.path}/{future_dir_name(topic, partition, tag)}"
    return create_log(directory.disk, path, topic, partition, topic_id, settings, now_ms)


def log_recency(log: PartitionLog) -> tuple[int, int]:
    """Of two logs of one partition the one with the larger has all that counts: as in an election of the quorum."""
    return log.epochs.latest_epoch(), log.log_end_offset


def truncate_to_common(future: PartitionLog, current: PartitionLog, now_ms: int, *, was_cut: bool) -> None:
    """Cut off the future log what the current one does not have, or has no more.

    Two logs have the same up to an offset where both have it of the same leader epoch. ``was_cut``: whether the current
    log may have been cut since the last time; it is asked only where batches have no epochs.

    Raises:
        OSError: the disk failed.
    """
    start = current.log_start_offset
    if future.log_end_offset < start or future.log_start_offset > start:
        future.truncate_fully_and_start_at(start, now_ms)
    while (offset := _common_end(future, current, was_cut=was_cut)) < future.log_end_offset:
        future.truncate_to(offset, now_ms)


def _common_end(future: PartitionLog, current: PartitionLog, *, was_cut: bool) -> int:
    """Return the end of the common part of both logs, as far as the newest epoch shows."""
    end = min(future.log_end_offset, current.log_end_offset)
    if future.size_bytes == 0:
        return end
    epoch = future.epochs.latest_epoch()
    if epoch < 0:
        return current.log_start_offset if was_cut else end
    known, known_end = current.epochs.end_offset_for(epoch, current.log_end_offset)
    if known != epoch:
        return min(end, future.epochs.entries[-1][1])  # no record of that epoch is left
    return min(end, known_end)


def read_missing(future: PartitionLog, current: PartitionLog, most_bytes: int) -> FileSlice | None:
    """Return the next range missing in the future log, at least one batch; None at the end.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: the current log is damaged there; OSError: its disk failed.
    """
    return current.read(future.log_end_offset, most_bytes, current.log_end_offset, at_least_one=True)


def append_missing(future: PartitionLog, current: PartitionLog, raw: Buffer, now_ms: int) -> None:
    """Append the result of `read_missing`, without an incomplete batch at its end.

    Raises:
        ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE: unchanged; OSError: the disk failed.
    """
    if future.log_end_offset == future.log_start_offset:
        first, last = offset_range(raw)
        if first < future.log_end_offset <= last:
            future.truncate_fully_and_start_at(first, now_ms)  # records were deleted up to within that batch
    if future.append_as_follower(raw, now_ms) is None:
        text = f"{current.describe()}: the batch at offset {future.log_end_offset} ends behind its segment"
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
    follow_offsets(future, current, now_ms)


def skip_compacted_tail(future: PartitionLog, current: PartitionLog, now_ms: int) -> None:
    """Extend the copy to the end of the current log when the remaining records were compacted away.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: records are missing; OSError: the disk failed.
    """
    end = current.log_end_offset
    if current.segments.active.base_offset < end:
        raise missing_data_error(future, current)
    future.roll_past_gap(end, now_ms)
    future.epochs.copy_from(current.epochs)  # some epochs may have no other record left
    follow_offsets(future, current, now_ms)


def missing_data_error(future: PartitionLog, current: PartitionLog) -> ProtocolError:
    """Return the error for missing bytes of the current log."""
    text = f"{current.describe()}: nothing can be read from offset {future.log_end_offset} on"
    return ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)


def follow_offsets(future: PartitionLog, current: PartitionLog, now_ms: int) -> None:
    """High watermark and log start of the current log hold for the future one, too, as far as it reaches.

    Raises:
        OSError: the disk failed.
    """
    future.follow_high_watermark(current.high_watermark)
    if future.maybe_increment_log_start_offset(current.log_start_offset):
        future.delete_segments_below_start(now_ms)


def replace_current_with_future_log(
    directory: LogDirectory, future: PartitionLog, current: PartitionLog, now_ms: int
) -> None:
    """Replace the partition's log by its future log, with the offsets and producers of the current one.

    The producer state is copied, since the last batches may be gone from the log and verifications may be pending. It
    is copied last: while both logs are written to, each has its own.

    Raises:
        OSError: the disk failed; it is a future log still.
    """
    assert future.log_end_offset == current.log_end_offset, f"{future.describe()}, not {current.describe()}"
    follow_offsets(future, current, now_ms)
    assert future.log_start_offset == current.log_start_offset, f"{future.describe()}, not {current.describe()}"
    future.update_config(current.config)
    future.epochs.copy_from(current.epochs)
    rename_to_current(directory, future)
    future.inherit_from(current)


def rename_to_current(directory: LogDirectory, future: PartitionLog) -> None:
    """Rename a future log to the partition's log.

    Its start is noted first: until then it was the other directory that knew of records that are deleted. The disk
    knows already where offsets may be missing (`CheckpointStore.is_cleaner_offset_synced`): a crash would take that for
    damage.

    Raises:
        OSError: the disk failed; it is a future log still.
    """
    assert directory.checkpoints.is_cleaner_offset_synced(future), (
        f"{future.describe()}, compacted below {future.cleaner_offset}"
    )
    if future.log_start_offset > future.segments.base_offsets[0]:
        directory.checkpoints.write_log_start_offsets([future])
    path = f"{directory.path}/{future.label}"
    directory.disk.rename(future.directory, path)
    future.set_directory(path)
