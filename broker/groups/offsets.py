"""Committed offsets: hard state of `__consumer_offsets`, and the rules for committing to it and reading it.

A position is kept as one string of bytes under group, topic and partition: a node may hold a million of them.

Source: ``OffsetMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Group, GroupState
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records as o
from ottla.wire.schema import ZERO_UUID

INVALID_OFFSET = -1
_FIXED = struct.Struct(">qiqq16s")
_NONE: Mapping[int, bytes] = {}


class NewOffset(NamedTuple):
    """One position to be stored."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Position(NamedTuple):
    """One position as it is stored. Times in milliseconds since 1970; ``expire_ms`` is -1 where the broker decides."""

    offset: int
    leader_epoch: int
    commit_ms: int
    expire_ms: int
    topic_id: bytes
    metadata: str


def pack(value: o.OffsetCommitValue) -> bytes:
    """A position's record in few bytes."""
    fixed = _FIXED.pack(
        value.offset, value.leader_epoch, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )
    return fixed + value.metadata.encode("utf-8", "surrogatepass") if value.metadata else fixed


def unpack(raw: bytes) -> Position:
    """A position from its few bytes."""
    return Position._make((*_FIXED.unpack_from(raw), raw[_FIXED.size :].decode("utf-8", "surrogatepass")))


class Offsets:
    """Positions by group, topic and partition."""

    def __init__(self) -> None:
        self._stored: dict[str, dict[str, dict[int, bytes]]] = {}

    def replay(self, key: o.OffsetCommitKey, value: o.OffsetCommitValue | None) -> None:
        """Take in a position's record."""
        if value is None:
            self._forget(key.group, key.topic, key.partition)
            return
        topics = self._stored.get(key.group)
        if topics is None:
            topics = self._stored[key.group] = {}
        partitions = topics.get(key.topic)
        if partitions is None:
            partitions = topics[sys.intern(key.topic)] = {}  # one text for all groups that read a topic
        partitions[key.partition] = pack(value)

    def _forget(self, group: str, topic: str, partition: int) -> None:
        topics = self._stored.get(group)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if partitions:
            return
        del topics[topic]
        if not topics:
            del self._stored[group]

    def get(self, group: str, topic: str, partition: int) -> Position | None:
        """A position."""
        raw = self.of_topic(group, topic).get(partition)
        return None if raw is None else unpack(raw)

    def of_topic(self, group: str, topic: str) -> Mapping[int, bytes]:
        """A group's positions in a topic, by partition: for `unpack`."""
        topics = self._stored.get(group)
        return _NONE if topics is None else topics.get(topic, _NONE)

    def topics(self, group: str) -> Mapping[str, Mapping[int, bytes]]:
        """All positions of a group: topic -> partition -> bytes for `unpack`."""
        return self._stored.get(group, {})

    def groups(self) -> list[str]:
        """Every group that has positions."""
        return list(self._stored)

    def tombstones(self, group: str) -> Iterator[GroupRecord]:
        """What removes all positions of a group. They may be removed while this goes on."""
        for topic, partitions in list(self.topics(group).items()):
            for partition in list(partitions):
                yield tombstone(group, topic, partition)


def tombstone(group: str, topic: str, partition: int) -> GroupRecord:
    """What removes a position."""
    return GroupRecord(o.OffsetCommitKey(group, topic, partition), None)


def check_commit(group: Group | None, member_id: str, instance_id: str | None, generation: int, version: int) -> None:
    """Whether this member may commit now.

    A request without generation and member is a simple consumer's: allowed only while the group has no members.

    Raises:
        ProtocolError: the group's answer to it.
    """
    if group is None:
        if generation >= 0:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION)
        return
    if generation < 0 and group.state is GroupState.EMPTY:
        return
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        if generation != group.generation:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    else:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)


def commit_records(group_id: str, offsets: Iterable[NewOffset], now_ms: int, expire_ms: int) -> Iterator[GroupRecord]:
    """The records that store positions; ``expire_ms`` -1 leaves their end to the broker."""
    for new in offsets:
        yield GroupRecord(
            o.OffsetCommitKey(group_id, new.topic, new.partition),
            o.OffsetCommitValue(
                new.offset,
                new.leader_epoch,
                new.metadata,
                now_ms,
                expire_ms,
                ZERO_UUID if expire_ms != -1 else new.topic_id,
            ),
        )
