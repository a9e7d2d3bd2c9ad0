"""Share groups of one partition of `__consumer_offsets`, and the progress of their share state's initialization.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Any

from ottla.broker.groups.assigned_groups import AssignedGroups
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.modern_group import run_update_with_hashes
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
from ottla.jobs.state_machine import RequestReply

INITIALIZE_RETRY_MS = 30_000
"""Time after which the share state of a partition is initialized again, because no result has arrived."""
TopicIdPartitions = Mapping[bytes, frozenset[int]]


class ShareGroups(AssignedGroups[ShareGroup]):
    """Share groups of one partition of `__consumer_offsets`."""

    type_name = "share"

    def __init__(
        self, settings: ShareGroupSettings, topics: GroupTopicMetadata, is_id_in_use: Callable[[str], bool]
    ) -> None:
        super().__init__(settings.bounded_settings, topics, is_id_in_use)
        self.settings = settings
        self.initializing_since_ms: dict[tuple[str, bytes], int] = {}
        """Soft state: wall clock (ms) of the last request to initialize share state, by group id and topic id."""

    def remove_topics(self, ids: frozenset[bytes]) -> Iterator[GroupRecord | None]:
        """Yield the records that remove deleted topics (``ids``) from the state partition metadata of all groups.

        None is yielded before each group, so that the caller can count steps.
        """
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

    def get_or_create_group(self, group_id: str) -> ShareGroup:
        """Return the share group with an id, or a new one, which its first records will create.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the id belongs to a group of another type.
        """
        if group_id in self.groups or self.is_other_group(group_id):
            return self.require_group(group_id)
        return ShareGroup(group_id)

    def on_timer(self, key: tuple[str, ...]) -> GroupEffects:
        """Return effects that remove the member of an expired session timer; empty if it is gone already."""
        fx = GroupEffects()
        group = self.groups.get(key[1])
        if group is not None and key[2] in group.members:
            self.fence_member(group, key[2], fx)
        return fx

    def fence_member(self, group: ShareGroup, member_id: str, fx: GroupEffects) -> None:
        """Add to ``fx`` the removal of a member and a new group epoch, in a large group as its continuation.

        Raises:
            ProtocolError: UNKNOWN_MEMBER_ID.
        """
        member = group.require_member(member_id)

        def remove(rest: GroupEffects) -> Generator[None, None, None]:
            names = yield from group.subscribed_topics_after(member, None)
            rest.records += records.member_tombstones(group.id, member_id)
            rest.records.append(records.epoch_record(group.id, group.epoch + 1, self.topics.hash_of(names)))
            self.cancel_timers(group.id, member_id, rest)

        run_update_with_hashes(self.groups, group.id, self.topics, [group.subscribed_topic_names], fx, remove)

    # ------------------------------------------------------------------ initialization of share state

    @staticmethod
    def is_deleting_state(group: ShareGroup, now_ms: int) -> bool:
        """Return True while the persister deletes the state of a group that is being deleted, at most for 30 s."""
        return (
            group.state_deletion_started_ms is not None
            and now_ms - group.state_deletion_started_ms < INITIALIZE_RETRY_MS
        )

    def partitions_to_initialize(
        self, group: ShareGroup, names: Collection[str], now_ms: int
    ) -> dict[bytes, NamedTopicPartitions]:
        """Return the partitions of topics ``names`` without share state, by topic id.

        Those whose initialization was requested in the last 30 s are left out.
        Empty while the persister deletes the state of the group, since it might delete the new state as well.
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
        """Add to ``fx`` the state partition metadata record with the partitions ``new`` as initializing.

        Topics with initializing partitions are removed from those to be deleted.
        """
        self.initializing_since_ms.update(((group.id, topic), now_ms) for topic in new)
        initializing = merge_partitions(group.initializing, new)
        deleting = {topic: name for topic, name in group.deleting.items() if topic not in initializing}
        fx.records.append(records.state_partition_metadata_record(group.id, initializing, group.initialized, deleting))

    def on_initialized(self, pending: Any, group_id: str, partitions: TopicIdPartitions, *, done: bool) -> GroupEffects:
        """Return the effects of an initialization's result from the persister (``done``: success); the reply is True.

        ``pending``: request of the reply. The partitions are removed from the initializing ones and, on success, added
        to the initialized ones. Partitions that are no longer initializing are ignored: their state may have been
        deleted meanwhile.
        """
        fx = GroupEffects(replies=[RequestReply(pending, True)])
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
