"""The records of a streams group, made and read: types 17 and 19 to 23 of `__consumer_offsets`.

Source: ``StreamsCoordinatorRecordHelpers.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ottla.broker.groups.java_collections.iteration_order import java_string_sort_key
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.streams.streams_group import (
    StreamsGroup,
    StreamsGroupMember,
    StreamsMemberState,
    TaskEpochs,
    TasksBySubtopology,
    TasksTuple,
    TasksTupleWithEpochs,
)
from ottla.broker.groups.streams.topology import StreamsTopology
from ottla.wire.messages import streams_group_records

_TasksWithEpochs = streams_group_records.StreamsGroupCurrentMemberAssignmentValueTaskIds
_TargetTasks = streams_group_records.StreamsGroupTargetAssignmentMemberValueTaskIds


def member_record(group_id: str, member: StreamsGroupMember) -> GroupRecord:
    """What a member says of itself (type 19)."""
    value = streams_group_records.StreamsGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        None if member.endpoint is None else streams_group_records.Endpoint(*member.endpoint),
        [streams_group_records.KeyValue(key, text) for key, text in member.tags],
    )
    return GroupRecord(streams_group_records.StreamsGroupMemberMetadataKey(group_id, member.id), value)


def sorted_tags(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """A member's tags as its record has them."""
    return tuple((key, tags[key]) for key in sorted(tags, key=java_string_sort_key))


def with_metadata(
    member: StreamsGroupMember, value: streams_group_records.StreamsGroupMemberMetadataValue
) -> StreamsGroupMember:
    """A member as its record of type 19 says."""
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if value.user_endpoint is None else (value.user_endpoint.host, value.user_endpoint.port),
        tags=sorted_tags({row.key: row.value for row in value.client_tags}),
    )


def topology_record(group_id: str, topology: StreamsTopology) -> GroupRecord:
    """What the application is made of (type 23)."""
    return GroupRecord(streams_group_records.StreamsGroupTopologyKey(group_id), topology.value)


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> GroupRecord:
    """A group's epoch, the hash of its topics, the topology that fits them, what the assignor is told (type 17)."""
    told = [
        streams_group_records.LastAssignmentConfig(key, configs[key])
        for key in sorted(configs, key=java_string_sort_key)
    ]
    value = streams_group_records.StreamsGroupMetadataValue(epoch, metadata_hash, validated_epoch, told)
    return GroupRecord(streams_group_records.StreamsGroupMetadataKey(group_id), value)


def target_assignment_epoch_record(group_id: str, epoch: int, at_ms: int) -> GroupRecord:
    """For which epoch, and when, the targets were computed (type 20)."""
    value = streams_group_records.StreamsGroupTargetAssignmentMetadataValue(epoch, at_ms)
    return GroupRecord(streams_group_records.StreamsGroupTargetAssignmentMetadataKey(group_id), value)


def target_assignment_record(group_id: str, member_id: str, target: TasksTuple) -> GroupRecord:
    """What a member is to do (type 21)."""

    def rows(tasks: TasksBySubtopology) -> list[_TargetTasks]:
        return [_TargetTasks(name, sorted(tasks[name])) for name in sorted(tasks, key=java_string_sort_key)]

    key = streams_group_records.StreamsGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, streams_group_records.StreamsGroupTargetAssignmentMemberValue(*map(rows, target)))


def tasks_from_record(value: streams_group_records.StreamsGroupTargetAssignmentMemberValue) -> TasksTuple:
    """A target as its record says."""

    def tasks(rows: list[_TargetTasks]) -> TasksBySubtopology:
        return {row.subtopology_id: frozenset(row.partitions) for row in rows}

    return TasksTuple(tasks(value.active_tasks), tasks(value.standby_tasks), tasks(value.warmup_tasks))


def current_assignment_record(group_id: str, member: StreamsGroupMember) -> GroupRecord:
    """What a member does, and what it has still to give up (type 22)."""

    def active(since: TaskEpochs) -> list[_TasksWithEpochs]:
        rows = ((name, sorted(since[name])) for name in sorted(since, key=java_string_sort_key))
        return [_TasksWithEpochs(name, numbers, [since[name][number] for number in numbers]) for name, numbers in rows]

    def others(tasks: TasksBySubtopology) -> list[_TasksWithEpochs]:
        return [_TasksWithEpochs(name, sorted(tasks[name])) for name in sorted(tasks, key=java_string_sort_key)]

    has, gives = member.assigned, member.revoking
    value = streams_group_records.StreamsGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        member.state,
        active(has.active),
        others(has.standby),
        others(has.warmup),
        active(gives.active),
        others(gives.standby),
        others(gives.warmup),
    )
    return GroupRecord(streams_group_records.StreamsGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def with_assignment(
    member: StreamsGroupMember, value: streams_group_records.StreamsGroupCurrentMemberAssignmentValue
) -> StreamsGroupMember:
    """A member as its record of type 22 says."""

    def since(rows: list[_TasksWithEpochs]) -> TaskEpochs:
        out = {}
        for row in rows:
            epochs = row.assignment_epochs
            if epochs is None or len(epochs) != len(row.partitions):
                epochs = [value.member_epoch] * len(row.partitions)  # written before 4.3
            out[row.subtopology_id] = dict(zip(row.partitions, epochs, strict=True))
        return out

    def tasks(rows: list[_TasksWithEpochs]) -> TasksBySubtopology:
        return {row.subtopology_id: frozenset(row.partitions) for row in rows}

    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=StreamsMemberState(value.state),
        assigned=TasksTupleWithEpochs(since(value.active_tasks), tasks(value.standby_tasks), tasks(value.warmup_tasks)),
        revoking=TasksTupleWithEpochs(
            since(value.active_tasks_pending_revocation),
            tasks(value.standby_tasks_pending_revocation),
            tasks(value.warmup_tasks_pending_revocation),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """What removes a member."""
    return [
        GroupRecord(streams_group_records.StreamsGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupRecord(streams_group_records.StreamsGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(streams_group_records.StreamsGroupMemberMetadataKey(group_id, member_id), None),
    ]


def group_tombstones(group: StreamsGroup) -> Iterator[GroupRecord]:
    """What removes a group."""
    members = list(group.members)
    yield from (
        GroupRecord(streams_group_records.StreamsGroupCurrentMemberAssignmentKey(group.id, name), None)
        for name in members
    )
    yield from (
        GroupRecord(streams_group_records.StreamsGroupTargetAssignmentMemberKey(group.id, name), None)
        for name in members
    )
    yield GroupRecord(streams_group_records.StreamsGroupTargetAssignmentMetadataKey(group.id), None)
    yield from (
        GroupRecord(streams_group_records.StreamsGroupMemberMetadataKey(group.id, name), None) for name in members
    )
    yield GroupRecord(streams_group_records.StreamsGroupMetadataKey(group.id), None)
    yield GroupRecord(streams_group_records.StreamsGroupTopologyKey(group.id), None)
