"""AlterShareGroupOffsets, DeleteShareGroupOffsets and the first step of DeleteGroups: only for empty share groups.

The share state itself is changed by the persister, which the caller calls in between.

Source: ``GroupMetadataManager.alterShareGroupOffsets``, ``sharePartitionsEligibleForOffsetDeletion``,
``shareGroupBuildPartitionDeleteRequest`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.share import records
from ottla.broker.groups.share.groups import ShareGroups, TopicIdPartitions
from ottla.broker.groups.share.share_group import NamedTopicPartitions, ShareGroup, merge_partitions
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError


class ShareOffsetsToAlter(NamedTuple):
    """Result of `alter_offsets`: state epoch, and partitions whose start offsets the persister must initialize."""

    epoch: int
    partitions: TopicIdPartitions


class ShareOffsetsToDelete(NamedTuple):
    """Result of `delete_offsets` and `start_group_deletion`: share state to delete, and topics without any.

    The caller must have the persister delete the state of ``partitions``. ``unknown_topics`` are topic names.
    """

    partitions: TopicIdPartitions
    unknown_topics: list[str]


def _require_empty_group(group: ShareGroup) -> ShareGroup:
    if group.members:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.text)
    return group


def alter_offsets(
    groups: ShareGroups, pending: Any, now_ms: int, *, group_id: str, topics: Mapping[str, frozenset[int]]
) -> GroupEffects:
    """Return effects that mark partitions as initializing, before their start offsets are changed.

    The group is created if it does not exist; topics that do not exist are left out, partition numbers are not checked.
    The reply to ``pending`` is a `ShareOffsetsToAlter`, with which the caller calls the persister.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; COORDINATOR_LOAD_IN_PROGRESS while it is being deleted.
    """
    fx, image = GroupEffects(), groups.topics.image
    group = _require_empty_group(groups.get_or_create_group(group_id))
    if groups.is_deleting_state(group, now_ms):  # new state would remain after the deletion
        raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    new = {
        image.topics[name].id: NamedTopicPartitions(name, numbers)
        for name, numbers in topics.items()
        if name in image.topics
    }
    if new:
        groups.mark_initializing(group, new, now_ms, fx)
    places = {topic: named.partitions for topic, named in new.items()}
    fx.replies.append(RequestReply(pending, ShareOffsetsToAlter(group.epoch, places)))
    return fx


def delete_offsets(groups: ShareGroups, pending: Any, _: int, *, group_id: str, topics: list[str]) -> GroupEffects:
    """Return effects that mark topics as deleting, before the persister deletes their share state.

    The reply to ``pending`` is a `ShareOffsetsToDelete`, with which the caller calls the persister. A topic whose state
    is only being initialized is an unknown topic; one that is marked already is returned with all its partitions.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = _require_empty_group(groups.require_group(group_id))
    image, initialized, deleting = groups.topics.image, dict(group.initialized), dict(group.deleting)
    initializing = dict(group.initializing)
    places: dict[bytes, frozenset[int]] = {}
    unknown = []
    for name in topics:
        topic = image.topics.get(name)
        if topic is not None and topic.id in initialized:
            places[topic.id] = initialized.pop(topic.id).partitions
            # the initialization now in progress must not remove it: it would have no state
            if topic.id in initializing:
                places[topic.id] |= initializing.pop(topic.id).partitions
            deleting[topic.id] = name
        elif topic is not None and topic.id in deleting:
            places[topic.id] = frozenset(range(len(topic.partitions)))
        else:
            unknown.append(name)
    fx = GroupEffects(replies=[RequestReply(pending, ShareOffsetsToDelete(places, unknown))])
    fx.records.append(records.state_partition_metadata_record(group.id, initializing, initialized, deleting))
    return fx


def complete_offset_deletion(
    groups: ShareGroups, pending: Any, _: int, *, group_id: str, topics: frozenset[bytes]
) -> GroupEffects:
    """Return effects that remove ``topics`` from the deleting ones after the persister has deleted their state.

    The reply to ``pending`` is True, also if the group does not exist any more.
    """
    fx = GroupEffects(replies=[RequestReply(pending, True)])
    group = groups.groups.get(group_id)
    if group is not None:
        left = {topic: name for topic, name in group.deleting.items() if topic not in topics}
        fx.records.append(
            records.state_partition_metadata_record(group.id, group.initializing, group.initialized, left)
        )
    return fx


def start_group_deletion(groups: ShareGroups, pending: Any, now_ms: int, *, group_id: str) -> GroupEffects:
    """Return effects that mark all share state of a group as deleting, before the group itself is deleted.

    This includes initializing partitions and those of earlier failed deletions: a group created again with this id
    starts in an epoch that the persister rejects if it has state of a later one. For topics being deleted, all
    partitions are included, since it is unknown which of them have state.

    The reply to ``pending`` is a `ShareOffsetsToDelete` without unknown topics. From now on, for at most 30 s, no share
    state of the group is initialized (`ShareGroups.is_deleting_state`).

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = _require_empty_group(groups.require_group(group_id))
    image, doubtful = groups.topics.image, dict[bytes, NamedTopicPartitions]()
    for topic_id, name in group.deleting.items():
        topic = image.topics.get(image.topic_names.get(topic_id, ""))
        if topic is not None:
            doubtful[topic_id] = NamedTopicPartitions(name, frozenset(range(len(topic.partitions))))
    known = merge_partitions(merge_partitions(group.initializing, group.initialized), doubtful)
    group.state_deletion_started_ms = now_ms
    fx = GroupEffects(
        replies=[
            RequestReply(pending, ShareOffsetsToDelete({topic: named.partitions for topic, named in known.items()}, []))
        ]
    )
    if known or group.deleting:
        fx.records.append(
            records.state_partition_metadata_record(
                group.id, {}, {}, {topic: named.name for topic, named in known.items()}
            )
        )
    return fx
