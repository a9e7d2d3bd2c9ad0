"""Changes of leaders and in-sync replicas of all partitions that an event (a broker fenced, unfenced, lost) affects.

Also the topic settings and the check of leaders that any change of a partition needs.
Source: ``ReplicationControlManager.generateLeaderAndIsrUpdates`` and its callers (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.controller.config.config_keys import topic_key, valid_canonical_value
from ottla.controller.metadata.directory_id import is_replica_online
from ottla.controller.metadata.image import (
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.controller.metadata.record_serde import ELR_VERSION
from ottla.controller.partitions.partition_change_builder import PartitionChangeRules, build_partition_change
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY, sort_job
from ottla.wire.codec.schema import Message

NO_BROKER_ID = -1
MIN_ISR = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION_ENABLE = "unclean.leader.election.enable"


def effective_topic_config(image: MetadataImage, static: Mapping[str, str], topic: str, name: str, default: str) -> str:
    """Return a topic's effective setting: the topic's, the cluster-wide broker default, the node's, or ``default``.

    ``name``: setting with the same name for topics and brokers. ``static``: settings of the node's configuration. A
    value that is invalid is passed over.
    """
    key = topic_key(name)
    for values in (image.config(RESOURCE_TOPIC, topic), image.config(RESOURCE_BROKER, ""), static):
        text = valid_canonical_value(key, values[name]) if name in values else None
        if text is not None:
            return text
    return default


def topic_change_rules(image: MetadataImage, static: Mapping[str, str], topic: TopicImage) -> PartitionChangeRules:
    """Return the rules for changes of a topic's partitions.

    min.insync.replicas is at most the number of replicas of partition 0.
    """
    first = topic.partitions.get(0)
    minimum = int(effective_topic_config(image, static, topic.name, MIN_ISR, "1"))
    return PartitionChangeRules(
        min(minimum, len(first.replicas)) if first is not None else minimum,
        image.features.get(ELR_VERSION, 0) > 0,
        effective_topic_config(image, static, topic.name, UNCLEAN_LEADER_ELECTION_ENABLE, "false") == "true",
    )


def leader_and_isr_updates(
    image: MetadataImage,
    static: Mapping[str, str],
    affected: Callable[[PartitionRegistration], bool],
    *,
    leaves: int = NO_BROKER_ID,
    comes: int = NO_BROKER_ID,
    lost: int = NO_BROKER_ID,
) -> Job[list[Message]]:
    """Return a PartitionChangeRecord for each affected partition that changes, as a job; the image is not changed.

    A broker id of -1 stands for no broker. If ELRs are disabled, the last member of an ISR stays in it, unless an
    unclean election replaces it.

    Args:
        image: Current metadata.
        static: Settings of the node's configuration.
        affected: Selects the partitions.
        leaves: Broker that is removed from the ISRs and cannot lead.
        comes: Broker that counts as alive though it is still fenced.
        lost: Broker after an unclean shutdown, which is removed from ISRs and ELRs.
    """

    def is_alive(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id in (leaves, lost):
            return False
        return broker_id == comes or not (broker.fenced or broker.in_controlled_shutdown)

    out: list[Message] = []
    seen = 0
    for name in (yield from sort_job(image.topics)):
        topic = image.topics[name]
        rules: PartitionChangeRules | None = None
        for number, p in topic.partitions.items():
            seen += 1
            if seen % YIELD_EVERY == 0:
                yield None
            if not affected(p):
                continue
            rules = rules or topic_change_rules(image, static, topic)
            isr = [i for i in p.isr if i not in (leaves, lost)]

            def may_lead(broker_id: int, p: PartitionRegistration = p) -> bool:
                return (
                    is_alive(broker_id) and broker_id in p.replicas and is_replica_online(p, image.brokers[broker_id])
                )

            record = build_partition_change(
                (topic.id, number), p, may_lead, rules, isr=isr, lost=() if lost == NO_BROKER_ID else (lost,)
            )
            if record is not None:
                out.append(record)
    return out


def leads_any_partition(image: MetadataImage, broker_id: int) -> Job[bool]:
    """Return True if a broker leads at least one partition in the metadata image, as a job."""
    seen = 0
    for topic in image.topics.values():
        for p in topic.partitions.values():
            if p.leader == broker_id:
                return True
            seen += 1
            if seen % (10 * YIELD_EVERY) == 0:
                yield None
    return False


def is_leaderless(registration: PartitionRegistration) -> bool:
    """Return True for a partition without a leader."""
    return registration.leader == NO_LEADER


def leader_acceptor(image: MetadataImage, registration: PartitionRegistration) -> Callable[[int], bool]:
    """Return a predicate on broker ids: True for a live replica of a partition, in sync or not.

    Alive: online log directory, unfenced and not shutting down (R-287 without the check of ISR and ELR).
    """

    def check(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return broker_id in registration.replicas and is_replica_online(registration, broker)

    return check
