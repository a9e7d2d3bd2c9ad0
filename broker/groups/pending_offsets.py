"""Offsets committed in open transactions, which become visible at their end.

They are kept by producer, then by group, topic and partition. A second index by group serves stable reads and
deletions: the partitions of a group with pending offsets.

Source: ``OffsetMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class GroupTopicPartition(NamedTuple):
    """Key of an offset."""

    group: str
    topic: str
    partition: int


class PendingTransactionalOffsets:
    """Pending offsets of one partition of `__consumer_offsets`."""

    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[GroupTopicPartition, bytes]] = {}
        self._by_group: dict[str, dict[str, dict[int, set[int]]]] = {}
        """Group, topic, partition -> producers."""

    def add(self, producer_id: int, where: GroupTopicPartition, raw: bytes) -> None:
        """Keep a position until its producer's transaction ends; a later one of the same takes its place."""
        self._by_producer.setdefault(producer_id, {})[where] = raw
        topics = self._by_group.setdefault(where.group, {})
        topics.setdefault(where.topic, {}).setdefault(where.partition, set()).add(producer_id)

    def remove(self, where: GroupTopicPartition) -> None:
        """Drop what all producers have of a partition."""
        for producer_id in list(self.producers_by_partition(where.group, where.topic).get(where.partition, ())):
            positions = self._by_producer[producer_id]
            self._remove_producer(producer_id, where)
            del positions[where]
            if not positions:
                del self._by_producer[producer_id]

    def pop(self, producer_id: int) -> dict[GroupTopicPartition, bytes]:
        """Remove and return the pending offsets of a producer's ended transaction."""
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
        """Return the partitions of a topic with pending offsets of a group, with their producers."""
        topics = self._by_group.get(group)
        return {} if topics is None else topics.get(topic, {})

    def group_partitions(self, group: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) of all that a group has pending. They may be dropped while this goes on."""
        for topic, partitions in list(self._by_group.get(group, {}).items()):
            for partition in list(partitions):
                yield topic, partition

    def has_group(self, group: str) -> bool:
        """Return True if a group has pending offsets."""
        return group in self._by_group

    def groups(self) -> list[str]:
        """Return every group with pending offsets."""
        return list(self._by_group)
