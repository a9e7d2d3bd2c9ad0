"""Which committed positions have been kept long enough, and which groups nobody needs any more.

A group's positions are kept while it lives. `offsets.retention.minutes` run from the moment the group became empty;
for topics a stable group no longer reads, and for simple consumers, from the last commit. A group without members
goes with its last position.

Source: ``ClassicGroup.offsetExpirationCondition``, ``OffsetMetadataManager.cleanupExpiredOffsets``,
``GroupCoordinatorShard.cleanupGroupMetadata`` (apache/kafka 4.3.1).

From when on a position counts as unused: KIP-211.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.groups.classic import ClassicGroups
from ottla.broker.groups.offsets import Offsets, Position, tombstone, unpack
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import CONSUMER, Group, GroupState, subscribed_topics
from ottla.wire.messages import offset_records as o

if TYPE_CHECKING:
    from ottla.broker.groups.consumer.state import ConsumerGroup
    from ottla.broker.groups.streams.state import StreamsGroup


def _kept_since(group: Group | None, value: Position) -> int | None:
    """When a position's time began; None while the group's state keeps it whatever its age."""
    if group is None or group.protocol_type is None:
        return value.commit_ms
    if group.state is GroupState.EMPTY:
        return group.state_since_ms if group.state_since_ms >= 0 else value.commit_ms
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER:
        return value.commit_ms
    return None


def _expired(group: Group | None, value: Position, retention_ms: int, now_ms: int) -> bool:
    since = _kept_since(group, value)
    return since is not None and _is_over(value, since, retention_ms, now_ms)


def _is_over(value: Position, since: int, retention_ms: int, now_ms: int) -> bool:
    if value.expire_ms >= 0:  # the client set the time itself (OffsetCommit up to v4)
        return now_ms >= value.expire_ms
    return now_ms - since >= retention_ms


def _of_group(
    group_id: str, group: Group | None, offsets: Offsets, retention_ms: int, now_ms: int
) -> Iterator[GroupRecord | None]:
    read: set[str] | None = set()
    if group is not None and group.members:
        read = yield from subscribed_topics(group)
    if read is None:
        return  # what it reads cannot be told: nothing of it is given up
    kept = offsets.pending.has(group_id)
    for topic, partitions in list(offsets.topics(group_id).items()):
        pending = offsets.pending.of_topic(group_id, topic)
        for partition, raw in list(partitions.items()):
            gone = topic not in read and _expired(group, unpack(raw), retention_ms, now_ms)
            gone = gone and partition not in pending  # what it will be is not known yet
            kept = kept or not gone
            yield tombstone(group_id, topic, partition) if gone else None
    if not kept and group is not None and group.state is GroupState.EMPTY and not group.pending:
        yield GroupRecord(o.GroupMetadataKey(group_id), None)


def _of_consumer(
    group: ConsumerGroup | StreamsGroup, offsets: Offsets, retention_ms: int, now_ms: int
) -> Iterator[GroupRecord | None]:
    """Positions of the new kinds have their time from the commit; a group without members goes with the last."""
    kept = offsets.pending.has(group.id)
    for topic, partitions in list(offsets.topics(group.id).items()):
        pending = offsets.pending.of_topic(group.id, topic)
        for partition, raw in list(partitions.items()):
            gone = topic not in group.names and _is_over(unpack(raw), unpack(raw).commit_ms, retention_ms, now_ms)
            gone = gone and partition not in pending
            kept = kept or not gone
            yield tombstone(group.id, topic, partition) if gone else None
    if not kept and not group.members:
        from ottla.broker.groups.tombstones import tombstones_of

        yield from tombstones_of(group)


def sweep(
    groups: ClassicGroups,
    offsets: Offsets,
    retention_ms: int,
    now_ms: int,
    consumers: Sequence[ConsumerGroup | StreamsGroup] = (),
) -> Iterator[GroupRecord | None]:
    """Tombstones for what is over; None for each look that finds nothing to do."""
    others = {group.id for group in consumers}
    for group in consumers:
        yield None
        yield from _of_consumer(group, offsets, retention_ms, now_ms)
    alone = (name for name in offsets.groups() if name not in groups.groups and name not in others)
    for group_id in chain(list(groups.groups), alone):
        yield None
        yield from _of_group(group_id, groups.groups.get(group_id), offsets, retention_ms, now_ms)
