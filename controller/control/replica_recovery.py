"""Replica recovery by the active controller: internal topics get more replicas, lost replicas are replaced.

A single node creates its internal topics with one replica. As other nodes join, each of those topics gets more
replicas, up to three, unless the number was set explicitly. If ``auto.replica.recovery.after.ms`` is set, the replicas
of a broker that has been down for that time are created on others. Both are ordinary reassignments (KIP-455); a broker
that returns during one keeps its replicas until it is complete. The rules are Ottla's own: Kafka has no such recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ottla.controller.config.config_keys import REPLICA_RECOVERY
from ottla.controller.control.alter_partition_reassignments import reassign_partition
from ottla.controller.control.broker_heartbeat_tracker import FencedSince
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration, TopicImage
from ottla.controller.partitions.leader_and_isr_updates import topic_change_rules
from ottla.controller.partitions.reassignment_plan import BrokerLoads, replace_brokers
from ottla.controller.partitions.reassignment_state import is_reassignment_in_progress
from ottla.controller.partitions.replica_placer import is_usable_for_placement
from ottla.jobs.sequences import YIELD_EVERY, sort_job
from ottla.wire.codec.schema import Message

INTERNAL_TOPIC_REPLICATION_FACTOR = 3
INTERNAL_TOPIC_FACTOR_KEYS = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}
"""Internal topics, with the setting that fixes the replication factor of each."""
MAX_MOVES_PER_RUN = 100
"""Maximum number of reassignments that a run starts; the rest follows in later runs."""


def _partitions(image: MetadataImage, names: Iterable[str]) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    for name in names:
        topic = image.topics[name]
        for number, p in topic.partitions.items():
            yield topic, number, p


def _placeable_brokers(image: MetadataImage) -> BrokerLoads:
    """Return the unfenced brokers on which replicas may be placed, with their racks and no replicas counted yet."""
    live = sorted(b.broker_id for b in image.brokers.values() if not b.fenced and is_usable_for_placement(b))
    return BrokerLoads({i: image.brokers[i].rack for i in live})


def _replicas_on_registered_brokers(image: MetadataImage, p: PartitionRegistration) -> tuple[int, ...]:
    """Return a partition's replicas on registered brokers, fenced ones included."""
    return tuple(i for i in p.replicas if i in image.brokers)


def _needs_more_replicas(image: MetadataImage, p: PartitionRegistration, factor: int) -> bool:
    """Return True if a partition has too few replicas, no reassignment, and a replica on a registered broker."""
    return (
        len(p.replicas) < factor
        and not is_reassignment_in_progress(p)
        and bool(_replicas_on_registered_brokers(image, p))
    )


def _topics_to_expand(image: MetadataImage, static: Mapping[str, str], factor: int) -> list[TopicImage]:
    """Return the internal topics with a partition that has fewer than ``factor`` replicas and can get more.

    Topics whose replication factor is set in ``static`` are left out.
    """
    found = (image.topics.get(name) for name, key in INTERNAL_TOPIC_FACTOR_KEYS.items() if key not in static)
    return [
        t for t in found if t is not None and any(_needs_more_replicas(image, p, factor) for p in t.partitions.values())
    ]


def _rotated(replicas: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Return the replicas, all but the first rotated by partition number: so the next leaders of partitions differ."""
    first, *others = replicas
    turn = number % len(others)
    return (first, *others[turn:], *others[:turn])


def expand_internal_topics(image: MetadataImage, static: Mapping[str, str]) -> ControllerResultSteps:
    """Return the records that reassign partitions of internal topics to more brokers, up to three, as a job.

    Topics whose replication factor is set in ``static`` are left out. The response is True if a reassignment is
    started.
    """
    brokers = _placeable_brokers(image)
    factor = min(INTERNAL_TOPIC_REPLICATION_FACTOR, len(brokers.racks))
    growing = _topics_to_expand(image, static, factor)
    if not growing:
        return ControllerResult(False)
    for seen, (_, _, p) in enumerate(_partitions(image, image.topics), 1):
        brokers.count(p.replicas)
        if seen % YIELD_EVERY == 0:
            yield None
    records: list[Message] = []
    for topic in growing:
        rules = topic_change_rules(image, static, topic)
        for number, p in topic.partitions.items():
            if not _needs_more_replicas(image, p, factor):
                yield None
                continue
            target = _replicas_on_registered_brokers(image, p)
            brokers.count(p.replicas, -1)
            brokers.count(target)
            while len(target) < factor:
                more = brokers.least_loaded(target)
                assert more is not None, "at least as many brokers as replicas are needed"
                brokers.count(target, -1)
                target = (*target, more)
                brokers.count(target)
            record = reassign_partition(image, (topic.id, number), p, _rotated(target, number), rules)
            if record is not None:
                records.append(record)
            yield None
    return ControllerResult(bool(records), records)


def replace_lost_replicas(
    image: MetadataImage, static: Mapping[str, str], absences: FencedSince, now_ms: float
) -> ControllerResultSteps:
    """Return the records that move replicas from brokers fenced for too long to others, as a job.

    Only for partitions with a leader and without an active reassignment; unregistered brokers count as lost at once.
    The limit is ``auto.replica.recovery.after.ms``; nothing is done if it is missing or 0. The response is True if
    `MAX_MOVES_PER_RUN` was reached, so that there may be more.

    ``absences``: since when brokers have been fenced, which is updated. ``now_ms``: monotonic.
    """
    after_ms = float(static.get(REPLICA_RECOVERY, "0"))
    if not after_ms:
        return ControllerResult(False)
    away = absences.fenced_for(image, now_ms, after_ms)
    brokers = _placeable_brokers(image)
    lost: list[tuple[TopicImage, int, PartitionRegistration]] = []
    names = yield from sort_job(image.topics)
    for seen, (topic, number, p) in enumerate(_partitions(image, names), 1):
        brokers.count(p.replicas)
        if seen % YIELD_EVERY == 0:
            yield None
        if (
            p.leader != NO_LEADER
            and not is_reassignment_in_progress(p)
            and any(i in away or i not in image.brokers for i in p.replicas)
        ):
            lost.append((topic, number, p))
    records: list[Message] = []
    for topic, number, p in lost:
        gone = [i for i in p.replicas if i in away or i not in image.brokers]
        target = replace_brokers(brokers, p.replicas, gone)
        if target is None:
            continue
        rules = topic_change_rules(image, static, topic)
        record = reassign_partition(image, (topic.id, number), p, target, rules)
        if record is not None:
            records.append(record)
        if len(records) == MAX_MOVES_PER_RUN:
            return ControllerResult(True, records)
        yield None
    return ControllerResult(False, records)
