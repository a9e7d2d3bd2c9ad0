"""Replay of `__remote_log_metadata`: remote segments of the partitions that this broker hosts.

A partition is ready once the records that its metadata partition had when it was assigned are replayed. If another one
of the same metadata partition is assigned, that is read from its start again; records are not replayed twice.

Source: ``ConsumerTask.java``, ``RemotePartitionMetadataStore.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging

import trio

from ottla.broker.storage.tiered.remote_log_metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadataSnapshot,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    decode_remote_log_metadata,
    metadata_partition,
)
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentMetadata, RemoteResourceNotFoundError
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError

logger = logging.getLogger("ottla.tiered")
TopicIdPartition = tuple[bytes, int]
"""Topic id (16 bytes) and partition."""


class AssignedPartition:
    """Partition of this broker whose remote segments are tracked: their cache, and the progress of the replay."""

    __slots__ = ("cache", "end_offset", "key", "metadata_partition", "progress", "ready", "replayed_offset")

    def __init__(self, key: TopicIdPartition, metadata_partition_number: int) -> None:
        self.key = key
        self.metadata_partition = metadata_partition_number
        self.cache = RemoteLogMetadataCache()
        self.replayed_offset = -1
        """Offset of the last replayed record of this partition."""
        self.end_offset: int | None = None
        """Offset of the metadata partition up to which it must be read before the cache is ready; None: unknown."""
        self.ready = trio.Event()
        self.progress = trio.Event()
        """Set and replaced after each replayed record, and when the partition is not assigned any more."""

    def notify(self) -> None:
        """Wake the tasks that wait for progress, by setting and replacing `progress`."""
        self.progress.set()
        self.progress = trio.Event()


class MetadataPartition:
    """Partition of the metadata topic that is read for one or several assigned partitions, with the next offset."""

    __slots__ = ("assigned", "number", "position", "restarts")

    def __init__(self, number: int) -> None:
        self.number = number
        self.position = 0
        """Next offset to read."""
        self.restarts = 0
        """Number of times that reading was restarted; records that were fetched before are not replayed."""
        self.assigned: dict[TopicIdPartition, AssignedPartition] = {}

    def restart(self) -> None:
        """Set the next offset to 0, for a partition that was assigned; records fetched before are not replayed then."""
        self.position = 0
        self.restarts += 1

    @property
    def needs_end_offset(self) -> bool:
        """True if a partition was assigned since the end offset was last requested from the leader."""
        return any(each.end_offset is None for each in self.assigned.values())

    def set_end_offset(self, partitions: list[AssignedPartition], end_offset: int) -> None:
        """Set the offset, exclusive, up to which the metadata partition must be read before ``partitions`` are ready.

        They were assigned before it was requested. They become ready by a later `advance`, which the caller must call
        also if the position is there already.
        """
        for each in partitions:
            each.end_offset = end_offset

    def on_truncated(self, end_offset: int) -> None:
        """Lower the offsets of the assigned partitions to ``end_offset``, the end of the metadata partition.

        Called when the position is out of range: below the first offset, where nothing changes, or, after an unclean
        election, above the end.
        """
        for each in self.assigned.values():
            each.replayed_offset = min(each.replayed_offset, end_offset - 1)
            if each.end_offset is not None:
                each.end_offset = min(each.end_offset, end_offset)

    def advance(self, position: int) -> None:
        """Set the next offset to read; partitions whose end offset it reaches become ready."""
        self.position = position
        for each in self.assigned.values():
            if each.end_offset is not None and position >= each.end_offset and not each.ready.is_set():
                each.cache.is_initialized = True
                each.ready.set()


class RemotePartitionMetadataStore:
    """Tracked partitions of this broker, and the partitions of the metadata topic that have their records."""

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count
        self._assigned: dict[TopicIdPartition, AssignedPartition] = {}
        self.metadata_partitions: dict[int, MetadataPartition] = {}
        """Metadata partitions that are read, by number."""

    def get(self, key: TopicIdPartition) -> AssignedPartition | None:
        """Return a tracked partition by its key; None if it is not assigned to this broker."""
        return self._assigned.get(key)

    def assign(self, key: TopicIdPartition) -> bool:
        """Track a partition and set its metadata partition to be read from the start; return False if it is tracked."""
        if key in self._assigned:
            return False
        number = metadata_partition(key[0], key[1], self._partition_count)
        assigned = self._assigned[key] = AssignedPartition(key, number)
        read = self.metadata_partitions.setdefault(number, MetadataPartition(number))
        read.assigned[key] = assigned
        read.restart()
        return True

    def unassign(self, key: TopicIdPartition) -> None:
        """Stop tracking a partition and drop its remote segments; tasks that wait for its `progress` are woken.

        Tasks that wait until it is `ready` are not, not even by a later `assign`: they must be cancelled. No effect if
        it is not tracked.
        """
        assigned = self._assigned.pop(key, None)
        if assigned is None:
            return
        read = self.metadata_partitions[assigned.metadata_partition]
        del read.assigned[key]
        if not read.assigned:
            del self.metadata_partitions[read.number]
        assigned.notify()

    def replay(self, read: MetadataPartition, offset: int, value: Buffer | None) -> None:
        """Apply a record of a metadata partition to the cache of its partition; log and skip an invalid one.

        A record of a partition that is not assigned, or that was replayed before, is skipped.
        """
        try:
            if value is None:
                raise WireError("record of remote log metadata without a value")
            metadata = decode_remote_log_metadata(value)
        except WireError as error:
            logger.error("Skipped the record at offset %d of __remote_log_metadata-%d: %s", offset, read.number, error)
            return
        assigned = read.assigned.get(_key(metadata))
        if assigned is None or offset <= assigned.replayed_offset:
            return
        try:
            _apply(assigned.cache, metadata)
        except RemoteResourceNotFoundError as error:
            logger.error("Skipped the record at offset %d of __remote_log_metadata-%d: %s", offset, read.number, error)
        assigned.replayed_offset = offset
        assigned.notify()


def _key(metadata: RemoteLogMetadata) -> TopicIdPartition:
    match metadata:
        case RemoteLogSegmentMetadata() | RemoteLogSegmentMetadataUpdate():
            return metadata.segment_id.topic_id, metadata.segment_id.partition
        case RemotePartitionDeleteMetadata():
            return metadata.topic_id, metadata.partition
        case RemoteLogSegmentMetadataSnapshot():
            return b"", -1  # names no partition: Kafka has it in files only


def _apply(cache: RemoteLogMetadataCache, metadata: RemoteLogMetadata) -> None:
    """Apply a record to the cache of its partition; deletions of partitions and snapshots have no effect.

    Raises:
        RemoteResourceNotFoundError: An update of an unknown segment.
    """
    if isinstance(metadata, RemoteLogSegmentMetadata):
        cache.add(metadata)
    elif isinstance(metadata, RemoteLogSegmentMetadataUpdate):
        cache.update(metadata)
