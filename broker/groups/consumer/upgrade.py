"""A classic group becomes a consumer group when a member of the new protocol joins it.

Its members stay, as members that speak the older protocol, in an epoch that is their generation.

Source: ``GroupMetadataManager.getOrMaybeCreateConsumerGroup``, ``convertToConsumerGroup``,
``ConsumerGroup.fromClassicGroup`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from ottla.broker.groups import java_order
from ottla.broker.groups import rebalance as rb
from ottla.broker.groups.consumer import embedded
from ottla.broker.groups.consumer import records as cr
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.consumer.state import ConsumerGroup, Member
from ottla.broker.groups.rebalance import Fx
from ottla.broker.groups.records import GroupRecord
from ottla.broker.groups.state import CONSUMER, Group, GroupState
from ottla.broker.groups.state import Member as ClassicMember
from ottla.controller.image import Image
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import consumer_group_records as m
from ottla.wire.messages import offset_records as o


def upgraded(groups: ConsumerGroups, classic: Group, now_ms: int, fx: Fx) -> ConsumerGroup:
    """The group anew, as one of this kind.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND: it stays what it is.
    """
    tombstone = GroupRecord(o.GroupMetadataKey(classic.id), None)
    if classic.state is GroupState.EMPTY:
        fx.records.append(tombstone)
        return ConsumerGroup(classic.id)
    _check(groups, classic)
    group = _converted(classic, groups.topics.image)
    group.metadata_hash = groups.topics.hash_of(group.names)
    for waiting in classic.members.values():
        rb.refuse_join(classic, waiting, ErrorCode.REBALANCE_IN_PROGRESS, waiting.id, fx)
        rb.refuse_sync(waiting, ErrorCode.REBALANCE_IN_PROGRESS, fx)
    order = java_order.timeline(group.members)
    fx.records.append(tombstone)
    fx.records += [cr.member_record(group.id, group.members[name]) for name in order]
    fx.records.append(cr.epoch_record(group.id, group.epoch, group.metadata_hash))
    fx.records += [cr.target_record(group.id, name, group.target[name]) for name in order]
    fx.records.append(cr.target_epoch_record(group.id, group.target_epoch, 0))
    fx.records += [cr.current_record(group.id, group.members[name]) for name in order]
    for name in order:
        groups.arm_session(group.id, group.members[name], now_ms, fx)
    return group


def _refused(group_id: str, why: str) -> ProtocolError:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    return ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _check(groups: ConsumerGroups, classic: Group) -> None:
    if not groups.settings.upgrades:
        raise _refused(classic.id, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER:
        raise _refused(classic.id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > groups.settings.max_size:
        raise _refused(classic.id, "the group size exceeds the consumer group maximum size")
    if classic.protocol is None:  # its first generation has not begun; Kafka falls over it as well
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _converted(classic: Group, image: Image) -> ConsumerGroup:
    group = ConsumerGroup(classic.id)
    group.epoch = group.target_epoch = classic.generation
    for member in classic.members.values():
        try:
            new = _member(member, classic, image)
        except WireError:
            raise _refused(classic.id, "the embedded consumer protocol is malformed") from None
        group.update(new)
        group.target[member.id] = {topic: java_order.numbers(held) for topic, held in new.assigned.items()}
    return group


def _member(member: ClassicMember, classic: Group, image: Image) -> Member:
    given = embedded.assignment(member.assignment)
    if given.user_data:
        raise _refused(classic.id, "an unsupported custom assignor is in use")
    said = embedded.subscription(member.metadata(classic.protocol or ""))
    assigned = {
        image.topics[row.topic].id: dict.fromkeys(row.partitions, classic.generation)
        for row in given.assigned_partitions
        if row.topic in image.topics
    }
    protocols = [m.ClassicProtocol(name, data) for name, data in member.protocols]
    return Member(
        member.id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=said.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        names=frozenset(said.topics),
        assigned=assigned,
        classic=m.ClassicMemberMetadata(member.session_timeout_ms, protocols),
    )
