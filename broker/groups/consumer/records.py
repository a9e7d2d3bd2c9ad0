"""Records of a consumer group, built and replayed: types 3 to 8 and 16 of `__consumer_offsets`.

Source: ``GroupCoordinatorRecordHelpers.java``, ``Utils.assignmentFromTopicPartitions`` (apache/kafka 4.3.1), KIP-848,
KIP-1251 for the epoch beside each partition.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import cast

from ottla.broker.groups.assigned_records import AssignedRecords
from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerMemberState,
    PartitionEpochs,
    ResolvedRegularExpression,
)
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.record_arrays import read_names, read_table
from ottla.broker.groups.records import GroupRecord
from ottla.wire.messages import consumer_group_records

MAX_RECORDS_PER_SLICE = 200
PARTITIONS_PER_WORK_UNIT = 24
"""Number of partitions whose assignment costs as much work as one record."""
TOPIC_COST_IN_PARTITIONS = 4
"""Work of a topic in an assignment record, in partitions."""
RECORDS = AssignedRecords(
    consumer_group_records.ConsumerGroupMetadataKey,
    consumer_group_records.ConsumerGroupMetadataValue,
    consumer_group_records.ConsumerGroupTargetAssignmentMetadataKey,
    consumer_group_records.ConsumerGroupTargetAssignmentMetadataValue,
    consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey,
    consumer_group_records.ConsumerGroupTargetAssignmentMemberKey,
    consumer_group_records.ConsumerGroupMemberMetadataKey,
)
target_assignment_epoch_record = RECORDS.target_assignment_epoch_record
member_tombstones = RECORDS.member_tombstones
epoch_record = RECORDS.epoch_record


def member_record(group_id: str, member: ConsumerGroupMember) -> GroupRecord:
    """Return the metadata record of a member (type 5)."""
    value = consumer_group_records.ConsumerGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        cast("list[str]", iteration_order.sort_strings(member.subscribed_topic_names)),
        member.subscribed_regex,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic_metadata,
    )
    return GroupRecord(consumer_group_records.ConsumerGroupMemberMetadataKey(group_id, member.id), value)


def with_metadata(
    group: ConsumerGroup, member: ConsumerGroupMember, value: consumer_group_records.ConsumerGroupMemberMetadataValue
) -> Generator[None, None, ConsumerGroupMember]:
    """Return a copy of ``member`` with the fields of its metadata record (type 5), as a job."""
    names = yield from group.shared_subscription(member, (yield from read_names(value.subscribed_topic_names)))
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=names,
        subscribed_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic_metadata=value.classic_member_metadata,
    )


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """Return the record of a member's target assignment (type 7)."""
    rows = [
        consumer_group_records.TopicPartition(topic, list(target[topic]))
        for topic in iteration_order.uuid_hash_map_order(target)
    ]
    key = consumer_group_records.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, consumer_group_records.ConsumerGroupTargetAssignmentMemberValue(rows))


def _to_topic_partitions(held: PartitionEpochs) -> list[consumer_group_records.TopicPartitions]:
    out = []
    for topic in iteration_order.uuid_hash_map_order(held):
        numbers = iteration_order.integer_hash_set_order(held[topic])
        out.append(
            consumer_group_records.TopicPartitions(topic, list(numbers), [held[topic][number] for number in numbers])
        )
    return out


def current_assignment_record(group_id: str, member: ConsumerGroupMember) -> GroupRecord:
    """Return the record of a member's current assignment (type 8)."""
    value = consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        member.state,
        _to_topic_partitions(member.assigned),
        _to_topic_partitions(member.revoking),
    )
    return GroupRecord(consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def with_assignment(
    member: ConsumerGroupMember, value: consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue
) -> Generator[None, None, ConsumerGroupMember]:
    """Return a copy of ``member`` with the fields of its current assignment record (type 8), as a job."""

    def epochs(row: consumer_group_records.TopicPartitions) -> dict[int, int]:
        known = row.assignment_epochs
        if known is None or len(known) != len(row.partitions):  # written before 4.3
            return dict.fromkeys(row.partitions, max(value.member_epoch, 0))
        return dict(zip(row.partitions, known, strict=True))

    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=ConsumerMemberState(value.state),
        assigned=(yield from read_table(value.assigned_partitions, attrgetter("topic_id"), epochs)),
        revoking=(yield from read_table(value.partitions_pending_revocation, attrgetter("topic_id"), epochs)),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegularExpression) -> GroupRecord:
    """Return the record of the topics that a regular expression matches (type 16)."""
    value = consumer_group_records.ConsumerGroupRegularExpressionValue(
        list(iteration_order.sort_strings(resolved.topics)), resolved.image_offset, resolved.resolved_ms
    )
    return GroupRecord(consumer_group_records.ConsumerGroupRegularExpressionKey(group_id, regex), value)


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """Return the tombstone of a regular expression that no member subscribes to (type 16)."""
    return GroupRecord(consumer_group_records.ConsumerGroupRegularExpressionKey(group_id, regex), None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """Return the tombstone of the partition metadata record, which Kafka wrote before 4.1 (type 4)."""
    return GroupRecord(consumer_group_records.ConsumerGroupPartitionMetadataKey(group_id), None)


def slice_records(records: Iterable[GroupRecord]) -> Iterator[list[GroupRecord]]:
    """Yield records in parts of at most `MAX_RECORDS_PER_SLICE`, fewer if they contain many partitions.

    The last part may be empty.
    """
    part: list[GroupRecord] = []
    weight = 0
    for record in records:
        part.append(record)
        weight += 1 + _partition_work(record.value) // PARTITIONS_PER_WORK_UNIT
        if weight >= MAX_RECORDS_PER_SLICE:
            yield part
            part, weight = [], 0
    yield part


def _partition_work(value: object) -> int:
    if isinstance(value, consumer_group_records.ConsumerGroupTargetAssignmentMemberValue):
        return sum(TOPIC_COST_IN_PARTITIONS + len(row.partitions) for row in value.topic_partitions)
    if isinstance(value, consumer_group_records.ConsumerGroupCurrentMemberAssignmentValue):
        return sum(TOPIC_COST_IN_PARTITIONS + len(row.partitions) for row in value.assigned_partitions)
    return 0


def group_tombstones(group: ConsumerGroup, renamed: tuple[str, str] | None = None) -> Iterator[GroupRecord]:
    """Yield the tombstones of a group with its members and regular expressions, in Kafka's order.

    ``renamed``: old and new id of a static member that was replaced in records not replayed yet.
    """
    members = list(group.members)
    if renamed is not None:
        members = [renamed[1] if name == renamed[0] else name for name in members]
    regexes = [regex_tombstone(group.id, regex) for regex in group.resolved_regexes]
    return RECORDS.group_tombstones(group.id, members, *regexes, partition_metadata_tombstone(group.id))
