"""Groups and positions that somebody wants gone: of every kind.

Source: ``GroupMetadataManager.deleteGroup``, ``OffsetMetadataManager.deleteOffsets`` (apache/kafka 4.3.1).

From KIP-229, KIP-496.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ottla.broker.groups.offsets import Offsets, tombstone, unpack
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import CONSUMER, GroupState, subscribed_topics
from ottla.broker.groups.tombstones import tombstones_of
from ottla.log.machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records as o
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.groups.classic import ClassicGroups
    from ottla.broker.groups.consumer.state import ConsumerGroup
    from ottla.broker.groups.share.state import ShareGroup
    from ottla.broker.groups.streams.groups import StreamsGroups
    from ottla.broker.groups.streams.state import StreamsGroup


class Kinds(Protocol):
    """The groups of all kinds of a shard, and their positions: `ottla.broker.groups.machine.GroupMachine`."""

    groups: ClassicGroups
    offsets: Offsets

    @property
    def streams(self) -> StreamsGroups:
        """All of that kind."""

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """A consumer group."""

    def share(self, group_id: str) -> ShareGroup | None:
        """A share group."""

    def streams_group(self, group_id: str) -> StreamsGroup | None:
        """A streams group."""


def _new_kind(kinds: Kinds, group_id: str) -> ConsumerGroup | StreamsGroup | None:
    return kinds.consumer(group_id) or kinds.streams_group(group_id)


def delete_group(kinds: Kinds, ticket: Any, group_id: str) -> Fx:
    """Forget a group that has no members."""
    fx = Fx()
    classic, share = kinds.groups.groups.get(group_id), kinds.share(group_id)
    new_kind = _new_kind(kinds, group_id)
    code = ErrorCode.NONE
    if share is not None:
        share.forgetting_ms = None  # it is over
    if any(group is not None and group.members for group in (share, new_kind)):
        code = ErrorCode.NON_EMPTY_GROUP
    elif share is not None:
        from ottla.broker.groups.share import records as share_records

        fx.add_records(share_records.group_tombstones(share))
    elif new_kind is not None:
        fx.add_records(chain(kinds.offsets.tombstones(group_id), tombstones_of(new_kind)))
        if kinds.streams_group(group_id) is not None:
            kinds.streams.forget_delay(group_id, fx)
    elif classic is None and group_id not in kinds.groups.stored:  # whose first record may never be committed
        code = ErrorCode.GROUP_ID_NOT_FOUND
    elif classic is not None and classic.state is not GroupState.EMPTY:
        code = ErrorCode.NON_EMPTY_GROUP
    else:
        end = GroupRecord(o.GroupMetadataKey(group_id), None)
        fx.add_records(chain(kinds.offsets.tombstones(group_id), [end]))
    fx.replies.append(RequestReply(ticket, code))
    return fx


def delete_offsets(kinds: Kinds, ticket: Any, group_id: str, partitions: list[tuple[str, int]]) -> Fx:
    """Forget positions in topics that nobody of the group reads."""
    fx = Fx()
    classic = kinds.groups.groups.get(group_id)
    new_kind = _new_kind(kinds, group_id)
    if classic is None and new_kind is None:
        fx.replies.append(RequestReply(ticket, ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)))
        return fx
    if classic is not None and classic.members and classic.protocol_type != CONSUMER:
        fx.replies.append(RequestReply(ticket, ProtocolError(ErrorCode.NON_EMPTY_GROUP)))
        return fx
    kept: set[str] = set()
    fx.add_records(_positions_of(kinds, group_id, partitions, kept))
    fx.replies.append(RequestReply(ticket, kept))
    return fx


def _positions_of(
    kinds: Kinds, group_id: str, partitions: list[tuple[str, int]], kept: set[str]
) -> Iterator[GroupRecord | None]:
    """Tombstones for what nobody reads; ``kept`` takes the topics that are."""
    classic, new_kind = kinds.groups.groups.get(group_id), _new_kind(kinds, group_id)
    read: Container[str] | None = () if new_kind is None else new_kind.names
    if classic is not None:
        read = yield from subscribed_topics(classic)
    for topic, partition in partitions:
        if read is None or topic in read:
            kept.add(topic)
            yield None
        else:
            there = kinds.offsets.has(group_id, topic, partition)
            yield tombstone(group_id, topic, partition) if there else None


def positions_in(offsets: Offsets, ids: Mapping[str, bytes]) -> Iterator[GroupRecord | None]:
    """Tombstones for what was committed to these topics, or to topics of these names before ids were kept."""
    for group in offsets.pending.groups():
        yield None
        for topic, partition in offsets.pending.of_group(group):
            if topic in ids:
                yield tombstone(group, topic, partition)
    for group in offsets.groups():
        yield None
        topics = offsets.topics(group)
        few, many = (topics, ids) if len(topics) < len(ids) else (ids, topics)
        for topic in [name for name in few if name in many]:
            topic_id = ids[topic]
            for partition, raw in list(offsets.of_topic(group, topic).items()):
                fits = unpack(raw).topic_id in (topic_id, ZERO_UUID)
                yield tombstone(group, topic, partition) if fits else None
