"""The consumer, share or streams groups of a partition of `__consumer_offsets`: lookup, settings and timers.

Source: ``GroupMetadataManager.java``, ``GroupConfigManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.modern_group import MAX_RESTORED_PER_SLICE, AssignedGroup
from ottla.broker.groups.settings import BoundedSetting
from ottla.broker.groups.topic_metadata import GroupTopicMetadata
from ottla.controller.metadata.image import RESOURCE_GROUP, MetadataImage
from ottla.jobs.state_machine import CancelTimer, ScheduleTimer
from ottla.wire.errors import ErrorCode, ProtocolError

G = TypeVar("G", bound=AssignedGroup[Any, Any])


class AssignedGroups(Generic[G]):
    """The groups of one type (consumer, share or streams) in one partition of `__consumer_offsets`."""

    type_name: ClassVar[str]

    def __init__(
        self,
        bounded_settings: Mapping[str, BoundedSetting],
        topics: GroupTopicMetadata,
        is_other_group: Callable[[str], bool],
    ) -> None:
        """Initialize without groups.

        Args:
            bounded_settings: dynamic group settings by name, such as ``consumer.session.timeout.ms``.
            topics: topic metadata of the shard.
            is_other_group: returns True if the id belongs to a group of another type.
        """
        self.topics = topics
        self.groups: dict[str, G] = {}
        self.is_other_group = is_other_group
        self._bounded_settings = bounded_settings

    def on_metadata_changed(self, image: MetadataImage, touched: frozenset[str], *, has_new: bool) -> None:
        """Replace the metadata image; groups that use a topic in ``touched`` recompute their hash at a heartbeat.

        ``touched``: names of created, changed and deleted topics; ``has_new``: topics were created.
        """
        self.topics.on_metadata_changed(image, touched, has_new=has_new)
        for group in self.groups.values():
            if group.uses_any(touched):
                group.hash_checked_epoch = None

    def require_group(self, group_id: str, name: str = "Group") -> G:
        """Return the group with an id. ``name``: the term for the group in the error message.

        Raises:
            ProtocolError: GROUP_ID_NOT_FOUND: the group does not exist, or is of another type.
        """
        group = self.groups.get(group_id)
        if group is None:
            is_other = self.is_other_group(group_id)
            why = f"Group {group_id} is not a {self.type_name} group." if is_other else f"{name} {group_id} not found."
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def setting(self, group_id: str, name: str) -> int:
        """Return a setting of a group: the group's dynamic config within the broker's bounds, or the broker's default.

        ``name``: name of the setting without the group type, such as ``session.timeout.ms``, which ends with its unit.
        """
        key = f"{self.type_name}.{name}"
        return self._bounded_settings[key].effective_value(self.topics.image.config(RESOURCE_GROUP, group_id).get(key))

    def arm_session(self, group_id: str, member: Any, now_ms: int, fx: GroupEffects) -> None:
        """Add a timer to ``fx`` that restarts the session timeout of a member."""
        deadline_ms = now_ms + self.setting(group_id, "session.timeout.ms")
        fx.timers.append(ScheduleTimer((f"{self.type_name}-session", group_id, member.id), deadline_ms))

    def watch_revocation(self, group_id: str, member: Any, now_ms: int, fx: GroupEffects) -> None:
        """Add the rebalance timeout of ``member`` to ``fx``.

        It is started if the member has partitions to revoke, else cancelled.
        """
        key = (f"{self.type_name}-rebalance", group_id, member.id)
        due_ms = now_ms + member.rebalance_timeout_ms
        fx.timers.append(ScheduleTimer(key, due_ms) if member.is_revoking else CancelTimer(key))

    def cancel_timers(self, group_id: str, member_id: str, fx: GroupEffects) -> None:
        """Add to ``fx`` the cancellation of the session and rebalance timeouts of a removed member."""
        for name in ("session", "rebalance"):
            fx.timers.append(CancelTimer((f"{self.type_name}-{name}", group_id, member_id)))

    def restore_timers(self, now_ms: int) -> Iterator[GroupEffects]:
        """Yield effects for a newly loaded shard: each member's session timeout starts in full.

        It is that of the group's setting, also for members with the classic protocol. The rebalance timeout starts too
        for members that have partitions to revoke, except those with the classic protocol.
        """
        fx = GroupEffects()
        for group in self.groups.values():
            for member in group.members.values():
                AssignedGroups.arm_session(self, group.id, member, now_ms, fx)
                if member.is_revoking:
                    self.watch_revocation(group.id, member, now_ms, fx)
                if len(fx.timers) > MAX_RESTORED_PER_SLICE:
                    yield fx
                    fx = GroupEffects()
        yield fx
