"""Records of a streams group, built and replayed: types 17 and 19 to 23 of `__consumer_offsets`.

Source: ``StreamsCoordinatorRecordHelpers.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ottla.broker.groups.assigned_records import AssignedRecords
from ottla.broker.groups.java_collections.iteration_order import java_string_sort_key
from ottla.broker.groups.record_arrays import read_table
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
from ottla.jobs.sequences import sort_job
from ottla.wire.messages import streams_group_records

_TasksWithEpochs = streams_group_records.StreamsGroupCurrentMemberAssignmentValueTaskIds
_TargetTasks = streams_group_records.StreamsGroupTargetAssignmentMemberValueTaskIds
RECORDS = AssignedRecords(
    streams_group_records.StreamsGroupMetadataKey,
    streams_group_records.StreamsGroupMetadataValue,
    streams_group_records.StreamsGroupTargetAssignmentMetadataKey,
    streams_group_records.StreamsGroupTargetAssignmentMetadataValue,
    streams_group_records.StreamsGroupCurrentMemberAssignmentKey,
    streams_group_records.StreamsGroupTargetAssignmentMemberKey,
    streams_group_records.StreamsGroupMemberMetadataKey,
)
target_assignment_epoch_record = RECORDS.target_assignment_epoch_record
member_tombstones = RECORDS.member_tombstones


def member_record(group_id: str, member: StreamsGroupMember) -> GroupRecord:
    """Return the metadata record of a member (type 19)."""
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
    """Return the tags of a member in the order of its record."""
    return tuple((key, tags[key]) for key in sorted(tags, key=java_string_sort_key))


def with_metadata(
    group: StreamsGroup, member: StreamsGroupMember, value: streams_group_records.StreamsGroupMemberMetadataValue
) -> Generator[None, None, StreamsGroupMember]:
    """Return a copy of ``member`` with the fields of its metadata record (type 19), as a job."""
    tags = {row.key: row.value for row in value.client_tags}
    keys = yield from sort_job(tags, java_string_sort_key)
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
        tags=tuple((key, tags[key]) for key in keys),
    )


def topology_record(group_id: str, topology: StreamsTopology) -> GroupRecord:
    """Return the record of a group's topology (type 23)."""
    return GroupRecord(streams_group_records.StreamsGroupTopologyKey(group_id), topology.value)


def epoch_record(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> GroupRecord:
    """Return the record of a group's epoch, metadata hash, validated topology epoch and assignor configs (type 17)."""
    config_rows = [
        streams_group_records.LastAssignmentConfig(key, configs[key])
        for key in sorted(configs, key=java_string_sort_key)
    ]
    return RECORDS.epoch_record(group_id, epoch, metadata_hash, validated_epoch, config_rows)


def target_assignment_record(group_id: str, member_id: str, target: TasksTuple) -> GroupRecord:
    """Return the record of a member's target assignment (type 21)."""

    def rows(tasks: TasksBySubtopology) -> list[_TargetTasks]:
        return [_TargetTasks(name, sorted(tasks[name])) for name in sorted(tasks, key=java_string_sort_key)]

    key = streams_group_records.StreamsGroupTargetAssignmentMemberKey(group_id, member_id)
    return GroupRecord(key, streams_group_records.StreamsGroupTargetAssignmentMemberValue(*map(rows, target)))


def _read_tasks(rows: Iterable[Any]) -> Generator[None, None, TasksBySubtopology]:
    return (yield from read_table(rows, attrgetter("subtopology_id"), lambda row: frozenset(row.partitions)))


def read_target(
    value: streams_group_records.StreamsGroupTargetAssignmentMemberValue,
) -> Generator[None, None, TasksTuple]:
    """Return the tasks of a target assignment record (type 21), as a job."""
    active = yield from _read_tasks(value.active_tasks)
    standby = yield from _read_tasks(value.standby_tasks)
    return TasksTuple(active, standby, (yield from _read_tasks(value.warmup_tasks)))


def current_assignment_record(group_id: str, member: StreamsGroupMember) -> GroupRecord:
    """Return the record of a member's current assignment: assigned tasks and tasks to revoke (type 22)."""

    def active(since: TaskEpochs) -> list[_TasksWithEpochs]:
        rows = ((name, sorted(since[name])) for name in sorted(since, key=java_string_sort_key))
        return [_TasksWithEpochs(name, numbers, [since[name][number] for number in numbers]) for name, numbers in rows]

    def others(tasks: TasksBySubtopology) -> list[_TasksWithEpochs]:
        return [_TasksWithEpochs(name, sorted(tasks[name])) for name in sorted(tasks, key=java_string_sort_key)]

    has, to_revoke = member.assigned, member.revoking
    value = streams_group_records.StreamsGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        member.state,
        active(has.active),
        others(has.standby),
        others(has.warmup),
        active(to_revoke.active),
        others(to_revoke.standby),
        others(to_revoke.warmup),
    )
    return GroupRecord(streams_group_records.StreamsGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def with_assignment(
    member: StreamsGroupMember, value: streams_group_records.StreamsGroupCurrentMemberAssignmentValue
) -> Generator[None, None, StreamsGroupMember]:
    """Return a copy of ``member`` with the fields of its current assignment record (type 22), as a job."""

    def epochs(row: _TasksWithEpochs) -> dict[int, int]:
        known = row.assignment_epochs
        if known is None or len(known) != len(row.partitions):  # written before 4.3
            return dict.fromkeys(row.partitions, value.member_epoch)
        return dict(zip(row.partitions, known, strict=True))

    def tasks(
        active: list[_TasksWithEpochs], standby: list[_TasksWithEpochs], warmup: list[_TasksWithEpochs]
    ) -> Generator[None, None, TasksTupleWithEpochs]:
        since = yield from read_table(active, attrgetter("subtopology_id"), epochs)
        on_standby = yield from _read_tasks(standby)
        return TasksTupleWithEpochs(since, on_standby, (yield from _read_tasks(warmup)))

    assigned = yield from tasks(value.active_tasks, value.standby_tasks, value.warmup_tasks)
    revoking = yield from tasks(
        value.active_tasks_pending_revocation,
        value.standby_tasks_pending_revocation,
        value.warmup_tasks_pending_revocation,
    )
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=StreamsMemberState(value.state),
        assigned=assigned,
        revoking=revoking,
    )


def group_tombstones(group: StreamsGroup) -> Iterator[GroupRecord]:
    """Yield the records that delete a streams group: tombstones of its members, its metadata and its topology."""
    yield from RECORDS.group_tombstones(group.id, group.members)
    yield GroupRecord(streams_group_records.StreamsGroupTopologyKey(group.id), None)
