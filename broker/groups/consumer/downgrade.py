"""Conversion of a consumer group to a classic group when no member with the consumer protocol is left.

The last one was removed or, if it is static, has rejoined with the classic protocol.

The classic group is restored from its record in state Stable, as after a restart; then a rebalance may start.

Source: ``GroupMetadataManager.convertToClassicGroup``, ``ClassicGroup.fromConsumerGroup`` (apache/kafka 4.3.1),
KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from itertools import chain
from typing import NamedTuple

from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import consumer_protocol
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.records import group_tombstones, slice_records
from ottla.broker.groups.java_collections import iteration_order
from ottla.wire.errors import ErrorCode, ProtocolError, WireError


def is_downgrade_due(
    groups: ConsumerGroups, group: ConsumerGroup, gone: Collection[ConsumerGroupMember], *, replaced: bool = False
) -> bool:
    """Return True if the group is to be converted because only classic members remain without the members ``gone``.

    False also if no member remains, if `group.consumer.migration.policy` forbids it, or if there are more members than
    `group.max.size`. ``replaced``: the one member in ``gone`` is replaced by a member with the classic protocol.
    """
    left = len(group.members) - len(gone)
    classic = group.classic_member_count - sum(member.classic_metadata is not None for member in gone)
    if classic != left or (replaced and any(member.classic_metadata is not None for member in gone)):
        return False
    size = left + len(gone) if replaced else left
    return size > 0 and groups.settings.allows_downgrade and size <= groups.classic_groups.settings.max_size


WORK_PER_MEMBER = 4
"""Approximate work for a member, in records of a time slice."""
MEMBERS_PER_STEP = 50
MAX_CANCELLED_PER_SLICE = 200


class GroupDowngrade(NamedTuple):
    """Conversion of a consumer group to a classic group, without the removed members.

    ``joining_member`` replaces the static member with its instance id; None if no member joins.
    """

    group: ConsumerGroup
    removed_ids: Collection[str]
    joining_member: ConsumerGroupMember | None
    triggers_rebalance: bool
    """True if the classic group starts a rebalance."""
    now_ms: int


def downgrade(
    groups: ConsumerGroups,
    conversion: GroupDowngrade,
    fx: GroupEffects,
    fallback: Callable[[], Iterator[GroupEffects | None]] | None = None,
) -> None:
    """Add to ``fx`` the records that convert a group to a classic group; those of a large one as a continuation.

    A continuation also restores the classic group, once its record is replayed, and may start a rebalance. If a
    member's metadata is malformed, the effects of ``fallback`` are used and the group is not converted.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND: the group cannot be converted and ``fallback`` is None; raised by the
            continuation if the group is large.
    """
    made: list[ClassicGroup] = []
    fx.continue_with(_write(groups, conversion, made, fallback), len(conversion.group.members) * WORK_PER_MEMBER)
    if made or fx.continuation is not None:
        fx.continuation = chain(fx.continuation or (), _restore_classic_group(groups, made, conversion))


def _write(
    groups: ConsumerGroups,
    back: GroupDowngrade,
    made: list[ClassicGroup],
    instead: Callable[[], Iterator[GroupEffects | None]] | None,
) -> Iterator[GroupEffects | None]:
    group = back.group
    before = group.static_member(back.joining_member.instance_id) if back.joining_member is not None else None
    try:
        classic = yield from _to_classic_group(groups, back, before)
    except WireError as error:
        if instead is not None:
            yield from instead()
            return
        why = f"Cannot downgrade the classic group {group.id}: {error}."
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why) from None
    made.append(classic)
    renamed = None if back.joining_member is None or before is None else (before.id, back.joining_member.id)
    for part in slice_records(group_tombstones(group, renamed)):
        yield GroupEffects(records=part)
    fx = GroupEffects()
    rebalance.append_group_record(classic, fx)
    yield fx
    fx = GroupEffects()
    for number, name in enumerate({*group.members, *classic.members}):
        groups.cancel_timers(group.id, name, fx)
        if number % MAX_CANCELLED_PER_SLICE == 0:
            yield fx
            fx = GroupEffects()
    yield fx


def _to_classic_group(
    groups: ConsumerGroups, back: GroupDowngrade, before: ConsumerGroupMember | None
) -> Generator[GroupEffects | None, None, ClassicGroup]:
    """Return a new classic group with the members and their target assignments, as a job; it is not stored.

    ``before``: static member that ``back.joining_member`` replaces; None if there is none.

    Raises:
        WireError: the metadata of a member is malformed, or the members have no common protocol.
    """
    group, joining, image = back.group, back.joining_member, groups.topics.image
    classic = ClassicGroup(
        group.id, ClassicGroupState.STABLE, group.epoch, CONSUMER_PROTOCOL_TYPE, state_since_ms=back.now_ms
    )
    targets = dict(group.target)
    stay = [
        group.members[name]
        for name in iteration_order.timeline_hash_map_order(group.members)
        if name not in back.removed_ids
    ]
    if joining is not None and before is not None:
        stay = [*(member for member in stay if member.id != before.id), joining]
        targets[joining.id] = group.target.get(before.id, {})
    for number, member in enumerate(stay):
        classic.add(_to_classic_member(member))
        if number % MEMBERS_PER_STEP == 0:
            yield None
    if not classic.has_common_protocol:
        raise WireError("its members have no protocol in common")
    classic.protocol = classic.select_protocol()
    yield None
    for number, one in enumerate(classic.members.values()):
        version = consumer_protocol.decode_version(one.metadata_for(classic.protocol))
        one.assignment = consumer_protocol.encode_assignment(targets.get(one.id, {}), image, version)
        if number % MEMBERS_PER_STEP == 0:
            yield None
    return classic


def _to_classic_member(member: ConsumerGroupMember) -> ClassicGroupMember:
    assert member.classic_metadata is not None
    protocols: dict[str, bytes] = {}
    for protocol in member.classic_metadata.supported_protocols:  # of duplicate names the first, as in JoinGroup
        protocols.setdefault(protocol.name, protocol.metadata)
    return ClassicGroupMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic_metadata.session_timeout_ms,
        list(protocols.items()),
    )


def _restore_classic_group(
    groups: ConsumerGroups, made: list[ClassicGroup], back: GroupDowngrade
) -> Iterator[GroupEffects | None]:
    """Complete the classic group after replay of its record: set all protocols, start sessions.

    Then start a rebalance if ``back.triggers_rebalance``. ``made``: the converted group; empty if there is none.
    """
    for classic in made:
        fx = GroupEffects()
        group = groups.classic_groups.groups[classic.id]
        for member in group.members.values():
            group.set_protocols(member, classic.members[member.id].protocols)
            rebalance.arm_session(group, member, back.now_ms, fx)
        if back.triggers_rebalance:
            rebalance.prepare_rebalance(group, groups.classic_groups.settings, back.now_ms, fx)
        yield from fx.flatten()
