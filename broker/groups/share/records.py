"""The records of a share group, made and read: types 10 to 15 of `__consumer_offsets`.

Source: ``GroupCoordinatorRecordHelpers.java``, ``GroupMetadataManager.java``, the ``replay`` methods (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import cast

from ottla.broker.groups.assignors.group_spec import EMPTY_ASSIGNMENT, Assignment
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.share.share_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    NamedPartitionsById,
    NamedTopicPartitions,
    ShareGroup,
    ShareGroupMember,
)
from ottla.wire.messages import share_group_records


def member_record(group_id: str, member: ShareGroupMember) -> GroupRecord:
    """What a member says of itself (type 10)."""
    names = cast("list[str]", iteration_order.sort_strings(member.subscribed_topic_names))
    value = share_group_records.ShareGroupMemberMetadataValue(
        member.rack_id, member.client_id, member.client_host, names
    )
    return GroupRecord(share_group_records.ShareGroupMemberMetadataKey(group_id, member.id), value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """A group's epoch, and the hash of its topics (type 11)."""
    return GroupRecord(
        share_group_records.ShareGroupMetadataKey(group_id),
        share_group_records.ShareGroupMetadataValue(epoch, metadata_hash),
    )


def target_assignment_epoch_record(group_id: str, epoch: int, at_ms: int) -> GroupRecord:
    """For which epoch, and when, the targets were computed (type 12)."""
    value = share_group_records.ShareGroupTargetAssignmentMetadataValue(epoch, at_ms)
    return GroupRecord(share_group_records.ShareGroupTargetAssignmentMetadataKey(group_id), value)


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """What a member is to have (type 13)."""
    rows = [
        share_group_records.TopicPartition(topic, list(target[topic]))
        for topic in iteration_order.uuid_hash_map_order(target)
    ]
    key = share_group_records.ShareGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, share_group_records.ShareGroupTargetAssignmentMemberValue(rows))


def current_assignment_record(group_id: str, member: ShareGroupMember) -> GroupRecord:
    """What a member has (type 14)."""
    rows = [
        share_group_records.TopicPartitions(topic, list(member.assigned[topic]))
        for topic in iteration_order.uuid_hash_map_order(member.assigned)
    ]
    value = share_group_records.ShareGroupCurrentMemberAssignmentValue(member.epoch, member.previous_epoch, 0, rows)
    return GroupRecord(share_group_records.ShareGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def state_partition_metadata_record(
    group_id: str, initializing: NamedPartitionsById, initialized: NamedPartitionsById, deleting: Mapping[bytes, str]
) -> GroupRecord:
    """Which partitions have a state to share, are to get one, or to lose it (type 15)."""

    def rows(topics: NamedPartitionsById) -> list[share_group_records.TopicPartitionsInfo]:
        return [
            share_group_records.TopicPartitionsInfo(
                topic,
                topics[topic].name,
                list(iteration_order.integer_hash_set_order(sorted(topics[topic].partitions))),
            )
            for topic in iteration_order.uuid_hash_map_order(topics)
        ]

    going = [share_group_records.TopicInfo(topic, name) for topic, name in deleting.items()]
    value = share_group_records.ShareGroupStatePartitionMetadataValue(rows(initializing), rows(initialized), going)
    return GroupRecord(share_group_records.ShareGroupStatePartitionMetadataKey(group_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """What removes a member."""
    return [
        GroupRecord(share_group_records.ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupRecord(share_group_records.ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(share_group_records.ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group: ShareGroup) -> Iterator[GroupRecord]:
    """What removes a group, which has no members any more."""
    yield GroupRecord(share_group_records.ShareGroupTargetAssignmentMetadataKey(group.id), None)
    yield GroupRecord(share_group_records.ShareGroupStatePartitionMetadataKey(group.id), None)
    yield GroupRecord(share_group_records.ShareGroupMetadataKey(group.id), None)


# ---------------------------------------------------------------------- replay


def replay_record(groups: MutableMapping[str, ShareGroup], record: GroupRecord) -> None:
    """Take in one record; a group comes into being with its first and goes with the tombstone of type 11."""
    key, value = record
    group_id: str = key.group_id  # type: ignore[attr-defined]  # every key of these has one
    group = groups.get(group_id)
    if group is None:
        if value is None:
            return
        group = groups[group_id] = ShareGroup(group_id)
    match key:
        case share_group_records.ShareGroupMemberMetadataKey():
            _member(group, key.member_id, value)
        case share_group_records.ShareGroupCurrentMemberAssignmentKey():
            _current(group, key.member_id, value)
        case share_group_records.ShareGroupTargetAssignmentMemberKey():
            if isinstance(value, share_group_records.ShareGroupTargetAssignmentMemberValue):
                group.target[key.member_id] = _target(value.topic_partitions) or EMPTY_ASSIGNMENT
            else:
                group.target.pop(key.member_id, None)
        case share_group_records.ShareGroupTargetAssignmentMetadataKey():
            known = isinstance(value, share_group_records.ShareGroupTargetAssignmentMetadataValue)
            group.target_epoch = value.assignment_epoch if known else -1  # type: ignore[union-attr]
            group.target_computed_ms = value.assignment_timestamp if known else 0  # type: ignore[union-attr]
        case share_group_records.ShareGroupStatePartitionMetadataKey():
            said = (
                value
                if isinstance(value, share_group_records.ShareGroupStatePartitionMetadataValue)
                else share_group_records.ShareGroupStatePartitionMetadataValue()
            )
            group.initializing = _from_topic_partitions_info(said.initializing_topics)
            group.initialized = _from_topic_partitions_info(said.initialized_topics)
            group.deleting = {row.topic_id: row.topic_name for row in said.deleting_topics}
        case _:
            assert isinstance(key, share_group_records.ShareGroupMetadataKey)
            if isinstance(value, share_group_records.ShareGroupMetadataValue):
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            else:
                del groups[group_id]


def _target(rows: list[share_group_records.TopicPartition] | list[share_group_records.TopicPartitions]) -> Assignment:
    held = {row.topic_id: iteration_order.integer_hash_set_order(row.partitions) for row in rows}
    return {topic: held[topic] for topic in iteration_order.uuid_hash_map_order(held)}


def _from_topic_partitions_info(
    rows: list[share_group_records.TopicPartitionsInfo],
) -> dict[bytes, NamedTopicPartitions]:
    return {row.topic_id: NamedTopicPartitions(row.topic_name, frozenset(row.partitions)) for row in rows}


def _member(group: ShareGroup, member_id: str, value: object) -> None:
    if not isinstance(value, share_group_records.ShareGroupMemberMetadataValue):
        group.remove(member_id)
        return
    old = group.members.get(member_id) or ShareGroupMember(member_id)
    names = iteration_order.as_frozenset(value.subscribed_topic_names)
    said = {"rack_id": value.rack_id, "client_id": value.client_id, "client_host": value.client_host}
    group.update(replace(old, subscribed_topic_names=names, **said))  # type: ignore[arg-type]


def _current(group: ShareGroup, member_id: str, value: object) -> None:
    old = group.members.get(member_id)
    if isinstance(value, share_group_records.ShareGroupCurrentMemberAssignmentValue):
        new = replace(
            old or ShareGroupMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_target(value.assigned_partitions),
        )
        group.update(new)
    elif old is not None:
        group.update(
            replace(
                old, epoch=LEAVE_GROUP_MEMBER_EPOCH, previous_epoch=LEAVE_GROUP_MEMBER_EPOCH, assigned=EMPTY_ASSIGNMENT
            )
        )
