"""The records of a share group, made and read: types 10 to 15 of `__consumer_offsets`.

Source: ``GroupCoordinatorRecordHelpers.java``, ``GroupMetadataManager.java``, the ``replay`` methods (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import cast

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.spec import NOTHING, Target
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.share.state import LEAVING, Named, Ready, ShareGroup, ShareMember
from ottla.wire.messages import share_group_records as m


def member_record(group_id: str, member: ShareMember) -> GroupRecord:
    """What a member says of itself (type 10)."""
    names = cast("list[str]", java_order.sorted_texts(member.names))
    value = m.ShareGroupMemberMetadataValue(member.rack_id, member.client_id, member.client_host, names)
    return GroupRecord(m.ShareGroupMemberMetadataKey(group_id, member.id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """A group's epoch, and the hash of its topics (type 11)."""
    return GroupRecord(m.ShareGroupMetadataKey(group_id), m.ShareGroupMetadataValue(epoch, metadata_hash))


def target_epoch_record(group_id: str, epoch: int, at_ms: int) -> GroupRecord:
    """For which epoch, and when, the targets were computed (type 12)."""
    value = m.ShareGroupTargetAssignmentMetadataValue(epoch, at_ms)
    return GroupRecord(m.ShareGroupTargetAssignmentMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """What a member is to have (type 13)."""
    rows = [m.TopicPartition(topic, list(target[topic])) for topic in java_order.ids(target)]
    key = m.ShareGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, m.ShareGroupTargetAssignmentMemberValue(rows))


def current_record(group_id: str, member: ShareMember) -> GroupRecord:
    """What a member has (type 14)."""
    rows = [m.TopicPartitions(topic, list(member.assigned[topic])) for topic in java_order.ids(member.assigned)]
    value = m.ShareGroupCurrentMemberAssignmentValue(member.epoch, member.previous_epoch, 0, rows)
    return GroupRecord(m.ShareGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def ready_record(group_id: str, initializing: Ready, initialized: Ready, deleting: Mapping[bytes, str]) -> GroupRecord:
    """Which partitions have a state to share, are to get one, or to lose it (type 15)."""

    def rows(topics: Ready) -> list[m.TopicPartitionsInfo]:
        return [
            m.TopicPartitionsInfo(topic, topics[topic].name, list(java_order.numbers(sorted(topics[topic].partitions))))
            for topic in java_order.ids(topics)
        ]

    going = [m.TopicInfo(topic, name) for topic, name in deleting.items()]
    value = m.ShareGroupStatePartitionMetadataValue(rows(initializing), rows(initialized), going)
    return GroupRecord(m.ShareGroupStatePartitionMetadataKey(group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """What removes a member."""
    return [
        GroupRecord(m.ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupRecord(m.ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(m.ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> Iterator[GroupRecord]:
    """What removes a group, which has no members any more."""
    yield GroupRecord(m.ShareGroupTargetAssignmentMetadataKey(group.id), None)
    yield GroupRecord(m.ShareGroupStatePartitionMetadataKey(group.id), None)
    yield GroupRecord(m.ShareGroupMetadataKey(group.id), None)


# ---------------------------------------------------------------------- replay


def replay(groups: MutableMapping[str, ShareGroup], record: GroupRecord) -> None:
    """Take in one record; a group comes into being with its first and goes with the tombstone of type 11."""
    key, value = record
    group_id: str = key.group_id  # type: ignore[attr-defined]  # every key of these has one
    group = groups.get(group_id)
    if group is None:
        if value is None:
            return
        group = groups[group_id] = ShareGroup(group_id)
    match key:
        case m.ShareGroupMemberMetadataKey():
            _member(group, key.member_id, value)
        case m.ShareGroupCurrentMemberAssignmentKey():
            _current(group, key.member_id, value)
        case m.ShareGroupTargetAssignmentMemberKey():
            if isinstance(value, m.ShareGroupTargetAssignmentMemberValue):
                group.target[key.member_id] = _target(value.topic_partitions) or NOTHING
            else:
                group.target.pop(key.member_id, None)
        case m.ShareGroupTargetAssignmentMetadataKey():
            known = isinstance(value, m.ShareGroupTargetAssignmentMetadataValue)
            group.target_epoch = value.assignment_epoch if known else -1  # type: ignore[union-attr]
            group.target_at_ms = value.assignment_timestamp if known else 0  # type: ignore[union-attr]
        case m.ShareGroupStatePartitionMetadataKey():
            said = (
                value
                if isinstance(value, m.ShareGroupStatePartitionMetadataValue)
                else m.ShareGroupStatePartitionMetadataValue()
            )
            group.initializing = _named(said.initializing_topics)
            group.initialized = _named(said.initialized_topics)
            group.deleting = {row.topic_id: row.topic_name for row in said.deleting_topics}
        case _:
            assert isinstance(key, m.ShareGroupMetadataKey)
            if isinstance(value, m.ShareGroupMetadataValue):
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            else:
                del groups[group_id]


def _target(rows: list[m.TopicPartition] | list[m.TopicPartitions]) -> Target:
    held = {row.topic_id: java_order.numbers(row.partitions) for row in rows}
    return {topic: held[topic] for topic in java_order.ids(held)}


def _named(rows: list[m.TopicPartitionsInfo]) -> dict[bytes, Named]:
    return {row.topic_id: Named(row.topic_name, frozenset(row.partitions)) for row in rows}


def _member(group: ShareGroup, member_id: str, value: object) -> None:
    if not isinstance(value, m.ShareGroupMemberMetadataValue):
        group.remove(member_id)
        return
    old = group.members.get(member_id) or ShareMember(member_id)
    names = java_order.set_of(value.subscribed_topic_names)
    said = {"rack_id": value.rack_id, "client_id": value.client_id, "client_host": value.client_host}
    group.update(replace(old, names=names, **said))  # type: ignore[arg-type]


def _current(group: ShareGroup, member_id: str, value: object) -> None:
    old = group.members.get(member_id)
    if isinstance(value, m.ShareGroupCurrentMemberAssignmentValue):
        new = replace(
            old or ShareMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_target(value.assigned_partitions),
        )
        group.update(new)
    elif old is not None:
        group.update(replace(old, epoch=LEAVING, previous_epoch=LEAVING, assigned=NOTHING))
