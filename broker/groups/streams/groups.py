"""The streams groups of one partition of `__consumer_offsets`: what all their rules stand on.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.classic.groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.modern_group import restore_member_timers
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.streams import records
from ottla.broker.groups.streams.streams_group import StreamsGroup, StreamsGroupMember, StreamsMemberState
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.controller.metadata.image import RESOURCE_GROUP, MetadataImage
from ottla.jobs.state_machine import CancelTimer, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_records

SESSION_TIMER = "streams-session"
REBALANCE_TIMER = "streams-rebalance"
INITIAL_DELAY_TIMER = "streams-delay"
STANDBY_REPLICAS_CONFIG = "num.standby.replicas"


class StreamsGroups:
    """Streams groups, beside the others of the same partition."""

    def __init__(self, classic: ClassicGroups, topics: GroupTopicMetadata, taken: Callable[[str], bool]) -> None:
        self.settings = classic.settings.streams
        self.topics = topics
        self.groups: dict[str, StreamsGroup] = {}
        self.delayed_groups: set[str] = set()
        """Soft: groups whose first members are waited for."""
        self.classic_groups = classic
        self._is_other_group = taken

    def on_metadata_changed(self, image: MetadataImage, touched: frozenset[str], *, has_new: bool) -> None:
        """The metadata went on: groups of topics that were touched look at the hash with the next heartbeat."""
        self.topics.on_metadata_changed(image, touched, has_new=has_new)
        for group in self.groups.values():
            if group.topology is not None and not touched.isdisjoint(group.topology.required_topics):
                group.hash_checked_epoch = None

    # ------------------------------------------------------------------ which group

    def require_group(self, group_id: str, name: str = "Group") -> StreamsGroup:
        """A streams group; ``name``: what it is called where there is none.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        why = f"{name} {group_id} not found."
        if self._is_other_group(group_id) or group_id in self.classic_groups.groups:
            why = f"Group {group_id} is not a streams group."
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)

    def get_or_create_group(self, group_id: str, fx: GroupEffects) -> StreamsGroup:
        """A streams group, or a new one, which its first records make; an empty classic group makes room for it.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the id is another kind of group's.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        classic = self.classic_groups.groups.get(group_id)
        if self._is_other_group(group_id) or (classic is not None and classic.state is not ClassicGroupState.EMPTY):
            return self.require_group(group_id)
        if classic is not None or group_id in self.classic_groups.persisted_groups:
            fx.records.append(GroupRecord(offset_records.GroupMetadataKey(group_id), None))
        return StreamsGroup(group_id)

    # ------------------------------------------------------------------ settings

    def setting(self, group_id: str, name: str) -> int:
        """A setting of a group: its own, or the node's."""
        own = self.topics.image.config(RESOURCE_GROUP, group_id)
        return self.settings.bounded_settings[name].effective_value(own.get(name))

    def assignor_configs(self, group_id: str) -> dict[str, str]:
        """What the assignor is told."""
        return {STANDBY_REPLICAS_CONFIG: str(self.setting(group_id, f"streams.{STANDBY_REPLICAS_CONFIG}"))}

    # ------------------------------------------------------------------ timers

    def arm_session(self, group_id: str, member_id: str, now_ms: int, fx: GroupEffects) -> None:
        """A member has been heard of."""
        wait = self.setting(group_id, "streams.session.timeout.ms")
        fx.timers.append(ScheduleTimer((SESSION_TIMER, group_id, member_id), now_ms + wait))

    def watch_revocation(self, group_id: str, member: StreamsGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """Whoever has tasks to give up has its rebalance timeout for it."""
        key = (REBALANCE_TIMER, group_id, member.id)
        revoking = member.state is StreamsMemberState.UNREVOKED_TASKS
        fx.timers.append(ScheduleTimer(key, now_ms + member.rebalance_timeout_ms) if revoking else CancelTimer(key))

    def delay_first_assignment(self, group: StreamsGroup, now_ms: int, fx: GroupEffects) -> None:
        """An empty group is joined: others may come in the next moment, so its first target waits for them."""
        wait = self.setting(group.id, "streams.initial.rebalance.delay.ms")
        if not group.members and wait > 0 and group.id not in self.delayed_groups:
            self.delayed_groups.add(group.id)
            fx.timers.append(ScheduleTimer((INITIAL_DELAY_TIMER, group.id), now_ms + wait))

    def cancel_initial_delay(self, group_id: str, fx: GroupEffects) -> None:
        """The group goes: nobody is waited for any more."""
        if group_id in self.delayed_groups:
            self.delayed_groups.discard(group_id)
            fx.timers.append(CancelTimer((INITIAL_DELAY_TIMER, group_id)))

    def restore_timers(self, now_ms: int) -> Iterator[GroupEffects]:
        """The shard has been read: every member has its whole session, and its time to give up, before it again."""

        def arm(group_id: str, member: StreamsGroupMember, fx: GroupEffects) -> None:
            self.arm_session(group_id, member.id, now_ms, fx)
            if member.state is StreamsMemberState.UNREVOKED_TASKS:
                self.watch_revocation(group_id, member, now_ms, fx)

        return restore_member_timers(self.groups.values(), arm)

    def fence_member(self, group: StreamsGroup, member_id: str, fx: GroupEffects) -> None:
        """The group goes on without a member, in its next epoch."""
        fx.records += records.member_tombstones(group.id, member_id)
        fx.records.append(
            records.epoch_record(group.id, group.epoch + 1, group.metadata_hash, group.validated_epoch, group.configs)
        )
        fx.timers += [
            CancelTimer((SESSION_TIMER, group.id, member_id)),
            CancelTimer((REBALANCE_TIMER, group.id, member_id)),
        ]
