"""The machine of one partition of `__consumer_offsets`: classic groups and committed offsets, driven by events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from ottla.broker.coordinator.events import Closed, Fired, Loaded, Settled, Unloaded
from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.classic import ClassicGroups
from ottla.broker.groups.expiry import sweep
from ottla.broker.groups.offsets import NewOffset, Offsets, check_commit, commit_records, tombstone, unpack
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
from ottla.wire.schema import ZERO_UUID


class Commit(NamedTuple):
    """Positions to store, topics already resolved; the answer is an error code for all of them."""

    ticket: Any
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    retention_ms: int
    offsets: Iterable[NewOffset]
    version: int


class DeleteGroup(NamedTuple):
    """Forget a group; the answer is an error code."""

    ticket: Any
    group_id: str


class DeleteOffsets(NamedTuple):
    """Forget positions; the answer is the topics that somebody reads, or a refusal."""

    ticket: Any
    group_id: str
    partitions: list[tuple[str, int]]


class TopicsGone(NamedTuple):
    """Topics were deleted, id by name: positions in them mean nothing any more."""

    ids: Mapping[str, bytes]


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
            case Settled():
                return self.groups.settled(event.what, event.error, now_ms)
            case Fired(key=("expire",)):
                return self._expire(now_ms)
            case Fired():
                return self.groups.timer(event.key, now_ms)
            case Closed():
                return self.groups.closed(event.key, event.ticket, now_ms)
            case Unloaded():
                return self.groups.unloaded(event.error)
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
        """Forget what has been kept long enough."""
        fx = Fx(timers=[Arm(("expire",), now_ms + self.settings.expiry_every_ms)])
        fx.lay(sweep(self.groups, self.offsets, self.settings.offsets_retention_ms, now_ms))
        return fx

    def _topics_gone(self, event: TopicsGone) -> Fx:
        fx = Fx()
        fx.lay(self._positions_in(event.ids))
        return fx

    def _positions_in(self, ids: Mapping[str, bytes]) -> Iterator[GroupRecord | None]:
        """Tombstones for what was committed to these topics, or to topics of these names before ids were kept."""
        for group in self.offsets.groups():
            yield None
            topics = self.offsets.topics(group)
            few, many = (topics, ids) if len(topics) < len(ids) else (ids, topics)
            for topic in [name for name in few if name in many]:
                topic_id = ids[topic]
                for partition, raw in list(self.offsets.of_topic(group, topic).items()):
                    fits = unpack(raw).topic_id in (topic_id, ZERO_UUID)
                    yield tombstone(group, topic, partition) if fits else None

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
        fx.lay(commit_records(event.group_id, event.offsets, now_ms, expire))
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
            end = GroupRecord(o.GroupMetadataKey(event.group_id), None)
            fx.lay(chain(self.offsets.tombstones(event.group_id), [end]))
        fx.replies.append(Reply(event.ticket, code))
        return fx

    def _delete_offsets(self, event: DeleteOffsets) -> Fx:
        fx = Fx()
        group = self.groups.groups.get(event.group_id)
        if group is None:
            fx.replies.append(Reply(event.ticket, ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)))
            return fx
        if group.members and group.protocol_type != CONSUMER:
            fx.replies.append(Reply(event.ticket, ProtocolError(ErrorCode.NON_EMPTY_GROUP)))
            return fx
        kept: set[str] = set()
        fx.lay(self._positions_of(event, group, kept))
        fx.replies.append(Reply(event.ticket, kept))
        return fx

    def _positions_of(self, event: DeleteOffsets, group: Group, kept: set[str]) -> Iterator[GroupRecord | None]:
        """Tombstones for what nobody reads; ``kept`` takes the topics that are."""
        subscribed = yield from subscribed_topics(group)
        for topic, partition in event.partitions:
            if subscribed is None or topic in subscribed:
                kept.add(topic)
                yield None
            else:
                there = partition in self.offsets.of_topic(event.group_id, topic)
                yield tombstone(event.group_id, topic, partition) if there else None

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
