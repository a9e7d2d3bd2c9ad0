"""A data directory: its lock, its identity, its checkpoints, and the partitions that lie in it.

Source: ``LogManager.java``, ``MetaPropertiesEnsemble.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
import logging
import posixpath
from collections.abc import Iterable, Mapping
from functools import partial

from ottla.env.disk import PRIVATE_DIR, Disk, File
from ottla.log.checkpoints import checkpoint_files
from ottla.log.checkpoints.checkpoint_files import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptFile,
)
from ottla.log.checkpoints.log_start_offset_checkpoint import LogStartOffsetCheckpoint
from ottla.log.directory.directory_listing import list_partition_dirs, log_directory_error
from ottla.log.directory.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from ottla.log.file_names import DELETE_DIR_SUFFIX, TopicPartition
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import create_log, open_log

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
logger = logging.getLogger("ottla.storage")


class LogDirectoryInUse(Exception):
    """Another process holds the directory's lock."""


class LogDirectory:
    """One data directory and the logs in it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.was_clean_shutdown = self._has_clean_shutdown_file = False
        self._clean_epoch = -1
        self.meta_properties: MetaProperties | None = None
        self._lock: File | None = None
        self.log_start_checkpoint = LogStartOffsetCheckpoint(disk, path)
        self._recovery_points: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self.written_cleaner_offsets: Mapping[TopicPartition, int] = {}
        """What the file says, with each writing another object; `directory.cleaner_checkpoint` writes it, too."""
        self.are_cleaner_offsets_synced = True
        """Whether a power cut leaves that file as it is."""
        self._has_cleaner_checkpoint = False
        """Whether that file was there: who is not in it was never compacted."""
        self._checkpointed_partitions: set[TopicPartition] = set()
        """Of whom the checkpoints say something."""

    @property
    def full_path(self) -> str:
        """The absolute path, as DescribeLogDirs tells it."""
        return posixpath.abspath(self.path)

    def create(self) -> None:
        """Create the directory where it is missing.

        Raises:
            OSError: that cannot be; the message is a sentence.
        """
        try:
            self.disk.makedirs(self.path, PRIVATE_DIR)
        except OSError as error:
            raise log_directory_error(self.path, error) from error

    def lock(self) -> None:
        """Make the directory where it is missing and keep others out of it.

        Raises:
            LogDirectoryInUse: another process has the lock; OSError: the directory cannot be created or written.
        """
        self.create()
        try:
            self._lock = self.disk.lock(f"{self.path}/.lock")
        except OSError as error:
            raise log_directory_error(self.path, error) from error
        if self._lock is None:
            raise LogDirectoryInUse(
                f"{self.path} is in use by another node, or named twice in log.dirs (its .lock is held)"
            )

    @property
    def id(self) -> bytes:
        """The directory's own id; it must have been formatted."""
        assert self.meta_properties is not None
        return self.meta_properties.directory_id

    @property
    def clean_shutdown_epoch(self) -> int:
        """The broker epoch under which the last process stopped cleanly here; -1 where it did not, or never said."""
        return self._clean_epoch if self.was_clean_shutdown else -1

    def read_meta_properties(self) -> MetaProperties | None:
        """Who the directory belongs to; None where it was never formatted.

        Raises:
            CorruptFile: ``meta.properties`` lacks something.
        """
        found = read_meta_properties(self.disk, self.path)
        if found is not None:
            self.meta_properties = found
        return found

    def write_meta_properties(self, identity: MetaProperties, now_ms: int) -> None:
        """Write ``meta.properties``."""
        write_meta_properties(self.disk, self.path, identity, now_ms)
        self.meta_properties = identity

    def load_checkpoints(self) -> None:
        """Read the checkpoints and the mark of a clean stop, once, before any log is opened."""
        epoch = checkpoint_files.read_clean_shutdown_file(self.disk, self.path)
        self.was_clean_shutdown = self._has_clean_shutdown_file = epoch is not None
        self._clean_epoch = -1 if epoch is None else epoch
        self._recovery_points = self._read_checkpoint(RECOVERY_POINT_CHECKPOINT)
        self.log_start_checkpoint.load()
        self._high_watermarks = self._read_checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        self._load_cleaner_offsets()
        self._checkpointed_partitions = {*self.log_start_checkpoint.offsets, *self._recovery_points}

    def _load_cleaner_offsets(self) -> None:
        """Read how far each log is compacted. As Kafka does, a directory without logs gets a file that names none."""
        path = f"{self.path}/{CLEANER_OFFSET_CHECKPOINT}"
        if not self.disk.exists(path) and not self.partition_dirs():
            checkpoint_files.write_offsets(self.disk, path, {}, sync=False)
        try:
            self._has_cleaner_checkpoint = self.disk.exists(path)
            self.written_cleaner_offsets = checkpoint_files.read_offsets(self.disk, path)
        except CorruptFile:
            self._has_cleaner_checkpoint = False

    def _on_segments_swapped(self, at: TopicPartition, below: int) -> None:
        """A log is compacted up to there: it goes on with an exchange of which nothing else tells."""
        if self._has_cleaner_checkpoint and below > self.written_cleaner_offsets.get(at, 0):
            points = {**self.written_cleaner_offsets, at: below}
            self._write_checkpoint(CLEANER_OFFSET_CHECKPOINT, points, sync=True)
            self.written_cleaner_offsets = points

    def remove_clean_shutdown_file(self) -> None:
        """Take the mark of a clean stop: logs are opened now. Who stops before that leaves all as it was, and the mark.

        Raises:
            OSError: the disk failed.
        """
        if self._has_clean_shutdown_file:
            checkpoint_files.remove_clean_shutdown_file(self.disk, self.path)
            self._has_clean_shutdown_file = False

    def ignore_checkpoints(self) -> None:
        """Look at every batch of every log, whatever the marks say."""
        self.was_clean_shutdown = False
        self._recovery_points.clear()

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint_files.read_offsets(self.disk, f"{self.path}/{name}")
        except CorruptFile:
            return {}  # as if it were missing: every log is then scanned from its start

    def partition_dirs(self) -> dict[TopicPartition, str]:
        """Directories that hold a partition, the metadata log's aside."""
        found = list_partition_dirs(self.disk, self.path)
        return {at: path for at, path in found.items() if at[0] != METADATA_TOPIC}

    def open_partition(self, topic: str, partition: int, settings: LogConfig, now_ms: int) -> PartitionLog:
        """Open a partition that was there before.

        Raises:
            CorruptFile, OSError: it cannot be opened.
        """
        return self.open_partition_directory(f"{self.path}/{topic}-{partition}", topic, partition, settings, now_ms)

    def open_partition_directory(
        self, path: str, topic: str, partition: int, settings: LogConfig, now_ms: int, *, adjoin: bool = False
    ) -> PartitionLog:
        """The same for a partition in a directory of another name; ``adjoin`` as `open_log` has it."""
        self.remove_clean_shutdown_file()
        at = (topic, partition)
        log = open_log(
            self.disk,
            path,
            topic,
            partition,
            settings,
            now_ms,
            clean=self.was_clean_shutdown,
            recovery_point=self._recovery_points.get(at, 0),
            log_start_offset=self.log_start_checkpoint.offsets.get(at, 0),
            high_watermark=self._high_watermarks.get(at, 0),
            compacted_below=self.written_cleaner_offsets.get(at, 0) if self._has_cleaner_checkpoint else None,
            adjoin=adjoin,
            on_swaps=partial(self._on_segments_swapped, at),
        )
        point = self.written_cleaner_offsets.get(at, 0)
        log.raise_cleaner_offset(point if log.log_start_offset <= point <= log.log_end_offset else log.log_start_offset)
        log.set_checkpoint_writer(
            self.write_checkpoints, self._recovery_points.get(at, 0), self.log_start_checkpoint.offsets.get(at, 0)
        )
        self.logs[at] = log
        return log

    def create_partition(
        self, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Make a partition's directory and first segment."""
        log = self.create_partition_files(topic, partition, topic_id, settings, now_ms)
        self.add_log(log)
        return log

    def create_partition_files(
        self, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Only the files of a new partition: what a thread may do. The log counts once it is adopted.

        Raises:
            OSError: the disk failed, or the process is short of something; FileExistsError: records lie there.
        """
        assert topic != METADATA_TOPIC, "the metadata log is no partition"
        path = f"{self.path}/{topic}-{partition}"
        return create_log(self.disk, path, topic, partition, topic_id, settings, now_ms)

    def add_log(self, log: PartitionLog) -> None:
        """Take a log that was made here among the directory's own.

        One of that name may have been deleted a moment ago. As long as a checkpoint names it, a crash would put the new
        log where the old one began, and believe what was never synced: so the checkpoints are written first. Their
        names are synced with the new log's own. What is lost with a torn file is waited for, and it alone: where logs
        start, and how far they are compacted. Without the others every log is scanned.

        Raises:
            OSError: they could not be.
        """
        self.remove_clean_shutdown_file()
        at = (log.topic, log.partition)
        if (
            at in self._checkpointed_partitions
            or at in self.log_start_checkpoint.backup_partitions
            or at in self.written_cleaner_offsets
        ):
            self.write_checkpoints(sync=False)
        log.set_checkpoint_writer(self.write_checkpoints, 0, 0)
        self.logs[at] = log

    def rename_for_deletion(self, topic: str, partition: int, tag: str, suffix: str = DELETE_DIR_SUFFIX) -> str:
        """Take a partition out of service: its directory is renamed, its files stay until they are removed later.

        The name is cut so that it fits in 255 bytes: ``<topic>-<partition>.<tag>-delete``. Who reads from it still may
        go on.
        """
        assert topic != METADATA_TOPIC, "the metadata log is no partition"
        log = self.logs.pop((topic, partition), None)
        path = f"{self.path}/{topic}-{partition}" if log is None else log.directory
        if log is not None:
            log.set_offline()
        ending = f"-{partition}.{tag}{suffix}"
        target = f"{self.path}/{topic[: 255 - len(ending)]}{ending}"
        self.disk.rename(path, target)
        if log is not None:
            log.set_directory(target)
        return target

    def write_checkpoints(self, *, sync: bool = True) -> None:
        """Write recovery points, log starts and high watermarks, and where compaction is if that has changed.

        Without ``sync`` a power cut may leave each file as it was, and tear those of recovery points and high
        watermarks; where compaction is then waits for another writing, unless a log is named that is gone.

        Raises:
            OSError: some file is as it was.
        """
        logs = sorted(self.logs.items())
        starts = {at: log.log_start_offset for at, log in logs if log.log_start_offset > log.base_offsets[0]}
        points = {at: log.recovery_point for at, log in logs}
        cleaned = self.cleaner_offsets()
        self._checkpointed_partitions.update(starts, points)
        self._write_checkpoint(RECOVERY_POINT_CHECKPOINT, points, sync=sync)
        if sync or self.log_start_checkpoint.needs_write(starts):
            self.log_start_checkpoint.write(starts, sync=True, sync_dir=sync)
        self._write_checkpoint(REPLICATION_OFFSET_CHECKPOINT, {at: log.high_watermark for at, log in logs}, sync=sync)
        if not cleaned.keys() >= self.written_cleaner_offsets.keys() or (
            sync and self.synced_cleaner_offsets != cleaned
        ):
            self._write_checkpoint(CLEANER_OFFSET_CHECKPOINT, dict(sorted(cleaned.items())), sync=True, sync_dir=sync)
            self.written_cleaner_offsets, self.are_cleaner_offsets_synced = cleaned, sync
        self._checkpointed_partitions = {*starts, *(at for at, point in points.items() if point > 0)}
        for _, log in logs:
            log.on_checkpointed()

    def prepare_checkpoint_write(self, starts: dict[TopicPartition, int], mentioned: set[TopicPartition]) -> None:
        """Somebody else writes the checkpoints now: these log starts, and something of those mentioned."""
        self.log_start_checkpoint.prepare_write(starts)
        self._checkpointed_partitions |= mentioned

    def complete_checkpoint_write(self, mentioned: set[TopicPartition]) -> None:
        """They are written: the checkpoints on disk say something of these, and of no others."""
        self._checkpointed_partitions = mentioned

    def _write_checkpoint(
        self, name: str, offsets: dict[TopicPartition, int], *, sync: bool, sync_dir: bool | None = None
    ) -> None:
        checkpoint_files.write_offsets(self.disk, f"{self.path}/{name}", offsets, sync=sync, sync_dir=sync_dir)

    def write_log_start_offsets(self, logs: Iterable[PartitionLog]) -> None:
        """Write the log starts of ``logs``, which have moved, without looking at all the others, or waiting.

        Raises:
            OSError: the file is as it was.
        """
        starts = {
            **self.log_start_checkpoint.offsets,
            **{(log.topic, log.partition): log.log_start_offset for log in logs},
        }
        self._checkpointed_partitions.update(starts)
        self.log_start_checkpoint.write(starts, sync=False)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Up to where each log is compacted, of those that are."""
        return {at: log.cleaner_offset for at, log in self.logs.items() if log.cleaner_offset > 0}

    @property
    def synced_cleaner_offsets(self) -> Mapping[TopicPartition, int] | None:
        """What the disk has of that; None where a power cut may take it."""
        return self.written_cleaner_offsets if self.are_cleaner_offsets_synced else None

    def is_cleaner_offset_synced(self, log: PartitionLog) -> bool:
        """Whether the disk has for sure how far a log is compacted."""
        return (
            self.are_cleaner_offsets_synced
            and self.written_cleaner_offsets.get((log.topic, log.partition), 0) == log.cleaner_offset
        )

    def sync_new_partition_directories(self) -> None:
        """Make the names of partitions that are new here durable, all of them at once.

        Raises:
            OSError: final.
        """
        new = [log for log in self.logs.values() if log.is_directory_unsynced and not log.closed]
        if new:
            self.disk.fsync_dir(self.path)
        for log in new:
            log.on_directory_synced()

    def close_logs(self, first: int = 0, step: int = 1) -> None:
        """Close every ``step``-th log from the ``first`` on: threads that share the logs share what the disk commits.

        One that fails is closed and not sealed, which `close` finds; those behind it are left to `close`.
        """
        for log in list(self.logs.values())[first::step]:
            try:
                log.close()
            except OSError as error:
                logger.error("%s: %s", log.describe(), error)
                return

    def close(self, broker_epoch: int) -> None:
        """A clean stop: every log flushed and sealed, checkpoints written, then the mark, then the lock let go.

        Raises:
            OSError: it did not come to its end; there is no mark, and the next start looks at everything.
        """
        self.sync_new_partition_directories()
        self.close_logs()
        for log in self.logs.values():
            if not log.closed_cleanly:
                raise OSError(errno.EIO, f"{log.describe()}: not closed as a clean stop closes")
        self.write_checkpoints()
        if not self.disk.exists(f"{self.path}/{CLEANER_OFFSET_CHECKPOINT}"):
            self.disk.open(f"{self.path}/{CLEANER_OFFSET_CHECKPOINT}", create=True).close()
        checkpoint_files.write_clean_shutdown_file(self.disk, self.path, broker_epoch)
        self.unlock()

    def unlock(self) -> None:
        """Let the lock go, and nothing else: what a crash would do."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
