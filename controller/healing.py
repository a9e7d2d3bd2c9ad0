"""What the active controller makes whole by itself: internal topics grow with the cluster, lost replicas come again.

A node alone makes its internal topics with one replica. As others join, each of those topics gets a replica more, up
to three, unless the number was set by hand. And where ``auto.replica.recovery.after.ms`` is set, what a broker had that
has been away for so long is made again on others. Both are moves as any other (KIP-455); a broker that comes back in
the middle of one keeps what it had until the move is through. The rules are Ottla's own: Kafka leaves this to people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ottla.controller.config_keys import REPLICA_RECOVERY
from ottla.controller.decision import PAUSE_EVERY, Decision, Steps, in_order
from ottla.controller.image import NO_LEADER, Image, Partition, Topic
from ottla.controller.leadership import rules_of
from ottla.controller.leases import Absences
from ottla.controller.moves import is_moving
from ottla.controller.placement import is_usable
from ottla.controller.plan_moves import Brokers, without
from ottla.controller.reassignments import reassign
from ottla.wire.schema import Message

FACTOR = 3
INTERNAL = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}
"""Internal topics, and the setting that fixes how many replicas each has."""
MOVES_A_TURN = 100
"""So many partitions begin to move at once; the rest follows in later turns."""


def _partitions(image: Image, names: Iterable[str]) -> Iterator[tuple[Topic, int, Partition]]:
    for name in names:
        topic = image.topics[name]
        for number, p in topic.partitions.items():
            yield topic, number, p


def _live(image: Image) -> Brokers:
    """Brokers that may get replicas now, nothing counted."""
    live = sorted(b.broker_id for b in image.brokers.values() if not b.fenced and is_usable(b))
    return Brokers({i: image.brokers[i].rack for i in live})


def _kept(image: Image, p: Partition) -> tuple[int, ...]:
    """A partition's replicas without those on brokers that were let go for good."""
    return tuple(i for i in p.replicas if i in image.brokers)


def _may_grow(image: Image, p: Partition, factor: int) -> bool:
    """Whether a partition has fewer replicas, none on its way, and one at least on a broker there is."""
    return len(p.replicas) < factor and not is_moving(p) and bool(_kept(image, p))


def _grows(image: Image, static: Mapping[str, str], factor: int) -> list[Topic]:
    """Internal topics with a partition that has fewer replicas."""
    found = (image.topics.get(name) for name, key in INTERNAL.items() if key not in static)
    return [t for t in found if t is not None and any(_may_grow(image, p, factor) for p in t.partitions.values())]


def _turned(replicas: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The first stays; who is next in line differs from partition to partition, so that not one has to lead all."""
    first, *others = replicas
    turn = number % len(others)
    return (first, *others[turn:], *others[:turn])


def grow(image: Image, static: Mapping[str, str]) -> Steps:
    """Internal topics get replicas on brokers that have joined; the answer: whether any move was begun."""
    brokers = _live(image)
    factor = min(FACTOR, len(brokers.racks))
    growing = _grows(image, static, factor)
    if not growing:
        return Decision(False)
    for seen, (_, _, p) in enumerate(_partitions(image, image.topics), 1):
        brokers.count(p.replicas)
        if seen % PAUSE_EVERY == 0:
            yield
    records: list[Message] = []
    for topic in growing:
        rules = rules_of(image, static, topic)
        for number, p in topic.partitions.items():
            if not _may_grow(image, p, factor):
                yield
                continue
            target = _kept(image, p)
            brokers.count(p.replicas, -1)
            brokers.count(target)
            while len(target) < factor:
                more = brokers.spare(target)
                assert more is not None, "there are as many brokers as replicas to have"
                brokers.count(target, -1)
                target = (*target, more)
                brokers.count(target)
            record = reassign(image, (topic.id, number), p, _turned(target, number), rules)
            if record is not None:
                records.append(record)
            yield
    return Decision(bool(records), records)


def recover(image: Image, static: Mapping[str, str], absences: Absences, now_ms: float) -> Steps:
    """What brokers had that are away for too long begins to be made on others; the answer: whether there is more.

    Only where somebody leads, to copy from. What moves already is left alone; brokers that were let go for good
    (unregistered) count as away at once.
    """
    after_ms = float(static.get(REPLICA_RECOVERY, "0"))
    if not after_ms:
        return Decision(False)
    away = absences.away(image, now_ms, after_ms)
    brokers = _live(image)
    lost: list[tuple[Topic, int, Partition]] = []
    names = yield from in_order(image.topics)
    for seen, (topic, number, p) in enumerate(_partitions(image, names), 1):
        brokers.count(p.replicas)
        if seen % PAUSE_EVERY == 0:
            yield
        if p.leader != NO_LEADER and not is_moving(p) and any(i in away or i not in image.brokers for i in p.replicas):
            lost.append((topic, number, p))
    records: list[Message] = []
    for topic, number, p in lost:
        gone = [i for i in p.replicas if i in away or i not in image.brokers]
        target = without(brokers, p.replicas, gone)
        if target is None:
            continue
        rules = rules_of(image, static, topic)
        record = reassign(image, (topic.id, number), p, target, rules)
        if record is not None:
            records.append(record)
        if len(records) == MOVES_A_TURN:
            return Decision(True, records)
        yield
    return Decision(False, records)
