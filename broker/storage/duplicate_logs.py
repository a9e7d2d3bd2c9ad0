"""Duplicate logs: two logs of one partition in two log directories at startup, of which the older is quarantined.

A power failure can leave them after a move of the replica, when the rename of the former log is lost; or the process
ended between the two renames of a move. Kafka does not start then (``LogManager.loadLog``).
"""

from __future__ import annotations

import logging

from ottla.broker.storage.log_dirs import LogDirs
from ottla.controller.metadata.directory_id import directory_id_of
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.file_names import STRAY_DIR_SUFFIX
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger("ottla.replicas")


def quarantine_older(
    storage: LogDirs,
    log: PartitionLog,
    other_log: PartitionLog,
    registration: PartitionRegistration,
    node_id: int,
    tag: str,
) -> PartitionLog:
    """Close the older of two logs of a partition, rename it to ``-stray``, with ``tag`` in its name, and return it.

    The log with the higher last leader epoch, then the higher end offset, is retained; if equal, the one in the log
    directory that the controller assigned.

    Raises:
        CorruptFile: no other replica exists, and neither is in the assigned directory: the operator must decide.
        OSError: the disk failed.
    """
    place = directory_id_of(registration, node_id)
    if len(registration.replicas) == 1 and all(storage.directory_of(each).id != place for each in (log, other_log)):
        raise CorruptFile(
            f"Duplicate log directories for {log.label} are found: {log.directory} and {other_log.directory}"
        )
    older = min(
        log,
        other_log,
        key=lambda each: (each.epochs.latest_epoch(), each.log_end_offset, storage.directory_of(each).id == place),
    )
    older.close_files()
    path = older.directory
    target = storage.directory_of(older).rename_for_deletion(older.topic, older.partition, tag, STRAY_DIR_SUFFIX)
    logger.warning(
        "Found stray log dir %s: another log directory has the same partition, and not an older one; renamed to %s",
        path,
        target,
    )
    return older
