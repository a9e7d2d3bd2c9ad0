"""Streams groups from their records: the only place that changes them.

Nobody vouches for what a log holds, and compaction leaves what it likes: a record about what is not there is passed
over. A group goes with the tombstone of type 17; that of its topology comes behind it and finds nothing.

Source: ``GroupMetadataManager.java``, the ``replay`` methods (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace

from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.streams import records
from ottla.broker.groups.streams.streams_group import (
    EMPTY_TASKS_WITH_EPOCHS,
    LEAVE_GROUP_MEMBER_EPOCH,
    StreamsGroup,
    StreamsGroupMember,
)
from ottla.broker.groups.streams.topology import StreamsTopology
from ottla.wire.messages import streams_group_records


def replay_record(groups: MutableMapping[str, StreamsGroup], record: GroupRecord) -> None:
    """Take in one record; a group comes into being with its first."""
    key, value = record
    group_id: str = key.group_id  # type: ignore[attr-defined]  # every key of these has one
    group = groups.get(group_id)
    if group is None:
        if value is None:
            return
        group = groups[group_id] = StreamsGroup(group_id)
    match key:
        case streams_group_records.StreamsGroupMemberMetadataKey():
            _member(group, key.member_id, value)
        case streams_group_records.StreamsGroupCurrentMemberAssignmentKey():
            _current(group, key.member_id, value)
        case streams_group_records.StreamsGroupTargetAssignmentMemberKey():
            if isinstance(value, streams_group_records.StreamsGroupTargetAssignmentMemberValue):
                group.target[key.member_id] = records.tasks_from_record(value)
            else:
                group.target.pop(key.member_id, None)
        case streams_group_records.StreamsGroupTargetAssignmentMetadataKey():
            known = isinstance(value, streams_group_records.StreamsGroupTargetAssignmentMetadataValue)
            group.target_epoch = value.assignment_epoch if known else -1  # type: ignore[union-attr]
            group.target_computed_ms = value.assignment_timestamp if known else 0  # type: ignore[union-attr]
        case streams_group_records.StreamsGroupTopologyKey():
            group.topology = (
                StreamsTopology(value) if isinstance(value, streams_group_records.StreamsGroupTopologyValue) else None
            )
        case _:
            assert isinstance(key, streams_group_records.StreamsGroupMetadataKey)
            if isinstance(value, streams_group_records.StreamsGroupMetadataValue):
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
                group.validated_epoch = value.validated_topology_epoch
                group.configs = {row.key: row.value for row in value.last_assignment_configs or ()}
            else:
                del groups[group_id]


def _member(group: StreamsGroup, member_id: str, value: object) -> None:
    if isinstance(value, streams_group_records.StreamsGroupMemberMetadataValue):
        group.update(records.with_metadata(group.members.get(member_id) or StreamsGroupMember(member_id), value))
    else:
        group.remove(member_id)


def _current(group: StreamsGroup, member_id: str, value: object) -> None:
    member = group.members.get(member_id)
    if isinstance(value, streams_group_records.StreamsGroupCurrentMemberAssignmentValue):
        group.update(records.with_assignment(member or StreamsGroupMember(member_id), value))
    elif member is not None:
        gone = replace(
            member,
            epoch=LEAVE_GROUP_MEMBER_EPOCH,
            previous_epoch=LEAVE_GROUP_MEMBER_EPOCH,
            assigned=EMPTY_TASKS_WITH_EPOCHS,
            revoking=EMPTY_TASKS_WITH_EPOCHS,
        )
        group.update(gone)
