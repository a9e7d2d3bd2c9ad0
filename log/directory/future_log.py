"""Future log: copy of a partition's log in another log directory of the same node (AlterReplicaLogDirs).

It has the directory ``<topic>-<partition>.<id>-future``, fetches from the current log as a follower from its leader,
and replaces the current log once it has caught up. `broker.replication.alter_log_dirs` schedules the steps in this
module.

Source: ``LogManager.getOrCreateLog``, ``LogManager.replaceCurrentWithFutureLog``, ``ReplicaAlterLogDirsThread.scala``
(apache/kafka 4.3.1; KIP-113).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.env.disk import FileSlice
from ottla.log.directory.checkpoint_store import offsets_to_checkpoint
from ottla.log.directory.directory_listing import list_suffixed_dirs
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import FUTURE_DIR_SUFFIX, TopicPartition
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog, RemoteLogAuxState
from ottla.log.producer_state_rebuild import load_producer_snapshot
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery.log_loader import create_log
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import offset_range

MAX_DIR_NAME_LENGTH = 255


def future_dir_name(topic: str, partition: int, tag: str) -> str:
    """Return the name of a future log's directory; ``tag`` is its unique id. The name is never shortened."""
    return f"{topic}-{partition}.{tag}{FUTURE_DIR_SUFFIX}"


def list_future_dirs(directory: LogDirectory) -> Iterator[tuple[TopicPartition, str]]:
    """Yield (partition, path) of the directory of each future log in a log directory; a partition may have several."""
    for marked, path in list_suffixed_dirs(directory.disk, directory.path, FUTURE_DIR_SUFFIX):
        yield (marked.topic, marked.partition), path


def create_future_log(
    directory: LogDirectory, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int, tag: str
) -> PartitionLog:
    """Create the files of a new future log; may run in a thread. The caller adds the log to the directory.

    ``tag``: unique id in the directory's name. ``now_ms``: wall clock.

    Raises:
        OSError: the disk failed, or the process is out of resources.
    """
    path = f"{directory.path}/{future_dir_name(topic, partition, tag)}"
    return create_log(directory.disk, path, topic, partition, topic_id, settings, now_ms)


def log_recency(log: PartitionLog) -> tuple[int, int]:
    """Return (latest leader epoch, log end offset), by which the more recent of two logs of a partition is chosen."""
    return log.epochs.latest_epoch(), log.log_end_offset


def truncate_to_common(future: PartitionLog, current: PartitionLog, now_ms: int, *, was_cut: bool) -> None:
    """Truncate the future log to the end of the prefix that it has in common with the current log, which is unchanged.

    Two logs are equal below an offset that both have under the same leader epoch. ``was_cut``: whether the current log
    may have been truncated since the last call; used only if the batches have no leader epochs. A future log that lacks
    records below the local segments of the current log starts at those: the others are in the remote store.
    ``now_ms``: wall clock.

    Raises:
        OSError: the disk failed.
    """
    start = current.local_log_start_offset
    if future.log_end_offset < start or future.log_start_offset > current.log_start_offset:
        future.truncate_fully_and_start_at(start, now_ms, _remote_aux_state(current))
    while (offset := _common_end(future, current, was_cut=was_cut)) < future.log_end_offset:
        future.truncate_to(offset, now_ms)


def _remote_aux_state(current: PartitionLog) -> RemoteLogAuxState | None:
    """Return the state as of the current log's local start, for a future log that starts there; None without tiering.

    Raises:
        OSError: the disk failed.
    """
    if not current.has_remote_start:
        return None
    start = current.local_log_start_offset
    producers = load_producer_snapshot(current.disk, current.directory, start) or ProducerStateManager()
    epochs = [entry for entry in current.epochs.entries if entry[1] < start]
    return RemoteLogAuxState(current.log_start_offset, epochs, producers)


def _common_end(future: PartitionLog, current: PartitionLog, *, was_cut: bool) -> int:
    """Return the offset below which the logs are equal according to the future log's latest leader epoch."""
    end = min(future.log_end_offset, current.log_end_offset)
    if future.size_bytes == 0:
        return end
    epoch = future.epochs.latest_epoch()
    if epoch < 0:
        return current.local_log_start_offset if was_cut else end
    known, known_end = current.epochs.end_offset_for(epoch, current.log_end_offset)
    if known != epoch:
        return min(end, future.epochs.entries[-1][1])  # the current log has no record of that epoch
    return min(end, known_end)


def read_missing(future: PartitionLog, current: PartitionLog, most_bytes: int) -> FileSlice | None:
    """Return the current log's file range after the future log's end: at most ``most_bytes``, at least one batch.

    None if the current log has no batch there. The last batch may be incomplete.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: the current log is damaged there; OSError: its disk failed.
    """
    return current.read(future.log_end_offset, most_bytes, current.log_end_offset, at_least_one=True)


def append_missing(future: PartitionLog, current: PartitionLog, raw: Buffer, now_ms: int) -> None:
    """Append the bytes of the range that `read_missing` returned to the future log, without an incomplete last batch.

    High watermark and log start offset follow the current log's. ``now_ms``: wall clock.

    Raises:
        ProtocolError: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE: nothing is appended; OSError: the disk failed.
    """
    if future.log_end_offset == future.log_start_offset:
        first, last = offset_range(raw)
        if first < future.log_end_offset <= last:
            future.truncate_fully_and_start_at(first, now_ms)  # the log start offset is within that batch
    if future.append_as_follower(raw, now_ms) is None:
        text = f"{current.describe()}: the batch at offset {future.log_end_offset} ends behind its segment"
        raise ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)
    follow_offsets(future, current, now_ms)


def skip_compacted_tail(future: PartitionLog, current: PartitionLog, now_ms: int) -> None:
    """Advance the future log to the current log's end offset, as the records in between were compacted away.

    Called if `read_missing` found no batch. ``now_ms``: wall clock.

    Raises:
        ProtocolError: CORRUPT_MESSAGE: records are missing; OSError: the disk failed.
    """
    end = current.log_end_offset
    if current.segments.active.base_offset < end:
        raise missing_data_error(future, current)
    future.roll_past_gap(end, now_ms)
    future.epochs.copy_from(current.epochs)  # some epochs may have no record left
    follow_offsets(future, current, now_ms)


def missing_data_error(future: PartitionLog, current: PartitionLog) -> ProtocolError:
    """Return CORRUPT_MESSAGE for records of the current log that cannot be read for the future log."""
    text = f"{current.describe()}: no records can be read from offset {future.log_end_offset}"
    return ProtocolError(ErrorCode.CORRUPT_MESSAGE, text)


def follow_offsets(future: PartitionLog, current: PartitionLog, now_ms: int) -> None:
    """Set the future log's high watermark and log start offset to the current log's, within its own offsets.

    Segments below the log start are removed. ``now_ms``: wall clock.

    Raises:
        OSError: the disk failed.
    """
    future.follow_high_watermark(current.high_watermark)
    if future.maybe_increment_log_start_offset(current.log_start_offset):
        future.delete_segments_below_start(now_ms)


def replace_current_with_future_log(
    directory: LogDirectory, future: PartitionLog, current: PartitionLog, now_ms: int
) -> None:
    """Make the future log, which has caught up, the partition's log: it adopts offsets, settings and producer state.

    Its directory is renamed (`rename_to_current`); that of ``current`` is not: the caller registers the log and removes
    ``current``. The producer state is adopted, since a producer's last batches may be deleted from the log and
    verifications may be pending; last, since until then both logs are appended to, each with its own state.
    ``now_ms``: wall clock.

    Raises:
        OSError: the disk failed; the log is still a future log.
    """
    assert future.log_end_offset == current.log_end_offset, f"{future.describe()}, not {current.describe()}"
    follow_offsets(future, current, now_ms)
    assert future.log_start_offset == current.log_start_offset, f"{future.describe()}, not {current.describe()}"
    future.update_config(current.config)
    future.epochs.copy_from(current.epochs)
    future.raise_highest_remote_offset(current.highest_remote_offset)
    rename_to_current(directory, future)
    future.inherit_from(current)


def rename_to_current(directory: LogDirectory, future: PartitionLog) -> None:
    """Rename a future log's directory to ``topic-partition``.

    Its log start offset is checkpointed first: so far only the other directory's checkpoint had it. Its cleaner offset
    must be durable already (`CheckpointStore.is_cleaner_offset_synced`): recovery after a crash would treat gaps from
    compaction as damage.

    Raises:
        OSError: the disk failed; the log is still a future log.
    """
    assert directory.checkpoints.is_cleaner_offset_synced(future), (
        f"{future.describe()}, compacted below {future.cleaner_offset}"
    )
    if offsets_to_checkpoint(future).has_log_start_entry:
        directory.checkpoints.write_log_start_offsets([future])
    path = f"{directory.path}/{future.label}"
    directory.disk.rename(future.directory, path)
    future.set_directory(path)
