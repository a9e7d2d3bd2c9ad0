"""ConsumerGroupHeartbeat: updates a member's subscription and owned partitions, and returns its assignment.

Records are in Kafka's order: tombstones of a replaced member, the member (5), a tombstone of an unused regular
expression (16), the group's epoch (3), a tombstone of old metadata (4), targets (7), their epoch (6), the member's
current assignment (8).

Source: ``GroupMetadataManager.consumerGroupHeartbeat`` and what it calls (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Set
from dataclasses import replace
from functools import partial

from ottla.broker.groups.classic.classic_group import ClassicGroup, ClassicGroupState, GroupRequest
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import static_members, upgrade
from ottla.broker.groups.consumer.consumer_group import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerMemberState,
    PartitionEpochs,
    RegexUpdate,
)
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.member_change import MemberChange
from ottla.broker.groups.consumer.member_epochs import check_epoch
from ottla.broker.groups.consumer.member_removal import leave_group
from ottla.broker.groups.consumer.member_update import MemberUpdate, write_member
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.modern_group import LEAVE_GROUP_MEMBER_EPOCH, MAX_NAMES_AT_ONCE, run_update
from ottla.broker.groups.records import GroupRecord
from ottla.jobs.state_machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, offset_records


def heartbeat(groups: ConsumerGroups, call: GroupRequest, now_ms: int) -> GroupEffects:
    """Return the effects of a ConsumerGroupHeartbeat request, with which a member joins, remains or leaves.

    Errors are returned in the response, which is the reply of the effects; one that the continuation of the effects
    raises (`MemberUpdate.update_group`) is the reply as a `ProtocolError`.
    """
    request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest = call.request
    response = consumer_group_heartbeat.ConsumerGroupHeartbeatResponse()
    fx = GroupEffects(replies=[RequestReply(call.pending_request, response)])
    try:
        if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
            response.member_id, response.member_epoch = leave_group(groups, request, now_ms, fx), request.member_epoch
        elif not answer_unchanged_heartbeat(groups, call, response, now_ms, fx):
            _ConsumerHeartbeat(groups, call, response, now_ms, fx).run()
    except ProtocolError as error:
        return GroupEffects(replies=[RequestReply(call.pending_request, error_response(error))])
    return fx


def answer_unchanged_heartbeat(
    groups: ConsumerGroups,
    call: GroupRequest,
    response: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    now_ms: int,
    fx: GroupEffects,
) -> bool:
    """Fill in ``response`` for a heartbeat that changes nothing, the usual case, and restart the session; return True.

    Return False, and leave ``response`` and ``fx`` unchanged, if it might change something: for example if it has a
    subscription, or if the group has a regular expression.
    """
    request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest = call.request
    group = groups.groups.get(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if (
        group is None
        or member is None
        or member.epoch != request.member_epoch
        or member.epoch != group.target_epoch
        or member.epoch < group.epoch
        or member.state is not ConsumerMemberState.STABLE
        or member.classic_metadata is not None
        or group.subscribed_regex_counts
        or group.is_metadata_stale
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or (request.instance_id is not None and group.static_member_ids.get(request.instance_id) != member.id)
        or request.rack_id is not None
        or request.server_assignor is not None
        or request.rebalance_timeout_ms not in (-1, member.rebalance_timeout_ms)
        or call.client_id != member.client_id
        or call.client_host != member.client_host[1:]
    ):
        return False
    _answer(groups, group.id, response, member, now_ms, fx)
    return True


def _answer(
    groups: ConsumerGroups,
    group_id: str,
    response: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    member: ConsumerGroupMember,
    now_ms: int,
    fx: GroupEffects,
) -> None:
    groups.arm_session(group_id, member, now_ms, fx)
    response.member_id = member.id
    response.member_epoch = member.epoch
    response.heartbeat_interval_ms = groups.setting(group_id, "heartbeat.interval.ms")


def error_response(error: ProtocolError) -> consumer_group_heartbeat.ConsumerGroupHeartbeatResponse:
    """Return a ConsumerGroupHeartbeat response with the code and message of ``error``."""
    return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def to_response_assignment(partitions: PartitionEpochs) -> consumer_group_heartbeat.Assignment:
    """Return partitions by topic id as the assignment of a ConsumerGroupHeartbeat response."""
    row = consumer_group_heartbeat.ConsumerGroupHeartbeatResponseTopicPartitions
    return consumer_group_heartbeat.Assignment(
        [
            row(topic, list(iteration_order.integer_hash_set_order(partitions[topic])))
            for topic in iteration_order.uuid_hash_map_order(partitions)
        ]
    )


def _new_or_old(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


class _ConsumerHeartbeat:
    """Processing of a ConsumerGroupHeartbeat request that is not a leave or an unchanged heartbeat."""

    def __init__(
        self,
        groups: ConsumerGroups,
        call: GroupRequest,
        response: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
        now_ms: int,
        fx: GroupEffects,
    ) -> None:
        self._groups = groups
        self._call = call
        self._request: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest = call.request
        self._response = response
        self._now_ms = now_ms
        self._fx = fx

    def run(self) -> None:
        """Update the member by its request, then the group; create or convert the group for a joining member.

        Records, timers and the filled-in response are added to the effects, or are left to their continuation: for a
        classic group with members, many topic names, and a target assignment that takes long.

        Raises:
            ProtocolError: error of the response, such as GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
        """
        request = self._request
        known = self._groups.groups.get(request.group_id)
        if known is not None or request.member_epoch != 0:
            self._update_group(
                known if known is not None else self._groups.require_group(request.group_id, "Consumer group")
            )
            return
        classic = self._groups.classic_groups.groups.get(request.group_id)
        if classic is not None and classic.state is not ClassicGroupState.EMPTY:
            self._fx.continue_with(self._upgrade(classic), upgrade.work_units(classic))
            return
        # a classic group that is empty, or whose first record is not committed yet
        if classic is not None or request.group_id in self._groups.classic_groups.persisted_groups:
            self._fx.records.append(GroupRecord(offset_records.GroupMetadataKey(request.group_id), None))
        self._update_group(ConsumerGroup(request.group_id))

    def _upgrade(self, classic: ClassicGroup) -> Iterator[GroupEffects | None]:
        """Yield the effects that convert a classic group and update it by the request, as a job.

        The first record is yielded only after the target assignment is computed, so that an error leaves the group as
        it was.
        """
        group = yield from upgrade.convert_classic_group(self._groups, classic)
        self._fx = fx = GroupEffects()
        self._update_group(group)
        rest = fx.continuation or iter(())
        fx.continuation, first = None, None
        for first in rest:
            if first is not None and first.records:
                break
            yield first  # the target is still being computed
        yield from upgrade.write_conversion(self._groups, classic, group, self._now_ms)
        yield fx
        if first is not None and first.records:
            yield first
        yield from rest

    def _update_group(self, group: ConsumerGroup) -> None:
        request, max_size = self._request, self._groups.settings.max_size
        if len(group.members) >= max_size and request.member_id not in group.members:
            why = f"The consumer group has reached its maximum capacity of {max_size} members."
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        member = self._member(group, request.member_id or self._call.new_member_id)
        is_long = len(request.subscribed_topic_names or ()) > MAX_NAMES_AT_ONCE
        run_update(self._fx, partial(self._update_member, group, member), is_long=is_long)

    def _update_member(
        self, group: ConsumerGroup, member: ConsumerGroupMember, fx: GroupEffects
    ) -> Generator[None, None, None]:
        groups, request = self._groups, self._request
        names = member.subscribed_topic_names
        if request.subscribed_topic_names is not None:
            names = yield from group.shared_subscription(member, iteration_order.as_set(request.subscribed_topic_names))
        updated = self._updated_member(member, names)
        change = MemberChange(groups, group, member, updated, self._call, self._now_ms)
        is_renamed, regex = write_member(change, fx)
        MemberUpdate(
            groups,
            group,
            member,
            updated,
            is_renamed or regex is not RegexUpdate.SAME,
            is_renamed or regex is RegexUpdate.RESOLVED,
            request.topic_partitions,
            self._now_ms,
            partial(self._finish, group.id, member),
        ).update_group(fx)

    def _member(self, group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
        request = self._request
        if request.instance_id is not None:
            return static_members.get_or_replace_static_member(group, member_id, request, self._fx)
        known = group.members.get(member_id)
        if known is None:
            return ConsumerGroupMember(member_id) if request.member_epoch == 0 else group.require_member(member_id)
        check_epoch(known, request.member_epoch, request.topic_partitions)
        return known

    def _updated_member(self, member: ConsumerGroupMember, names: Set[str]) -> ConsumerGroupMember:
        """Return a copy of the member with the fields of the request; omitted fields are unchanged."""
        request = self._request
        return replace(
            member,
            instance_id=_new_or_old(request.instance_id, member.instance_id),
            rack_id=_new_or_old(request.rack_id, member.rack_id),
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            assignor=_new_or_old(request.server_assignor, member.assignor),
            subscribed_topic_names=names,
            subscribed_regex=_new_or_old(request.subscribed_topic_regex, member.subscribed_regex),
            client_id=self._call.client_id,
            client_host=f"/{self._call.client_host}",
            classic_metadata=None,
        )

    def _finish(self, group_id: str, member: ConsumerGroupMember, moved: ConsumerGroupMember, fx: GroupEffects) -> None:
        """Fill in the response after the member's reconciliation; ``moved``: the reconciled member."""
        request, response = self._request, self._response
        _answer(self._groups, group_id, response, moved, self._now_ms, fx)
        has_all_fields = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if request.member_epoch == 0 or has_all_fields or moved.assigned != member.assigned:
            response.assignment = to_response_assignment(moved.assigned)
