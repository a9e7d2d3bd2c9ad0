"""Records of a share group, built and replayed: types 10 to 15 of `__consumer_offsets`.

Source: ``GroupCoordinatorRecordHelpers.java``, ``GroupMetadataManager.java``, the ``replay`` methods (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import cast

from ottla.broker.groups.assigned_records import AssignedRecords
from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.record_arrays import read_assignment, read_names, read_table
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.share.share_group import (
    NamedPartitionsById,
    NamedTopicPartitions,
    ShareGroup,
    ShareGroupMember,
)
from ottla.wire.messages import share_group_records

RECORDS = AssignedRecords(
    share_group_records.ShareGroupMetadataKey,
    share_group_records.ShareGroupMetadataValue,
    share_group_records.ShareGroupTargetAssignmentMetadataKey,
    share_group_records.ShareGroupTargetAssignmentMetadataValue,
    share_group_records.ShareGroupCurrentMemberAssignmentKey,
    share_group_records.ShareGroupTargetAssignmentMemberKey,
    share_group_records.ShareGroupMemberMetadataKey,
)
target_assignment_epoch_record = RECORDS.target_assignment_epoch_record
member_tombstones = RECORDS.member_tombstones
epoch_record = RECORDS.epoch_record


def member_record(group_id: str, member: ShareGroupMember) -> GroupRecord:
    """Return the metadata record of a member (type 10)."""
    names = cast("list[str]", iteration_order.sort_strings(member.subscribed_topic_names))
    value = share_group_records.ShareGroupMemberMetadataValue(
        member.rack_id, member.client_id, member.client_host, names
    )
    return GroupRecord(share_group_records.ShareGroupMemberMetadataKey(group_id, member.id), value)


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """Return the record of a member's target assignment (type 13)."""
    rows = [
        share_group_records.TopicPartition(topic, list(target[topic]))
        for topic in iteration_order.uuid_hash_map_order(target)
    ]
    key = share_group_records.ShareGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, share_group_records.ShareGroupTargetAssignmentMemberValue(rows))


def current_assignment_record(group_id: str, member: ShareGroupMember) -> GroupRecord:
    """Return the record of a member's current assignment (type 14)."""
    rows = [
        share_group_records.TopicPartitions(topic, list(member.assigned[topic]))
        for topic in iteration_order.uuid_hash_map_order(member.assigned)
    ]
    value = share_group_records.ShareGroupCurrentMemberAssignmentValue(member.epoch, member.previous_epoch, 0, rows)
    return GroupRecord(share_group_records.ShareGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def state_partition_metadata_record(
    group_id: str, initializing: NamedPartitionsById, initialized: NamedPartitionsById, deleting: Mapping[bytes, str]
) -> GroupRecord:
    """Return the record of initializing and initialized partitions, and of topics (id -> name) to delete (type 15)."""

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


def group_tombstones(group: ShareGroup) -> Iterator[GroupRecord]:
    """Yield the tombstones of a share group without members."""
    state = GroupRecord(share_group_records.ShareGroupStatePartitionMetadataKey(group.id), None)
    return RECORDS.group_tombstones(group.id, (), state)


def with_metadata(
    group: ShareGroup, member: ShareGroupMember, value: share_group_records.ShareGroupMemberMetadataValue
) -> Generator[None, None, ShareGroupMember]:
    """Return a copy of ``member`` with the fields of its metadata record (type 10), as a job."""
    names = yield from group.shared_subscription(member, (yield from read_names(value.subscribed_topic_names)))
    return replace(
        member,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=names,
    )


def with_assignment(
    member: ShareGroupMember, value: share_group_records.ShareGroupCurrentMemberAssignmentValue
) -> Generator[None, None, ShareGroupMember]:
    """Return a copy of ``member`` with the fields of its current assignment record (type 14), as a job."""
    assigned = yield from read_assignment(value.assigned_partitions)
    return replace(member, epoch=value.member_epoch, previous_epoch=value.previous_member_epoch, assigned=assigned)


def read_partitions_info(
    rows: list[share_group_records.TopicPartitionsInfo],
) -> Generator[None, None, dict[bytes, NamedTopicPartitions]]:
    """Return names and partitions of topics in a state partition metadata record (type 15), by topic id, as a job."""
    return (
        yield from read_table(
            rows, attrgetter("topic_id"), lambda row: NamedTopicPartitions(row.topic_name, frozenset(row.partitions))
        )
    )
