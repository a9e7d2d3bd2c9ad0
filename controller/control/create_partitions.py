"""CreatePartitions on the active controller: more partitions for existing topics.

Source: ``ReplicationControlManager.createPartitions`` (apache/kafka 4.3.1).

From KIP-195.
"""

from __future__ import annotations

from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_RECORDS_PER_REQUEST
from ottla.controller.metadata.image import MetadataImage, partition_record
from ottla.controller.partitions.partition_assignment import (
    TOO_MANY_RECORDS,
    RequestTooLarge,
    automatic_assignment,
    manual_assignment,
    refuse_all_job,
)
from ottla.controller.partitions.replica_placer import RandomFunction
from ottla.jobs.job import Job
from ottla.jobs.pending_request import ChargeQuota, no_quota
from ottla.jobs.sequences import YIELD_EVERY, find_duplicates_job, first_occurrences
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def _add_partitions(
    topic: CreatePartitionsTopic,
    image: MetadataImage,
    random: RandomFunction,
    max_partitions: int,
    charge_quota: ChargeQuota,
) -> Job[list[Message]]:
    """Return the PartitionRecords of a topic's new partitions, as a job.

    ``topic.count`` is the total number afterwards. ``charge_quota`` charges the controller mutation quota.

    Raises:
        RequestTooLarge: more than ``max_partitions`` new partitions.
        ProtocolError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
            INVALID_REPLICATION_FACTOR, or the error of ``charge_quota``.
    """
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
    charge_quota(extra)
    if extra > max_partitions:
        raise RequestTooLarge(TOO_MANY_RECORDS)
    if topic.assignments is not None:
        numbered = [(current + i, a.broker_ids) for i, a in enumerate(topic.assignments)]
        partitions = yield from manual_assignment(image, numbered, factor)
    else:
        partitions = yield from automatic_assignment(image, extra, factor, random)
    records: list[Message] = []
    for number, partition in enumerate(partitions, current):
        records.append(partition_record(known.id, number, partition))
        if number % YIELD_EVERY == 0:
            yield None
    return records


def create_partitions(
    image: MetadataImage,
    request: CreatePartitionsRequest,
    version: int,
    random: RandomFunction,
    charge_quota: ChargeQuota = no_quota,
) -> ControllerResultSteps:
    """Return the records and response of CreatePartitions, as a job; one that is too large fails as a whole.

    Otherwise each topic has its own error in the response. With ``validate_only`` there are no records.
    ``charge_quota`` charges new partitions also then; if it raises ProtocolError, the topic gets that error.
    """
    response = CreatePartitionsResponse(results=response_array(CreatePartitionsResponse, version))
    records: list[Message] = []
    twice = yield from find_duplicates_job(topic.name for topic in request.topics)
    try:
        for found in first_occurrences(request.topics, _name_of, twice):
            yield None
            if found is None:
                continue
            topic, is_again = found
            code, message = ErrorCode.NONE, None
            try:
                if is_again:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += yield from _add_partitions(
                    topic, image, random, MAX_RECORDS_PER_REQUEST - len(records), charge_quota
                )
            except ProtocolError as error:
                code, message = error.code, error.message
            response.results.append(CreatePartitionsTopicResult(topic.name, code, message))
    except RequestTooLarge as error:
        response.results = response_array(CreatePartitionsResponse, version)
        code, why = error.code, str(error)
        row_of = lambda topic: CreatePartitionsTopicResult(topic.name, code, why)  # noqa: E731
        yield from refuse_all_job(request.topics, _name_of, twice, row_of, response.results)
        records = []
    return ControllerResult(response, [] if request.validate_only else records)


def _name_of(topic: CreatePartitionsTopic) -> str:
    return topic.name
