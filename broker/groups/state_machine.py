"""State machine of one partition of `__consumer_offsets`: groups of all types and committed offsets.

Each group type has its own protocol rules; a group id belongs to one group of one type. The modules of the consumer,
share and streams protocols are imported at their first use.

In this package ``now_ms`` is the wall clock in ms since the epoch, and ``pending`` the request that gets the reply. A
reply is sent once the records are committed; it becomes a `ProtocolError` if their write fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinator.events import RequestDisconnected, ShardLoaded, ShardUnloaded, TimerExpired, WriteResult
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import ClassicGroup, GroupRequest
from ottla.broker.groups.classic.groups import ClassicGroups, NewGroupJoin
from ottla.broker.groups.classic.rebalance import GroupEffects, GroupSettings
from ottla.broker.groups.classic.static_members import StaticMemberReplacement
from ottla.broker.groups.committed_offsets import CommittedOffsets
from ottla.broker.groups.deletion import delete_group, delete_offsets, tombstones_for_topics
from ottla.broker.groups.expiration import expire_groups_and_offsets
from ottla.broker.groups.expired_members import on_timer, on_write_result
from ottla.broker.groups.offset_commit import CommitOffsets, commit_offsets
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.share.foreign_requests import reject_foreign_request
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.state_machine import RequestReply, ScheduleTimer, TransactionCompletion
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, join_group, leave_group, offset_records, sync_group
from ottla.wire.messages.heartbeat import HeartbeatRequest

if TYPE_CHECKING:
    from ottla.broker.groups.assigned_groups import AssignedGroups
    from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
    from ottla.broker.groups.consumer.groups import ConsumerGroups
    from ottla.broker.groups.modern_group import AssignedGroup
    from ottla.broker.groups.share.groups import ShareGroups
    from ottla.broker.groups.share.share_group import ShareGroup
    from ottla.broker.groups.streams.groups import StreamsGroups
    from ottla.broker.groups.streams.streams_group import StreamsGroup
    from ottla.broker.groups.topic_metadata import GroupTopicMetadata


GROUPS_BY_TYPE = ("consumer_groups", "share_groups", "streams_groups")
"""Attributes of `GroupStateMachine` that hold the consumer, share and streams groups."""


class EndOffsetsTransaction(NamedTuple):
    """Event: write a transaction marker to this partition, whether or not the producer has pending offsets in it.

    The reply is NONE once the marker is committed, or the `ProtocolError` of the write.
    """

    pending_request: Any
    completion: TransactionCompletion


class DeleteGroup(NamedTuple):
    """Event: delete an empty group; the reply is an error code, or the `ProtocolError` of a failed write."""

    pending_request: Any
    group_id: str


class DeleteOffsets(NamedTuple):
    """Event: delete committed offsets of a group; the reply is the set of topics left out, or a `ProtocolError`.

    Left out are topics to which the group subscribes.
    """

    pending_request: Any
    group_id: str
    partitions: list[tuple[str, int]]


class ShareGroupCommand(NamedTuple):
    """Event: run a command on a share group; the reply is in the command's effects, or the `ProtocolError` it raises.

    ``command`` returns effects; its arguments are the share groups, the pending request and the time in ms.
    """

    pending_request: Any
    command: Callable[[ShareGroups, Any, int], GroupEffects]
    """Function of the share groups, the pending request, and the wall clock in ms."""


class StreamsGroupCommand(NamedTuple):
    """Event: run a command on a streams group; the reply is in the command's effects, or the `ProtocolError` it raises.

    ``command`` returns effects; its arguments are the streams groups, the pending request and the time in ms.
    """

    pending_request: Any
    command: Callable[[StreamsGroups, Any, int], GroupEffects]
    """Function of the streams groups, the pending request, and the wall clock in ms."""


class TopicMetadataChanged(NamedTuple):
    """Event: new metadata image; offsets and state partition metadata of deleted topics (name -> id) are deleted.

    ``changed_topics``: names of created, changed and deleted topics.
    """

    image: MetadataImage
    changed_topics: frozenset[str]
    has_new_topics: bool
    deleted_topics: Mapping[str, bytes]


class GroupStateMachine:
    """State machine of groups and committed offsets; ``handle`` turns events into effects, ``replay`` applies records.

    Requests that only read use the groups of each type and ``offsets`` directly.
    """

    event_observer: Callable[[Any], None] | None = None
    """Function called with each event before it is handled; None unless the console follows the groups."""

    def __init__(self, settings: GroupSettings, image: MetadataImage | None = None) -> None:
        self.settings = settings
        self.classic_groups = ClassicGroups(settings)
        self.offsets = CommittedOffsets()
        self._image = MetadataImage() if image is None else image

    def _topic_metadata(self) -> GroupTopicMetadata:
        # lazy: 2.3 ms, 126 kB
        from ottla.broker.groups.topic_metadata import GroupTopicMetadata

        return GroupTopicMetadata(self._image)

    @cached_property
    def consumer_groups(self) -> ConsumerGroups:
        """The consumer groups of the partition; created at first use."""
        # lazy: 8.9 ms, 383 kB
        from ottla.broker.groups.consumer.groups import ConsumerGroups

        return ConsumerGroups(self.classic_groups, self._topic_metadata())

    @cached_property
    def share_groups(self) -> ShareGroups:
        """The share groups of the partition; created at first use."""
        # lazy: 9.2 ms, 382 kB
        from ottla.broker.groups.share.groups import ShareGroups

        return ShareGroups(self.settings.share, self._topic_metadata(), self._is_not_share_group)

    @cached_property
    def streams_groups(self) -> StreamsGroups:
        """The streams groups of the partition; created at first use."""
        # lazy: 11.5 ms, 506 kB
        from ottla.broker.groups.streams.groups import StreamsGroups

        return StreamsGroups(self.classic_groups, self._topic_metadata(), self._is_consumer_or_share_group)

    def _loaded_groups(self) -> list[AssignedGroups[Any]]:
        """Return the consumer, share and streams groups as far as the property of the type has been used."""
        return [self.__dict__[name] for name in GROUPS_BY_TYPE if name in self.__dict__]

    def _find(self, name: str, group_id: str) -> Any:
        groups = self.__dict__.get(name)
        return None if groups is None else groups.groups.get(group_id)

    def _list(self, name: str) -> list[Any]:
        groups = self.__dict__.get(name)
        return [] if groups is None else list(groups.groups.values())

    @cached_property
    def _heartbeat(self) -> Callable[[GroupRequest, int], GroupEffects]:
        """Function of a ConsumerGroupHeartbeat request and the wall clock (ms) that returns the request's effects."""
        # lazy: 10.2 ms, 566 kB
        from ottla.broker.groups.consumer.heartbeat import heartbeat

        return partial(heartbeat, self.consumer_groups)

    def find_consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group with an id; None if there is none."""
        group: ConsumerGroup | None = self._find("consumer_groups", group_id)
        return group

    def find_share_group(self, group_id: str) -> ShareGroup | None:
        """Return the share group with an id; None if there is none."""
        group: ShareGroup | None = self._find("share_groups", group_id)
        return group

    def find_streams_group(self, group_id: str) -> StreamsGroup | None:
        """Return the streams group with an id; None if there is none."""
        group: StreamsGroup | None = self._find("streams_groups", group_id)
        return group

    def list_consumer_groups(self) -> list[ConsumerGroup]:
        """Return all consumer groups of the partition."""
        return self._list("consumer_groups")

    def list_share_groups(self) -> list[ShareGroup]:
        """Return all share groups of the partition."""
        return self._list("share_groups")

    def list_streams_groups(self) -> list[StreamsGroup]:
        """Return all streams groups of the partition."""
        return self._list("streams_groups")

    def _is_consumer_or_share_group(self, group_id: str) -> bool:
        return self.find_consumer_group(group_id) is not None or self.find_share_group(group_id) is not None

    def _is_not_share_group(self, group_id: str) -> bool:
        """Return True if an id belongs to a classic (from its first record on), consumer or streams group."""
        classic = group_id in self.classic_groups.persisted_groups or group_id in self.classic_groups.groups
        return classic or bool(self.find_consumer_group(group_id) or self.find_streams_group(group_id))

    def _is_no_classic_group(self, group_id: str) -> bool:
        """Return True if an id belongs to a consumer, share or streams group, such as a converted classic group."""
        return any(group_id in groups.groups for groups in self._loaded_groups())

    def has_group(self, group_id: str) -> bool:
        """Return True if a group of any type has this id."""
        return group_id in self.classic_groups.groups or self._is_no_classic_group(group_id)

    def handle(self, now_ms: int, event: Any) -> GroupEffects:
        """Return the records, replies and timers with which the coordinator responds to an event.

        Replayed state is left unchanged; soft state, such as held JoinGroup requests, may change.
        """
        if self.event_observer is not None:
            self.event_observer(event)
        if type(event) is GroupRequest:  # the most frequent event
            return self._handle_request(event, now_ms)
        match event:
            case ShardLoaded():
                return self._on_loaded(now_ms)
            case WriteResult(context=NewGroupJoin() | StaticMemberReplacement()) if self._is_no_classic_group(
                event.context.join_request.request.group_id
            ):
                return self.handle(now_ms, event.context.join_request)
            case WriteResult(context=rebalance.ExpiredMember()):
                return on_write_result(self, event.context, event.error, now_ms)
            case WriteResult():
                return self.classic_groups.on_write_result(event.context, event.error, now_ms)
            case TimerExpired(key=("expire",)):
                return self._expire(now_ms)
            case TimerExpired():
                return self._on_timer(event.key, now_ms)
            case RequestDisconnected():
                return self.classic_groups.on_disconnect(event.key, event.pending_request, now_ms)
            case ShardUnloaded():
                return self.classic_groups.on_unloaded(event.error)
            case TopicMetadataChanged():
                return self._on_metadata_changed(event)
            case CommitOffsets():
                return commit_offsets(self, event, now_ms)
            case EndOffsetsTransaction(pending, ends):
                return GroupEffects(replies=[RequestReply(pending, ErrorCode.NONE)], txn=ends)
            case DeleteGroup() | DeleteOffsets():
                return self._delete(event)
            case ShareGroupCommand() | StreamsGroupCommand():
                groups: Any = self.share_groups if isinstance(event, ShareGroupCommand) else self.streams_groups
                try:
                    return event.command(groups, event.pending_request, now_ms)
                except ProtocolError as error:
                    return GroupEffects(replies=[RequestReply(event.pending_request, error.with_traceback(None))])
            case _:
                raise AssertionError(event)

    def _handle_request(self, call: GroupRequest, now_ms: int) -> GroupEffects:
        """Return the effects of a JoinGroup, SyncGroup, Heartbeat, LeaveGroup or ConsumerGroupHeartbeat request.

        The type of the group decides which rules apply.
        """
        request = call.request
        group_id: str = request.group_id
        if type(request) is join_group.JoinGroupRequest and not self.classic_groups.settings.allows_session_timeout(
            request.session_timeout_ms
        ):
            wrong = rebalance.join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id, call.version)
            return GroupEffects(replies=[RequestReply(call.pending_request, wrong)])  # checked for groups of all types
        if self.find_streams_group(group_id) is not None:
            # lazy: 11.7 ms, 509 kB
            from ottla.broker.groups.streams.foreign_requests import handle_foreign_request as handle_other

            return handle_other(self.streams_groups, call, now_ms)
        if self.find_share_group(group_id) is not None:
            return reject_foreign_request(call)
        if type(request) is consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
            return self._heartbeat(call, now_ms)
        if self.find_consumer_group(group_id) is not None:
            # lazy: 10.2 ms, 565 kB
            from ottla.broker.groups.consumer.classic_protocol import handle_classic_request

            return handle_classic_request(self.consumer_groups, call, now_ms)
        match request:
            case join_group.JoinGroupRequest():
                return self.classic_groups.join(call, now_ms)
            case sync_group.SyncGroupRequest():
                return self.classic_groups.sync(call, now_ms)
            case HeartbeatRequest():
                return self.classic_groups.heartbeat(call, now_ms)
            case leave_group.LeaveGroupRequest():
                return self.classic_groups.leave(call, now_ms)
            case _:
                raise AssertionError(request)

    def _on_loaded(self, now_ms: int) -> GroupEffects:
        fx = self.classic_groups.on_loaded(now_ms)
        for groups in self._loaded_groups():
            fx.continuation = chain(fx.continuation or (), groups.restore_timers(now_ms))
        fx.timers.append(ScheduleTimer(("expire",), now_ms + self.settings.expiry_every_ms))
        return fx

    def _expire(self, now_ms: int) -> GroupEffects:
        """Return effects with the tombstones of expired offsets and groups, and the timer of the next expiration."""
        fx = GroupEffects(timers=[ScheduleTimer(("expire",), now_ms + self.settings.expiry_every_ms)])
        new_kinds: list[ConsumerGroup | StreamsGroup] = [*self.list_consumer_groups(), *self.list_streams_groups()]
        fx.add_records(
            expire_groups_and_offsets(
                self.classic_groups, self.offsets, self.settings.offsets_retention_ms, now_ms, new_kinds
            )
        )
        return fx

    def _on_timer(self, key: tuple[str, ...], now_ms: int) -> GroupEffects:
        if "-" not in key[0]:
            return self.classic_groups.on_timer(key, now_ms)
        return on_timer(self, key, now_ms)

    def _on_metadata_changed(self, event: TopicMetadataChanged) -> GroupEffects:
        fx = GroupEffects()
        self._image = event.image
        for groups in self._loaded_groups():
            groups.on_metadata_changed(event.image, event.changed_topics, has_new=event.has_new_topics)
        if event.deleted_topics:
            shares: Iterator[GroupRecord | None] = iter(())
            if "share_groups" in self.__dict__:
                shares = self.share_groups.remove_topics(frozenset(event.deleted_topics.values()))
            fx.add_records(chain(shares, tombstones_for_topics(self.offsets, event.deleted_topics)))
        return fx

    def _delete(self, event: DeleteGroup | DeleteOffsets) -> GroupEffects:
        if isinstance(event, DeleteGroup):
            return delete_group(self, event.pending_request, event.group_id)
        return delete_offsets(self, event.pending_request, event.group_id, event.partitions)

    def replay(self, offset: int, record: GroupRecord) -> None:
        """Apply a record of `__consumer_offsets` to the state; ``offset``: its offset in the log."""
        key, value = record
        if isinstance(key, offset_records.OffsetCommitKey):
            assert value is None or isinstance(value, offset_records.OffsetCommitValue)
            self.offsets.replay(offset, key, value)
            if value is not None:
                self._ensure_simple_group(key.group)
        elif isinstance(key, offset_records.GroupMetadataKey):
            assert value is None or isinstance(value, offset_records.GroupMetadataValue)
            self.classic_groups.replay(key, value)
        else:
            for _ in self._replay_modern(record):
                pass

    def replay_job(
        self, offset: int, record: GroupRecord, replay: Callable[[int, GroupRecord], None]
    ) -> Iterator[None]:
        """Apply a large record to the state like ``replay(offset, record)``, as a job.

        The state must not be read before the last step.
        """
        if isinstance(record.key, offset_records.OffsetCommitKey | offset_records.GroupMetadataKey):
            replay(offset, record)
            return
        group = yield from self._replay_modern(record)
        if group is not None:
            yield from group.finish_replay()

    def _replay_modern(self, record: GroupRecord) -> Generator[None, None, AssignedGroup[Any, Any] | None]:
        # lazy: 18.6 ms, 764 kB
        from ottla.broker.groups.replay import replay_record

        return replay_record(self, record)

    def _ensure_simple_group(self, group_id: str) -> None:
        """Create a simple group, without members, for an offset commit of an unknown group."""
        if not self.has_group(group_id):
            self.classic_groups.groups[group_id] = ClassicGroup(group_id)

    def replay_pending(self, offset: int, producer_id: int, record: GroupRecord) -> None:
        """Replay a record of an open transaction: an offset becomes pending; any other record is applied at once."""
        key, value = record
        if not isinstance(key, offset_records.OffsetCommitKey):
            self.replay(offset, record)
            return
        assert value is None or isinstance(value, offset_records.OffsetCommitValue)
        self.offsets.replay_pending(offset, producer_id, key, value)
        if value is not None:
            self._ensure_simple_group(key.group)

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """Replay a transaction marker of a producer: its pending offsets become committed, or are discarded."""
        self.offsets.replay_end(producer_id, commits=commits)
