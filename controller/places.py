"""A broker says in which of its directories replicas lie.

Source: ``ReplicationControlManager.handleAssignReplicasToDirs`` (apache/kafka 4.3.1; KIP-858).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from ottla.controller.decision import PAUSE_EVERY, READ_EVERY, Decision, Steps
from ottla.controller.directories import is_online
from ottla.controller.image import Image, Partition, Topic
from ottla.controller.leadership import partition_changes, rules_of
from ottla.controller.partition_change import Election, change
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import assign_replicas_to_dirs as ad
from ottla.wire.schema import Message


def _row_error(topic: Topic | None, number: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if number not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in topic.partitions[number].replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def may_lead(image: Image, p: Partition) -> Callable[[int], bool]:
    """Who may lead a partition as things stand (R287): never one that has nothing of it yet."""

    def check(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return broker_id in p.replicas and is_online(p, broker)

    return check


def assign(image: Image, request: ad.AssignReplicasToDirsRequest, static: Mapping[str, str]) -> Steps:
    """Note where replicas lie (R302). What turns out to lie in a failed directory is led by others, or by nobody."""
    broker_id, broker = request.broker_id, image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        return Decision(ad.AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    response = ad.AssignReplicasToDirsResponse()
    records: list[Message] = []
    lost: set[tuple[bytes, int]] = set()
    seen = 0
    for directory in request.directories:
        seen += 1
        if seen % READ_EVERY == 0:
            yield
        out = ad.AssignReplicasToDirsResponseDirectoryData(directory.id)
        response.directories.append(out)
        for wanted in directory.topics:
            seen += 1
            if seen % READ_EVERY == 0:
                yield
            topic = image.topic_by_id(wanted.topic_id)
            rules = rules_of(image, static, topic) if topic is not None else None
            rows = ad.AssignReplicasToDirsResponseTopicData(wanted.topic_id)
            out.topics.append(rows)
            for part in wanted.partitions:
                seen += 1
                if seen % PAUSE_EVERY == 0:
                    yield
                number = part.partition_index
                error = _row_error(topic, number, broker_id)
                rows.partitions.append(ad.AssignReplicasToDirsResponsePartitionData(number, error))
                if error != ErrorCode.NONE:
                    continue
                assert topic is not None
                assert rules is not None
                p = topic.partitions[number]
                at = (topic.id, number)
                where = {broker_id: directory.id}
                record = change(at, p, may_lead(image, p), rules, election=Election.ONLINE, directories=where)
                if record is not None:
                    records.append(record)
                if directory.id not in broker.log_dirs:
                    lost.add(at)
    records += yield from _led_by_others(image, static, broker_id, lost)
    return Decision(response, records)


def _led_by_others(
    image: Image, static: Mapping[str, str], broker_id: int, lost: set[tuple[bytes, int]]
) -> Generator[None, None, list[Message]]:
    """Take the broker out of the in-sync sets of partitions that turned out to lie in a failed directory."""
    if not lost:
        return []
    found = {id(image.topics[image.topic_names[topic]].partitions[number]) for topic, number in lost}
    return (yield from partition_changes(image, static, lambda p: id(p) in found, leaves=broker_id))
