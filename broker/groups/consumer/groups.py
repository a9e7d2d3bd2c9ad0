"""Consumer groups of one partition of `__consumer_offsets`, with their timers.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.groups.assigned_groups import AssignedGroups
from ottla.broker.groups.classic.groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember, ResolvedRegularExpression
from ottla.broker.groups.settings import ConsumerGroupSettings
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.jobs.state_machine import CancelTimer, ScheduleTimer


class ConsumerGroups(AssignedGroups[ConsumerGroup]):
    """Consumer groups of one partition of `__consumer_offsets`, and the classic groups that may be converted."""

    type_name = "consumer"

    def __init__(self, classic: ClassicGroups, topics: GroupTopicMetadata) -> None:
        self.settings: ConsumerGroupSettings = classic.settings.consumer
        super().__init__(self.settings.bounded_settings, topics, classic.groups.__contains__)
        self.classic_groups = classic
        self.regex_searches: dict[str, Generator[None, None, dict[str, ResolvedRegularExpression]]] = {}
        """Soft state: running resolution of the regular expressions, by group id."""
        self.rejoining_members: set[tuple[str, str]] = set()
        """Soft state: (group id, member id) of classic members that must rejoin after REBALANCE_IN_PROGRESS."""

    def arm_session(self, group_id: str, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """Add to ``fx`` the restart of a member's session timeout: the group's setting, or a classic member's own."""
        if member.classic_metadata is None:
            super().arm_session(group_id, member, now_ms, fx)
        else:
            wait = member.classic_metadata.session_timeout_ms
            fx.timers.append(ScheduleTimer(("consumer-session", group_id, member.id), now_ms + wait))

    def watch_revocation(self, group_id: str, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """Add to ``fx`` the start (partitions to revoke) or the cancellation of a member's rebalance timeout.

        Nothing is added for a classic member, which has join and sync timers instead.
        """
        if member.classic_metadata is None:
            super().watch_revocation(group_id, member, now_ms, fx)

    def cancel_timers(self, group_id: str, member_id: str, fx: GroupEffects) -> None:
        """Add to ``fx`` the cancellation of all timers of a removed member."""
        self.rejoining_members.discard((group_id, member_id))
        super().cancel_timers(group_id, member_id, fx)
        fx.timers += [CancelTimer((name, group_id, member_id)) for name in ("consumer-join", "consumer-sync")]
