"""Brokers: registration, fencing, controlled shutdown, and who leads what as they come and go.

Source: ``ClusterControlManager.java``, ``ReplicationControlManager.java``, ``PartitionChangeBuilder.java``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from ottla.controller.decision import Decision
from ottla.controller.directories import MIGRATING, directory_of, is_online
from ottla.controller.image import NO_LEADER, Image, Partition, partitions_of
from ottla.controller.records import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, NEWEST_METADATA_VERSION
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import allocate_producer_ids as ap
from ottla.wire.messages import metadata_records as m
from ottla.wire.messages import unregister_broker as ub
from ottla.wire.schema import Message

PRODUCER_ID_BLOCK = 1000
SUPPORTED_FEATURES = {
    METADATA_VERSION: (7, NEWEST_METADATA_VERSION),
    KRAFT_VERSION: (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    ELR_VERSION: (0, 1),
}


class Register(NamedTuple):
    """A broker process has started."""

    broker_id: int
    incarnation_id: bytes
    directory_ids: list[bytes]
    endpoints: list[m.BrokerEndpoint]
    rack: str | None


class Unfence(NamedTuple):
    """A broker has caught up with the metadata and may lead."""

    broker_id: int


class DirectoriesOffline(NamedTuple):
    """Some of a broker's directories have failed; these are left."""

    broker_id: int
    online: list[bytes]


class Assign(NamedTuple):
    """A broker says where its replicas lie: ((topic id, partition), directory)."""

    broker_id: int
    places: list[tuple[tuple[bytes, int], bytes]]


class ShutDown(NamedTuple):
    """A broker wants to stop: its leaderships move away first."""

    broker_id: int


class Resign(NamedTuple):
    """A broker that moved its leaderships away stops now."""

    broker_id: int


def _features() -> list[m.BrokerFeature]:
    return [m.BrokerFeature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]


def register(event: Register, next_offset: int) -> Decision:
    """Write the registration, fenced: the broker epoch is this record's own offset."""
    record = m.RegisterBrokerRecord(
        event.broker_id,
        False,
        event.incarnation_id,
        next_offset,
        event.endpoints,
        _features(),
        event.rack,
        True,
        False,
        sorted(event.directory_ids),
    )
    return Decision(next_offset, [record])


def unfence(image: Image, event: Unfence) -> Decision:
    """Let a broker lead: it takes over every partition that has no leader it could wait for.

    A partition without in-sync replicas goes to an eligible leader replica, or to the last known leader when it is
    the only one (KIP-966); a broker that led before its restart leads again under a new epoch. What lies in a directory
    that did not come back is led by nobody.
    """
    broker = image.brokers[event.broker_id]
    records: list[Message] = [
        m.BrokerRegistrationChangeRecord(event.broker_id, broker.broker_epoch, fenced=-1, in_controlled_shutdown=0)
    ]
    for topic_id, number, p in partitions_of(image, event.broker_id):
        if not is_online(p, broker):
            continue
        candidates = p.isr or p.elr or p.last_known_elr
        if p.leader not in (NO_LEADER, event.broker_id) or event.broker_id not in candidates:
            continue
        isr = list(p.isr) or [event.broker_id]
        change = m.PartitionChangeRecord(number, topic_id, isr if tuple(isr) != p.isr else None, event.broker_id)
        if p.elr:
            change.eligible_leader_replicas = [i for i in p.elr if i not in isr]
        if p.last_known_elr:
            change.last_known_elr = []
        records.append(change)
    records += _out_of_sync(image, event.broker_id, lambda p: not is_online(p, broker))
    return Decision(None, records)


def directories_offline(image: Image, event: DirectoriesOffline) -> Decision:
    """Move leaderships away from a broker's failed directories."""
    broker = image.brokers[event.broker_id]
    change = m.BrokerRegistrationChangeRecord(event.broker_id, broker.broker_epoch, log_dirs=sorted(event.online))
    left = replace(broker, log_dirs=sorted(event.online))
    return Decision(None, [change, *_out_of_sync(image, event.broker_id, lambda p: not is_online(p, left))])


def assign(image: Image, event: Assign) -> Decision:
    """Note where replicas lie; one whose directory has failed since it was made is led by nobody."""
    broker = image.brokers[event.broker_id]
    places = dict(event.places)
    records: list[Message] = []
    lost: list[Partition] = []
    for topic_id, number, p in partitions_of(image, event.broker_id):
        place = places.get((topic_id, number))
        if place is None or directory_of(p, event.broker_id) == place:
            continue
        at = p.replicas.index(event.broker_id)
        known = list(p.directories) if len(p.directories) == len(p.replicas) else [MIGRATING] * len(p.replicas)
        known[at] = place
        records.append(m.PartitionChangeRecord(number, topic_id, directories=known))
        if place not in broker.log_dirs:
            lost.append(p)
    records += _out_of_sync(image, event.broker_id, lambda p: any(p is x for x in lost))
    return Decision(None, records)


def shut_down(image: Image, event: ShutDown) -> Decision:
    """Move leaderships away from a broker that wants to stop; alone in the ISR, it stays eligible."""
    broker = image.brokers[event.broker_id]
    change = m.BrokerRegistrationChangeRecord(event.broker_id, broker.broker_epoch, fenced=0, in_controlled_shutdown=1)
    return Decision(None, [change, *_out_of_sync(image, event.broker_id)])


def _out_of_sync(
    image: Image, broker_id: int, affected: Callable[[Partition], bool] = lambda p: True
) -> Iterator[Message]:
    """Take a broker out of every ISR; where it was the last, it stays eligible to lead."""
    for topic_id, number, p in partitions_of(image, broker_id):
        if broker_id not in p.isr or not affected(p):
            continue
        rest = [i for i in p.isr if i != broker_id]
        alive = [i for i in p.replicas if i in rest and not image.brokers[i].fenced]
        change = m.PartitionChangeRecord(number, topic_id, rest)
        if p.leader == broker_id:
            change.leader = alive[0] if alive else NO_LEADER
        if not rest:
            change.eligible_leader_replicas = [*(i for i in p.elr if i != broker_id), broker_id]
            change.last_known_elr = [broker_id]
        yield change


def unregister(image: Image, request: ub.UnregisterBrokerRequest) -> Decision:
    """Forget a broker, whether it runs or not."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        return Decision(ub.UnregisterBrokerResponse(0, ErrorCode.BROKER_ID_NOT_REGISTERED, message))
    gone = m.UnregisterBrokerRecord(request.broker_id, broker.broker_epoch)
    return Decision(ub.UnregisterBrokerResponse(), [*_out_of_sync(image, request.broker_id), gone])


def resign(image: Image, event: Resign) -> Decision:
    """Fence a broker that stops."""
    broker = image.brokers[event.broker_id]
    return Decision(None, [m.BrokerRegistrationChangeRecord(event.broker_id, broker.broker_epoch, fenced=1)])


def allocate_producer_ids(image: Image, request: ap.AllocateProducerIdsRequest) -> Decision:
    """Hand a broker the next block of producer ids (``ProducerIdControlManager.java``)."""
    start = 0 if image.next_producer_id is None else image.next_producer_id.next_producer_id
    record = m.ProducerIdsRecord(request.broker_id, request.broker_epoch, start + PRODUCER_ID_BLOCK)
    response = ap.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK)
    return Decision(response, [record])
