"""Consumer groups from their records: the only place that changes them.

Nobody vouches for what a log holds, and compaction leaves what it likes: a record about what is not there is passed
over.

Source: ``GroupMetadataManager.java``, the ``replay`` methods (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from ottla.broker.groups.assignors.group_spec import EMPTY_ASSIGNMENT
from ottla.broker.groups.consumer import records
from ottla.broker.groups.consumer.consumer_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerGroupMember,
    ResolvedRegularExpression,
)
from ottla.broker.groups.records import GroupRecord
from ottla.wire.messages import consumer_group_records


def replay_record(groups: MutableMapping[str, ConsumerGroup], record: GroupRecord) -> None:
    """Take in one record; a group comes into being with its first and goes with the tombstone of type 3."""
    key, value = record
    group_id: str = key.group_id  # type: ignore[attr-defined]  # every key of these has one
    group = groups.get(group_id)
    if group is None:
        if value is None:
            return
        group = groups[group_id] = ConsumerGroup(group_id)
    match key:
        case consumer_group_records.ConsumerGroupMemberMetadataKey():
            _member(group, key.member_id, value)
        case consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey():
            _current(group, key.member_id, value)
        case consumer_group_records.ConsumerGroupTargetAssignmentMemberKey():
            if isinstance(value, consumer_group_records.ConsumerGroupTargetAssignmentMemberValue):
                group.target[key.member_id] = records.assignment_from_record(value) or EMPTY_ASSIGNMENT
            else:
                group.target.pop(key.member_id, None)
        case consumer_group_records.ConsumerGroupTargetAssignmentMetadataKey():
            known = isinstance(value, consumer_group_records.ConsumerGroupTargetAssignmentMetadataValue)
            group.target_epoch = value.assignment_epoch if known else -1  # type: ignore[union-attr]
            group.target_computed_ms = value.assignment_timestamp if known else 0  # type: ignore[union-attr]
        case consumer_group_records.ConsumerGroupRegularExpressionKey():
            _regex(group, key.regular_expression, value)
        case consumer_group_records.ConsumerGroupPartitionMetadataKey():
            group.has_partition_metadata = value is not None
        case _:
            assert isinstance(key, consumer_group_records.ConsumerGroupMetadataKey)
            if isinstance(value, consumer_group_records.ConsumerGroupMetadataValue):
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
            else:
                del groups[group_id]


def _member(group: ConsumerGroup, member_id: str, value: object) -> None:
    if isinstance(value, consumer_group_records.ConsumerGroupMemberMetadataValue):
        group.update(records.with_metadata(group.members.get(member_id) or ConsumerGroupMember(member_id), value))
    else:
        group.remove(member_id)


def _current(group: ConsumerGroup, member_id: str, value: object) -> None:
    member = group.members.get(member_id)
    if isinstance(value, consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue):
        group.update(records.with_assignment(member or ConsumerGroupMember(member_id), value))
    elif member is not None:
        gone = replace(
            member,
            epoch=LEAVE_GROUP_MEMBER_EPOCH,
            previous_epoch=LEAVE_GROUP_MEMBER_EPOCH,
            assigned=NO_PARTITIONS,
            revoking=NO_PARTITIONS,
        )
        group.update(gone)


def _regex(group: ConsumerGroup, regex: str, value: object) -> None:
    known = isinstance(value, consumer_group_records.ConsumerGroupRegularExpressionValue)
    resolved = ResolvedRegularExpression(frozenset(value.topics), value.version, value.timestamp) if known else None  # type: ignore[attr-defined]
    group.set_resolved_regex(regex, resolved)
