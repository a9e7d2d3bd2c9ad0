"""The machine of one partition of `__consumer_offsets`: groups and committed offsets, driven by events.

Each kind of group has rules of its own; an id belongs to one group of one kind. What the new kinds need is loaded when
the first of them comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.broker.coordinator.events import Closed, Fired, Loaded, Settled, Unloaded
from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.classic import ClassicGroups, NewGroup
from ottla.broker.groups.expiry import sweep
from ottla.broker.groups.offsets import NewOffset, Offsets, check_commit, commit_records, tombstone, unpack
from ottla.broker.groups.rebalance import Fx, GroupSettings
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import CONSUMER, Call, Group, GroupState, subscribed_topics
from ottla.broker.groups.static import Replaced
from ottla.controller.image import Image
from ottla.log.machine import Arm, Ends, InTransaction, Reply
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

SHARE_RECORDS = range(10, 16)
"""The types of the records of share groups."""


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
    txn: InTransaction | None = None
    """Within which transaction; None: they count at once."""


class EndTxn(NamedTuple):
    """A transaction ends in this partition, whether or not it has stored anything here; the answer is an error code."""

    ticket: Any
    ends: Ends


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
    """What a share group is asked; the rule says what is answered."""

    ticket: Any
    rule: Callable[[ShareGroups, Any, int], Fx]
    """Takes the groups, this ticket, and the time."""


class MetadataChanged(NamedTuple):
    """The metadata went on: topics were touched, new ones among them, or deleted (id by name: positions in them mean
    nothing any more).
    """

    image: Image
    touched: frozenset[str]
    has_new: bool
    gone: Mapping[str, bytes]


class GroupMachine:
    """``handle`` decides, ``replay`` takes in records; reads go straight to `groups`, `consumer` and `offsets`."""

    def __init__(self, settings: GroupSettings, image: Image | None = None) -> None:
        self.settings = settings
        self.groups = ClassicGroups(settings)
        self.offsets = Offsets()
        self._image = Image() if image is None else image
        self._consumers: ConsumerGroups | None = None
        self._shares: ShareGroups | None = None

    @property
    def consumers(self) -> ConsumerGroups:
        """The consumer groups; loaded with the first."""
        if self._consumers is None:
            from ottla.broker.groups.consumer.groups import ConsumerGroups
            from ottla.broker.groups.topics import Topics

            self._consumers = ConsumerGroups(self.groups, Topics(self._image))
        return self._consumers

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
        """Whether an id is that of a group which is no share group."""
        return group_id in self.groups.groups or self.consumer(group_id) is not None

    def share(self, group_id: str) -> ShareGroup | None:
        """A share group."""
        return None if self._shares is None else self._shares.groups.get(group_id)

    def every_share(self) -> list[ShareGroup]:
        """All share groups."""
        return [] if self._shares is None else list(self._shares.groups.values())

    def handle(self, now_ms: int, event: Any) -> Fx:
        """One event."""
        match event:
            case Loaded():
                return self._loaded(now_ms)
            case Settled(what=NewGroup() | Replaced()) if self.consumer(event.what.call.request.group_id) is not None:
                return self.handle(now_ms, event.what.call)  # it has become another kind of group meanwhile
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
                return Fx(replies=[Reply(ticket, ErrorCode.NONE)], txn=ends)
            case DeleteGroup():
                return self._delete_group(event)
            case DeleteOffsets():
                return self._delete_offsets(event)
            case OfShare():
                return event.rule(self.shares, event.ticket, now_ms)
            case Call() if self.share(event.request.group_id) is not None:
                from ottla.broker.groups.share.others import refuse

                return refuse(event)
            case Call(request=chb.ConsumerGroupHeartbeatRequest()):
                from ottla.broker.groups.consumer.heartbeat import heartbeat

                return heartbeat(self.consumers, event, now_ms)
            case Call() if self.consumer(event.request.group_id) is not None:
                from ottla.broker.groups.consumer.classic_calls import handle

                return handle(self.consumers, event, now_ms)
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
        if self._consumers is not None:
            fx.then = chain(fx.then or (), self._consumers.restore(now_ms))
        if self._shares is not None:
            fx.then = chain(fx.then or (), self._shares.restore(now_ms))
        fx.timers.append(Arm(("expire",), now_ms + self.settings.expiry_every_ms))
        return fx

    def _expire(self, now_ms: int) -> Fx:
        """Forget what has been kept long enough."""
        fx = Fx(timers=[Arm(("expire",), now_ms + self.settings.expiry_every_ms)])
        fx.lay(sweep(self.groups, self.offsets, self.settings.offsets_retention_ms, now_ms, self.every_consumer()))
        return fx

    def _timer(self, key: tuple[str, ...], now_ms: int) -> Fx:
        if key[0].startswith("share-"):
            return self.shares.timer(key)
        if not key[0].startswith("consumer-"):
            return self.groups.timer(key, now_ms)
        from ottla.broker.groups.consumer.leaving import timer

        return timer(self.consumers, key, now_ms)

    def _metadata_changed(self, event: MetadataChanged) -> Fx:
        fx = Fx()
        self._image = event.image
        if self._consumers is not None:
            self._consumers.follow(event.image, event.touched, has_new=event.has_new)
        if self._shares is not None:
            self._shares.follow(event.image, event.touched, has_new=event.has_new)
        if event.gone:
            shares = () if self._shares is None else self._shares.forget_topics(frozenset(event.gone.values()))
            fx.lay(chain(shares, self._positions_in(event.gone)))
        return fx

    def _positions_in(self, ids: Mapping[str, bytes]) -> Iterator[GroupRecord | None]:
        """Tombstones for what was committed to these topics, or to topics of these names before ids were kept."""
        for group in self.offsets.pending.groups():
            yield None
            for topic, partition in self.offsets.pending.of_group(group):
                if topic in ids:
                    yield tombstone(group, topic, partition)
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
        consumer = self.consumer(event.group_id)
        whose, txn = (event.member_id, event.instance_id), event.txn is not None
        try:
            if self.share(event.group_id) is not None:
                raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
            if consumer is None:
                check_commit(group, *whose, event.generation, event.version, txn=txn)
            else:
                from ottla.broker.groups.consumer import offsets

                event = event._replace(offsets=list(event.offsets))
                offsets.check_commit(consumer, whose[0], event.generation, event.version, event.offsets, txn=txn)
        except ProtocolError as error:
            fx.replies.append(Reply(event.ticket, error.code))
            return fx
        if event.txn is not None:
            # Their records do not say which topic it was.
            nameless = (x._replace(topic_id=ZERO_UUID) for x in event.offsets)
            fx.lay(commit_records(event.group_id, nameless, now_ms, -1), event.txn)
            fx.replies.append(Reply(event.ticket, ErrorCode.NONE))
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
        consumer, share = self.consumer(event.group_id), self.share(event.group_id)
        if share is not None and not share.members:
            from ottla.broker.groups.share import records as share_records

            fx.lay(share_records.group_tombstones(share))
        elif (share is not None and share.members) or (consumer is not None and consumer.members):
            code = ErrorCode.NON_EMPTY_GROUP
        elif consumer is not None:
            from ottla.broker.groups.consumer.records import group_tombstones

            fx.lay(chain(self.offsets.tombstones(event.group_id), group_tombstones(consumer)))
        elif group is None:
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
        group: Group | ConsumerGroup | None = self.groups.groups.get(event.group_id) or self.consumer(event.group_id)
        if group is None:
            fx.replies.append(Reply(event.ticket, ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)))
            return fx
        if isinstance(group, Group) and group.members and group.protocol_type != CONSUMER:
            fx.replies.append(Reply(event.ticket, ProtocolError(ErrorCode.NON_EMPTY_GROUP)))
            return fx
        kept: set[str] = set()
        fx.lay(self._positions_of(event, group, kept))
        fx.replies.append(Reply(event.ticket, kept))
        return fx

    def _positions_of(
        self, event: DeleteOffsets, group: Group | ConsumerGroup, kept: set[str]
    ) -> Iterator[GroupRecord | None]:
        """Tombstones for what nobody reads; ``kept`` takes the topics that are."""
        subscribed = (yield from subscribed_topics(group)) if isinstance(group, Group) else set(group.names)
        for topic, partition in event.partitions:
            if subscribed is None or topic in subscribed:
                kept.add(topic)
                yield None
            else:
                there = self.offsets.has(event.group_id, topic, partition)
                yield tombstone(event.group_id, topic, partition) if there else None

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
        else:
            self.consumers.replay(record)

    def _keep(self, group_id: str) -> None:
        """Who commits and was in no group before is a simple consumer: its group never has members."""
        if not self._is_other(group_id) and self.share(group_id) is None:
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
