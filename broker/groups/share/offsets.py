"""Where a share group stands is set or forgotten by an administrator: while nobody is in the group.

Source: ``GroupMetadataManager.alterShareGroupOffsets``, ``sharePartitionsEligibleForOffsetDeletion``,
``shareGroupBuildPartitionDeleteRequest`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.share import records as sr
from ottla.broker.groups.share.groups import Places, ShareGroups
from ottla.broker.groups.share.state import Named, ShareGroup, joined
from ottla.log.machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError


class ToAlter(NamedTuple):
    """What the persister is to begin anew, in which state epoch: the answer to `alter`."""

    epoch: int
    partitions: Places


class ToDelete(NamedTuple):
    """What the persister is to forget, and the topics of which nothing is known: the answer to `delete`, and to
    `begin_deletion`.
    """

    partitions: Places
    unknown: list[str]


def _empty(group: ShareGroup) -> ShareGroup:
    if group.members:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.text)
    return group


def alter(groups: ShareGroups, ticket: Any, now_ms: int, *, group_id: str, topics: Mapping[str, frozenset[int]]) -> Fx:
    """These partitions, which exist, are to begin elsewhere; a group that is not there is made.

    The answer is a `ToAlter`.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; COORDINATOR_LOAD_IN_PROGRESS while it is being deleted.
    """
    fx, image = Fx(), groups.topics.image
    group = _empty(groups.group_to_join(group_id))
    if groups.is_forgetting(group, now_ms):  # what is begun now would outlive the group
        raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    new = {image.topics[name].id: Named(name, numbers) for name, numbers in topics.items() if name in image.topics}
    if new:
        groups.begin(group, new, now_ms, fx)
    places = {topic: named.partitions for topic, named in new.items()}
    fx.replies.append(RequestReply(ticket, ToAlter(group.epoch, places)))
    return fx


def delete(groups: ShareGroups, ticket: Any, _: int, *, group_id: str, topics: list[str]) -> Fx:
    """Topics are to be forgotten, first of all by the persister.

    The answer is a `ToDelete`. Raises ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = _empty(groups.group(group_id))
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
    fx = Fx(replies=[RequestReply(ticket, ToDelete(places, unknown))])
    fx.records.append(sr.ready_record(group.id, initializing, initialized, deleting))
    return fx


def deleted(groups: ShareGroups, ticket: Any, _: int, *, group_id: str, topics: frozenset[bytes]) -> Fx:
    """The persister has forgotten topics; the answer is True."""
    fx = Fx(replies=[RequestReply(ticket, True)])
    group = groups.groups.get(group_id)
    if group is not None:
        left = {topic: name for topic, name in group.deleting.items() if topic not in topics}
        fx.records.append(sr.ready_record(group.id, group.initializing, group.initialized, left))
    return fx


def begin_deletion(groups: ShareGroups, ticket: Any, now_ms: int, *, group_id: str) -> Fx:
    """A group is to go: whatever of it the persister may know is to be forgotten first, and the group has it no more.

    That is also what was on its way to a state, and what could not be forgotten before: a group that is made anew under
    this id begins in an epoch that the persister refuses where it remembers a later one. Of topics that are being
    deleted nothing tells which partitions had a state: all of them count.

    The answer is a `ToDelete`. Raises ProtocolError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = _empty(groups.group(group_id))
    image, doubtful = groups.topics.image, dict[bytes, Named]()
    for topic_id, name in group.deleting.items():
        topic = image.topics.get(image.topic_names.get(topic_id, ""))
        if topic is not None:
            doubtful[topic_id] = Named(name, frozenset(range(len(topic.partitions))))
    known = joined(joined(group.initializing, group.initialized), doubtful)
    group.forgetting_ms = now_ms
    fx = Fx(replies=[RequestReply(ticket, ToDelete({topic: named.partitions for topic, named in known.items()}, []))])
    if known or group.deleting:
        fx.records.append(sr.ready_record(group.id, {}, {}, {topic: named.name for topic, named in known.items()}))
    return fx
