"""Conversion of a classic group to a consumer group when a member with the consumer protocol joins.

The existing members keep the classic protocol; their epoch is the generation. A large group is written in parts;
members that were written before a crash get ILLEGAL_GENERATION.

Source: ``GroupMetadataManager.getOrMaybeCreateConsumerGroup``, ``convertToConsumerGroup``,
``ConsumerGroup.fromClassicGroup`` (apache/kafka 4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.broker.groups.assignors.group_spec import Assignment
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupMember
from ottla.broker.groups.classic.rebalance import GroupEffects
from ottla.broker.groups.consumer import consumer_protocol, records
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.consumer.groups import ConsumerGroups
from ottla.broker.groups.java_collections import iteration_order
from ottla.broker.groups.record_arrays import ROWS_PER_STEP, read_names, read_table
from ottla.broker.groups.records import GroupRecord
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import consumer_group_records, offset_records

WORK_PER_STEP = 300
WORK_PER_MEMBER = 6
"""Approximate work for a member, in records of a time slice."""
BYTES_PER_WORK_UNIT = 16


def _work_units(member: ClassicGroupMember, classic: ClassicGroup) -> int:
    size = len(member.assignment) + len(member.metadata_for(classic.protocol or ""))
    return WORK_PER_MEMBER + size // BYTES_PER_WORK_UNIT


def work_units(classic: ClassicGroup) -> int:
    """Return the approximate work of converting the group, in records of a time slice."""
    return sum(_work_units(member, classic) for member in classic.members.values())


def convert_classic_group(groups: ConsumerGroups, classic: ClassicGroup) -> Generator[None, None, ConsumerGroup]:
    """Return a new consumer group with the members of the classic group, as a job.

    Nothing is written, and the classic group is unchanged.

    Raises:
        ProtocolError: GROUP_ID_NOT_FOUND: it cannot be converted; UNKNOWN_SERVER_ERROR: it has no generation yet.
    """
    _check(groups, classic)
    group = ConsumerGroup(classic.id)
    group.epoch = group.target_epoch = classic.generation
    work = 0
    for member in classic.members.values():
        try:
            new = yield from _to_consumer_member(member, classic, groups.topics.image)
        except WireError:
            raise _upgrade_error(classic.id, "the embedded consumer protocol is malformed") from None
        yield from group.update_job(new)
        yield from group.finish_replay()
        group.target[member.id] = yield from _to_target(new)
        work += _work_units(member, classic)
        if work >= WORK_PER_STEP:
            work = 0
            yield
    yield from groups.topics.topic_hashes_job(groups.topics.unhashed(group.subscribed_topic_names))
    group.metadata_hash = groups.topics.hash_of(group.subscribed_topic_names)
    return group


def write_conversion(
    groups: ConsumerGroups, classic: ClassicGroup, group: ConsumerGroup, now_ms: int
) -> Iterator[GroupEffects]:
    """Yield the effects that write the converted group, in parts.

    The first one has errors (REBALANCE_IN_PROGRESS) for the classic group's pending requests and its tombstone; the
    last one starts the session timeouts.
    """
    fx = GroupEffects()
    for waiting in classic.members.values():
        rebalance.reject_join(classic, waiting, ErrorCode.REBALANCE_IN_PROGRESS, waiting.id, fx)
        rebalance.reject_sync(waiting, ErrorCode.REBALANCE_IN_PROGRESS, fx)
    order = iteration_order.timeline_hash_map_order(group.members)
    fx.records.append(GroupRecord(offset_records.GroupMetadataKey(classic.id), None))
    yield fx
    for part in records.slice_records(_records(group, order)):
        yield GroupEffects(records=part)
    fx = GroupEffects()
    for name in order:
        groups.arm_session(group.id, group.members[name], now_ms, fx)
    yield fx


def _records(group: ConsumerGroup, order: list[str]) -> Iterator[GroupRecord]:
    for name in order:
        yield records.member_record(group.id, group.members[name])
    yield records.epoch_record(group.id, group.epoch, group.metadata_hash)
    for name in order:
        yield records.target_assignment_record(group.id, name, group.target[name])
    yield records.target_assignment_epoch_record(group.id, group.target_epoch, 0)
    for name in order:
        yield records.current_assignment_record(group.id, group.members[name])


def _upgrade_error(group_id: str, why: str) -> ProtocolError:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    return ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _check(groups: ConsumerGroups, classic: ClassicGroup) -> None:
    if not groups.settings.allows_upgrade:
        raise _upgrade_error(classic.id, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _upgrade_error(classic.id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > groups.settings.max_size:
        raise _upgrade_error(classic.id, "the group size exceeds the consumer group maximum size")
    if classic.protocol is None:  # before the first generation: Kafka throws as well
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _to_consumer_member(
    member: ClassicGroupMember, classic: ClassicGroup, image: MetadataImage
) -> Generator[None, None, ConsumerGroupMember]:
    given = yield from consumer_protocol.decode_assignment(member.assignment)
    if given.user_data:
        raise _upgrade_error(classic.id, "an unsupported custom assignor is in use")
    subscription = yield from consumer_protocol.decode_subscription(member.metadata_for(classic.protocol or ""))
    assigned = yield from read_table(
        (row for row in given.assigned_partitions if row.topic in image.topics),
        lambda row: image.topics[row.topic].id,
        lambda row: dict.fromkeys(row.partitions, classic.generation),
    )
    protocols = [consumer_group_records.ClassicProtocol(name, data) for name, data in member.protocols]
    return ConsumerGroupMember(
        member.id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=(yield from read_names(subscription.topics)),
        assigned=assigned,
        classic_metadata=consumer_group_records.ClassicMemberMetadata(member.session_timeout_ms, protocols),
    )


def _to_target(member: ConsumerGroupMember) -> Generator[None, None, Assignment]:
    target: dict[bytes, tuple[int, ...]] = {}
    for number, (topic, held) in enumerate(member.assigned.items()):
        target[topic] = iteration_order.integer_hash_set_order(held)
        if number % ROWS_PER_STEP == 0:
            yield
    return target
