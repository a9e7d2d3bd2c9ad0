"""A consumer group becomes a classic group when the last member of the new protocol is gone.

The classic group stands up from its record, as after a restart, stable; then its members are asked to come together.

Source: ``GroupMetadataManager.convertToClassicGroup``, ``ClassicGroup.fromConsumerGroup`` (apache/kafka 4.3.1),
KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from itertools import chain
from typing import NamedTuple

from ottla.broker.groups import java_order
from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.consumer import embedded
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.records import group_tombstones, slices
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


ROWS_A_MEMBER = 4
"""About how much work a member is, in rows of a slice."""
STEP = 50
CANCELLED_AT_ONCE = 200


class Back(NamedTuple):
    """A consumer group on its way to a classic one: without those who are gone; ``joining`` takes the place of the
    static member of its instance id.
    """

    group: ConsumerGroup
    gone: Collection[str]
    joining: Member | None
    rebalance: bool
    """Whether all are asked to come together."""
    now_ms: int


def downgrade(groups: ConsumerGroups, back: Back, fx: Fx, instead: Callable[[], Iterator[Fx]] | None = None) -> None:
    """Write the group anew, a large one in slices. Where what a member says cannot be read, ``instead`` is done.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND, in a slice of a large group: that cannot be, and there is no other way.
    """
    made: list[Group] = []
    fx.continue_with(_write(groups, back, made, instead), len(back.group.members) * ROWS_A_MEMBER)
    if made or fx.continuation is not None:
        fx.continuation = chain(fx.continuation or (), _stand_up(groups, made, back))


def _write(
    groups: ConsumerGroups, back: Back, made: list[Group], instead: Callable[[], Iterator[Fx]] | None
) -> Iterator[Fx]:
    group = back.group
    before = group.static_member(back.joining.instance_id) if back.joining is not None else None
    try:
        classic = yield from _classic(groups, back, before)
    except WireError as error:
        if instead is not None:
            yield from instead()
            return
        why = f"Cannot downgrade the classic group {group.id}: {error}."
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, why) from None
    made.append(classic)
    renamed = None if back.joining is None or before is None else (before.id, back.joining.id)
    for part in slices(group_tombstones(group, renamed)):
        yield Fx(records=part)
    fx = Fx()
    rb.store(classic, fx)
    yield fx
    fx = Fx()
    for number, name in enumerate({*group.members, *classic.members}):
        groups.cancel_timers(group.id, name, fx)
        if number % CANCELLED_AT_ONCE == 0:
            yield fx
            fx = Fx()
    yield fx


def _classic(groups: ConsumerGroups, back: Back, before: Member | None) -> Generator[Fx, None, Group]:
    """The group as one of the older kind, each member with what it is to have. Raises: WireError."""
    group, joining, image = back.group, back.joining, groups.topics.image
    classic = Group(group.id, GroupState.STABLE, group.epoch, CONSUMER, state_since_ms=back.now_ms)
    targets = dict(group.target)
    stay = [group.members[name] for name in java_order.timeline(group.members) if name not in back.gone]
    if joining is not None and before is not None:
        stay = [*(member for member in stay if member.id != before.id), joining]
        targets[joining.id] = group.target.get(before.id, {})
    for number, member in enumerate(stay):
        classic.add(_member(member))
        if number % STEP == 0:
            yield Fx()
    if not classic.has_common_protocol:
        raise WireError("its members have no protocol in common")
    classic.protocol = classic.select_protocol()
    yield Fx()
    for number, one in enumerate(classic.members.values()):
        version = embedded.version_of(one.metadata(classic.protocol))
        one.assignment = embedded.written(targets.get(one.id, {}), image, version)
        if number % STEP == 0:
            yield Fx()
    return classic


def _member(member: Member) -> ClassicMember:
    assert member.classic is not None
    protocols: dict[str, bytes] = {}
    for protocol in member.classic.supported_protocols:  # of a name that its record says twice the first, as in a join
        protocols.setdefault(protocol.name, protocol.metadata)
    return ClassicMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        list(protocols.items()),
    )


def _stand_up(groups: ConsumerGroups, made: list[Group], back: Back) -> Iterator[Fx]:
    """Its record is replayed: what is not in it is added, and all have a session, or are asked to come together."""
    for classic in made:
        fx = Fx()
        group = groups.classic.groups[classic.id]
        for member in group.members.values():
            group.speak(member, classic.members[member.id].protocols)
            rb.arm_session(group, member, back.now_ms, fx)
        if back.rebalance:
            rb.prepare(group, groups.classic.settings, back.now_ms, fx)
        yield from fx.flatten()
