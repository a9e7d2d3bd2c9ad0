"""The machine of one partition of `__consumer_offsets`: groups and committed offsets, driven by events.

Each kind of group has rules of its own; an id belongs to one group of one kind. What the new kinds need is loaded when
the first of them comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinator.events import Closed, Fired, Loaded, Settled, Unloaded
from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.classic import ClassicGroups, NewGroup
from ottla.broker.groups.expiry import sweep
from ottla.broker.groups.offsets import NewOffset, Offsets, check_commit, commit_records
from ottla.broker.groups.rebalance import Fx, GroupSettings
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Call, Group, GroupState
from ottla.broker.groups.static import Replaced
from ottla.controller.image import MetadataImage
from ottla.log.machine import RequestReply, ScheduleTimer, TransactionCompletion, TransactionContext
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat as chb
from ottla.wire.messages import heartbeat as hb
from ottla.wire.messages import join_group as j
from ottla.wire.messages import leave_group as lg
from ottla.wire.messages import offset_records as o
from ottla.wire.messages import sync_group as s
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.groups.consumer.groups import ConsumerGroups
    from ottla.broker.groups.consumer.state import ConsumerGroup
    from ottla.broker.groups.share.groups import ShareGroups
    from ottla.broker.groups.share.state import ShareGroup
    from ottla.broker.groups.streams.groups import StreamsGroups
    from ottla.broker.groups.streams.state import StreamsGroup

SHARE_RECORDS = range(10, 16)
"""The types of the records of share groups."""
STREAMS_RECORDS = range(17, 24)
"""And of streams groups."""


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
    txn: TransactionContext | None = None
    """Within which transaction; None: they count at once."""


class EndTxn(NamedTuple):
    """A transaction ends in this partition, whether or not it has stored anything here; the answer is an error code."""

    ticket: Any
    ends: TransactionCompletion


class DeleteGroup(NamedTuple):
    """Forget a group; the answer is an error code."""

    ticket: Any
    group_id: str


class DeleteOffsets(NamedTuple):
    """Forget positions; the answer is the topics that somebody reads, or a refusal."""

    ticket: Any
    group_id: str
    partitions: list[tuple[str, int]]


class OfShare(NamedTuple):
    """What a share group is asked; the rule says what is answered, also by the ProtocolError it raises."""

    ticket: Any
    rule: Callable[[ShareGroups, Any, int], Fx]
    """Takes the groups, this ticket, and the time."""


class OfStreams(NamedTuple):
    """What a streams group is asked; the rule says what is answered, also by the ProtocolError it raises."""

    ticket: Any
    rule: Callable[[StreamsGroups, Any, int], Fx]
    """Takes the groups, this ticket, and the time."""


class MetadataChanged(NamedTuple):
    """The metadata went on: topics were touched, new ones among them, or deleted (id by name: positions in them mean
    nothing any more).
    """

    image: MetadataImage
    touched: frozenset[str]
    has_new: bool
    gone: Mapping[str, bytes]


class GroupMachine:
    """``handle`` decides, ``replay`` takes in records; reads go straight to `groups`, `consumer` and `offsets`."""

    def __init__(self, settings: GroupSettings, image: MetadataImage | None = None) -> None:
        self.settings = settings
        self.groups = ClassicGroups(settings)
        self.offsets = Offsets()
        self._image = MetadataImage() if image is None else image
        self._consumers: ConsumerGroups | None = None
        self._shares: ShareGroups | None = None
        self._streams: StreamsGroups | None = None

    @property
    def consumers(self) -> ConsumerGroups:
        """The consumer groups; loaded with the first."""
        if self._consumers is None:
            from ottla.broker.groups.consumer.groups import ConsumerGroups
            from ottla.broker.groups.topics import Topics

            self._consumers = ConsumerGroups(self.groups, Topics(self._image))
        return self._consumers

    @cached_property
    def _heartbeat(self) -> Callable[[Call, int], Fx]:
        """What answers a heartbeat of the new protocol."""
        from ottla.broker.groups.consumer.heartbeat import heartbeat

        return partial(heartbeat, self.consumers)

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """A consumer group."""
        return None if self._consumers is None else self._consumers.groups.get(group_id)

    def every_consumer(self) -> list[ConsumerGroup]:
        """All consumer groups."""
        return [] if self._consumers is None else list(self._consumers.groups.values())

    @property
    def shares(self) -> ShareGroups:
        """The share groups; loaded with the first."""
        if self._shares is None:
            from ottla.broker.groups.share.groups import ShareGroups
            from ottla.broker.groups.topics import Topics

            self._shares = ShareGroups(self.settings.share, Topics(self._image), self._is_other)
        return self._shares

    def _is_other(self, group_id: str) -> bool:
        """Whether an id is that of a group which is no share group: a classic one has it from its first record on."""
        return group_id in self.groups.stored or group_id in self.groups.groups or self._of_new_kind(group_id)

    def _of_new_kind(self, group_id: str) -> bool:
        """Whether an id is that of a consumer group or a streams group."""
        return self.consumer(group_id) is not None or self.streams_group(group_id) is not None

    def _has_changed(self, group_id: str) -> bool:
        """Whether a classic group has become one of another kind, or has been deleted and its id is a share group's."""
        return self._of_new_kind(group_id) or self.share(group_id) is not None

    def knows(self, group_id: str) -> bool:
        """Whether there is a group of whatever kind."""
        return group_id in self.groups.groups or self._has_changed(group_id)

    def share(self, group_id: str) -> ShareGroup | None:
        """A share group."""
        return None if self._shares is None else self._shares.groups.get(group_id)

    def every_share(self) -> list[ShareGroup]:
        """All share groups."""
        return [] if self._shares is None else list(self._shares.groups.values())

    @property
    def streams(self) -> StreamsGroups:
        """The streams groups; loaded with the first."""
        if self._streams is None:
            from ottla.broker.groups.streams.groups import StreamsGroups
            from ottla.broker.groups.topics import Topics

            def taken(group_id: str) -> bool:
                return self.consumer(group_id) is not None or self.share(group_id) is not None

            self._streams = StreamsGroups(self.groups, Topics(self._image), taken)
        return self._streams

    def streams_group(self, group_id: str) -> StreamsGroup | None:
        """A streams group."""
        return None if self._streams is None else self._streams.groups.get(group_id)

    def every_streams_group(self) -> list[StreamsGroup]:
        """All streams groups."""
        return [] if self._streams is None else list(self._streams.groups.values())

    def handle(self, now_ms: int, event: Any) -> Fx:
        """One event."""
        if type(event) is Call:  # nearly all of them
            return self._called(event, now_ms)
        match event:
            case Loaded():
                return self._loaded(now_ms)
            case Settled(what=NewGroup() | Replaced()) if self._has_changed(event.what.call.request.group_id):
                return self.handle(now_ms, event.what.call)
            case Settled(what=rb.Overdue()):
                from ottla.broker.groups.overdue import settled

                return settled(self, event.what, event.error, now_ms)
            case Settled():
                return self.groups.settled(event.what, event.error, now_ms)
            case Fired(key=("expire",)):
                return self._expire(now_ms)
            case Fired():
                return self._timer(event.key, now_ms)
            case Closed():
                return self.groups.closed(event.key, event.ticket, now_ms)
            case Unloaded():
                return self.groups.unloaded(event.error)
            case MetadataChanged():
                return self._metadata_changed(event)
            case Commit():
                return self._commit(event, now_ms)
            case EndTxn(ticket, ends):
                return Fx(replies=[RequestReply(ticket, ErrorCode.NONE)], txn=ends)
            case DeleteGroup() | DeleteOffsets():
                return self._delete(event)
            case OfShare() | OfStreams():
                groups: Any = self.shares if isinstance(event, OfShare) else self.streams
                try:
                    return event.rule(groups, event.ticket, now_ms)
                except ProtocolError as error:
                    return Fx(replies=[RequestReply(event.ticket, error.with_traceback(None))])
            case _:
                raise AssertionError(event)

    def _called(self, call: Call, now_ms: int) -> Fx:
        """A member asks for something."""
        request = call.request
        group_id: str = request.group_id
        if type(request) is j.JoinGroupRequest and not self.groups.settings.allows(request.session_timeout_ms):
            wrong = rb.join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id, call.version)
            return Fx(replies=[RequestReply(call.ticket, wrong)])  # whatever kind its group is of
        if self._streams is not None and group_id in self._streams.groups:
            from ottla.broker.groups.streams.others import handle as handle_other

            return handle_other(self._streams, call, now_ms)
        if self._shares is not None and group_id in self._shares.groups:
            from ottla.broker.groups.share.others import refuse

            return refuse(call)
        if type(request) is chb.ConsumerGroupHeartbeatRequest:
            return self._heartbeat(call, now_ms)
        if self.consumer(group_id) is not None:
            from ottla.broker.groups.consumer.classic_calls import handle

            return handle(self.consumers, call, now_ms)
        match request:
            case j.JoinGroupRequest():
                return self.groups.join(call, now_ms)
            case s.SyncGroupRequest():
                return self.groups.sync(call, now_ms)
            case hb.HeartbeatRequest():
                return self.groups.heartbeat(call, now_ms)
            case lg.LeaveGroupRequest():
                return self.groups.leave(call, now_ms)
            case _:
                raise AssertionError(request)

    def _loaded(self, now_ms: int) -> Fx:
        fx = self.groups.loaded(now_ms)
        if self._consumers is not None:
            fx.continuation = chain(fx.continuation or (), self._consumers.restore(now_ms))
        if self._shares is not None:
            fx.continuation = chain(fx.continuation or (), self._shares.restore(now_ms))
        if self._streams is not None:
            fx.continuation = chain(fx.continuation or (), self._streams.restore(now_ms))
        fx.timers.append(ScheduleTimer(("expire",), now_ms + self.settings.expiry_every_ms))
        return fx

    def _expire(self, now_ms: int) -> Fx:
        """Forget what has been kept long enough."""
        fx = Fx(timers=[ScheduleTimer(("expire",), now_ms + self.settings.expiry_every_ms)])
        new_kinds: list[ConsumerGroup | StreamsGroup] = [*self.every_consumer(), *self.every_streams_group()]
        fx.add_records(sweep(self.groups, self.offsets, self.settings.offsets_retention_ms, now_ms, new_kinds))
        return fx

    def _timer(self, key: tuple[str, ...], now_ms: int) -> Fx:
        if "-" not in key[0]:
            return self.groups.timer(key, now_ms)
        from ottla.broker.groups.overdue import timer

        return timer(self, key, now_ms)

    def _metadata_changed(self, event: MetadataChanged) -> Fx:
        fx = Fx()
        self._image = event.image
        if self._consumers is not None:
            self._consumers.follow(event.image, event.touched, has_new=event.has_new)
        if self._shares is not None:
            self._shares.follow(event.image, event.touched, has_new=event.has_new)
        if self._streams is not None:
            self._streams.follow(event.image, event.touched, has_new=event.has_new)
        if event.gone:
            from ottla.broker.groups.deleting import positions_in

            shares = () if self._shares is None else self._shares.forget_topics(frozenset(event.gone.values()))
            fx.add_records(chain(shares, positions_in(self.offsets, event.gone)))
        return fx

    def _delete(self, event: DeleteGroup | DeleteOffsets) -> Fx:
        from ottla.broker.groups.deleting import delete_group, delete_offsets

        if isinstance(event, DeleteGroup):
            return delete_group(self, event.ticket, event.group_id)
        return delete_offsets(self, event.ticket, event.group_id, event.partitions)

    def _commit(self, event: Commit, now_ms: int) -> Fx:
        fx = Fx()
        group = self.groups.groups.get(event.group_id)
        consumer, streams = self.consumer(event.group_id), self.streams_group(event.group_id)
        whose, txn = (event.member_id, event.instance_id), event.txn is not None
        try:
            if self.share(event.group_id) is not None:
                raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
            if streams is not None:
                from ottla.broker.groups.streams.offsets import check_commit as check_streams

                event = event._replace(offsets=list(event.offsets))
                check_streams(streams, *whose, event.generation, event.version, event.offsets, txn=txn)
            elif consumer is None:
                check_commit(group, *whose, event.generation, event.version, txn=txn)
            else:
                from ottla.broker.groups.consumer import offsets

                event = event._replace(offsets=list(event.offsets))
                offsets.check_commit(consumer, whose[0], event.generation, event.version, event.offsets, txn=txn)
        except ProtocolError as error:
            fx.replies.append(RequestReply(event.ticket, error.code))
            return fx
        if event.txn is not None:
            # Their records do not say which topic it was.
            nameless = (x._replace(topic_id=ZERO_UUID) for x in event.offsets)
            fx.add_records(commit_records(event.group_id, nameless, now_ms, -1), event.txn)
            fx.replies.append(RequestReply(event.ticket, ErrorCode.NONE))
            return fx
        if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            member = group.members.get(event.member_id)
            if member is not None:
                rb.arm_session(group, member, now_ms, fx)
        expire = -1 if event.retention_ms < 0 else now_ms + event.retention_ms
        fx.add_records(commit_records(event.group_id, event.offsets, now_ms, expire))
        fx.replies.append(RequestReply(event.ticket, ErrorCode.NONE))
        return fx

    def replay(self, offset: int, record: GroupRecord) -> None:
        """Take in one record."""
        key, value = record
        if isinstance(key, o.OffsetCommitKey):
            assert value is None or isinstance(value, o.OffsetCommitValue)
            self.offsets.replay(offset, key, value)
            if value is not None:
                self._keep(key.group)
        elif isinstance(key, o.GroupMetadataKey):
            assert value is None or isinstance(value, o.GroupMetadataValue)
            self.groups.replay(key, value)
        elif key.SPEC.key in SHARE_RECORDS:  # type: ignore[attr-defined]  # every key has a type
            self.shares.replay(record)
        elif key.SPEC.key in STREAMS_RECORDS:  # type: ignore[attr-defined]
            self.streams.replay(record)
        else:
            self.consumers.replay(record)

    def _keep(self, group_id: str) -> None:
        """Who commits and was in no group before is a simple consumer: its group never has members."""
        if not self.knows(group_id):
            self.groups.groups[group_id] = Group(group_id)

    def replay_pending(self, offset: int, producer_id: int, record: GroupRecord) -> None:
        """Take in one record of a transaction that is open."""
        key, value = record
        if not isinstance(key, o.OffsetCommitKey):
            self.replay(offset, record)
            return
        assert value is None or isinstance(value, o.OffsetCommitValue)
        self.offsets.replay_pending(offset, producer_id, key, value)
        if value is not None:
            self._keep(key.group)

    def replay_end(self, producer_id: int, *, commits: bool) -> None:
        """A producer's transaction has ended."""
        self.offsets.replay_end(producer_id, commits=commits)
