"""The streams groups of one partition of `__consumer_offsets`: what all their rules stand on.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.groups.classic import ClassicGroups
from ottla.broker.groups.modern import restored
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import GroupState
from ottla.broker.groups.streams import records as sr
from ottla.broker.groups.streams.replay import replay
from ottla.broker.groups.streams.state import Member, MemberState, StreamsGroup
from ottla.broker.groups.topics import Topics
from ottla.controller.image import RESOURCE_GROUP, MetadataImage
from ottla.log.machine import CancelTimer, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records as o

SESSION = "streams-session"
REBALANCE = "streams-rebalance"
DELAY = "streams-delay"
STANDBYS = "num.standby.replicas"


class StreamsGroups:
    """Streams groups, beside the others of the same partition."""

    def __init__(self, classic: ClassicGroups, topics: Topics, taken: Callable[[str], bool]) -> None:
        self.settings = classic.settings.streams
        self.topics = topics
        self.groups: dict[str, StreamsGroup] = {}
        self.delayed: set[str] = set()
        """Soft: groups whose first members are waited for."""
        self.classic = classic
        self._taken = taken

    def replay(self, record: GroupRecord) -> None:
        """Take in a record. A simple consumer's group, which has no records of its own, becomes this one."""
        replay(self.groups, record)
        if self.classic.groups and record.value is not None:
            self.classic.groups.pop(record.key.group_id, None)  # type: ignore[attr-defined]

    def follow(self, image: MetadataImage, touched: frozenset[str], *, has_new: bool) -> None:
        """The metadata went on: groups of topics that were touched look at the hash with the next heartbeat."""
        self.topics.follow(image, touched, has_new=has_new)
        for group in self.groups.values():
            if group.topology is not None and not touched.isdisjoint(group.topology.required):
                group.fresh_epoch = None

    # ------------------------------------------------------------------ which group

    def group(self, group_id: str, name: str = "Group") -> StreamsGroup:
        """A streams group; ``name``: what it is called where there is none.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        why = f"{name} {group_id} not found."
        if self._taken(group_id) or group_id in self.classic.groups:
            why = f"Group {group_id} is not a streams group."
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)

    def group_to_join(self, group_id: str, fx: Fx) -> StreamsGroup:
        """A streams group, or a new one, which its first records make; an empty classic group makes room for it.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the id is another kind of group's.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        classic = self.classic.groups.get(group_id)
        if self._taken(group_id) or (classic is not None and classic.state is not GroupState.EMPTY):
            return self.group(group_id)
        if classic is not None or group_id in self.classic.stored:
            fx.records.append(GroupRecord(o.GroupMetadataKey(group_id), None))
        return StreamsGroup(group_id)

    # ------------------------------------------------------------------ settings

    def number(self, group_id: str, name: str) -> int:
        """A setting of a group: its own, or the node's."""
        own = self.topics.image.config(RESOURCE_GROUP, group_id)
        return self.settings.bounded[name].of(own.get(name))

    def configs(self, group_id: str) -> dict[str, str]:
        """What the assignor is told."""
        return {STANDBYS: str(self.number(group_id, f"streams.{STANDBYS}"))}

    # ------------------------------------------------------------------ timers

    def arm_session(self, group_id: str, member_id: str, now_ms: int, fx: Fx) -> None:
        """A member has been heard of."""
        wait = self.number(group_id, "streams.session.timeout.ms")
        fx.timers.append(ScheduleTimer((SESSION, group_id, member_id), now_ms + wait))

    def watch_revocation(self, group_id: str, member: Member, now_ms: int, fx: Fx) -> None:
        """Whoever has tasks to give up has its rebalance timeout for it."""
        key = (REBALANCE, group_id, member.id)
        revoking = member.state is MemberState.UNREVOKED_TASKS
        fx.timers.append(ScheduleTimer(key, now_ms + member.rebalance_timeout_ms) if revoking else CancelTimer(key))

    def await_members(self, group: StreamsGroup, now_ms: int, fx: Fx) -> None:
        """An empty group is joined: others may come in the next moment, so its first target waits for them."""
        wait = self.number(group.id, "streams.initial.rebalance.delay.ms")
        if not group.members and wait > 0 and group.id not in self.delayed:
            self.delayed.add(group.id)
            fx.timers.append(ScheduleTimer((DELAY, group.id), now_ms + wait))

    def forget_delay(self, group_id: str, fx: Fx) -> None:
        """The group goes: nobody is waited for any more."""
        if group_id in self.delayed:
            self.delayed.discard(group_id)
            fx.timers.append(CancelTimer((DELAY, group_id)))

    def restore(self, now_ms: int) -> Iterator[Fx]:
        """The shard has been read: every member has its whole session, and its time to give up, before it again."""

        def arm(group_id: str, member: Member, fx: Fx) -> None:
            self.arm_session(group_id, member.id, now_ms, fx)
            if member.state is MemberState.UNREVOKED_TASKS:
                self.watch_revocation(group_id, member, now_ms, fx)

        return restored(self.groups.values(), arm)

    def fence(self, group: StreamsGroup, member_id: str, fx: Fx) -> None:
        """The group goes on without a member, in its next epoch."""
        fx.records += sr.member_tombstones(group.id, member_id)
        fx.records.append(
            sr.epoch_record(group.id, group.epoch + 1, group.metadata_hash, group.validated_epoch, group.configs)
        )
        fx.timers += [CancelTimer((SESSION, group.id, member_id)), CancelTimer((REBALANCE, group.id, member_id))]
