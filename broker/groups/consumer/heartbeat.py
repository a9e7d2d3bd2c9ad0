"""ConsumerGroupHeartbeat: a member says what it wants and has, and hears what it is to have.

Records stand in Kafka's order: tombstones of what is replaced, the member (5), a tombstone of a regular expression
nobody uses (16), the group's epoch (3), a tombstone of old metadata (4), targets (7), their epoch (6), what the member
has (8).

Source: ``GroupMetadataManager.consumerGroupHeartbeat`` and what it calls (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ottla.broker.groups import java_order
from ottla.broker.groups.consumer import records as cr
from ottla.broker.groups.consumer import static
from ottla.broker.groups.consumer.change import Ask, Regex, Step, change
from ottla.broker.groups.consumer.epochs import check_epoch
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.leaving import leave
from ottla.broker.groups.consumer.state import (
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerGroup,
    Held,
    Member,
    MemberState,
)
from ottla.broker.groups.modern import in_turns
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import Call, Group, GroupState
from ottla.log.machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat as hb
from ottla.wire.messages import offset_records as o


def heartbeat(groups: ConsumerGroups, call: Call, now_ms: int) -> Fx:
    """One heartbeat: a member joins, goes on or leaves."""
    request: hb.ConsumerGroupHeartbeatRequest = call.request
    response = hb.ConsumerGroupHeartbeatResponse()
    fx = Fx(replies=[RequestReply(call.ticket, response)])
    try:
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            response.member_id, response.member_epoch = leave(groups, request, now_ms, fx), request.member_epoch
        elif not at_rest(groups, call, response, now_ms, fx):
            _Beat(groups, call, response, now_ms, fx).go()
    except ProtocolError as error:
        return Fx(replies=[RequestReply(call.ticket, refusal(error))])
    return fx


def at_rest(
    groups: ConsumerGroups, call: Call, response: hb.ConsumerGroupHeartbeatResponse, now_ms: int, fx: Fx
) -> bool:
    """Answer a heartbeat that says nothing new, of a member for whom there is nothing new: nearly every one is so.
    False where more is to be looked at; nothing has been done then.
    """
    request: hb.ConsumerGroupHeartbeatRequest = call.request
    group = groups.groups.get(request.group_id)
    member = group.members.get(request.member_id) if group is not None else None
    if (
        group is None
        or member is None
        or member.epoch != request.member_epoch
        or member.epoch != group.target_epoch
        or member.epoch < group.epoch
        or member.state is not MemberState.STABLE
        or member.classic is not None
        or group.regexes
        or group.is_stale
        or request.subscribed_topic_names is not None
        or request.subscribed_topic_regex is not None
        or (request.instance_id is not None and group.static_ids.get(request.instance_id) != member.id)
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
    response: hb.ConsumerGroupHeartbeatResponse,
    member: Member,
    now_ms: int,
    fx: Fx,
) -> None:
    groups.arm_session(group_id, member, now_ms, fx)
    response.member_id = member.id
    response.member_epoch = member.epoch
    response.heartbeat_interval_ms = groups.interval_ms(group_id, "consumer.heartbeat.interval.ms")


def refusal(error: ProtocolError) -> hb.ConsumerGroupHeartbeatResponse:
    """What a member hears that may not go on."""
    return hb.ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def assignment(held: Held) -> hb.Assignment:
    """What a member is told to have."""
    row = hb.ConsumerGroupHeartbeatResponseTopicPartitions
    return hb.Assignment([row(topic, list(java_order.numbers(held[topic]))) for topic in java_order.ids(held)])


def _either(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


class _Beat:
    """One heartbeat on its way."""

    def __init__(
        self, groups: ConsumerGroups, call: Call, response: hb.ConsumerGroupHeartbeatResponse, now_ms: int, fx: Fx
    ) -> None:
        self._groups = groups
        self._call = call
        self._request: hb.ConsumerGroupHeartbeatRequest = call.request
        self._response = response
        self._now_ms = now_ms
        self._fx = fx

    def go(self) -> None:
        """Take in what the member says, then see what the group makes of it.

        Raises:
            ProtocolError: the member's answer.
        """
        request = self._request
        known = self._groups.groups.get(request.group_id)
        if known is not None or request.member_epoch != 0:
            self._go_on(known if known is not None else self._groups.group(request.group_id, "Consumer group"))
            return
        classic = self._groups.classic.groups.get(request.group_id)
        if classic is not None and classic.state is not GroupState.EMPTY:
            from ottla.broker.groups.consumer import upgrade

            self._fx.continue_with(self._upgrade(classic), upgrade.rows(classic))
            return
        if classic is not None or request.group_id in self._groups.classic.stored:  # one that is only just being made
            self._fx.records.append(GroupRecord(o.GroupMetadataKey(request.group_id), None))
        self._go_on(ConsumerGroup(request.group_id))

    def _upgrade(self, classic: Group) -> Iterator[Fx]:
        """A classic group becomes this kind: it is converted, and all is decided on, before anything is written."""
        from ottla.broker.groups.consumer import upgrade

        group = yield from in_turns(upgrade.converted(self._groups, classic))
        self._fx = fx = Fx()
        self._go_on(group)
        rest = fx.continuation or iter(())
        fx.continuation, first = None, Fx()
        for first in rest:
            if first.records:
                break
            yield first  # the target is still being computed
        yield from upgrade.conversion(self._groups, classic, group, self._now_ms)
        yield fx
        if first.records:
            yield first
        yield from rest

    def _go_on(self, group: ConsumerGroup) -> None:
        groups, request, fx = self._groups, self._request, self._fx
        if len(group.members) >= groups.settings.max_size and request.member_id not in group.members:
            why = f"The consumer group has reached its maximum capacity of {groups.settings.max_size} members."
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        member = self._member(group, request.member_id or self._call.fresh_id)
        updated = self._merged(member)
        if updated != member:
            fx.records.append(cr.member_record(group.id, updated))
        renamed = updated.names != member.names
        regex = Regex.SAME
        if updated.regex or member.regex or group.regexes:
            from ottla.broker.groups.consumer.regex import update

            regex = update(groups, group, member, updated, self._call, self._now_ms, fx)
        step = Step(member, renamed or regex is not Regex.SAME, request.topic_partitions)
        change(groups, group, step, updated, Ask(renamed or regex is Regex.RESOLVED, self._now_ms, self._finish), fx)

    def _member(self, group: ConsumerGroup, member_id: str) -> Member:
        request = self._request
        if request.instance_id is not None:
            return static.member_of(group, member_id, request, self._fx)
        known = group.members.get(member_id)
        if known is None:
            return Member(member_id) if request.member_epoch == 0 else group.member(member_id)
        check_epoch(known, request.member_epoch, request.topic_partitions)
        return known

    def _merged(self, member: Member) -> Member:
        """The member with what the request says; what it leaves out stays."""
        request = self._request
        said = request.subscribed_topic_names
        names = member.names if said is None else java_order.set_of(said)
        return replace(
            member,
            instance_id=_either(request.instance_id, member.instance_id),
            rack_id=_either(request.rack_id, member.rack_id),
            rebalance_timeout_ms=(
                member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
            ),
            assignor=_either(request.server_assignor, member.assignor),
            names=member.names if names == member.names else names,  # which are counted once, and known again
            regex=_either(request.subscribed_topic_regex, member.regex),
            client_id=self._call.client_id,
            client_host=f"/{self._call.client_host}",
            classic=None,
        )

    def _finish(self, group: ConsumerGroup, step: Step, moved: Member, fx: Fx) -> None:
        """The member has gone as far as it can: answer it."""
        request, response = self._request, self._response
        _answer(self._groups, group.id, response, moved, self._now_ms, fx)
        says_all = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if request.member_epoch == 0 or says_all or moved.assigned != step.member.assigned:
            response.assignment = assignment(moved.assigned)
