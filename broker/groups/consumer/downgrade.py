"""A consumer group becomes a classic group when the last member of the new protocol is gone.

The classic group stands up from its record, as after a restart, stable; then its members are asked to come together.

Source: ``GroupMetadataManager.convertToClassicGroup``, ``ClassicGroup.fromConsumerGroup`` (apache/kafka 4.3.1),
KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ottla.broker.groups import java_order
from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.consumer import embedded
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.records import group_tombstones
from ottla.broker.groups.consumer.state import ConsumerGroup, Member
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.state import CONSUMER, Group, GroupState
from ottla.broker.groups.state import Member as ClassicMember
from ottla.wire.errors import ErrorCode, ProtocolError, WireError


def is_due(groups: ConsumerGroups, group: ConsumerGroup, gone: Collection[Member], *, replaced: bool = False) -> bool:
    """Whether only members of the older protocol are left once these are gone, or ``replaced`` by one of them."""
    left = len(group.members) - len(gone)
    classic = group.classic_members - sum(member.classic is not None for member in gone)
    if classic != left or (replaced and any(member.classic is not None for member in gone)):
        return False
    size = left + len(gone) if replaced else left
    return size > 0 and groups.settings.downgrades and size <= groups.classic.settings.max_size


def downgrade(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    gone: Collection[str],
    joining: Member | None,
    now_ms: int,
    fx: Fx,
    *,
    rebalance: bool,
) -> None:
    """Write the group anew without these; ``joining`` takes the place of the static member of its instance id.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND: what a member says cannot be read.
    """
    before = group.static_member(joining.instance_id) if joining is not None else None
    renamed = None if joining is None or before is None else (before.id, joining.id)
    classic = Group(group.id, GroupState.STABLE, group.epoch, CONSUMER, state_since_ms=now_ms)
    targets = dict(group.target)
    stay = [group.members[name] for name in java_order.timeline(group.members) if name not in gone]
    if joining is not None and before is not None:
        stay = [*(member for member in stay if member.id != before.id), joining]
        targets[joining.id] = group.target.get(before.id, {})
    for member in stay:
        classic.add(_member(member))
    classic.protocol = classic.select_protocol()
    image, shares = groups.topics.image, {}
    try:
        for one in classic.members.values():
            version = embedded.version_of(one.metadata(classic.protocol))
            shares[one.id] = embedded.written(targets.get(one.id, {}), image, version)
    except WireError as error:
        why = f"Cannot downgrade the classic group {group.id}: {error}."
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why) from None
    fx.records += group_tombstones(group, renamed)
    for one in classic.members.values():
        one.assignment = shares[one.id]
    rb.store(classic, fx)
    for name in {*group.members, *classic.members}:
        groups.cancel_timers(group.id, name, fx)
    fx.then = _stand_up(groups, classic, now_ms, rebalance=rebalance)


def _member(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        [(protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols],
    )


def _stand_up(groups: ConsumerGroups, classic: Group, now_ms: int, *, rebalance: bool) -> Iterator[Fx]:
    """Its record is replayed: what is not in it is added, and all have a session, or are asked to come together."""
    fx = Fx()
    group = groups.classic.groups[classic.id]
    for member in group.members.values():
        group.speak(member, classic.members[member.id].protocols)
        rb.arm_session(group, member, now_ms, fx)
    if rebalance:
        rb.prepare(group, groups.classic.settings, now_ms, fx)
    yield from fx.flat()
