"""The share groups of one partition of `__consumer_offsets`: what all their rules stand on.

Source: ``GroupMetadataManager.java`` (apache/kafka 4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.broker.groups.modern import in_turns, restored
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.settings import ShareSettings
from ottla.broker.groups.share import records as sr
from ottla.broker.groups.share.state import Named, ShareGroup, joined, without
from ottla.broker.groups.topics import COLD_ROWS, Topics
from ottla.controller.image import RESOURCE_GROUP, MetadataImage
from ottla.log.machine import CancelTimer, RequestReply, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

RETRY_MS = 30_000
"""So long a partition may be on its way to its state before that is asked for again."""
SESSION = "share-session"
Places = Mapping[bytes, frozenset[int]]


class ShareGroups:
    """Share groups, beside the others of the same partition."""

    def __init__(self, settings: ShareSettings, topics: Topics, taken: Callable[[str], bool]) -> None:
        self.settings = settings
        self.topics = topics
        self.taken = taken
        """Whether a group of another kind has an id."""
        self.groups: dict[str, ShareGroup] = {}
        self.begun_ms: dict[tuple[str, bytes], int] = {}
        """Soft: when a group's partitions of a topic were last asked to be initialised."""

    def replay(self, record: GroupRecord) -> None:
        """Take in a record."""
        sr.replay(self.groups, record)

    def follow(self, image: MetadataImage, touched: frozenset[str], *, has_new: bool) -> None:
        """The metadata went on: groups of topics that were touched look at the hash with the next heartbeat."""
        self.topics.follow(image, touched, has_new=has_new)
        for group in self.groups.values():
            if not group.names.keys().isdisjoint(touched):  # costs as much as the fewer of them
                group.fresh_epoch = None

    def forget_topics(self, ids: frozenset[bytes]) -> Iterator[GroupRecord | None]:
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
            yield sr.ready_record(group.id, initializing, initialized, deleting)

    def group(self, group_id: str, name: str = "Group") -> ShareGroup:
        """A share group; ``name``: what it is called where there is none.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if group is None:
            why = f"{name} {group_id} not found."
            if self.taken(group_id):
                why = f"Group {group_id} is not a share group."
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def group_to_join(self, group_id: str) -> ShareGroup:
        """A share group, or a new one, which its first records make.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the id is another kind of group's.
        """
        if group_id in self.groups or self.taken(group_id):
            return self.group(group_id)
        return ShareGroup(group_id)

    def interval_ms(self, group_id: str, name: str) -> int:
        """A setting of a group: its own, or the node's."""
        own = self.topics.image.config(RESOURCE_GROUP, group_id)
        return self.settings.intervals[name].of(own.get(name))

    # ------------------------------------------------------------------ timers

    def arm_session(self, group_id: str, member_id: str, now_ms: int, fx: Fx) -> None:
        """A member has been heard of."""
        wait = self.interval_ms(group_id, "share.session.timeout.ms")
        fx.timers.append(ScheduleTimer((SESSION, group_id, member_id), now_ms + wait))

    def restore(self, now_ms: int) -> Iterator[Fx]:
        """The shard has been read: every member has its whole session before it again."""
        return restored(self.groups.values(), lambda group_id, x, fx: self.arm_session(group_id, x.id, now_ms, fx))

    def timer(self, key: tuple[str, ...]) -> Fx:
        """A member's session is over."""
        fx = Fx()
        group = self.groups.get(key[1])
        if group is not None and key[2] in group.members:
            self.fence(group, key[2], fx)
        return fx

    def fence(self, group: ShareGroup, member_id: str, fx: Fx) -> None:
        """The group goes on without a member, in its next epoch."""
        names = group.names_with(group.member(member_id), None)
        cold = self.topics.cold(names)
        fx.continue_with(self._without(group, member_id, names, cold), COLD_ROWS if cold else 1)

    def _without(self, group: ShareGroup, member_id: str, names: Mapping[str, int], cold: list[str]) -> Iterator[Fx]:
        yield from in_turns(self.topics.warm(cold))
        fx = Fx(records=sr.member_tombstones(group.id, member_id))
        fx.records.append(sr.epoch_record(group.id, group.epoch + 1, self.topics.hash_of(names)))
        fx.timers.append(CancelTimer((SESSION, group.id, member_id)))
        yield fx

    # ------------------------------------------------------------------ partitions that get their state

    @staticmethod
    def is_forgetting(group: ShareGroup, now_ms: int) -> bool:
        """Whether the persister is forgetting a group that is to be deleted."""
        return group.forgetting_ms is not None and now_ms - group.forgetting_ms < RETRY_MS

    def to_initialize(self, group: ShareGroup, names: Mapping[str, int], now_ms: int) -> dict[bytes, Named]:
        """Partitions of these topics that have no state yet, and are not on their way to one; none while the persister
        forgets what there is: it might forget the new one.
        """
        if self.is_forgetting(group, now_ms):
            return {}
        underway = {
            topic: named
            for topic, named in group.initializing.items()
            if now_ms - self.begun_ms.get((group.id, topic), -RETRY_MS) < RETRY_MS
        }
        known = joined(group.initialized, underway)
        out = {}
        for name in names:
            topic = self.topics.image.topics.get(name)
            if topic is None:
                continue
            there = known[topic.id].partitions if topic.id in known else frozenset[int]()
            if len(there) < len(topic.partitions):
                out[topic.id] = Named(name, frozenset(range(len(topic.partitions))) - there)
        return out

    def begin(self, group: ShareGroup, new: Mapping[bytes, Named], now_ms: int, fx: Fx) -> None:
        """Note that partitions are on their way to a state; of a topic that is, nothing is to be forgotten any more."""
        self.begun_ms.update(((group.id, topic), now_ms) for topic in new)
        initializing = joined(group.initializing, new)
        deleting = {topic: name for topic, name in group.deleting.items() if topic not in initializing}
        fx.records.append(sr.ready_record(group.id, initializing, group.initialized, deleting))

    def initialized(self, ticket: Any, group_id: str, partitions: Places, *, done: bool) -> Fx:
        """The persister has begun these partitions, or could not; the answer is True. What is not on its way any more
        has been given up meanwhile, and may be forgotten by now.
        """
        fx = Fx(replies=[RequestReply(ticket, True)])
        for topic in partitions:
            self.begun_ms.pop((group_id, topic), None)
        group = self.groups.get(group_id)
        if group is None or not partitions or not (done or group.initializing):
            return fx
        ready: Mapping[bytes, Named] = group.initialized
        if done:
            image = self.topics.image
            names = {topic: image.topic_names.get(topic, "<UNKNOWN>") for topic in partitions}
            begun = {
                topic: Named(names[topic], numbers & group.initializing[topic].partitions)
                for topic, numbers in partitions.items()
                if topic in group.initializing
            }
            ready = joined(ready, begun)
        left = without(group.initializing, partitions)
        fx.records.append(sr.ready_record(group.id, left, ready, group.deleting))
        return fx
