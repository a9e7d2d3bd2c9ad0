"""Offsets committed in open transactions, which become committed offsets when the transaction commits.

They are stored by producer id, then by group, topic and partition. A second index by group lists the partitions with
pending offsets, for stable OffsetFetch (``require_stable``) and for deletions.

Source: ``OffsetMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class GroupTopicPartition(NamedTuple):
    """Key of a committed offset: a group has one for each partition that it has committed."""

    group: str
    topic: str
    partition: int


class PendingTransactionalOffsets:
    """Pending transactional offsets of one partition of `__consumer_offsets`."""

    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[GroupTopicPartition, bytes]] = {}
        self._by_group: dict[str, dict[str, dict[int, set[int]]]] = {}
        """Group -> topic -> partition -> ids of the producers with a pending offset."""

    def add(self, producer_id: int, where: GroupTopicPartition, raw: bytes) -> None:
        """Store a pending offset (packed bytes) of a producer's open transaction.

        It replaces the one that the producer has for the same group and partition.
        """
        self._by_producer.setdefault(producer_id, {})[where] = raw
        topics = self._by_group.setdefault(where.group, {})
        topics.setdefault(where.topic, {}).setdefault(where.partition, set()).add(producer_id)

    def remove(self, where: GroupTopicPartition) -> None:
        """Remove the pending offsets that all producers have for a group's partition."""
        for producer_id in list(self.producers_by_partition(where.group, where.topic).get(where.partition, ())):
            positions = self._by_producer[producer_id]
            self._remove_producer(producer_id, where)
            del positions[where]
            if not positions:
                del self._by_producer[producer_id]

    def pop(self, producer_id: int) -> dict[GroupTopicPartition, bytes]:
        """Remove and return a producer's pending offsets (packed bytes) at its transaction's end; empty without any."""
        positions = self._by_producer.pop(producer_id, {})
        for where in positions:
            self._remove_producer(producer_id, where)
        return positions

    def _remove_producer(self, producer_id: int, where: GroupTopicPartition) -> None:
        topics = self._by_group[where.group]
        partitions = topics[where.topic]
        partitions[where.partition].remove(producer_id)
        if not partitions[where.partition]:
            del partitions[where.partition]
        if not partitions:
            del topics[where.topic]
        if not topics:
            del self._by_group[where.group]

    def producers_by_partition(self, group: str, topic: str) -> dict[int, set[int]]:
        """Return partition -> ids of producers with a pending offset for the group and topic; empty without any."""
        topics = self._by_group.get(group)
        return {} if topics is None else topics.get(topic, {})

    def group_partitions(self, group: str) -> Iterator[tuple[str, int]]:
        """Yield (topic, partition) of all pending offsets of a group; offsets may be removed during the iteration."""
        for topic, partitions in list(self._by_group.get(group, {}).items()):
            for partition in list(partitions):
                yield topic, partition

    def has_group(self, group: str) -> bool:
        """Return True if a group has pending offsets of any open transaction."""
        return group in self._by_group

    def groups(self) -> list[str]:
        """Return the ids of all groups with pending transactional offsets."""
        return list(self._by_group)
