"""Where a share group stands is set or forgotten by an administrator: while nobody is in the group.

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
    """What the persister is to begin anew, in which state epoch: the answer to `alter_offsets`."""

    epoch: int
    partitions: TopicIdPartitions


class ShareOffsetsToDelete(NamedTuple):
    """What the persister is to forget, and the topics of which nothing is known: the answer to `delete_offsets`, and to
    `start_group_deletion`.
    """

    partitions: TopicIdPartitions
    unknown_topics: list[str]


def _require_empty_group(group: ShareGroup) -> ShareGroup:
    if group.members:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.text)
    return group


def alter_offsets(
    groups: ShareGroups, ticket: Any, now_ms: int, *, group_id: str, topics: Mapping[str, frozenset[int]]
) -> GroupEffects:
    """These partitions, which exist, are to begin elsewhere; a group that is not there is made.

    The answer is a `ShareOffsetsToAlter`.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; COORDINATOR_LOAD_IN_PROGRESS while it is being deleted.
    """
    fx, image = GroupEffects(), groups.topics.image
    group = _require_empty_group(groups.get_or_create_group(group_id))
    if groups.is_deleting_state(group, now_ms):  # what is begun now would outlive the group
        raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    new = {
        image.topics[name].id: NamedTopicPartitions(name, numbers)
        for name, numbers in topics.items()
        if name in image.topics
    }
    if new:
        groups.mark_initializing(group, new, now_ms, fx)
    places = {topic: named.partitions for topic, named in new.items()}
    fx.replies.append(RequestReply(ticket, ShareOffsetsToAlter(group.epoch, places)))
    return fx


def delete_offsets(groups: ShareGroups, ticket: Any, _: int, *, group_id: str, topics: list[str]) -> GroupEffects:
    """Topics are to be forgotten, first of all by the persister.

    The answer is a `ShareOffsetsToDelete`. Raises ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
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
            if topic.id in initializing:  # who has it begun now must not find it here: it would have no state
                places[topic.id] |= initializing.pop(topic.id).partitions
            deleting[topic.id] = name
        elif topic is not None and topic.id in deleting:
            places[topic.id] = frozenset(range(len(topic.partitions)))
        else:
            unknown.append(name)
    fx = GroupEffects(replies=[RequestReply(ticket, ShareOffsetsToDelete(places, unknown))])
    fx.records.append(records.state_partition_metadata_record(group.id, initializing, initialized, deleting))
    return fx


def complete_offset_deletion(
    groups: ShareGroups, ticket: Any, _: int, *, group_id: str, topics: frozenset[bytes]
) -> GroupEffects:
    """The persister has forgotten topics; the answer is True."""
    fx = GroupEffects(replies=[RequestReply(ticket, True)])
    group = groups.groups.get(group_id)
    if group is not None:
        left = {topic: name for topic, name in group.deleting.items() if topic not in topics}
        fx.records.append(
            records.state_partition_metadata_record(group.id, group.initializing, group.initialized, left)
        )
    return fx


def start_group_deletion(groups: ShareGroups, ticket: Any, now_ms: int, *, group_id: str) -> GroupEffects:
    """A group is to go: whatever of it the persister may know is to be forgotten first, and the group has it no more.

    That is also what was on its way to a state, and what could not be forgotten before: a group that is made anew under
    this id begins in an epoch that the persister refuses where it remembers a later one. Of topics that are being
    deleted nothing tells which partitions had a state: all of them count.

    The answer is a `ShareOffsetsToDelete`. Raises ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
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
            RequestReply(ticket, ShareOffsetsToDelete({topic: named.partitions for topic, named in known.items()}, []))
        ]
    )
    if known or group.deleting:
        fx.records.append(
            records.state_partition_metadata_record(
                group.id, {}, {}, {topic: named.name for topic, named in known.items()}
            )
        )
    return fx
