"""More partitions for topics that are there.

Source: ``ReplicationControlManager.createPartitions`` (apache/kafka 4.3.1).

From KIP-195.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.controller.assignment import MAX_RECORDS_A_REQUEST, TOO_MANY_RECORDS, TooLarge, by_count, by_hand
from ottla.controller.decision import PAUSE_EVERY, READ_EVERY, Decision, Spend, Steps, firsts, named_twice, unbounded
from ottla.controller.image import Image, partition_record
from ottla.controller.placement import Chance
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import create_partitions as cp
from ottla.wire.schema import Message
from ottla.wire.written import StreamingArray


def _widen(
    topic: cp.CreatePartitionsTopic, image: Image, chance: Chance, room: int, spend: Spend
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
    spend(extra)
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


def create_partitions(
    image: Image, request: cp.CreatePartitionsRequest, version: int, chance: Chance, spend: Spend = unbounded
) -> Steps:
    """Add partitions to topics: each gets what it asks for or its error; too large a request is refused as a whole."""
    response = cp.CreatePartitionsResponse(results=StreamingArray(cp.CreatePartitionsResponse, version))
    records: list[Message] = []
    twice = yield from named_twice(topic.name for topic in request.topics)
    try:
        for found in firsts(request.topics, _name_of, twice):
            if found is None:
                yield
                continue
            number, topic, is_again = found
            code, message = ErrorCode.NONE, None
            try:
                if is_again:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += yield from _widen(topic, image, chance, MAX_RECORDS_A_REQUEST - len(records), spend)
            except ProtocolError as error:
                code, message = error.code, error.message
            response.results.append(cp.CreatePartitionsTopicResult(topic.name, code, message))
            if number % READ_EVERY == 0:
                yield
    except TooLarge as error:
        response.results = StreamingArray(cp.CreatePartitionsResponse, version)
        for found in firsts(request.topics, _name_of, twice):
            if found is None:
                yield
                continue
            number, topic, _ = found
            row = cp.CreatePartitionsTopicResult(topic.name, error.code, str(error))
            response.results.append(row)
            if number % READ_EVERY == 0:
                yield
        records = []
    return Decision(response, [] if request.validate_only else records)


def _name_of(topic: cp.CreatePartitionsTopic) -> str:
    return topic.name
