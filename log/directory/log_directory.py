"""Log directory of a node (an entry of ``log.dirs``): its lock, ``meta.properties``, checkpoints and partition logs.

Source: ``LogManager.java``, ``MetaPropertiesEnsemble.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import errno
import logging
import posixpath
from functools import partial

from ottla.env.disk import PRIVATE_DIR, Disk, File
from ottla.log.checkpoints import checkpoint_files
from ottla.log.directory.checkpoint_store import CheckpointStore
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
    """Lock of the log directory (``.lock``) is held by another process."""


class LogDirectory:
    """Log directory of a node with its partition logs; the metadata log, which may lie in it, is not one of them."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.was_clean_shutdown = self._has_clean_shutdown_file = False
        self._clean_epoch = -1
        self.meta_properties: MetaProperties | None = None
        self._lock: File | None = None
        self.checkpoints = CheckpointStore(disk, path, self.logs)

    @property
    def full_path(self) -> str:
        """Absolute path of the log directory, as in DescribeLogDirs."""
        return posixpath.abspath(self.path)

    def create(self) -> None:
        """Create the directory if it is missing, accessible for its owner only.

        Raises:
            OSError: it cannot be created; the message is readable for users.
        """
        try:
            self.disk.makedirs(self.path, PRIVATE_DIR)
        except OSError as error:
            raise log_directory_error(self.path, error) from error

    def lock(self) -> None:
        """Create the directory if it is missing and lock it against other processes until `unlock` or `close`.

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
        """Directory id (16 bytes) in ``meta.properties``, which must have been read or written before."""
        assert self.meta_properties is not None
        return self.meta_properties.directory_id

    @property
    def clean_shutdown_epoch(self) -> int:
        """Broker epoch in the clean shutdown file at start; -1 after an unclean shutdown, or if the file has none."""
        return self._clean_epoch if self.was_clean_shutdown else -1

    def read_meta_properties(self) -> MetaProperties | None:
        """Read ``meta.properties`` into `meta_properties` and return it; None if the directory is not formatted.

        Raises:
            CorruptFile: ``meta.properties`` lacks a property, or one is malformed.
        """
        found = read_meta_properties(self.disk, self.path)
        if found is not None:
            self.meta_properties = found
        return found

    def write_meta_properties(self, identity: MetaProperties, now_ms: int) -> None:
        """Write and sync ``meta.properties``, and set `meta_properties`.

        ``now_ms``: wall clock, for the date in the file.
        """
        write_meta_properties(self.disk, self.path, identity, now_ms)
        self.meta_properties = identity

    def load_checkpoints(self) -> None:
        """Load the four offset checkpoints and read the clean shutdown file, once, before any log is opened.

        A corrupt checkpoint counts as missing. The log start offsets are restored from their backup if necessary, and
        a directory without logs gets a cleaner offset file. The clean shutdown file stays.

        Raises:
            OSError: the disk failed.
        """
        epoch = checkpoint_files.read_clean_shutdown_file(self.disk, self.path)
        self.was_clean_shutdown = self._has_clean_shutdown_file = epoch is not None
        self._clean_epoch = -1 if epoch is None else epoch
        self.checkpoints.load(lambda: bool(self.partition_dirs()))

    def remove_clean_shutdown_file(self) -> None:
        """Remove the clean shutdown file if it exists, before the first log is opened or created.

        Raises:
            OSError: the disk failed.
        """
        if self._has_clean_shutdown_file:
            checkpoint_files.remove_clean_shutdown_file(self.disk, self.path)
            self._has_clean_shutdown_file = False

    def ignore_checkpoints(self) -> None:
        """Forget recovery points and clean shutdown, so that `open_partition` reads every batch; no file is changed."""
        self.was_clean_shutdown = False
        self.checkpoints.forget_recovery_points()

    def partition_dirs(self) -> dict[TopicPartition, str]:
        """Return the path of each partition's directory on the disk, by partition; the metadata log's is left out."""
        found = list_partition_dirs(self.disk, self.path)
        return {at: path for at, path in found.items() if at[0] != METADATA_TOPIC}

    def open_partition(self, topic: str, partition: int, settings: LogConfig, now_ms: int) -> PartitionLog:
        """Open the existing log of a partition, recovering it after an unclean shutdown, and add it to `logs`.

        ``now_ms``: wall clock.

        Raises:
            CorruptFile, OSError: it cannot be opened.
        """
        return self.open_partition_directory(f"{self.path}/{topic}-{partition}", topic, partition, settings, now_ms)

    def open_partition_directory(
        self, path: str, topic: str, partition: int, settings: LogConfig, now_ms: int, *, is_contiguous: bool = False
    ) -> PartitionLog:
        """Open a partition's log, or a future log, in the directory ``path``, and add it to `logs`.

        It is recovered after an unclean shutdown. ``is_contiguous`` as in `open_log`; ``now_ms``: wall clock.

        Raises:
            CorruptFile, OSError: it cannot be opened.
        """
        self.remove_clean_shutdown_file()
        at, cleaner = (topic, partition), self.checkpoints.cleaner
        log = open_log(
            self.disk,
            path,
            topic,
            partition,
            settings,
            now_ms,
            clean=self.was_clean_shutdown,
            recovery_point=self.checkpoints.loaded_recovery_points.get(at, 0),
            log_start_offset=self.checkpoints.log_starts.offsets.get(at, 0),
            high_watermark=self.checkpoints.loaded_high_watermarks.get(at, 0),
            compacted_below=cleaner.compacted_below(at),
            is_contiguous=is_contiguous,
            on_swaps=partial(cleaner.raise_on_recovery, at),
        )
        point = cleaner.offsets.get(at, 0)
        is_in_log = log.log_start_offset <= point <= log.log_end_offset
        # not the log start: gaps below would be accepted, and records after it in its segment may be lost
        log.raise_cleaner_offset(point if is_in_log else log.segments.base_offsets[0])
        log.set_checkpoints(partial(self.checkpoints.prepare_truncation, log))
        self.logs[at] = log
        return log

    def create_partition(
        self, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Create a partition's log with its directory and first segment, and add it to `logs`.

        ``now_ms``: wall clock.

        Raises:
            OSError: as `create_partition_files`, `add_log`.
        """
        log = self.create_partition_files(topic, partition, topic_id, settings, now_ms)
        self.add_log(log)
        return log

    def create_partition_files(
        self, topic: str, partition: int, topic_id: bytes, settings: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Create directory and files of a new partition and return its log; called on the loop or in a thread.

        The caller adds the log with `add_log`. ``now_ms``: wall clock.

        Raises:
            OSError: the disk failed, or the process is out of resources; FileExistsError: the directory has records.
        """
        assert topic != METADATA_TOPIC, "the metadata log is not managed here"
        path = f"{self.path}/{topic}-{partition}"
        return create_log(self.disk, path, topic, partition, topic_id, settings, now_ms)

    def add_log(self, log: PartitionLog) -> None:
        """Add a log that was created in this directory to `logs`.

        Entries of a deleted partition of the same name are removed from the checkpoints first, which waits for the
        disk.

        Raises:
            OSError: the disk failed; the log is not added.
        """
        self.remove_clean_shutdown_file()
        at = (log.topic, log.partition)
        self.checkpoints.prepare_new_log(at)
        log.set_checkpoints(partial(self.checkpoints.prepare_truncation, log))
        self.logs[at] = log

    def rename_for_deletion(self, topic: str, partition: int, tag: str, suffix: str = DELETE_DIR_SUFFIX) -> str:
        """Rename the directory of a deleted partition for later removal; take its log offline; return the new path.

        The log leaves `logs`, and reads in progress complete. The topic's name is cut so that
        ``<topic>-<partition>.<tag>-delete`` fits in 255 bytes.

        Raises:
            OSError: the directory was not renamed; the log is offline all the same.
        """
        assert topic != METADATA_TOPIC, "the metadata log is not managed here"
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

    def sync_new_partition_directories(self) -> None:
        """Sync the log directory, once, if new partitions' directories are not durable in it yet.

        Raises:
            OSError: the log directory must go offline.
        """
        new = [log for log in self.logs.values() if log.flush_state.is_directory_unsynced and not log.closed]
        if new:
            self.disk.fsync_dir(self.path)
        for log in new:
            log.flush_state.on_directory_synced()

    def close_logs(self, first: int = 0, step: int = 1) -> None:
        """Close every ``step``-th log from index ``first`` on, waiting for the disk: several threads share the logs.

        If a close fails, it is logged, the log is not `closed_cleanly`, which `close` detects, and the remaining logs
        stay open until `close`.
        """
        for log in list(self.logs.values())[first::step]:
            try:
                log.close()
            except OSError as error:
                logger.error("Error while closing log %s: %s", log.describe(), error)
                return

    def close(self, broker_epoch: int) -> None:
        """Shut down cleanly, waiting for the disk.

        All logs are flushed and closed, checkpoints and the clean shutdown file with ``broker_epoch`` are written, and
        the lock is released.

        Raises:
            OSError: incomplete: without the clean shutdown file the next start recovers all logs. The lock stays held.
        """
        self.sync_new_partition_directories()
        self.close_logs()
        for log in self.logs.values():
            if not log.closed_cleanly:
                raise OSError(errno.EIO, f"{log.describe()}: not closed as a clean stop closes")
        self.checkpoints.write()
        self.checkpoints.cleaner.create_if_missing()
        checkpoint_files.write_clean_shutdown_file(self.disk, self.path, broker_epoch)
        self.unlock()

    def unlock(self) -> None:
        """Release the lock without closing logs or writing files, as a crash would."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
