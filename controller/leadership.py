"""Who leads what as brokers come and go: the changes of all partitions that one event touches.

Source: ``ReplicationControlManager.generateLeaderAndIsrUpdates`` and its callers (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from ottla.controller.config_keys import topic_key, usable
from ottla.controller.decision import PAUSE_EVERY, in_order
from ottla.controller.directories import is_online
from ottla.controller.image import NO_LEADER, RESOURCE_BROKER, RESOURCE_TOPIC, Image, Partition, Topic
from ottla.controller.partition_change import Rules, change
from ottla.controller.records import ELR_VERSION
from ottla.wire.schema import Message

NOBODY = -1
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def setting(image: Image, static: Mapping[str, str], topic: str, name: str, default: str) -> str:
    """A topic's effective setting: its own, the cluster's, the node's, Kafka's."""
    key = topic_key(name)
    for values in (image.config(RESOURCE_TOPIC, topic), image.config(RESOURCE_BROKER, ""), static):
        text = usable(key, values[name]) if name in values else None
        if text is not None:
            return text
    return default


def rules_of(image: Image, static: Mapping[str, str], topic: Topic) -> Rules:
    """What holds for a topic's partitions; no minimum is above the number of replicas (of partition 0)."""
    first = topic.partitions.get(0)
    minimum = int(setting(image, static, topic.name, MIN_ISR, "1"))
    return Rules(
        min(minimum, len(first.replicas)) if first is not None else minimum,
        image.features.get(ELR_VERSION, 0) > 0,
        setting(image, static, topic.name, UNCLEAN, "false") == "true",
    )


def partition_changes(
    image: Image,
    static: Mapping[str, str],
    affected: Callable[[Partition], bool],
    *,
    leaves: int = NOBODY,
    comes: int = NOBODY,
    lost: int = NOBODY,
) -> Generator[None, None, list[Message]]:
    """One record for each affected partition that changes.

    ``leaves`` is taken out of the in-sync sets and cannot lead; ``comes`` counts as alive though it is fenced still;
    ``lost`` has restarted uncleanly: it leaves, and is no eligible leader either.
    """

    def is_alive(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id in (leaves, lost):
            return False
        return broker_id == comes or not (broker.fenced or broker.in_controlled_shutdown)

    out: list[Message] = []
    seen = 0
    for name in (yield from in_order(image.topics)):
        topic = image.topics[name]
        rules: Rules | None = None
        for number, p in topic.partitions.items():
            seen += 1
            if seen % PAUSE_EVERY == 0:
                yield
            if not affected(p):
                continue
            rules = rules or rules_of(image, static, topic)
            isr = [i for i in p.isr if i not in (leaves, lost)]

            def may_lead(broker_id: int, p: Partition = p) -> bool:
                return is_alive(broker_id) and broker_id in p.replicas and is_online(p, image.brokers[broker_id])

            record = change((topic.id, number), p, may_lead, rules, isr=isr, lost=() if lost == NOBODY else (lost,))
            if record is not None:
                out.append(record)
    return out


def leads_something(image: Image, broker_id: int) -> Generator[None, None, bool]:
    """Whether a broker leads any partition."""
    seen = 0
    for topic in image.topics.values():
        for p in topic.partitions.values():
            if p.leader == broker_id:
                return True
            seen += 1
            if seen % (10 * PAUSE_EVERY) == 0:
                yield
    return False


def is_leaderless(p: Partition) -> bool:
    """Whether nobody leads it."""
    return p.leader == NO_LEADER
