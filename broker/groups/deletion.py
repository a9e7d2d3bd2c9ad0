"""DeleteGroups for groups of all types, OffsetDelete (not for share groups), and the offsets of deleted topics.

Source: ``GroupMetadataManager.deleteGroup``, ``OffsetMetadataManager.deleteOffsets`` (apache/kafka 4.3.1).

From KIP-229, KIP-496.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroupState, subscribed_topics
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.committed_offsets import CommittedOffsets, offset_tombstone, unpack_offset
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.tombstones import modern_group_tombstones
from ottla.jobs.state_machine import RequestReply
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records

if TYPE_CHECKING:
    from ottla.broker.groups.classic.groups import ClassicGroups
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
    from ottla.broker.groups.share.share_group import ShareGroup
    from ottla.broker.groups.streams.groups import StreamsGroups
    from ottla.broker.groups.streams.streams_group import StreamsGroup


class GroupStore(Protocol):
    """Groups of all types and committed offsets of a shard: the interface of `GroupStateMachine` that deletion uses."""

    classic_groups: ClassicGroups
    offsets: CommittedOffsets

    @property
    def streams_groups(self) -> StreamsGroups:
        """The streams groups of the shard."""

    def find_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group with an id; None if there is none."""

    def find_share_group(self, group_id: str) -> ShareGroup | None:
        """Return the share group with an id; None if there is none."""

    def find_streams_group(self, group_id: str) -> StreamsGroup | None:
        """Return the streams group with an id; None if there is none."""


def _find_modern_group(kinds: GroupStore, group_id: str) -> ConsumerGroup | StreamsGroup | None:
    return kinds.find_consumer_group(group_id) or kinds.find_streams_group(group_id)


def delete_group(kinds: GroupStore, pending: Any, group_id: str) -> GroupEffects:
    """Return the effects that delete an empty group of any type and its offsets, with an error code as the reply.

    The error code is NONE, NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND; on an error no record is written. The persister must
    have deleted the share state of a share group before (`start_group_deletion`). New share state may be
    initialized again from now on, also after an error. ``pending``: request of the reply.
    """
    fx = GroupEffects()
    classic, share = kinds.classic_groups.groups.get(group_id), kinds.find_share_group(group_id)
    new_kind = _find_modern_group(kinds, group_id)
    code = ErrorCode.NONE
    if share is not None:
        share.state_deletion_started_ms = None  # the persister has deleted the state
    if any(group is not None and group.members for group in (share, new_kind)):
        code = ErrorCode.NON_EMPTY_GROUP
    elif share is not None:
        # lazy: 8.9 ms, 341 kB
        from ottla.broker.groups.share import records as share_records

        fx.add_records(share_records.group_tombstones(share))
    elif new_kind is not None:
        fx.add_records(chain(kinds.offsets.tombstones(group_id), modern_group_tombstones(new_kind)))
        if kinds.find_streams_group(group_id) is not None:
            kinds.streams_groups.cancel_initial_delay(group_id, fx)
    elif (
        classic is None and group_id not in kinds.classic_groups.persisted_groups
    ):  # the first record of a group in `persisted_groups` may never be committed
        code = ErrorCode.GROUP_ID_NOT_FOUND
    elif classic is not None and classic.state is not ClassicGroupState.EMPTY:
        code = ErrorCode.NON_EMPTY_GROUP
    else:
        end = GroupRecord(offset_records.GroupMetadataKey(group_id), None)
        fx.add_records(chain(kinds.offsets.tombstones(group_id), [end]))
    fx.replies.append(RequestReply(pending, code))
    return fx


def delete_offsets(kinds: GroupStore, pending: Any, group_id: str, partitions: list[tuple[str, int]]) -> GroupEffects:
    """Return the effects that delete offsets of a group, by (topic, partition), in topics it does not subscribe to.

    The reply to ``pending`` is the set of those of the topics that it subscribes to, whose offsets are retained (filled
    while the effects are written), or a `ProtocolError`: GROUP_ID_NOT_FOUND for an unknown or share group,
    NON_EMPTY_GROUP for members of another protocol type.
    """
    fx = GroupEffects()
    classic = kinds.classic_groups.groups.get(group_id)
    new_kind = _find_modern_group(kinds, group_id)
    if classic is None and new_kind is None:
        fx.replies.append(RequestReply(pending, ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)))
        return fx
    if classic is not None and classic.members and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        fx.replies.append(RequestReply(pending, ProtocolError(ErrorCode.NON_EMPTY_GROUP)))
        return fx
    kept: set[str] = set()
    fx.add_records(_tombstones_for_unused(kinds, group_id, partitions, kept))
    fx.replies.append(RequestReply(pending, kept))
    return fx


def _tombstones_for_unused(
    kinds: GroupStore, group_id: str, partitions: list[tuple[str, int]], kept: set[str]
) -> Iterator[GroupRecord | None]:
    """Yield the tombstones of offsets in topics without a subscription; add the subscribed topics to the set ``kept``.

    All topics count as subscribed if the subscription of a member cannot be parsed.
    None is yielded for a partition without a tombstone, so that the caller can count steps.
    """
    classic, new_kind = kinds.classic_groups.groups.get(group_id), _find_modern_group(kinds, group_id)
    read: Container[str] | None = () if new_kind is None else new_kind.subscribed_topic_names
    if classic is not None:
        read = yield from subscribed_topics(classic)
    for topic, partition in partitions:
        if read is None or topic in read:
            kept.add(topic)
            yield None
        else:
            there = kinds.offsets.has_offset(group_id, topic, partition)
            yield offset_tombstone(group_id, topic, partition) if there else None


def tombstones_for_topics(offsets: CommittedOffsets, ids: Mapping[str, bytes]) -> Iterator[GroupRecord | None]:
    """Yield tombstones of all groups' offsets in deleted topics; None is yielded for each step without one.

    ``ids``: id by name of the deleted topics. An offset with a zero topic id (older record version), and a pending
    transactional one, match by name.
    """
    for group in offsets.pending.groups():
        yield None
        for topic, partition in offsets.pending.group_partitions(group):
            if topic in ids:
                yield offset_tombstone(group, topic, partition)
    for group in offsets.groups():
        yield None
        topics = offsets.group_offsets(group)
        few, many = (topics, ids) if len(topics) < len(ids) else (ids, topics)
        for topic in [name for name in few if name in many]:
            topic_id = ids[topic]
            for partition, raw in list(offsets.topic_offsets(group, topic).items()):
                fits = unpack_offset(raw).topic_id in (topic_id, ZERO_UUID)
                yield offset_tombstone(group, topic, partition) if fits else None
