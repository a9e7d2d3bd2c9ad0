"""Log directories of a node: identity, locations of partitions, and failures.

The node cannot run without the directory of the metadata log. Any other may fail, but for the last one online.

Source: ``LogManager.scala``, ``KafkaRaftServer.initializeLogDirs`` (apache/kafka 4.3.1; KIP-112, KIP-858, KIP-1066).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import trio

from ottla.env.disk import Disk, File, is_transient
from ottla.env.env import Env, ThreadPool
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger("ottla.storage")

CORDONED_LOG_DIRS = "cordoned.log.dirs"
EVERY_DIRECTORY = "*"
CLOSE_THREADS = 8
"""Threads that close the logs at a clean shutdown, so that the disk can combine their syncs."""
NO_PARTITIONS: Mapping[str, int] = MappingProxyType({})
DiskErrorHandler = Callable[[OSError, LogDirectory | PartitionLog | None], None]
"""Callback with a disk error and its log directory or log; None is the metadata directory."""


class LogDirMismatch(Exception):
    """Raised at startup if log directories are of another node or cluster, copies, or without the metadata log.

    The message has the path and mostly the remedy. Nothing was changed.
    """


class LogDirs:
    """Log directories of a node. ``metadata`` may be one of ``directories``, or a separate one without partitions."""

    def __init__(self, disk: Disk, data_dirs: list[str], metadata_dir: str | None = None) -> None:
        self.directories = [LogDirectory(disk, path) for path in data_dirs]
        own = [d for d in self.directories if d.path == metadata_dir]
        if metadata_dir is None:
            self.metadata = self.directories[0]
        else:
            self.metadata = own[0] if own else LogDirectory(disk, metadata_dir)
        self.offline: dict[str, OSError] = {}
        """Failed log directories, by path, with the error; they stay offline until the next start."""
        self.checkpoint_locks: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        """Locks that serialize the writes of a directory's cleaner offset checkpoint, by path."""
        self._cordoned_config = ""
        self._cordoned: frozenset[str] = frozenset()

    def _all_directories(self) -> list[LogDirectory]:
        return self.directories if self.metadata in self.directories else [self.metadata, *self.directories]

    @property
    def online(self) -> list[LogDirectory]:
        """Online log directories, without a separate metadata directory."""
        return [d for d in self.directories if d.path not in self.offline]

    @property
    def online_ids(self) -> list[bytes]:
        """Directory ids of the online log directories, as reported to the controller."""
        return [d.id for d in self.online]

    @property
    def cordoned_ids(self) -> list[bytes]:
        """Directory ids of the cordoned online log directories, as reported to the controller."""
        return [d.id for d in self.online if self.is_cordoned(d)]

    def is_cordoned(self, directory: LogDirectory) -> bool:
        """Return True if a directory is cordoned: no new partitions are created in it (KIP-1066)."""
        return directory.path in self._cordoned

    def cordon(self, named: str) -> bool:
        """Set the cordoned log directories; ``named`` is comma-separated paths or ``*``.

        Return True if ``named`` differs from the last one. A path that is not in ``log.dirs`` has no effect but a
        warning.
        """
        if named == self._cordoned_config:
            return False
        self._cordoned_config, paths = named, {path.strip() for path in named.split(",")}
        known = [d for d in self.directories if paths & {d.path, d.full_path, EVERY_DIRECTORY}]
        self._cordoned = frozenset(d.path for d in known)
        for path in sorted(paths - {"", EVERY_DIRECTORY} - {x for d in known for x in (d.path, d.full_path)}):
            logger.warning("Invalid entry in %s: %s is not in log.dirs", CORDONED_LOG_DIRS, path)
        return True

    @property
    def clean_shutdown_epoch(self) -> int:
        """Broker epoch of the last clean shutdown, if all directories have the same; else -1 (R-272; KIP-966).

        It is -1 also if a directory is offline.
        """
        epochs = {d.clean_shutdown_epoch for d in self.directories}
        return epochs.pop() if len(epochs) == 1 and not self.offline else -1

    def logs(self) -> list[PartitionLog]:
        """Return all open logs of online directories, except future logs, as a new list."""
        return [log for directory in self.online for log in directory.logs.values() if not log.is_future]

    def log_of(self, file: File) -> PartitionLog | None:
        """Return the log of an online directory that has ``file`` open as a segment; None without one.

        There is none either if the segment was closed or replaced since it opened the file.
        """
        return next((log for log in self.logs() if any(segment.is_open_file(file) for segment in log.segments)), None)

    # ------------------------------------------------------------------ startup

    def lock(self) -> None:
        """Lock all log directories; one that cannot be locked due to a disk error goes offline.

        Raises:
            LogDirectoryInUse: another process has locked one.
            OSError: the metadata directory failed, all directories failed, or no file descriptors are left.
        """
        for directory in self._all_directories():
            self._run_or_mark_offline(directory, directory.lock)

    def _run_or_mark_offline(self, directory: LogDirectory, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            self.mark_offline_at_startup(directory, error)

    def identify(self, node_id: int, cluster_id: str | None) -> MetaProperties | None:
        """Read and check the directories' meta.properties; return that of the metadata directory, None if all are new.

        A directory that cannot be read goes offline.

        Args:
            node_id: Node id that the directories must have.
            cluster_id: Cluster id that they must have; None: that of the metadata directory.

        Raises:
            LogDirMismatch: another node or cluster, a duplicate directory id, or no metadata log in the metadata
                directory.
            CorruptFile: a meta.properties is damaged.
            OSError: the node needs the directory that cannot be read, or the error is transient.
        """
        found: dict[bytes, LogDirectory] = {}
        for directory in self._all_directories():
            if directory.path not in self.offline:
                self._run_or_mark_offline(directory, directory.read_meta_properties)
            if directory.meta_properties is None or directory.path in self.offline:
                continue
            self._check(directory, node_id, cluster_id)
            other = found.setdefault(directory.id, directory)
            if other is not directory:
                raise LogDirMismatch(f"{directory.path} is a copy of {other.path}: both have the same directory.id")
        if self.metadata.meta_properties is None and found:
            other = next(iter(found.values()))
            raise LogDirMismatch(
                f"{self.metadata.path} has no metadata log, but {other.path} belongs to a node: "
                "list the directory with __cluster_metadata-0 first, or set metadata.log.dir"
            )
        return self.metadata.meta_properties

    def _check(self, directory: LogDirectory, node_id: int, cluster_id: str | None) -> None:
        identity = directory.meta_properties
        assert identity is not None
        if identity.node_id != node_id:
            raise LogDirMismatch(f"{directory.path} belongs to node {identity.node_id}, not {node_id}: set --node-id")
        wanted = cluster_id
        if wanted is None and self.metadata.meta_properties is not None:
            wanted = self.metadata.meta_properties.cluster_id
        if wanted is not None and identity.cluster_id != wanted:
            raise LogDirMismatch(f"{directory.path} belongs to cluster {identity.cluster_id}, not {wanted}")

    def initialize(self, identity: MetaProperties, now_ms: int, new_id: Callable[[], bytes]) -> None:
        """Write meta.properties of new directories with the node's identity; load the checkpoints of all directories.

        Raises:
            OSError: the node needs the failed directory (`can_go_offline`), or the error is transient. Any other
                directory goes offline instead.
        """
        for directory in self._all_directories():
            if directory.path not in self.offline:
                self._run_or_mark_offline(directory, partial(self._initialize, directory, identity, now_ms, new_id))

    def _initialize(
        self, directory: LogDirectory, identity: MetaProperties, now_ms: int, new_id: Callable[[], bytes]
    ) -> None:
        if directory.meta_properties is None:
            directory.write_meta_properties(MetaProperties(identity.cluster_id, identity.node_id, new_id()), now_ms)
        directory.load_checkpoints()

    # ------------------------------------------------------------------ partitions

    def select_directory(self, coming: Mapping[str, int] = NO_PARTITIONS) -> LogDirectory:
        """Return the online directory for a new partition: the first with the fewest logs (``LogManager.nextLogDirs``).

        ``coming``: number of pending creations, by path. If all directories are cordoned the first is returned: the
        controller did not know of the cordon when it assigned the partition.
        """
        free = [d for d in self.online if not self.is_cordoned(d)] or self.online[:1]
        return min(free, key=lambda d: len(d.logs) + coming.get(d.path, 0))

    def directory_at(self, path: str) -> LogDirectory | None:
        """Return the log directory with an absolute path, online or not; None if ``log.dirs`` has no such path."""
        return next((d for d in self.directories if d.full_path == path), None)

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        """Return the log directory (element of ``log.dirs``) in which the directory of a partition's log lies."""
        path = log.directory.rpartition("/")[0]
        return next(d for d in self.directories if d.path == path)

    # ------------------------------------------------------------------ failure and shutdown

    def can_go_offline(self, directory: LogDirectory) -> bool:
        """Return True if the node can run without a directory: not the metadata directory nor the last one online."""
        return directory is not self.metadata and any(d is not directory for d in self.online)

    def mark_offline_at_startup(self, directory: LogDirectory, error: OSError) -> list[PartitionLog]:
        """Mark a directory offline that cannot be read or written at startup; return its logs (`mark_offline`).

        Raises:
            OSError: ``error``: the node needs the directory; or the error is transient (no descriptors): the node does
                not start then, as an older log in another directory could be used instead.
        """
        if is_transient(error) or not self.can_go_offline(directory):
            raise error
        return self.mark_offline(directory, error)

    def mark_offline(self, directory: LogDirectory, error: OSError) -> list[PartitionLog]:
        """Mark a directory offline until the next start, drop its logs and return them; none if it was offline.

        The logs are marked closed. Nothing is written, and their files stay open.
        """
        if directory.path in self.offline:
            return []
        self.offline[directory.path] = error
        logger.critical(
            "Stopping serving logs in dir %s because the log directory has failed: %s", directory.path, error
        )
        lost = list(directory.logs.values())
        for log in lost:
            log.set_offline()
        directory.logs.clear()
        return lost

    def close(self, broker_epoch: int) -> None:
        """Close all directories in `online` cleanly; write ``broker_epoch`` into their clean shutdown files.

        The metadata directory, if it is one of them, is closed last. Another directory that fails goes offline.

        Raises:
            OSError: the metadata directory failed.
        """
        self._for_each(lambda directory: directory.close(broker_epoch))

    def sync_new_partition_directories(self) -> None:
        """Sync the directories of new partitions before `close_logs`. Raises OSError for the metadata directory."""
        self._for_each(LogDirectory.sync_new_partition_directories)

    def close_logs(self, first: int, step: int) -> None:
        """Close every ``step``-th log of each online directory from index ``first`` on.

        `close_log_dirs` calls it in ``step`` threads, each with another ``first``, before `close`.
        """
        for directory in self.online:
            directory.close_logs(first, step)

    def _for_each(self, work: Callable[[LogDirectory], None]) -> None:
        for directory in sorted(self.online, key=lambda d: d is self.metadata):
            try:
                work(directory)
            except OSError as error:
                if directory is self.metadata:
                    raise
                self.mark_offline(directory, error)

    def unlock(self) -> None:
        """Release the directory locks without a clean shutdown, as after a crash."""
        for directory in self._all_directories():
            directory.unlock()


async def close_log_dirs(env: Env, storage: LogDirs, broker_epoch: int) -> None:
    """Flush and close all logs in threads, then write the clean shutdown file of each log directory.

    ``broker_epoch`` is written into that file.

    Raises:
        OSError: the metadata directory failed.
    """
    await env.in_thread(storage.sync_new_partition_directories)
    async with trio.open_nursery() as nursery:
        for first in range(CLOSE_THREADS):
            nursery.start_soon(env.in_thread, partial(storage.close_logs, first, CLOSE_THREADS), ThreadPool.SYNC)
    await env.in_thread(partial(storage.close, broker_epoch))
