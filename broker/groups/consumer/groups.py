"""The consumer groups of one partition of `__consumer_offsets`: what all their rules stand on.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.broker.groups.classic.groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer.consumer_group import (
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerMemberState,
    ResolvedRegularExpression,
)
from ottla.broker.groups.modern_group import restore_member_timers
from ottla.broker.groups.settings import ConsumerGroupSettings
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.controller.metadata.image import RESOURCE_GROUP, MetadataImage
from ottla.jobs.state_machine import CancelTimer, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError


class ConsumerGroups:
    """Consumer groups, beside the classic ones of the same partition."""

    def __init__(self, classic: ClassicGroups, topics: GroupTopicMetadata) -> None:
        self.settings: ConsumerGroupSettings = classic.settings.consumer
        self.classic_groups = classic
        self.topics = topics
        self.groups: dict[str, ConsumerGroup] = {}
        self.regex_searches: dict[str, Generator[None, None, dict[str, ResolvedRegularExpression]]] = {}
        """Soft: groups whose regular expressions are being resolved."""
        self.rejoining_members: set[tuple[str, str]] = set()
        """Soft: members of the older protocol that were told to join again, (group, member)."""

    def on_metadata_changed(self, image: MetadataImage, touched: frozenset[str], *, has_new: bool) -> None:
        """The metadata went on: groups of topics that were touched look at the hash with the next heartbeat."""
        self.topics.on_metadata_changed(image, touched, has_new=has_new)
        for group in self.groups.values():
            if not group.subscribed_topic_names.keys().isdisjoint(touched):  # costs as much as the fewer of them
                group.hash_checked_epoch = None

    def require_group(self, group_id: str, name: str = "Group") -> ConsumerGroup:
        """A consumer group; ``name``: what it is called where there is none.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            other = group_id in self.classic_groups.groups
            why = f"Group {group_id} is not a consumer group." if other else f"{name} {group_id} not found."
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def interval_ms(self, group_id: str, name: str) -> int:
        """A setting of a group: its own, or the node's."""
        own = self.topics.image.config(RESOURCE_GROUP, group_id)
        return self.settings.intervals[name].effective_value(own.get(name))

    # ------------------------------------------------------------------ timers

    def arm_session(self, group_id: str, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """A member has been heard of."""
        wait = self.interval_ms(group_id, "consumer.session.timeout.ms")
        if member.classic_metadata is not None:
            wait = member.classic_metadata.session_timeout_ms
        fx.timers.append(ScheduleTimer(("consumer-session", group_id, member.id), now_ms + wait))

    def watch_revocation(self, group_id: str, member: ConsumerGroupMember, now_ms: int, fx: GroupEffects) -> None:
        """Whoever has partitions to give up has its rebalance timeout for it; the older protocol has timers of its
        own.
        """
        key = ("consumer-rebalance", group_id, member.id)
        if member.classic_metadata is None:
            revoking = member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
            fx.timers.append(ScheduleTimer(key, now_ms + member.rebalance_timeout_ms) if revoking else CancelTimer(key))

    def cancel_timers(self, group_id: str, member_id: str, fx: GroupEffects) -> None:
        """A member is gone."""
        self.rejoining_members.discard((group_id, member_id))
        for name in ("consumer-session", "consumer-rebalance", "consumer-join", "consumer-sync"):
            fx.timers.append(CancelTimer((name, group_id, member_id)))

    def restore_timers(self, now_ms: int) -> Iterator[GroupEffects]:
        """The shard has been read: every member has its whole session, and its time to give up, before it again."""

        def arm(group_id: str, member: ConsumerGroupMember, fx: GroupEffects) -> None:
            wait = self.interval_ms(group_id, "consumer.session.timeout.ms")
            fx.timers.append(ScheduleTimer(("consumer-session", group_id, member.id), now_ms + wait))
            if member.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
                self.watch_revocation(group_id, member, now_ms, fx)

        return restore_member_timers(self.groups.values(), arm)
