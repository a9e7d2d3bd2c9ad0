"""Members that leave, for good or for a while, and members that are given up.

Source: ``GroupMetadataManager.consumerGroupLeave``, ``consumerGroupFenceMembers`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ottla.broker.groups.consumer import records as cr
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.state import (
    LEAVING_FOR_A_WHILE,
    NONE_HELD,
    ConsumerGroup,
    Member,
    MemberState,
    count_names,
)
from ottla.broker.groups.consumer.static import known_as
from ottla.broker.groups.modern import in_turns
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.topics import COLD_ROWS
from ottla.log.machine import RECORDS_PER_STEP
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

RECORDS_A_MEMBER = 3


def leave(groups: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, now_ms: int, fx: Fx) -> str:
    """A member leaves; gives its id.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = groups.group(request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = known_as(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            away = replace(
                member,
                epoch=LEAVING_FOR_A_WHILE,
                assigned={topic: dict.fromkeys(held, 0) for topic, held in member.assigned.items()},
                revoking=NONE_HELD,
            )
            fx.records.append(cr.current_record(group.id, away))
            return member.id
    fence(groups, group, [member], now_ms, fx)
    return request.member_id


def fence(groups: ConsumerGroups, group: ConsumerGroup, members: Sequence[Member], now_ms: int, fx: Fx) -> None:
    """The group goes on without these, in its next epoch, or as a classic group."""
    cold = groups.topics.cold(group.names)
    if group.classic_members:
        from ottla.broker.groups.consumer.downgrade import Back, downgrade, is_due

        if is_due(groups, group, members):
            back = Back(group, {member.id for member in members}, None, rebalance=True, now_ms=now_ms)
            downgrade(groups, back, fx, instead=partial(_without, groups, group, members, cold))
            return
    fx.continue_with(_without(groups, group, members, cold), COLD_ROWS if cold else len(members) * RECORDS_A_MEMBER)


def _without(groups: ConsumerGroups, group: ConsumerGroup, members: Sequence[Member], cold: list[str]) -> Iterator[Fx]:
    """The group without these, in its next epoch: of very many that is written first, lest a node that dies in between
    leave a target behind which nobody would look at again.
    """
    yield from in_turns(groups.topics.warm(cold))
    records = [record for member in members for record in cr.member_tombstones(group.id, member.id)]
    names, timers = dict(group.names), Fx()
    for regex, number in Counter(member.regex for member in members if member.regex).items():
        if group.regexes.get(regex) == number:
            records.append(cr.regex_tombstone(group.id, regex))
            if regex in group.resolved:
                count_names(names, group.resolved[regex].topics, by_regex=-1)
    for member in members:
        count_names(names, member.names, by_name=-1)
        groups.cancel_timers(group.id, member.id, timers)
    epoch = cr.epoch_record(group.id, group.epoch + 1, groups.topics.hash_of(names))
    yield timers
    for part in cr.slices([epoch, *records] if len(records) > RECORDS_PER_STEP else [*records, epoch]):
        yield Fx(records=part)


def timer(groups: ConsumerGroups, key: tuple[str, ...], now_ms: int) -> Fx:
    """A member's time is over: for its session, or for what it should have done."""
    if key[0] == "consumer-regex":
        from ottla.broker.groups.consumer.regex import search_on

        return search_on(groups, key[1], now_ms)
    fx = Fx()
    group = groups.groups.get(key[1])
    member = group.members.get(key[2]) if group is not None else None
    if group is None or member is None:
        return fx
    if key[0] == "consumer-rebalance" and (
        member.state is not MemberState.UNREVOKED_PARTITIONS or member.epoch == LEAVING_FOR_A_WHILE
    ):
        return fx
    fence(groups, group, [member], now_ms, fx)
    return fx
