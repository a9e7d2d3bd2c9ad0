"""Committed offsets: hard state of `__consumer_offsets`, and the rules for committing to it and reading it.

Source: ``OffsetMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Group, GroupState
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records as o
from ottla.wire.schema import ZERO_UUID

TopicPartition = tuple[str, int]
INVALID_OFFSET = -1


class NewOffset(NamedTuple):
    """One position to be stored."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Offsets:
    """Positions by group, topic and partition."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, o.OffsetCommitValue]] = {}

    def replay(self, key: o.OffsetCommitKey, value: o.OffsetCommitValue | None) -> None:
        """Take in a position's record."""
        at = (key.topic, key.partition)
        if value is not None:
            self.committed.setdefault(key.group, {})[at] = value
            return
        of_group = self.committed.get(key.group)
        if of_group is not None:
            of_group.pop(at, None)
            if not of_group:
                del self.committed[key.group]

    def get(self, group: str, topic: str, partition: int) -> o.OffsetCommitValue | None:
        """A position."""
        return self.committed.get(group, {}).get((topic, partition))

    def of_group(self, group: str) -> dict[TopicPartition, o.OffsetCommitValue]:
        """All positions of a group."""
        return self.committed.get(group, {})


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
    elif group.state is not GroupState.EMPTY:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)


def commit_records(group_id: str, offsets: Iterable[NewOffset], now_ms: int, expire_ms: int) -> list[GroupRecord]:
    """The records that store positions; ``expire_ms`` -1 leaves their end to the broker."""
    return [
        GroupRecord(
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
        for new in offsets
    ]
