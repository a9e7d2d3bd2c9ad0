"""ShareGroupHeartbeat: a member joins, remains or leaves, and the group is updated.

A member is assigned its target at once, without revocations. A partition is assigned only once its share state is
initialized (`ottla.broker.share_partitions`): the first heartbeat with a topic starts the initialization.

Source: ``GroupMetadataManager.shareGroupHeartbeat``, ``ShareGroupAssignmentBuilder.java`` (apache/kafka 4.3.1),
KIP-932.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ottla.broker.groups.assignors.group_spec import EMPTY_ASSIGNMENT, Assignment
from ottla.broker.groups.assignors.simple_assignor import ShareGroupSpec, ShareMemberSubscription, assign_simple
from ottla.broker.groups.classic.classic_group import GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.member_epochs import check_member_epoch
from ottla.broker.groups.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    MAX_NAMES_AT_ONCE,
    run_update,
    run_update_with_hashes,
)
from ottla.broker.groups.share import records
from ottla.broker.groups.share.groups import ShareGroups, TopicIdPartitions
from ottla.broker.groups.share.share_group import ShareGroup, ShareGroupMember
from ottla.broker.groups.subscription_counts import SubscriptionCounts, is_homogeneous_subscription
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import share_group_heartbeat

PARTITIONS_PER_WORK_UNIT = 5
"""Number of partitions that cost the assignor as much work as one member."""


@dataclass(slots=True)
class ShareHeartbeatResult:
    """Result of a ShareGroupHeartbeat: the response, and the partitions whose share state the caller must initialize.

    ``epoch``: group epoch, which is the state epoch of the initialization.
    """

    response: share_group_heartbeat.ShareGroupHeartbeatResponse
    epoch: int = 0
    partitions_to_initialize: TopicIdPartitions = field(default_factory=dict)


def heartbeat(groups: ShareGroups, pending: Any, now_ms: int, *, call: GroupRequest) -> GroupEffects:
    """Return the effects of a ShareGroupHeartbeat; the reply to ``pending`` is a `ShareHeartbeatResult`.

    Groups and members change when the records are replayed. For a large group the result is filled in by the
    continuation of the effects, after which the reply is sent. ``now_ms``: wall clock.

    Raises:
        ProtocolError: error of the response.
    """
    beaten = ShareHeartbeatResult(share_group_heartbeat.ShareGroupHeartbeatResponse())
    fx = GroupEffects(replies=[RequestReply(pending, beaten)])
    _ShareHeartbeat(groups, call, beaten, now_ms, fx).run()
    return fx


class _ShareHeartbeat:
    """Processing of a ShareGroupHeartbeat request."""

    def __init__(
        self, groups: ShareGroups, call: GroupRequest, beaten: ShareHeartbeatResult, now_ms: int, fx: GroupEffects
    ) -> None:
        self._groups = groups
        self._call = call
        self._result = beaten
        self._request: share_group_heartbeat.ShareGroupHeartbeatRequest = call.request
        self._now_ms = now_ms
        self._fx = fx

    def run(self) -> None:
        """Update the member by its request, then the group, or remove the member if it leaves.

        Records, timers and the result are added to the effects, or by their continuation in a large group.

        Raises:
            ProtocolError: error of the response.
        """
        groups, request = self._groups, self._request
        if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
            self._leave()
            return
        joins = request.member_epoch == 0
        group_id = request.group_id
        group = groups.get_or_create_group(group_id) if joins else groups.require_group(group_id, "Share group")
        known = group.members.get(request.member_id)
        if len(group.members) >= groups.settings.max_size and known is None:
            why = f"The share group has reached its maximum capacity of {groups.settings.max_size} members."
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        member = known or (ShareGroupMember(request.member_id) if joins else group.require_member(request.member_id))
        if not joins:
            check_member_epoch("share", member, request.member_epoch, names_previous=True)
        is_long = len(request.subscribed_topic_names or ()) > MAX_NAMES_AT_ONCE
        run_update(self._fx, partial(self._update_member, group, member), is_long=is_long)

    def _update_member(
        self, group: ShareGroup, member: ShareGroupMember, fx: GroupEffects
    ) -> Generator[None, None, None]:
        names = member.subscribed_topic_names
        if self._request.subscribed_topic_names is not None:
            topic_names = iteration_order.as_set(self._request.subscribed_topic_names)
            names = yield from group.shared_subscription(member, topic_names)
        updated = self._updated_member(member, names)
        if member.id not in group.members or updated != member:
            fx.records.append(records.member_record(group.id, updated))
        bump = names is not member.subscribed_topic_names
        if group.target_epoch >= group.epoch:
            bump = bump or group.has_unassigned_partitions
        looks: list[Collection[str]] = []
        if bump or group.is_metadata_stale:
            looks = [group.subscribed_topic_names, names]

        def update(rest: GroupEffects) -> Generator[None, None, None]:
            self._fx = rest
            wanted = (yield from group.subscribed_topics_after(member, updated)) if looks else None
            self._update_group(group, member, updated, wanted, bump=bump)

        run_update_with_hashes(self._groups.groups, group.id, self._groups.topics, looks, fx, update)

    def _update_group(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        updated: ShareGroupMember,
        new: SubscriptionCounts | None,
        *,
        bump: bool,
    ) -> None:
        """Bump the group epoch if ``bump`` or the topics changed; then compute a due target assignment, and respond.

        ``new``: topic counts of the group with the member's change; None if neither subscriptions nor topics changed.
        """
        groups, fx = self._groups, self._fx
        epoch, names = group.epoch, group.subscribed_topic_names if new is None else new
        if new is not None:
            epoch, bump = self._new_epoch(group, names, bump=bump)
        if group.target_epoch >= epoch or not group.is_assignment_due(
            groups.setting(group.id, "assignment.interval.ms"), self._now_ms
        ):
            goal = group.target_epoch, group.target.get(updated.id, EMPTY_ASSIGNMENT)
            self._finish(group, member, updated, goal, epoch, names, bump=bump, fx=fx)
            return
        rows = len(group.members) + groups.topics.total_partitions(names) // PARTITIONS_PER_WORK_UNIT
        fx.continue_with(self._assign(group, member, updated, epoch, names, bump=bump), rows)

    def _leave(self) -> None:
        request = self._request
        group = self._groups.require_group(request.group_id)
        group.require_member(request.member_id)
        self._groups.fence_member(group, request.member_id, self._fx)
        self._result.response = share_group_heartbeat.ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH
        )
        self._result.epoch = group.epoch

    def _updated_member(self, member: ShareGroupMember, names: Set[str]) -> ShareGroupMember:
        """Return a copy of the member with the fields of the request and the subscription ``names``.

        Omitted fields are unchanged.
        """
        request = self._request
        return replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            subscribed_topic_names=names,
            client_id=self._call.client_id,
            client_host=f"/{self._call.client_host}",
        )

    def _new_epoch(self, group: ShareGroup, names: SubscriptionCounts, *, bump: bool) -> tuple[int, bool]:
        """Return the group epoch, and if it was bumped: because of ``bump``, or because the metadata hash changed.

        The record of a new epoch is added to the effects.
        """
        metadata_hash = self._groups.topics.hash_of(names)
        bump = bump or metadata_hash != group.metadata_hash
        epoch = group.epoch + bump
        if bump:
            self._fx.records.append(records.epoch_record(group.id, epoch, metadata_hash))
        group.hash_checked_epoch = epoch
        return epoch, bump

    def _assign(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        updated: ShareGroupMember,
        epoch: int,
        names: SubscriptionCounts,
        *,
        bump: bool,
    ) -> Iterator[GroupEffects | None]:
        """Compute the target assignment in steps; yield the changed targets, then the member's update."""
        old = dict(group.target)
        new = yield from assign_simple(_group_spec(self._groups, group, updated, names))
        fx = GroupEffects()
        for name in _members_in_order(group, updated):
            target = new.get(name, EMPTY_ASSIGNMENT)
            if name not in old or _has_target_changed(old[name], target):
                fx.records.append(records.target_assignment_record(group.id, name, target))
        fx.records.append(records.target_assignment_epoch_record(group.id, epoch, self._now_ms))
        goal = epoch, new.get(updated.id, EMPTY_ASSIGNMENT)
        self._finish(group, member, updated, goal, epoch, names, bump=bump, fx=fx)
        yield fx

    def _finish(
        self,
        group: ShareGroup,
        member: ShareGroupMember,
        updated: ShareGroupMember,
        goal: tuple[int, Assignment],
        epoch: int,
        names: SubscriptionCounts,
        *,
        bump: bool,
        fx: GroupEffects,
    ) -> None:
        """Assign the member its target, fill in the response, and request share state for partitions without it.

        The session timeout is restarted. ``goal``: target epoch and assignment; ``bump``: the group epoch is new, so
        that the member gets its target even in an unchanged epoch.
        """
        groups, request = self._groups, self._request
        moved = updated
        if bump or updated.epoch != goal[0]:
            moved = _with_target(groups, updated, *goal)
        if moved != updated:
            fx.records.append(records.current_assignment_record(group.id, moved))
        groups.arm_session(group.id, moved, self._now_ms, fx)
        beaten = self._result
        beaten.response = response = share_group_heartbeat.ShareGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=groups.setting(group.id, "heartbeat.interval.ms"),
        )
        if (
            request.member_epoch == 0
            or request.subscribed_topic_names is not None
            or _has_target_changed(member.assigned, moved.assigned)
        ):
            response.assignment = _to_response_assignment(moved.assigned)
        new = groups.partitions_to_initialize(group, names, self._now_ms)
        if new:
            groups.mark_initializing(group, new, self._now_ms, fx)
        beaten.epoch, beaten.partitions_to_initialize = epoch, {topic: named.partitions for topic, named in new.items()}


def _with_target(groups: ShareGroups, member: ShareGroupMember, epoch: int, target: Assignment) -> ShareGroupMember:
    """Return the member with the partitions of ``target`` in its subscribed topics, and the member epoch ``epoch``."""
    wanted = set(groups.topics.ids(member.subscribed_topic_names))
    assigned = {topic: numbers for topic, numbers in target.items() if topic in wanted}
    if epoch == member.epoch:
        return replace(member, assigned=assigned)
    return replace(member, assigned=assigned, epoch=epoch, previous_epoch=member.epoch)


def _members_in_order(group: ShareGroup, updated: ShareGroupMember) -> list[str]:
    """Return the member ids of the group and the updated member in Kafka's iteration order."""
    known = iteration_order.timeline_hash_map_order(group.members)
    if updated.id not in group.members:
        known.append(updated.id)
    return iteration_order.hash_map_order(known, most=len(known))


def _group_spec(
    groups: ShareGroups, group: ShareGroup, updated: ShareGroupMember, names: SubscriptionCounts
) -> ShareGroupSpec:
    members, count = {}, 0
    for name in _members_in_order(group, updated):
        member = updated if name == updated.id else group.members[name]
        topics = tuple(groups.topics.ids_in_hash_set_order(member.subscribed_topic_names))
        members[name] = ShareMemberSubscription(
            topics, len(member.subscribed_topic_names), group.target.get(name, EMPTY_ASSIGNMENT)
        )
        count += 1
    ready = {topic: tuple(sorted(named.partitions)) for topic, named in group.initialized.items()}
    every = {topic for sharer in members.values() for topic in sharer.topics}
    homogeneous = is_homogeneous_subscription({}, names.values(), count)
    return ShareGroupSpec(members, homogeneous, {topic: ready.get(topic, ()) for topic in every})


def _has_target_changed(old: Assignment, new: Assignment) -> bool:
    return old.keys() != new.keys() or any(set(old[topic]) != set(numbers) for topic, numbers in new.items())


def _to_response_assignment(held: Assignment) -> share_group_heartbeat.Assignment:
    rows = [
        share_group_heartbeat.TopicPartitions(topic, list(iteration_order.integer_hash_set_order(held[topic])))
        for topic in iteration_order.uuid_hash_map_order(held)
    ]
    return share_group_heartbeat.Assignment(rows)
