"""Streams groups of one partition of `__consumer_offsets`, with their timers and initial rebalance delay.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.groups.assigned_groups import AssignedGroups
from ottla.broker.groups.classic.classic_group import ClassicGroupState
from ottla.broker.groups.classic.groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.streams import records
from ottla.broker.groups.streams.streams_group import StreamsGroup
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.jobs.state_machine import CancelTimer, ScheduleTimer
from ottla.wire.messages import offset_records

INITIAL_DELAY_TIMER = "streams-delay"
STANDBY_REPLICAS_CONFIG = "num.standby.replicas"


class StreamsGroups(AssignedGroups[StreamsGroup]):
    """Streams groups of one partition of `__consumer_offsets`."""

    type_name = "streams"

    def __init__(self, classic: ClassicGroups, topics: GroupTopicMetadata, is_id_in_use: Callable[[str], bool]) -> None:
        """Initialize without groups. ``is_id_in_use``: returns True if the id belongs to a consumer or share group."""
        self.settings = classic.settings.streams
        super().__init__(
            self.settings.bounded_settings,
            topics,
            lambda group_id: is_id_in_use(group_id) or group_id in classic.groups,
        )
        self.delayed_groups: set[str] = set()
        """Soft state: ids of groups in their initial rebalance delay."""
        self.classic_groups = classic
        self._is_modern_group = is_id_in_use

    def get_or_create_group(self, group_id: str, fx: GroupEffects) -> StreamsGroup:
        """Return the streams group with an id, or a new one, which its first records will create.

        The tombstone of an empty classic group with the id is added to ``fx``.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the id belongs to a group of another type.
        """
        group = self.groups.get(group_id)
        if group is not None:
            return group
        classic = self.classic_groups.groups.get(group_id)
        if self._is_modern_group(group_id) or (classic is not None and classic.state is not ClassicGroupState.EMPTY):
            return self.require_group(group_id)
        if classic is not None or group_id in self.classic_groups.persisted_groups:
            fx.records.append(GroupRecord(offset_records.GroupMetadataKey(group_id), None))
        return StreamsGroup(group_id)

    # ------------------------------------------------------------------ settings

    def assignor_configs(self, group_id: str) -> dict[str, str]:
        """Return the configuration of the task assignor for a group: its number of standby replicas."""
        return {STANDBY_REPLICAS_CONFIG: str(self.setting(group_id, STANDBY_REPLICAS_CONFIG))}

    # ------------------------------------------------------------------ timers

    def delay_first_assignment(self, group: StreamsGroup, now_ms: int, fx: GroupEffects) -> None:
        """Start the initial rebalance delay of a group without members, in which more members can join.

        Add its timer to ``fx``; do nothing if the group has members, is delayed already, or the delay is 0.
        """
        wait = self.setting(group.id, "initial.rebalance.delay.ms")
        if not group.members and wait > 0 and group.id not in self.delayed_groups:
            self.delayed_groups.add(group.id)
            fx.timers.append(ScheduleTimer((INITIAL_DELAY_TIMER, group.id), now_ms + wait))

    def cancel_initial_delay(self, group_id: str, fx: GroupEffects) -> None:
        """End the initial rebalance delay of a group, and add the cancellation of its timer to ``fx``.

        Do nothing if the group is not delayed.
        """
        if group_id in self.delayed_groups:
            self.delayed_groups.discard(group_id)
            fx.timers.append(CancelTimer((INITIAL_DELAY_TIMER, group_id)))

    def fence_member(self, group: StreamsGroup, member_id: str, fx: GroupEffects) -> None:
        """Add to ``fx`` the removal of a member, which must exist, and a new group epoch."""
        fx.records += records.member_tombstones(group.id, member_id)
        fx.records.append(
            records.epoch_record(group.id, group.epoch + 1, group.metadata_hash, group.validated_epoch, group.configs)
        )
        self.cancel_timers(group.id, member_id, fx)
