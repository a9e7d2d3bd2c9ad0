"""The consumer groups of one partition of `__consumer_offsets`: what all their rules stand on.

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
    """Consumer groups, beside the classic ones of the same partition."""

    type_name = "consumer"

    def __init__(self, classic: ClassicGroups, topics: GroupTopicMetadata) -> None:
        self.settings: ConsumerGroupSettings = classic.settings.consumer
        super().__init__(self.settings.bounded_settings, topics, classic.groups.__contains__)
        self.classic_groups = classic
        self.regex_searches: dict[str, Generator[None, None, dict[str, ResolvedRegularExpression]]] = {}
        """Soft: groups whose regular expressions are being resolved."""
        self.rejoining_members: set[tuple[str, str]] = set()
        """Soft: members of the older protocol that were told to join again, (group, member)."""

    def arm_session(self, group_id: str, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """Start the session of a member anew; one of the classic protocol has named its timeout."""
        if member.classic_metadata is None:
            super().arm_session(group_id, member, now_ms, fx)
        else:
            wait = member.classic_metadata.session_timeout_ms
            fx.timers.append(ScheduleTimer(("consumer-session", group_id, member.id), now_ms + wait))

    def watch_revocation(self, group_id: str, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """Give a member its rebalance timeout to revoke; one of the classic protocol has timers of its own."""
        if member.classic_metadata is None:
            super().watch_revocation(group_id, member, now_ms, fx)

    def cancel_timers(self, group_id: str, member_id: str, fx: GroupEffects) -> None:
        """Cancel the timers of a member that is gone."""
        self.rejoining_members.discard((group_id, member_id))
        super().cancel_timers(group_id, member_id, fx)
        fx.timers += [CancelTimer((name, group_id, member_id)) for name in ("consumer-join", "consumer-sync")]
