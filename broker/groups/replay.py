"""Replay of the records of consumer, share and streams groups, by a table of record key classes.

Clients may write to the log and compaction removes records, so a tombstone of an absent member or group is skipped. A
group is created by its first other record, a member by its metadata or current assignment. The tombstone of its epoch
record removes a group; tombstones after that one find no group. A large record is replayed in steps; all steps are done
before the state is read.

Source: ``GroupMetadataManager.java``, the ``replay`` methods (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from ottla.broker.groups.consumer import records as consumer_records
from ottla.broker.groups.consumer.consumer_group import (
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerGroupMember,
    ResolvedRegularExpression,
)
from ottla.broker.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, AssignedGroup
from ottla.broker.groups.record_arrays import read_assignment, read_names
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.share import records as share_records
from ottla.broker.groups.share.share_group import ShareGroup, ShareGroupMember
from ottla.broker.groups.streams import records as streams_records
from ottla.broker.groups.streams.streams_group import EMPTY_TASKS_WITH_EPOCHS, StreamsGroup, StreamsGroupMember
from ottla.broker.groups.streams.topology import StreamsTopology
from ottla.wire.codec.schema import Message
from ottla.wire.messages import consumer_group_records, share_group_records, streams_group_records

Group = AssignedGroup[Any, Any]


class GroupType(NamedTuple):
    """Functions with which the records of one group type (consumer, share or streams) are replayed."""

    groups: Callable[[Any], dict[str, Group]]
    """Returns the groups of this type by id. Its argument is the `GroupStateMachine`."""
    new_group: Callable[[str], Group]
    new_member: Callable[[str], Any]
    with_metadata: Callable[[Any, Any, Any], Generator[None, None, Any]]
    with_assignment: Callable[[Any, Any], Generator[None, None, Any]]
    read_target: Callable[[Any], Generator[None, None, Any]]
    no_assignment: Mapping[str, Any]
    """Values of the assignment fields of a member whose current assignment record is deleted."""


def _read_target(value: Any) -> Generator[None, None, Any]:
    return read_assignment(value.topic_partitions)


CONSUMER = GroupType(
    attrgetter("consumer_groups.groups"),
    ConsumerGroup,
    ConsumerGroupMember,
    consumer_records.with_metadata,
    consumer_records.with_assignment,
    _read_target,
    {"assigned": NO_PARTITIONS, "revoking": NO_PARTITIONS},
)
SHARE = GroupType(
    attrgetter("share_groups.groups"),
    ShareGroup,
    ShareGroupMember,
    share_records.with_metadata,
    share_records.with_assignment,
    _read_target,
    {"assigned": {}},
)
STREAMS = GroupType(
    attrgetter("streams_groups.groups"),
    StreamsGroup,
    StreamsGroupMember,
    streams_records.with_metadata,
    streams_records.with_assignment,
    streams_records.read_target,
    {"assigned": EMPTY_TASKS_WITH_EPOCHS, "revoking": EMPTY_TASKS_WITH_EPOCHS},
)


def _member(kind: GroupType, group: Group, key: Any, value: Any) -> Iterator[None]:
    if value is None:
        group.remove(key.member_id)
        return
    old = group.members.get(key.member_id) or kind.new_member(key.member_id)
    new = yield from kind.with_metadata(group, old, value)
    yield from group.update_job(new)


def _current_assignment(kind: GroupType, group: Group, key: Any, value: Any) -> Iterator[None]:
    old = group.members.get(key.member_id)
    if value is not None:
        new = yield from kind.with_assignment(old or kind.new_member(key.member_id), value)
    elif old is not None:
        left = LEAVE_GROUP_MEMBER_EPOCH
        new = replace(old, epoch=left, previous_epoch=left, **kind.no_assignment)
    else:
        return
    yield from group.update_job(new)


def _target_assignment(kind: GroupType, group: Group, key: Any, value: Any) -> Iterator[None]:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = yield from kind.read_target(value)


def _target_assignment_metadata(kind: GroupType, group: Group, key: Any, value: Any) -> Iterator[None]:
    group.target_epoch = -1 if value is None else value.assignment_epoch
    group.target_computed_ms = 0 if value is None else value.assignment_timestamp
    yield


def _epoch(kind: GroupType, group: Group, key: Any, value: Any) -> Iterator[None]:
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    yield


def _streams_epoch(kind: GroupType, group: StreamsGroup, key: Any, value: Any) -> Iterator[None]:
    group.validated_epoch = value.validated_topology_epoch
    group.configs = {row.key: row.value for row in value.last_assignment_configs or ()}
    return _epoch(kind, group, key, value)


def _partition_metadata(kind: GroupType, group: ConsumerGroup, key: Any, value: Any) -> Iterator[None]:
    group.has_partition_metadata = value is not None
    yield


def _regular_expression(kind: GroupType, group: ConsumerGroup, key: Any, value: Any) -> Iterator[None]:
    resolved = None
    if value is not None:
        resolved = ResolvedRegularExpression((yield from read_names(value.topics)), value.version, value.timestamp)
    group.set_resolved_regex(key.regular_expression, resolved)


def _state_partition_metadata(kind: GroupType, group: ShareGroup, key: Any, value: Any) -> Iterator[None]:
    rows = share_group_records.ShareGroupStatePartitionMetadataValue() if value is None else value
    initializing = yield from share_records.read_partitions_info(rows.initializing_topics)
    initialized = yield from share_records.read_partitions_info(rows.initialized_topics)
    group.initializing, group.initialized = initializing, initialized
    group.deleting = {row.topic_id: row.topic_name for row in rows.deleting_topics}


def _topology(kind: GroupType, group: StreamsGroup, key: Any, value: Any) -> Iterator[None]:
    topology = None if value is None else StreamsTopology(value)
    if topology is not None:
        yield from topology.index()
    group.topology = topology


Replay = Callable[[GroupType, Any, Any, Any], Iterator[None]]
"""Replays one record. Its arguments are the group type, the group, and the record's key and value."""
REPLAYS: dict[type[Message], tuple[GroupType, Replay]] = {
    consumer_group_records.ConsumerGroupMetadataKey: (CONSUMER, _epoch),
    consumer_group_records.ConsumerGroupPartitionMetadataKey: (CONSUMER, _partition_metadata),
    consumer_group_records.ConsumerGroupMemberMetadataKey: (CONSUMER, _member),
    consumer_group_records.ConsumerGroupTargetAssignmentMetadataKey: (CONSUMER, _target_assignment_metadata),
    consumer_group_records.ConsumerGroupTargetAssignmentMemberKey: (CONSUMER, _target_assignment),
    consumer_group_records.ConsumerGroupCurrentMemberAssignmentKey: (CONSUMER, _current_assignment),
    consumer_group_records.ConsumerGroupRegularExpressionKey: (CONSUMER, _regular_expression),
    share_group_records.ShareGroupMemberMetadataKey: (SHARE, _member),
    share_group_records.ShareGroupMetadataKey: (SHARE, _epoch),
    share_group_records.ShareGroupTargetAssignmentMetadataKey: (SHARE, _target_assignment_metadata),
    share_group_records.ShareGroupTargetAssignmentMemberKey: (SHARE, _target_assignment),
    share_group_records.ShareGroupCurrentMemberAssignmentKey: (SHARE, _current_assignment),
    share_group_records.ShareGroupStatePartitionMetadataKey: (SHARE, _state_partition_metadata),
    streams_group_records.StreamsGroupMetadataKey: (STREAMS, _streams_epoch),
    streams_group_records.StreamsGroupMemberMetadataKey: (STREAMS, _member),
    streams_group_records.StreamsGroupTargetAssignmentMetadataKey: (STREAMS, _target_assignment_metadata),
    streams_group_records.StreamsGroupTargetAssignmentMemberKey: (STREAMS, _target_assignment),
    streams_group_records.StreamsGroupCurrentMemberAssignmentKey: (STREAMS, _current_assignment),
    streams_group_records.StreamsGroupTopologyKey: (STREAMS, _topology),
}


def replay_record(machine: Any, record: GroupRecord) -> Generator[None, None, Group | None]:
    """Replay a record of a consumer, share or streams group, as a job; create a missing group, unless for a tombstone.

    A record (not a tombstone) of a consumer or streams group also removes the classic group with its id from memory:
    normally a simple one, since a classic group with a record gets a tombstone before.

    Args:
        machine: the `GroupStateMachine`.
        record: the record; its key class is in `REPLAYS`.

    Returns:
        The group of the record; None if it does not exist or was removed by the record.
    """
    key: Any = record.key
    value: Any = record.value
    kind, replay = REPLAYS[type(key)]
    groups = kind.groups(machine)
    group = groups.get(key.group_id)
    if group is None:
        if value is None:
            return None
        group = groups[key.group_id] = kind.new_group(key.group_id)
    if value is None and replay in (_epoch, _streams_epoch):
        del groups[key.group_id]
        return None
    yield from replay(kind, group, key, value)
    if value is not None and kind is not SHARE:  # it replaces a simple group, which has no records
        machine.classic_groups.groups.pop(key.group_id, None)
    return group
