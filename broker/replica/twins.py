"""Two logs of one partition, found in two directories at a start: which of them is left from before.

A copy was moved away and came back, to another directory, and the power failed before the old one's new name was on
the disk. Kafka does not start then (``LogManager.loadLog``).
"""

from __future__ import annotations

import logging

from ottla.broker.replica.storage import Storage
from ottla.controller.image import Partition
from ottla.log.checkpoints import CorruptFile
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger("ottla.replicas")


def set_one_aside(storage: Storage, one: PartitionLog, other: PartitionLog, told: Partition, tag: str) -> PartitionLog:
    """Set the older of two logs aside, under a name with ``tag`` in it, and give it.

    The one whose end is newer has all that may count on this node: as in an election of the quorum.

    Raises:
        CorruptFile: nobody else has a copy, so none is set aside: somebody has to say which it is.
        OSError: the disk failed.
    """
    if len(told.replicas) == 1:
        raise CorruptFile(f"{one.topic}-{one.partition} lies twice: in {one.directory} and in {other.directory}")
    older = min(one, other, key=lambda log: (log.epochs.latest(), log.log_end_offset))
    older.close_files()
    target = storage.of(older).rename_for_deletion(older.topic, older.partition, tag, "stray")
    logger.warning("%s is left from before: it lies elsewhere, too, and newer; kept as %s", older.directory, target)
    return older
