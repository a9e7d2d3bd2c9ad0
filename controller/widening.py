"""More partitions for topics that are there.

Source: ``ReplicationControlManager.createPartitions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from ottla.controller.assignment import MAX_RECORDS_A_REQUEST, TOO_MANY_RECORDS, TooLarge, by_count, by_hand
from ottla.controller.decision import PAUSE_EVERY, Decision, Steps
from ottla.controller.image import Image, partition_record
from ottla.controller.placement import Chance
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import create_partitions as cp
from ottla.wire.schema import Message


def _widen(
    topic: cp.CreatePartitionsTopic, image: Image, chance: Chance, room: int
) -> Generator[None, None, list[Message]]:
    """The records of a topic's new partitions; more than ``room`` of them are too many for the request."""
    known = image.topics.get(topic.name)
    if known is None:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(known.partitions)
    if topic.count == current:
        raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if topic.count < current:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {topic.count} would not be an increase.",
        )
    extra = topic.count - current
    factor = len(known.partitions[0].replicas)
    if topic.assignments is not None and len(topic.assignments) != extra:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {extra} additional partition(s), but only {len(topic.assignments)} assignment(s) "
            "were specified.",
        )
    if extra > room:
        raise TooLarge(TOO_MANY_RECORDS)
    if topic.assignments is not None:
        numbered = [(current + i, a.broker_ids) for i, a in enumerate(topic.assignments)]
        partitions = yield from by_hand(image, numbered, factor)
    else:
        partitions = yield from by_count(image, extra, factor, chance)
    records: list[Message] = []
    for number, partition in enumerate(partitions, current):
        records.append(partition_record(known.id, number, partition))
        if number % PAUSE_EVERY == 0:
            yield
    return records


def create_partitions(image: Image, request: cp.CreatePartitionsRequest, chance: Chance) -> Steps:
    """Add partitions to topics: each gets what it asks for or its error; too large a request is refused as a whole."""
    response = cp.CreatePartitionsResponse()
    records: list[Message] = []
    counts = Counter(topic.name for topic in request.topics)
    topics = {t.name: t for t in reversed(request.topics)}
    names = list(dict.fromkeys(t.name for t in request.topics))
    try:
        for name in names:
            code, message = ErrorCode.NONE, None
            try:
                if counts[name] > 1:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                room = MAX_RECORDS_A_REQUEST - len(records)
                records += yield from _widen(topics[name], image, chance, room)
            except ProtocolError as error:
                code, message = error.code, error.message
            response.results.append(cp.CreatePartitionsTopicResult(name, code, message))
    except TooLarge as error:
        response.results = [cp.CreatePartitionsTopicResult(name, error.code, str(error)) for name in names]
        records = []
    return Decision(response, [] if request.validate_only else records)
