"""The machine of one partition of `__consumer_offsets`: classic groups and committed offsets, driven by events."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.classic import ClassicGroups
from ottla.broker.groups.expiry import sweep
from ottla.broker.groups.offsets import NewOffset, Offsets, check_commit, commit_records
from ottla.broker.groups.rebalance import Fx, GroupSettings
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import CONSUMER, Call, Group, GroupState, subscribed_topics
from ottla.log.machine import Arm, Reply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import offset_records as o
from ottla.wire.messages import sync_group as s


class Commit(NamedTuple):
    """Positions to store, topics already resolved; the answer is an error code for all of them."""

    ticket: Any
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    retention_ms: int
    offsets: list[NewOffset]
    version: int


class DeleteGroup(NamedTuple):
    """Forget a group; the answer is an error code."""

    ticket: Any
    group_id: str


class DeleteOffsets(NamedTuple):
    """Forget positions; the answer is an error code for each partition that cannot be forgotten, or a refusal."""

    ticket: Any
    group_id: str
    partitions: list[tuple[str, int]]


class TopicsGone(NamedTuple):
    """Topics were deleted: positions in them mean nothing any more."""

    names: frozenset[str]


class Fired(NamedTuple):
    """A timer of this machine is due."""

    key: tuple[str, ...]


class Loaded(NamedTuple):
    """The shard's log has been replayed."""


class GroupMachine:
    """``handle`` decides, ``replay`` takes in records; reads go straight to `groups` and `offsets`."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups = ClassicGroups(settings)
        self.offsets = Offsets()

    def handle(self, now_ms: int, event: Any) -> Fx:
        """One event."""
        match event:
            case Loaded():
                return self._loaded(now_ms)
            case Fired(key=("expire",)):
                return self._expire(now_ms)
            case Fired():
                return self.groups.timer(event.key, now_ms)
            case TopicsGone():
                return self._topics_gone(event)
            case Commit():
                return self._commit(event, now_ms)
            case DeleteGroup():
                return self._delete_group(event)
            case DeleteOffsets():
                return self._delete_offsets(event)
            case Call(request=j.JoinGroupRequest()):
                return self.groups.join(event, now_ms)
            case Call(request=s.SyncGroupRequest()):
                return self.groups.sync(event, now_ms)
            case Call(request=hb.HeartbeatRequest()):
                return self.groups.heartbeat(event, now_ms)
            case Call(request=lg.LeaveGroupRequest()):
                return self.groups.leave(event, now_ms)
            case _:
                raise AssertionError(event)

    def _loaded(self, now_ms: int) -> Fx:
        fx = self.groups.loaded(now_ms)
        fx.timers.append(Arm(("expire",), now_ms + self.settings.expiry_every_ms))
        return fx

    def _expire(self, now_ms: int) -> Fx:
        """Forget what has been kept long enough; come back soon where there was too much for one turn."""
        records, complete = sweep(self.groups, self.offsets, self.settings.offsets_retention_ms, now_ms)
        again = now_ms + (self.settings.expiry_every_ms if complete else 1)
        return Fx(records, timers=[Arm(("expire",), again)])

    def _topics_gone(self, event: TopicsGone) -> Fx:
        gone = [
            GroupRecord(o.OffsetCommitKey(group, topic, partition), None)
            for group, stored in self.offsets.committed.items()
            for topic, partition in stored
            if topic in event.names
        ]
        return Fx(gone)

    def _commit(self, event: Commit, now_ms: int) -> Fx:
        fx = Fx()
        group = self.groups.groups.get(event.group_id)
        try:
            check_commit(group, event.member_id, event.instance_id, event.generation, event.version)
        except ProtocolError as error:
            fx.replies.append(Reply(event.ticket, error.code))
            return fx
        if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            member = group.members.get(event.member_id)
            if member is not None:
                rb.arm_session(group, member, now_ms, fx)
        expire = -1 if event.retention_ms < 0 else now_ms + event.retention_ms
        fx.records += commit_records(event.group_id, event.offsets, now_ms, expire)
        fx.replies.append(Reply(event.ticket, ErrorCode.NONE))
        return fx

    def _delete_group(self, event: DeleteGroup) -> Fx:
        fx = Fx()
        group = self.groups.groups.get(event.group_id)
        code = ErrorCode.NONE
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY:
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            stored = self.offsets.of_group(event.group_id)
            fx.records += (GroupRecord(o.OffsetCommitKey(event.group_id, t, p), None) for t, p in stored)
            fx.records.append(GroupRecord(o.GroupMetadataKey(event.group_id), None))
        fx.replies.append(Reply(event.ticket, code))
        return fx

    def _delete_offsets(self, event: DeleteOffsets) -> Fx:
        fx = Fx()
        group = self.groups.groups.get(event.group_id)
        if group is None:
            fx.replies.append(Reply(event.ticket, ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)))
            return fx
        stored = self.offsets.of_group(event.group_id)
        subscribed: set[str] | None = set()
        if group.members:
            if group.protocol_type != CONSUMER:
                fx.replies.append(Reply(event.ticket, ProtocolError(ErrorCode.NON_EMPTY_GROUP)))
                return fx
            subscribed = subscribed_topics(group)
        refused = {
            at: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            for at in event.partitions
            if subscribed is None or at[0] in subscribed
        }
        for topic, partition in event.partitions:
            if (topic, partition) in stored and (topic, partition) not in refused:
                fx.records.append(GroupRecord(o.OffsetCommitKey(event.group_id, topic, partition), None))
        fx.replies.append(Reply(event.ticket, refused))
        return fx

    def replay(self, offset: int, record: GroupRecord) -> None:
        """Take in one record."""
        key, value = record
        if isinstance(key, o.OffsetCommitKey):
            assert value is None or isinstance(value, o.OffsetCommitValue)
            self.offsets.replay(key, value)
            if value is not None and key.group not in self.groups.groups:
                self.groups.groups[key.group] = Group(key.group)  # a simple consumer's: it never has members
        elif isinstance(key, o.GroupMetadataKey):
            assert value is None or isinstance(value, o.GroupMetadataValue)
            self.groups.replay(key, value)
