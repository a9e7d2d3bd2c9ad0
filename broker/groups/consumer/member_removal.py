"""Removal of consumer group members: leaving members, temporarily leaving static members, and expired members.

Source: ``GroupMetadataManager.consumerGroupLeave``, ``consumerGroupFenceMembers`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer.consumer_group import (
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    NO_PARTITIONS,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerMemberState,
)
from ottla.broker.groups.consumer.downgrade import GroupDowngrade, downgrade, is_downgrade_due
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
    slice_records,
)
from ottla.broker.groups.consumer.static_members import require_static_member
from ottla.broker.groups.modern_group import MAX_NAMES_AT_ONCE, finish_replay_job
from ottla.broker.groups.subscription_counts import (
    adjust_subscription_counts,
    adjust_subscription_counts_job,
)
from ottla.broker.groups.topic_metadata import HASHING_WORK
from ottla.jobs.state_machine import RECORDS_PER_STEP
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

RECORDS_PER_MEMBER = 3


def leave_group(groups: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, now_ms: int, fx: GroupEffects) -> str:
    """Add to ``fx`` the records of a ConsumerGroupHeartbeat with which a member leaves; return the member's id.

    A static member that leaves temporarily keeps its assignment and gets member epoch -2; any other member is removed.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    group = groups.require_group(request.group_id)
    if request.instance_id is None:
        member = group.require_member(request.member_id)
    else:
        member = require_static_member(group, request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            away = replace(
                member,
                epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
                assigned={topic: dict.fromkeys(held, 0) for topic, held in member.assigned.items()},
                revoking=NO_PARTITIONS,
            )
            fx.records.append(current_assignment_record(group.id, away))
            return member.id
    fence_members(groups, group, [member], now_ms, fx)
    return request.member_id


def fence_members(
    groups: ConsumerGroups, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], now_ms: int, fx: GroupEffects
) -> None:
    """Add to ``fx`` the removal of members and a new group epoch; for many members or topics as its continuation.

    If only classic members remain, the group is converted to a classic group without them instead
    (`is_downgrade_due`), unless their metadata is malformed or has no common protocol.
    """
    cold = groups.topics.unhashed(group.subscribed_topic_names)
    if group.classic_member_count and is_downgrade_due(groups, group, members):
        back = GroupDowngrade(group, {member.id for member in members}, None, triggers_rebalance=True, now_ms=now_ms)
        downgrade(groups, back, fx, fallback=partial(_remove_members, groups, group, members, cold))
        return
    is_large = cold or len(group.subscribed_topic_names) > MAX_NAMES_AT_ONCE
    fx.continue_with(
        _remove_members(groups, group, members, cold), HASHING_WORK if is_large else len(members) * RECORDS_PER_MEMBER
    )


def _remove_members(
    groups: ConsumerGroups, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], cold: list[str]
) -> Iterator[GroupEffects | None]:
    """Yield the records and timers that remove members and bump the group epoch.

    ``cold``: topics whose hash is computed first. For very many members the epoch record is written first, so that the
    target assignment is recomputed after a crash.
    """
    yield from groups.topics.topic_hashes_job(cold)
    records = [record for member in members for record in member_tombstones(group.id, member.id)]
    names, timers = dict(group.subscribed_topic_names), GroupEffects()
    for regex, number in Counter(member.subscribed_regex for member in members if member.subscribed_regex).items():
        if group.subscribed_regex_counts.get(regex) == number:
            records.append(regex_tombstone(group.id, regex))
            if regex in group.resolved_regexes:
                adjust_subscription_counts(names, group.resolved_regexes[regex].topics, by_regex=-1)
    for member in members:
        yield from adjust_subscription_counts_job(names, member.subscribed_topic_names, by_name=-1)
        groups.cancel_timers(group.id, member.id, timers)
    epoch = epoch_record(group.id, group.epoch + 1, groups.topics.hash_of(names))
    yield timers
    for part in slice_records([epoch, *records] if len(records) > RECORDS_PER_STEP else [*records, epoch]):
        yield GroupEffects(records=part)
    yield from finish_replay_job(groups.groups, group.id)


def on_timer(groups: ConsumerGroups, key: tuple[str, ...], now_ms: int) -> GroupEffects:
    """Return the effects of an expired timer: a step of a group's regex resolution, or the removal of a member.

    A member is removed when its session or, if it has still partitions to revoke, its rebalance timeout expires; one
    with the classic protocol also when it has not sent JoinGroup or SyncGroup in time. Empty if the member is gone.
    """
    if key[0] == "consumer-regex":
        # lazy: 3.1 ms, 152 kB
        from ottla.broker.groups.consumer.regex_subscriptions import continue_search

        return continue_search(groups, key[1], now_ms)
    fx = GroupEffects()
    group = groups.groups.get(key[1])
    member = group.members.get(key[2]) if group is not None else None
    if group is None or member is None:
        return fx
    if key[0] == "consumer-rebalance" and (
        member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS or member.epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH
    ):
        return fx
    fence_members(groups, group, [member], now_ms, fx)
    return fx
