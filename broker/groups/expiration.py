"""Expiration of committed offsets and of empty groups.

Offsets in subscribed topics are retained. `offsets.retention.minutes` start when a classic group becomes empty; for
topics that a stable consumer group of the classic protocol no longer subscribes to, for simple consumers, and for
consumer and streams groups, at the last commit. A classic group with members retains all its offsets in a rebalance, or
if its protocol type is not ``consumer``. An offset for which the client set an expiry time (OffsetCommit up to v4)
expires then instead. An empty group without offsets is deleted. Share groups do not expire.

Source: ``ClassicGroup.offsetExpirationCondition``, ``OffsetMetadataManager.cleanupExpiredOffsets``,
``GroupCoordinatorShard.cleanupGroupMetadata`` (apache/kafka 4.3.1).

Start of the retention time: KIP-211.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.groups.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicGroupState,
    subscribed_topics,
)
from ottla.broker.groups.classic.groups import ClassicGroups
from ottla.broker.groups.committed_offsets import CommittedOffsets, OffsetAndMetadata, offset_tombstone, unpack_offset
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.tombstones import modern_group_tombstones
from ottla.wire.messages import offset_records

if TYPE_CHECKING:
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
    from ottla.broker.groups.streams.streams_group import StreamsGroup


def _retention_start_ms(group: ClassicGroup | None, value: OffsetAndMetadata) -> int | None:
    """Return the start of an offset's retention time in ms since the epoch; None while the group's state retains it.

    That is during a rebalance, and in a stable group of another protocol type. ``group``: None for a simple consumer.
    """
    if group is None or group.protocol_type is None:
        return value.commit_ms
    if group.state is ClassicGroupState.EMPTY:
        return group.state_since_ms if group.state_since_ms >= 0 else value.commit_ms
    if group.state is ClassicGroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return value.commit_ms
    return None


def _is_expired(group: ClassicGroup | None, value: OffsetAndMetadata, retention_ms: int, now_ms: int) -> bool:
    since = _retention_start_ms(group, value)
    return since is not None and _is_retention_over(value, since, retention_ms, now_ms)


def _is_retention_over(value: OffsetAndMetadata, since: int, retention_ms: int, now_ms: int) -> bool:
    if value.expire_ms >= 0:  # the client set the time itself (OffsetCommit up to v4)
        return now_ms >= value.expire_ms
    return now_ms - since >= retention_ms


def _expire_classic_group(
    group_id: str, group: ClassicGroup | None, offsets: CommittedOffsets, retention_ms: int, now_ms: int
) -> Iterator[GroupRecord | None]:
    read: set[str] | None = set()
    if group is not None and group.members:
        read = yield from subscribed_topics(group)
    if read is None:
        return  # the subscription is unknown: all its offsets are retained
    kept = offsets.pending.has_group(group_id)
    for topic, partitions in list(offsets.group_offsets(group_id).items()):
        pending = offsets.pending.producers_by_partition(group_id, topic)
        for partition, raw in list(partitions.items()):
            gone = topic not in read and _is_expired(group, unpack_offset(raw), retention_ms, now_ms)
            gone = gone and partition not in pending  # the pending transaction may replace it
            kept = kept or not gone
            yield offset_tombstone(group_id, topic, partition) if gone else None
    if not kept and group is not None and group.state is ClassicGroupState.EMPTY and not group.pending_join_members:
        yield GroupRecord(offset_records.GroupMetadataKey(group_id), None)


def _expire_modern_group(
    group: ConsumerGroup | StreamsGroup, offsets: CommittedOffsets, retention_ms: int, now_ms: int
) -> Iterator[GroupRecord | None]:
    """Yield the tombstones of a consumer or streams group: its expired offsets and, if none is left, an empty group.

    The retention time starts at the commit. None is yielded for each offset that is retained.
    """
    kept = offsets.pending.has_group(group.id)
    for topic, partitions in list(offsets.group_offsets(group.id).items()):
        pending = offsets.pending.producers_by_partition(group.id, topic)
        for partition, raw in list(partitions.items()):
            gone = topic not in group.subscribed_topic_names and _is_retention_over(
                unpack_offset(raw), unpack_offset(raw).commit_ms, retention_ms, now_ms
            )
            gone = gone and partition not in pending
            kept = kept or not gone
            yield offset_tombstone(group.id, topic, partition) if gone else None
    if not kept and not group.members:
        yield from modern_group_tombstones(group)


def expire_groups_and_offsets(
    groups: ClassicGroups,
    offsets: CommittedOffsets,
    retention_ms: int,
    now_ms: int,
    consumers: Sequence[ConsumerGroup | StreamsGroup] = (),
) -> Iterator[GroupRecord | None]:
    """Yield the tombstones of expired groups and offsets; None for each step without one.

    Args:
        groups: the classic groups of the shard.
        offsets: the committed offsets of the shard, also of groups that only commit.
        retention_ms: `offsets.retention.minutes` in ms.
        now_ms: time in ms since the epoch.
        consumers: the consumer and streams groups of the shard.
    """
    others = {group.id for group in consumers}
    for group in consumers:
        yield None
        yield from _expire_modern_group(group, offsets, retention_ms, now_ms)
    alone = (name for name in offsets.groups() if name not in groups.groups and name not in others)
    for group_id in chain(list(groups.groups), alone):
        yield None
        yield from _expire_classic_group(group_id, groups.groups.get(group_id), offsets, retention_ms, now_ms)
