"""Tombstones of consumer and streams groups.

Source: ``ConsumerGroup.createGroupTombstoneRecords``, ``StreamsGroup.createGroupTombstoneRecords`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.groups.records import GroupRecord

if TYPE_CHECKING:
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
    from ottla.broker.groups.streams.streams_group import StreamsGroup


def modern_group_tombstones(group: ConsumerGroup | StreamsGroup) -> Iterator[GroupRecord]:
    """Yield the tombstones of a consumer or streams group, in Kafka's order."""
    # lazy: 18.4 ms, 677 kB
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup

    if isinstance(group, ConsumerGroup):
        # lazy: 18.9 ms, 712 kB
        from ottla.broker.groups.consumer.records import group_tombstones

        return group_tombstones(group)
    # lazy: 18.1 ms, 723 kB
    from ottla.broker.groups.streams.records import group_tombstones as streams_tombstones

    return streams_tombstones(group)
