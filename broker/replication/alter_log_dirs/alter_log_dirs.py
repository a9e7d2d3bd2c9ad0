"""Start and cancellation of moves of replicas between the log directories of this broker.

Source: ``ReplicaManager.alterReplicaLogDirs``, ``LogManager.maybeUpdatePreferredLogDir`` (apache/kafka 4.3.1; KIP-113,
KIP-1066).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from ottla.broker.replication.alter_log_dirs.future_replica_copier import FutureReplicaCopier
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.replica_manager import ReplicaManager, TopicPartition
from ottla.broker.storage.log_dirs import DiskErrorHandler, LogDirs
from ottla.env.env import Env, ThreadPool
from ottla.log.directory.future_log import MAX_DIR_NAME_LENGTH, create_future_log, future_dir_name
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX
from ottla.wire.errors import ErrorCode

logger = logging.getLogger("ottla.moves")


class AlterLogDirs:
    """Moves for AlterReplicaLogDirs: creates future logs, which `FutureReplicaCopier` fills, and cancels moves."""

    def __init__(
        self,
        env: Env,
        storage: LogDirs,
        replicas: ReplicaManager,
        mover: FutureReplicaCopier,
        prefer: Callable[[TopicPartition, LogDirectory], None],
        fail: DiskErrorHandler,
    ) -> None:
        """``prefer`` sets the preferred directory of a partition not created yet; ``fail`` handles disk errors."""
        self._env = env
        self._log_dirs = storage
        self._replica_manager = replicas
        self._copier = mover
        self._set_preferred_directory = prefer
        self._fail = fail
        self._lock = trio.Lock()

    async def alter(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        """Move a replica to the log directory at an absolute path, once earlier calls are complete.

        If the directory can be used, a move of the replica to another one is cancelled first, even if the new move
        cannot start then.

        Returns:
            NONE: the move has started, is in progress already, or is not needed.
            LOG_DIR_NOT_FOUND, INVALID_REPLICA_ASSIGNMENT (cordoned directory), INVALID_TOPIC_EXCEPTION (the name of the
            directory would be too long), KAFKA_STORAGE_ERROR (the directory or partition is offline; for a new move any
            directory is; the disk fails, or the partition is removed meanwhile): no move has started.
            REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION: not hosted; a log that is created later gets this
            directory.
        """
        async with self._lock:
            return await self._alter(topic_partition, path)

    async def _alter(self, at: TopicPartition, path: str) -> ErrorCode:
        storage, replicas = self._log_dirs, self._replica_manager
        if len(future_dir_name(*at, self._new_suffix())) > MAX_DIR_NAME_LENGTH:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        target = storage.directory_at(path)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if target.path in storage.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if storage.is_cordoned(target):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        replica, future = replicas.get(*at), replicas.future_logs.get(at)
        if replica is None:
            return self._alter_unhosted(at, target)
        if future is not None and storage.directory_of(future) is not target:
            await self._abandon(at, storage.directory_of(future))
            return await self._alter(at, path)
        if future is not None or storage.directory_of(replica.log) is target:
            return ErrorCode.NONE
        if storage.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR  # an offline directory may have a future log
        return await self._start_move(replica, target)

    def _alter_unhosted(self, at: TopicPartition, target: LogDirectory) -> ErrorCode:
        """Set the preferred directory of a partition that this node does not host (yet); return the error code.

        KAFKA_STORAGE_ERROR for an offline partition, otherwise REPLICA_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION.
        """
        if at in self._replica_manager.offline_partitions:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._set_preferred_directory(at, target)
        topic = self._replica_manager.image.topics.get(at[0])
        known = topic is not None and at[1] in topic.partitions
        return ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _new_suffix(self) -> str:
        return self._env.uuid().hex()

    async def _start_move(self, replica: HostedPartition, target: LogDirectory) -> ErrorCode:
        """Create an empty future log in ``target``, in a thread, and start its copy; return NONE.

        Return KAFKA_STORAGE_ERROR after a disk error, or if the partition is removed meanwhile: the future log is
        deleted then, unless its directory is offline.
        """
        log, now_ms, tag = replica.log, self._env.now_ms(), self._new_suffix()
        about = (log.topic, log.partition, replica.topic_id, log.config, now_ms, tag)
        path = f"{target.path}/{future_dir_name(log.topic, log.partition, tag)}"
        try:
            future = await self._env.in_thread(partial(create_future_log, target, *about), ThreadPool.FILES)
            future.close_files()  # its copy may start much later
            if target.path in self._log_dirs.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if self._replica_manager.get(log.topic, log.partition) is not replica:
                # deleted meanwhile; a new partition of that name may use this directory
                await self._delete_future_log(path, target)
                return ErrorCode.KAFKA_STORAGE_ERROR
            target.add_log(future)
        except OSError as error:
            self._fail(error, target)
            await self._delete_future_log(path, target)
            return ErrorCode.KAFKA_STORAGE_ERROR
        future.raise_cleaner_offset(replica.log.cleaner_offset)
        self._replica_manager.future_logs[replica.topic, replica.partition] = future
        logger.info(
            "Moving replica %s from log dir %s to %s", log.label, self._log_dirs.directory_of(log).path, target.path
        )
        self._copier.start_copy(replica)
        return ErrorCode.NONE

    async def _delete_future_log(self, path: str, target: LogDirectory) -> None:
        """Rename an unused future log for deletion and sync its directory: a later start would resume its copy.

        A disk error is passed to ``fail``; in an offline directory nothing is done.
        """
        if target.path in self._log_dirs.offline:
            return
        doomed = f"{path.removesuffix(FUTURE_DIR_SUFFIX)}{DELETE_DIR_SUFFIX}"
        try:
            if self._env.disk.exists(path):
                self._env.disk.rename(path, doomed)
                for callback in self._replica_manager.on_delete_scheduled:
                    callback(doomed)
                await self._flush_directory(target)
        except OSError as error:
            self._fail(error, target)

    async def _flush_directory(self, where: LogDirectory) -> None:
        """Sync a log directory in a thread, so that its renames are durable. Raises OSError."""
        await self._env.in_thread(partial(self._env.disk.fsync_dir, where.path), ThreadPool.SYNC)

    async def _abandon(self, at: TopicPartition, where: LogDirectory) -> None:
        """Cancel a move and sync ``where``, the log directory of its future log.

        Otherwise the future log would return after a power failure. A disk error is passed to ``fail``.
        """
        self.cancel(at)
        try:
            await self._flush_directory(where)
        except OSError as error:
            self._fail(error, where)

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Cancel the move of a partition and rename its future log for deletion; no effect without a move."""
        future = self._replica_manager.abandon_future_log(topic_partition)
        if future is not None:
            logger.info(
                "Cancelled the move of replica %s to log dir %s", future.label, self._log_dirs.directory_of(future).path
            )
            self._replica_manager.discard(future)
