"""Recovery at startup of the future logs that an earlier process left.

Source: ``LogManager.loadLog``, ``LogManager.recoverAbandonedFutureLogs``, ``ReplicaManager.maybeAddLogDirFetchers``
(apache/kafka 4.3.1; KIP-113, KIP-858).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import NamedTuple

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.replication.alter_log_dirs.promotion import FutureLogDecision, decide_future_log
from ottla.broker.replication.replica_manager import ReplicaManager, TopicPartition
from ottla.broker.storage.cleaner_checkpoint_writer import write_cleaner_checkpoint
from ottla.broker.storage.log_dirs import LogDirs
from ottla.controller.metadata.directory_id import directory_id_of
from ottla.controller.metadata.image import MetadataImage
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.future_log import list_future_dirs, log_recency, rename_to_current
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.wire.codec.schema import ZERO_UUID

logger = logging.getLogger("ottla.moves")


class LeftoverFutureLog(NamedTuple):
    """Future log found in a log directory at startup, with what the metadata image assigns to this node."""

    topic_partition: TopicPartition
    directory: LogDirectory
    path: str
    topic_id: bytes | None
    """Id of the topic, if the image assigns a replica of the partition to this node; otherwise None."""
    is_assigned: bool
    """True if the image assigns the replica to this log directory."""
    is_sole_isr_member: bool = False
    """True if no other replica is in the ISR: this node may have the only copy of acknowledged records.

    For `_recover_future_log` it is True only if a log directory is offline, too.
    """


def recover_future_logs(
    env: Env, config: NodeConfig, replicas: ReplicaManager, storage: LogDirs, image: MetadataImage
) -> Job[None]:
    """Promote, resume, keep unused or rename each future log found at startup, as a job; ``image`` decides.

    An unusable one is renamed for deletion, one of a partition that is not of this node to ``-stray``.

    Run after the current logs are opened. A directory with a disk error goes offline.

    Raises:
        CorruptFile: a future log that the image assigns cannot be read, and the partition has no current log.
        OSError: the node cannot run without the failed directory, or the error is transient.
    """
    settings_of = cache(partial(config.log_settings, image))
    left: list[LeftoverFutureLog] = []
    for directory in storage.online:
        with _or_mark_offline(replicas, storage, directory):
            left += [_inspect(at, path, directory, image, config.node_id) for at, path in list_future_dirs(directory)]
    arrived: set[TopicPartition] = set()
    for one in sorted(left, key=lambda one: not one.is_assigned):  # assigned ones first, if a partition has several
        if one.directory.path not in storage.offline:
            with _or_mark_offline(replicas, storage, one.directory):
                one = one._replace(is_sole_isr_member=one.is_sole_isr_member and bool(storage.offline))
                log = _recover_future_log(replicas, one, settings_of(one.topic_partition[0]), env.now_ms(), arrived)
                if log is not None:
                    yield write_cleaner_checkpoint(env, storage, one.directory)
                    _promote(replicas, one, log)
                    arrived.add(one.topic_partition)
        yield None


@contextmanager
def _or_mark_offline(replicas: ReplicaManager, storage: LogDirs, directory: LogDirectory) -> Iterator[None]:
    """Mark the directory offline on an OSError in the ``with`` block.

    Raises:
        OSError: The node cannot run without the directory, or the error is transient (no descriptors or memory).
    """
    try:
        yield
    except OSError as error:
        replicas.mark_logs_offline(storage.mark_offline_at_startup(directory, error))


def _inspect(
    at: TopicPartition, path: str, directory: LogDirectory, image: MetadataImage, node_id: int
) -> LeftoverFutureLog:
    topic = image.topics.get(at[0])
    registration = None if topic is None else topic.partitions.get(at[1])
    if topic is None or registration is None or node_id not in registration.replicas:
        return LeftoverFutureLog(at, directory, path, None, is_assigned=False)
    placed = directory_id_of(registration, node_id) == directory.id
    return LeftoverFutureLog(
        at, directory, path, topic.id, is_assigned=placed, is_sole_isr_member=set(registration.isr) <= {node_id}
    )


def _recover_future_log(
    replicas: ReplicaManager, one: LeftoverFutureLog, settings: LogConfig, now_ms: int, arrived: set[TopicPartition]
) -> PartitionLog | None:
    """Open a future log: return it if it is to be promoted; otherwise resume, keep or rename it and return None.

    ``arrived``: partitions whose future log was promoted before. Without a current log, an assigned one that cannot be
    read raises CorruptFile, or takes the partition offline if this node is the sole ISR member and a directory failed.
    """
    at, directory = one.topic_partition, one.directory
    replica = replicas.get(*at)
    held = directory.logs.get(at)
    if at in replicas.future_logs or at in arrived or (held is not None and not held.is_future):
        _remove(replicas, one)  # its current log is in this directory, or another future log is used
        return None
    if held is not None:
        return None  # another future log of the partition is kept
    try:
        # A future log reported to the controller was synced as a whole.
        log = directory.open_partition_directory(one.path, *at, settings, now_ms, is_contiguous=not one.is_assigned)
    except PermissionError as error:
        if one.is_assigned:
            raise
        logger.warning("Failed to load future log: %r (%s; left unchanged)", one.path, error)
        return None
    except CorruptFile:
        if replica is None and one.is_sole_isr_member and one.is_assigned:
            _mark_offline(replicas, one)
            return None
        if replica is None and one.is_assigned:
            raise
        _remove(replicas, one)
        return None
    if log.topic_id == ZERO_UUID:
        log.close_files()
        del directory.logs[at]
        _remove(replicas, one)  # incomplete: the topic id is written before all other files
        return None
    if log.topic_id != one.topic_id:
        log.close_files()
        unique = one.path.rpartition(".")[2].removesuffix(FUTURE_DIR_SUFFIX)
        target = directory.rename_for_deletion(*at, unique, STRAY_DIR_SUFFIX)
        logger.warning("Found stray log dir %s: no replica of this broker; renamed to %s", one.path, target)
        return None
    current = None if replica is None else log_recency(replica.log)
    match decide_future_log(
        is_assigned=one.is_assigned, newness=log_recency(log), current=current, only_here=one.is_sole_isr_member
    ):
        case FutureLogDecision.PROMOTE:
            return log
        case FutureLogDecision.RESUME:
            replicas.future_logs[at] = log
            assert replica is not None
            replicas.on_future_log_resumed(replica)
        case FutureLogDecision.KEEP:
            log.close()  # flushed: after a clean shutdown the next start does not recover it
            if one.is_assigned:
                _mark_offline(replicas, one)  # stays in directory.logs, so that its checkpoints are retained
            else:
                del directory.logs[at]
    return None


def _mark_offline(replicas: ReplicaManager, one: LeftoverFutureLog) -> None:
    """Mark a partition offline: the current log is missing, and the future log may lack records of it."""
    replicas.offline_partitions.add(one.topic_partition)
    logger.warning(
        "Partition %s-%d is offline: a failed log directory may have its log, and the future log in %s may be older. "
        "Repair that directory or remove it from log.dirs",
        *one.topic_partition,
        one.directory.path,
    )


def _promote(replicas: ReplicaManager, one: LeftoverFutureLog, log: PartitionLog) -> None:
    """Rename a recovered future log to the current log of its partition and host it, in place of an existing one.

    Raises OSError.
    """
    assert one.topic_id is not None
    rename_to_current(one.directory, log)
    log.segments.record_directory_change()
    replicas.offline_partitions.discard(one.topic_partition)
    replica = replicas.get(*one.topic_partition)
    logger.warning("Successfully recovered abandoned future log for %s in log dir %s", log.label, one.directory.path)
    if replica is None:
        replicas.host(log, one.topic_id)
    else:
        replicas.promote_future_log(replica, log)


def _remove(replicas: ReplicaManager, one: LeftoverFutureLog) -> None:
    """Rename an unusable future log for deletion, and schedule the deletion. Raises OSError."""
    target = f"{one.path.removesuffix(FUTURE_DIR_SUFFIX)}{DELETE_DIR_SUFFIX}"
    one.directory.disk.rename(one.path, target)
    for doomed in replicas.on_delete_scheduled:
        doomed(target)
