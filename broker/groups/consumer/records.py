"""The records of a consumer group, made and read: types 3 to 8 and 16 of `__consumer_offsets`.

Source: ``GroupCoordinatorRecordHelpers.java``, ``Utils.assignmentFromTopicPartitions`` (apache/kafka 4.3.1), KIP-848,
KIP-1251 for the epoch beside each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.spec import Target
from ottla.broker.groups.consumer.state import ConsumerGroup, Held, Member, MemberState, Resolved
from ottla.broker.groups.records import GroupRecord
from ottla.wire.messages import consumer_group_records as m

RECORDS_AT_ONCE = 200
PARTITIONS_A_RECORD = 24
"""So many partitions are as much work as a record is."""
PARTITIONS_A_TOPIC = 4
"""And a topic as so many partitions."""


def member_record(group_id: str, member: Member) -> GroupRecord:
    """What a member says of itself (type 5)."""
    value = m.ConsumerGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        cast("list[str]", java_order.sorted_texts(member.names)),
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic,
    )
    return GroupRecord(m.ConsumerGroupMemberMetadataKey(group_id, member.id), value)


def with_metadata(member: Member, value: m.ConsumerGroupMemberMetadataValue) -> Member:
    """A member as its record of type 5 says."""
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        names=java_order.set_of(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """A group's epoch, and the hash of its topics (type 3)."""
    return GroupRecord(m.ConsumerGroupMetadataKey(group_id), m.ConsumerGroupMetadataValue(epoch, metadata_hash))


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """What a member is to have (type 7)."""
    rows = [m.TopicPartition(topic, list(target[topic])) for topic in java_order.ids(target)]
    key = m.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, m.ConsumerGroupTargetAssignmentMemberValue(rows))


def target_from(value: m.ConsumerGroupTargetAssignmentMemberValue) -> Target:
    """A target as its record says, in the order Java's tables would have."""
    rows = {row.topic_id: java_order.numbers(row.partitions) for row in value.topic_partitions}
    return {topic: rows[topic] for topic in java_order.ids(rows)}


def target_epoch_record(group_id: str, epoch: int, at_ms: int) -> GroupRecord:
    """For which epoch, and when, the targets were computed (type 6)."""
    value = m.ConsumerGroupTargetAssignmentMetadataValue(epoch, at_ms)
    return GroupRecord(m.ConsumerGroupTargetAssignmentMetadataKey(group_id), value)


def _rows(held: Held) -> list[m.TopicPartitions]:
    out = []
    for topic in java_order.ids(held):
        numbers = java_order.numbers(held[topic])
        out.append(m.TopicPartitions(topic, list(numbers), [held[topic][number] for number in numbers]))
    return out


def current_record(group_id: str, member: Member) -> GroupRecord:
    """What a member has (type 8)."""
    value = m.ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch, member.previous_epoch, member.state, _rows(member.assigned), _rows(member.revoking)
    )
    return GroupRecord(m.ConsumerGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def _held(rows: list[m.TopicPartitions], default_epoch: int) -> Held:
    out = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = [max(default_epoch, 0)] * len(row.partitions)  # written before 4.3
        out[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return out


def with_assignment(member: Member, value: m.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    """A member as its record of type 8 says."""
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_held(value.assigned_partitions, value.member_epoch),
        revoking=_held(value.partitions_pending_revocation, value.member_epoch),
    )


def regex_record(group_id: str, regex: str, resolved: Resolved) -> GroupRecord:
    """The topics a regular expression stands for (type 16)."""
    value = m.ConsumerGroupRegularExpressionValue(
        list(java_order.sorted_texts(resolved.topics)), resolved.version, resolved.at_ms
    )
    return GroupRecord(m.ConsumerGroupRegularExpressionKey(group_id, regex), value)


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """Nobody uses a regular expression any more."""
    return GroupRecord(m.ConsumerGroupRegularExpressionKey(group_id, regex), None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """What was written before 4.1 goes (type 4)."""
    return GroupRecord(m.ConsumerGroupPartitionMetadataKey(group_id), None)


def slices(records: Iterable[GroupRecord]) -> Iterator[list[GroupRecord]]:
    """Records, some at a time: fewer where they name many partitions."""
    part: list[GroupRecord] = []
    weight = 0
    for record in records:
        part.append(record)
        weight += 1 + _partitions(record.value) // PARTITIONS_A_RECORD
        if weight >= RECORDS_AT_ONCE:
            yield part
            part, weight = [], 0
    yield part


def _partitions(value: object) -> int:
    if isinstance(value, m.ConsumerGroupTargetAssignmentMemberValue):
        return sum(PARTITIONS_A_TOPIC + len(row.partitions) for row in value.topic_partitions)
    if isinstance(value, m.ConsumerGroupCurrentMemberAssignmentValue):
        return sum(PARTITIONS_A_TOPIC + len(row.partitions) for row in value.assigned_partitions)
    return 0


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """What removes a member."""
    return [
        GroupRecord(m.ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupRecord(m.ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(m.ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group: ConsumerGroup, renamed: tuple[str, str] | None = None) -> Iterator[GroupRecord]:
    """What removes a group. Of ``renamed`` the first has just become the second, in records not replayed yet."""
    members = list(group.members)
    if renamed is not None:
        members = [renamed[1] if name == renamed[0] else name for name in members]
    yield from (GroupRecord(m.ConsumerGroupCurrentMemberAssignmentKey(group.id, name), None) for name in members)
    yield from (GroupRecord(m.ConsumerGroupTargetAssignmentMemberKey(group.id, name), None) for name in members)
    yield GroupRecord(m.ConsumerGroupTargetAssignmentMetadataKey(group.id), None)
    yield from (GroupRecord(m.ConsumerGroupMemberMetadataKey(group.id, name), None) for name in members)
    yield from (regex_tombstone(group.id, regex) for regex in list(group.resolved))
    yield partition_metadata_tombstone(group.id)
    yield GroupRecord(m.ConsumerGroupMetadataKey(group.id), None)
