"""A member's heartbeat in a share group: it joins, goes on, or leaves; and what the group makes of it.

Nothing is handed over: a member has its target at once. But a partition goes to members only once it has a state to
share (`ottla.broker.share`): the heartbeat that first names a topic begins that, and a later one assigns.

Source: ``GroupMetadataManager.shareGroupHeartbeat``, ``ShareGroupAssignmentBuilder.java`` (apache/kafka
4.3.1), KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.spec import NOTHING, Target
from ottla.broker.groups.modern import in_turns, once_known
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.share import records as sr
from ottla.broker.groups.share.groups import Places, ShareGroups
from ottla.broker.groups.share.simple import Sharer, ShareSpec, assign
from ottla.broker.groups.share.state import LEAVING, ShareGroup, ShareMember
from ottla.broker.groups.state import Call
from ottla.log.machine import RequestReply
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import share_group_heartbeat as hb

INTERVAL = "share.assignment.interval.ms"
PARTITIONS_A_ROW = 5
"""So many partitions are as much work as a member is."""


@dataclass(slots=True)
class Beaten:
    """The answer to a heartbeat, and the partitions that are to get a state before anybody may have them."""

    response: hb.ShareGroupHeartbeatResponse
    epoch: int = 0
    to_initialize: Places = field(default_factory=dict)


def heartbeat(groups: ShareGroups, ticket: Any, now_ms: int, *, call: Call) -> Fx:
    """The answer is a `Beaten`; it stands beside what goes in slices, whatever becomes of them.

    Raises:
        ProtocolError: a refusal, which is the answer then.
    """
    beaten = Beaten(hb.ShareGroupHeartbeatResponse())
    fx = Fx(replies=[RequestReply(ticket, beaten)])
    _Beat(groups, call, beaten, now_ms, fx).go()
    return fx


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Whether a member speaks of its present epoch, or joins, or has not heard of the last step (item 209).

    Raises:
        ProtocolError: FENCED_MEMBER_EPOCH.
    """
    if epoch in (0, member.epoch) or (epoch < member.epoch and epoch == member.previous_epoch):
        return
    than = "greater" if epoch > member.epoch else "smaller"
    known = f"than the one known by the group coordinator ({member.epoch})"
    if than == "smaller":
        known += f", and it does not match the previous member epoch ({member.previous_epoch})"
    why = (
        f"The share group member has a {than} member epoch ({epoch}) {known}. "
        "The member must abandon all its partitions and rejoin."
    )
    raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH, why)


class _Beat:
    """One heartbeat on its way."""

    def __init__(self, groups: ShareGroups, call: Call, beaten: Beaten, now_ms: int, fx: Fx) -> None:
        self._groups = groups
        self._call = call
        self._beaten = beaten
        self._request: hb.ShareGroupHeartbeatRequest = call.request
        self._now_ms = now_ms
        self._fx = fx

    def go(self) -> None:
        """Take in what the member says, then see what the group makes of it.

        Raises:
            ProtocolError: the member's answer.
        """
        groups, request, fx = self._groups, self._request, self._fx
        if request.member_epoch == LEAVING:
            self._leave()
            return
        joins = request.member_epoch == 0
        group_id = request.group_id
        group = groups.group_to_join(group_id) if joins else groups.group(group_id, "Share group")
        known = group.members.get(request.member_id)
        if len(group.members) >= groups.settings.max_size and known is None:
            why = f"The share group has reached its maximum capacity of {groups.settings.max_size} members."
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        member = known or (ShareMember(request.member_id) if joins else group.member(request.member_id))
        check_epoch(member, request.member_epoch)
        updated = self._merged(member)
        if known is None or updated != member:
            fx.records.append(sr.member_record(group.id, updated))
        bump = updated.names != member.names
        if group.target_epoch >= group.epoch:
            bump = bump or group.waits_for_more
        names = group.names_with(member, updated) if bump or group.is_stale else None
        cold = groups.topics.cold(names) if names is not None else []

        def go_on(rest: Fx) -> None:
            self._fx = rest
            self._change(group, member, updated, names, bump=bump)

        if cold:
            once_known(groups.topics, cold, fx, go_on)
        else:
            go_on(fx)

    def _change(
        self, group: ShareGroup, member: ShareMember, updated: ShareMember, new: Mapping[str, int] | None, *, bump: bool
    ) -> None:
        """See what the group makes of it; ``new``: who wants which topic, where that must be looked at."""
        groups, fx = self._groups, self._fx
        epoch, names = group.epoch, group.names if new is None else new
        if new is not None:
            epoch, bump = self._new_epoch(group, names, bump=bump)
        if group.target_epoch >= epoch or not group.is_time(groups.interval_ms(group.id, INTERVAL), self._now_ms):
            goal = group.target_epoch, group.target.get(updated.id, NOTHING)
            self._finish(group, member, updated, goal, epoch, names, bump=bump, fx=fx)
            return
        rows = len(group.members) + groups.topics.size_of(names) // PARTITIONS_A_ROW
        fx.continue_with(self._assign(group, member, updated, epoch, names, bump=bump), rows)

    def _leave(self) -> None:
        request = self._request
        group = self._groups.group(request.group_id)
        group.member(request.member_id)
        self._groups.fence(group, request.member_id, self._fx)
        self._beaten.response = hb.ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING)
        self._beaten.epoch = group.epoch

    def _merged(self, member: ShareMember) -> ShareMember:
        """The member with what the request says; what it leaves out stays."""
        request = self._request
        names = request.subscribed_topic_names
        return replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            names=member.names if names is None else java_order.set_of(names),
            client_id=self._call.client_id,
            client_host=f"/{self._call.client_host}",
        )

    def _new_epoch(self, group: ShareGroup, names: Mapping[str, int], *, bump: bool) -> tuple[int, bool]:
        """The group's epoch, one more where there is a reason; and whether there is."""
        metadata_hash = self._groups.topics.hash_of(names)
        bump = bump or metadata_hash != group.metadata_hash
        epoch = group.epoch + bump
        if bump:
            self._fx.records.append(sr.epoch_record(group.id, epoch, metadata_hash))
        group.fresh_epoch = epoch
        return epoch, bump

    def _assign(
        self,
        group: ShareGroup,
        member: ShareMember,
        updated: ShareMember,
        epoch: int,
        names: Mapping[str, int],
        *,
        bump: bool,
    ) -> Iterator[Fx]:
        """Compute the targets, write those that are new, and let the member go on."""
        old = dict(group.target)
        new = yield from in_turns(assign(_spec(self._groups, group, updated, names)))
        fx = Fx()
        for name in _order(group, updated):
            target = new.get(name, NOTHING)
            if name not in old or _differs(old[name], target):
                fx.records.append(sr.target_record(group.id, name, target))
        fx.records.append(sr.target_epoch_record(group.id, epoch, self._now_ms))
        goal = epoch, new.get(updated.id, NOTHING)
        self._finish(group, member, updated, goal, epoch, names, bump=bump, fx=fx)
        yield fx

    def _finish(
        self,
        group: ShareGroup,
        member: ShareMember,
        updated: ShareMember,
        goal: tuple[int, Target],
        epoch: int,
        names: Mapping[str, int],
        *,
        bump: bool,
        fx: Fx,
    ) -> None:
        """Give the member what it is to have, and answer it."""
        groups, request = self._groups, self._request
        moved = updated
        if bump or updated.epoch != goal[0]:
            moved = _moved(groups, updated, *goal)
        if moved != updated:
            fx.records.append(sr.current_record(group.id, moved))
        groups.arm_session(group.id, moved.id, self._now_ms, fx)
        beaten = self._beaten
        beaten.response = response = hb.ShareGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=groups.interval_ms(group.id, "share.heartbeat.interval.ms"),
        )
        if (
            request.member_epoch == 0
            or request.subscribed_topic_names is not None
            or _differs(member.assigned, moved.assigned)
        ):
            response.assignment = _assignment(moved.assigned)
        new = groups.to_initialize(group, names, self._now_ms)
        if new:
            groups.begin(group, new, self._now_ms, fx)
        beaten.epoch, beaten.to_initialize = epoch, {topic: named.partitions for topic, named in new.items()}


def _moved(groups: ShareGroups, member: ShareMember, epoch: int, target: Target) -> ShareMember:
    """The member with its target, of topics it wants."""
    wanted = set(groups.topics.ids(member.names))
    assigned = {topic: numbers for topic, numbers in target.items() if topic in wanted}
    if epoch == member.epoch:
        return replace(member, assigned=assigned)
    return replace(member, assigned=assigned, epoch=epoch, previous_epoch=member.epoch)


def _order(group: ShareGroup, updated: ShareMember) -> list[str]:
    """The members as Kafka looks at them."""
    known = java_order.timeline(group.members)
    if updated.id not in group.members:
        known.append(updated.id)
    return java_order.texts(known, most=len(known))


def _spec(groups: ShareGroups, group: ShareGroup, updated: ShareMember, names: Mapping[str, int]) -> ShareSpec:
    members, count = {}, 0
    for name in _order(group, updated):
        member = updated if name == updated.id else group.members[name]
        topics = tuple(groups.topics.ids_in_order(member.names))
        members[name] = Sharer(topics, len(member.names), group.target.get(name, NOTHING))
        count += 1
    ready = {topic: tuple(sorted(named.partitions)) for topic, named in group.initialized.items()}
    every = {topic for sharer in members.values() for topic in sharer.topics}
    homogeneous = all(wanted == count for wanted in names.values())
    return ShareSpec(members, homogeneous, {topic: ready.get(topic, ()) for topic in every})


def _differs(old: Target, new: Target) -> bool:
    return old.keys() != new.keys() or any(set(old[topic]) != set(numbers) for topic, numbers in new.items())


def _assignment(held: Target) -> hb.Assignment:
    rows = [hb.TopicPartitions(topic, list(java_order.numbers(held[topic]))) for topic in java_order.ids(held)]
    return hb.Assignment(rows)
