"""The share groups of one partition of `__consumer_offsets`: what all their rules stand on.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Any

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.modern_group import restore_member_timers, update_in_slices
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.settings import ShareGroupSettings
from ottla.broker.groups.share import records
from ottla.broker.groups.share.share_group import (
    NamedTopicPartitions,
    ShareGroup,
    merge_partitions,
    subtract_partitions,
)
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.controller.metadata.image import RESOURCE_GROUP, MetadataImage
from ottla.jobs.state_machine import CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

INITIALIZE_RETRY_MS = 30_000
"""So long a partition may be on its way to its state before that is asked for again."""
SESSION_TIMER = "share-session"
TopicIdPartitions = Mapping[bytes, frozenset[int]]


class ShareGroups:
    """Share groups, beside the others of the same partition."""

    def __init__(self, settings: ShareGroupSettings, topics: GroupTopicMetadata, taken: Callable[[str], bool]) -> None:
        self.settings = settings
        self.topics = topics
        self.is_other_group = taken
        """Whether a group of another kind has an id."""
        self.groups: dict[str, ShareGroup] = {}
        self.initializing_since_ms: dict[tuple[str, bytes], int] = {}
        """Soft: when a group's partitions of a topic were last asked to be initialised."""

    def on_metadata_changed(self, image: MetadataImage, touched: frozenset[str], *, has_new: bool) -> None:
        """The metadata went on: groups of topics that were touched look at the hash with the next heartbeat."""
        self.topics.on_metadata_changed(image, touched, has_new=has_new)
        for group in self.groups.values():
            if not group.subscribed_topic_names.keys().isdisjoint(touched):  # costs as much as the fewer of them
                group.hash_checked_epoch = None

    def remove_topics(self, ids: frozenset[bytes]) -> Iterator[GroupRecord | None]:
        """Topics are gone: groups forget which of their partitions had a state."""
        for group in list(self.groups.values()):
            yield None
            if (
                ids.isdisjoint(group.initializing)
                and ids.isdisjoint(group.initialized)
                and ids.isdisjoint(group.deleting)
            ):
                continue
            initializing = {topic: named for topic, named in group.initializing.items() if topic not in ids}
            initialized = {topic: named for topic, named in group.initialized.items() if topic not in ids}
            deleting = {topic: name for topic, name in group.deleting.items() if topic not in ids}
            yield records.state_partition_metadata_record(group.id, initializing, initialized, deleting)

    def require_group(self, group_id: str, name: str = "Group") -> ShareGroup:
        """A share group; ``name``: what it is called where there is none.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            why = f"{name} {group_id} not found."
            if self.is_other_group(group_id):
                why = f"Group {group_id} is not a share group."
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def get_or_create_group(self, group_id: str) -> ShareGroup:
        """A share group, or a new one, which its first records make.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the id is another kind of group's.
        """
        if group_id in self.groups or self.is_other_group(group_id):
            return self.require_group(group_id)
        return ShareGroup(group_id)

    def interval_ms(self, group_id: str, name: str) -> int:
        """A setting of a group: its own, or the node's."""
        own = self.topics.image.config(RESOURCE_GROUP, group_id)
        return self.settings.intervals[name].effective_value(own.get(name))

    # ------------------------------------------------------------------ timers

    def arm_session(self, group_id: str, member_id: str, now_ms: int, fx: GroupEffects) -> None:
        """A member has been heard of."""
        wait = self.interval_ms(group_id, "share.session.timeout.ms")
        fx.timers.append(ScheduleTimer((SESSION_TIMER, group_id, member_id), now_ms + wait))

    def restore_timers(self, now_ms: int) -> Iterator[GroupEffects]:
        """The shard has been read: every member has its whole session before it again."""
        return restore_member_timers(
            self.groups.values(), lambda group_id, x, fx: self.arm_session(group_id, x.id, now_ms, fx)
        )

    def on_timer(self, key: tuple[str, ...]) -> GroupEffects:
        """A member's session is over."""
        fx = GroupEffects()
        group = self.groups.get(key[1])
        if group is not None and key[2] in group.members:
            self.fence_member(group, key[2], fx)
        return fx

    def fence_member(self, group: ShareGroup, member_id: str, fx: GroupEffects) -> None:
        """The group goes on without a member, in its next epoch."""
        member = group.require_member(member_id)

        def remove(rest: GroupEffects) -> Generator[None, None, None]:
            names = yield from group.subscribed_topics_after(member, None)
            rest.records += records.member_tombstones(group.id, member_id)
            rest.records.append(records.epoch_record(group.id, group.epoch + 1, self.topics.hash_of(names)))
            rest.timers.append(CancelTimer((SESSION_TIMER, group.id, member_id)))

        update_in_slices(self.groups, group.id, self.topics, [group.subscribed_topic_names], fx, remove)

    # ------------------------------------------------------------------ partitions that get their state

    @staticmethod
    def is_deleting_state(group: ShareGroup, now_ms: int) -> bool:
        """Whether the persister is forgetting a group that is to be deleted."""
        return (
            group.state_deletion_started_ms is not None
            and now_ms - group.state_deletion_started_ms < INITIALIZE_RETRY_MS
        )

    def partitions_to_initialize(
        self, group: ShareGroup, names: Collection[str], now_ms: int
    ) -> dict[bytes, NamedTopicPartitions]:
        """Partitions of these topics that have no state yet, and are not on their way to one; none while the persister
        forgets what there is: it might forget the new one.
        """
        if self.is_deleting_state(group, now_ms):
            return {}
        underway = {
            topic: named
            for topic, named in group.initializing.items()
            if now_ms - self.initializing_since_ms.get((group.id, topic), -INITIALIZE_RETRY_MS) < INITIALIZE_RETRY_MS
        }
        known = merge_partitions(group.initialized, underway)
        out = {}
        for name in self.topics.existing(names):
            topic = self.topics.image.topics[name]
            there = known[topic.id].partitions if topic.id in known else frozenset[int]()
            if len(there) < len(topic.partitions):
                out[topic.id] = NamedTopicPartitions(name, frozenset(range(len(topic.partitions))) - there)
        return out

    def mark_initializing(
        self, group: ShareGroup, new: Mapping[bytes, NamedTopicPartitions], now_ms: int, fx: GroupEffects
    ) -> None:
        """Note that partitions are on their way to a state; of a topic that is, nothing is to be forgotten any more."""
        self.initializing_since_ms.update(((group.id, topic), now_ms) for topic in new)
        initializing = merge_partitions(group.initializing, new)
        deleting = {topic: name for topic, name in group.deleting.items() if topic not in initializing}
        fx.records.append(records.state_partition_metadata_record(group.id, initializing, group.initialized, deleting))

    def on_initialized(self, ticket: Any, group_id: str, partitions: TopicIdPartitions, *, done: bool) -> GroupEffects:
        """The persister has begun these partitions, or could not; the answer is True. What is not on its way any more
        has been given up meanwhile, and may be forgotten by now.
        """
        fx = GroupEffects(replies=[RequestReply(ticket, True)])
        for topic in partitions:
            self.initializing_since_ms.pop((group_id, topic), None)
        group = self.groups.get(group_id)
        if group is None or not partitions or not (done or group.initializing):
            return fx
        ready: Mapping[bytes, NamedTopicPartitions] = group.initialized
        if done:
            image = self.topics.image
            names = {topic: image.topic_names.get(topic, "<UNKNOWN>") for topic in partitions}
            begun = {
                topic: NamedTopicPartitions(names[topic], numbers & group.initializing[topic].partitions)
                for topic, numbers in partitions.items()
                if topic in group.initializing
            }
            ready = merge_partitions(ready, begun)
        left = subtract_partitions(group.initializing, partitions)
        fx.records.append(records.state_partition_metadata_record(group.id, left, ready, group.deleting))
        return fx
