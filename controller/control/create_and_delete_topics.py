"""CreateTopics and DeleteTopics on the active controller.

Source: ``ReplicationControlManager.java`` (apache/kafka 4.3.1).

From KIP-4; ids: KIP-516.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from typing import NamedTuple

from ottla.controller.config.config_keys import INTERNAL_TOPIC_KEYS, TOPIC_KEYS, check_value, topic_key
from ottla.controller.config.config_validation import check_size, check_topic
from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult, ControllerResultSteps
from ottla.controller.limits import MAX_PARTITIONS_PER_REQUEST, MAX_RECORDS_PER_REQUEST, MAX_TOPIC_NAME_CHARS
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    partition_record,
)
from ottla.controller.partitions.partition_assignment import (
    TOO_MANY_PARTITIONS,
    RequestTooLarge,
    automatic_assignment,
    check_batch_limits,
    manual_assignment,
    refuse_all_job,
    utf8_size,
)
from ottla.controller.partitions.replica_placer import RandomFunction
from ottla.jobs.job import Job
from ottla.jobs.pending_request import ChargeQuota, no_quota
from ottla.jobs.sequences import YIELD_EVERY, find_duplicates_job, first_occurrences, free_job
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.wire.codec.compiler import response_array
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
SOURCE_TOPIC_CONFIG = 1
SOURCE_DYNAMIC_DEFAULT = 3
SOURCE_DEFAULT_CONFIG = 5

UuidFunction = Callable[[], bytes]


class TopicCreationContext(NamedTuple):
    """Inputs of topic creation besides the request: defaults, id and random generators, quota of the requester."""

    defaults: ControllerDefaults
    new_id: UuidFunction
    random: RandomFunction
    charge_quota: ChargeQuota = no_quota


def topic_name_error(name: str) -> str | None:
    """Return Kafka's error message for an invalid topic name, None for a valid one (``Topic.validate``)."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME_CHARS:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME_CHARS}"
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def topic_config_error(values: Mapping[str, str | None]) -> str | None:
    """Return Kafka's error message for the first unknown, null or invalid config of a new topic, or None."""
    for name, value in values.items():
        key = topic_key(name)
        if key is None:
            return f"Unknown topic config name: {name}"
        if value is None:
            return f"Null value not supported for topic configs: {name}"
        wrong = check_value(key, value)
        if wrong is not None:
            return wrong
    return None


def _partitions(
    topic: CreatableTopic, image: MetadataImage, defaults: ControllerDefaults, random: RandomFunction
) -> Job[list[PartitionRegistration]]:
    """Return the partitions of a topic to be created, by number, with manual or automatic replica assignment, as a job.

    Raises:
        ProtocolError: INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS.
        RequestTooLarge: too many partitions.
    """
    if topic.assignments:
        if topic.replication_factor != -1:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        numbers = {a.partition_index for a in topic.assignments}
        made = yield from manual_assignment(image, [(a.partition_index, a.broker_ids) for a in topic.assignments], None)
        if numbers != set(range(len(made))):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return made
    count, factor = topic.num_partitions, topic.replication_factor
    if factor < -1 or factor == 0:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < -1 or count == 0:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = defaults.num_partitions if count == -1 else count
    factor = defaults.replication_factor if factor == -1 else factor
    return (yield from automatic_assignment(image, count, factor, random))


def _configs(values: Mapping[str, str], image: MetadataImage) -> list[CreatableTopicConfigs]:
    """Return a new topic's configs with their sources, for the CreateTopics response.

    A value is the one in ``values`` (configs set in the request), else the dynamic cluster default, else Kafka's
    default; the node's configuration is not considered. Internal configs appear only if they are set.
    """
    wide = image.config(RESOURCE_BROKER, "")
    out = []
    for key in TOPIC_KEYS.values():
        value, source = key.default, SOURCE_DEFAULT_CONFIG
        if key.name in values:
            value, source = values[key.name], SOURCE_TOPIC_CONFIG
        elif key.broker_key is not None and key.broker_key in wide:
            value, source = wide[key.broker_key], SOURCE_DYNAMIC_DEFAULT
        out.append(CreatableTopicConfigs(key.name, value, False, source, False))
    hidden = (name for name in values if name in INTERNAL_TOPIC_KEYS)
    out += (CreatableTopicConfigs(name, values[name], False, SOURCE_TOPIC_CONFIG, False) for name in hidden)
    return out


def _create_topic(
    topic: CreatableTopic, image: MetadataImage, creation: TopicCreationContext
) -> Job[tuple[CreatableTopicResult, list[Message]]]:
    values = {c.name: c.value for c in topic.configs}
    wrong = topic_config_error(values)
    if wrong is not None:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, wrong)
    for value in values.values():
        check_size(value)
    wide = {**creation.defaults.static_config, **image.config(RESOURCE_BROKER, "")}
    check_topic({k: v for k, v in values.items() if v is not None}, wide, {})
    partitions = yield from _partitions(topic, image, creation.defaults, creation.random)
    creation.charge_quota(len(partitions))
    topic_id = creation.new_id()
    records: list[Message] = [TopicRecord(topic.name, topic_id)]
    records += (ConfigRecord(RESOURCE_TOPIC, topic.name, k, v) for k, v in values.items())
    for number, partition in enumerate(partitions):
        records.append(partition_record(topic_id, number, partition))
        if number % YIELD_EVERY == 0:
            yield None
    texts = {k: v for k, v in values.items() if v is not None}
    result = CreatableTopicResult(
        topic.name,
        topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=_configs(texts, image),
    )
    return result, records


def _name_collision_error(name: str, image: MetadataImage, flats: Mapping[str, str]) -> ProtocolError | None:
    """Return the error of an invalid, prohibited, existing or colliding name, or None; ``a.b`` and ``a_b`` collide.

    ``flats``: names in the image by their form with dots replaced by underscores.
    """
    if name == METADATA_TOPIC:  # its partition 0 would have the directory of the metadata log
        return ProtocolError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    wrong = topic_name_error(name)
    if wrong is not None:
        return ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if name in image.topics:
        return ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = flats.get(name.replace(".", "_")) if "." in name or "_" in name else None
    if other is not None:
        return ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    return None


def _requested_partition_count(request: CreateTopicsRequest, defaults: ControllerDefaults) -> Job[int]:
    """Return the number of partitions that a request asks for, as a job (``validateTotalNumberOfPartitions``).

    Invalid topics are counted too; a default (-1) as ``num_partitions``.
    """
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += defaults.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)
        yield None
    return total


def _names_with_underscores(image: MetadataImage) -> Job[dict[str, str]]:
    flats: dict[str, str] = {}
    for number, name in enumerate(image.topics, 1):
        if "." in name or "_" in name:
            flat = name.replace(".", "_")
            flats[flat] = min(name, flats.get(flat, name))
        if number % (10 * YIELD_EVERY) == 0:
            yield None
    return flats


def create_topics(
    image: MetadataImage, request: CreateTopicsRequest, version: int, creation: TopicCreationContext
) -> ControllerResultSteps:
    """Return the records and response of CreateTopics, as a job; a request that is too large is rejected as a whole.

    Otherwise each topic has its own error in the response. With ``validate_only`` there are no records. The partitions
    are charged to the requester's quota, also with ``validate_only``; a topic that exceeds it gets its error.
    """
    response = CreateTopicsResponse(topics=response_array(CreateTopicsResponse, version))
    records: list[Message] = []
    size = 0

    def refused(name: str, error: ProtocolError) -> CreatableTopicResult:
        configs: list[CreatableTopicConfigs] | None = [] if version >= 5 else None
        return CreatableTopicResult(name, error_code=error.code, error_message=error.message, configs=configs)

    twice = yield from find_duplicates_job(topic.name for topic in request.topics)
    try:
        if (yield from _requested_partition_count(request, creation.defaults)) > MAX_PARTITIONS_PER_REQUEST:
            raise RequestTooLarge(TOO_MANY_PARTITIONS)
        flats = yield from _names_with_underscores(image)
        for found in first_occurrences(request.topics, _name_of, twice):
            yield None
            if found is None:
                continue
            topic, is_again = found
            try:
                if is_again:
                    raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                taken = _name_collision_error(topic.name, image, flats)
                if taken is not None:
                    raise taken
                result, made = yield from _create_topic(topic, image, creation)
                records += made
                size += utf8_size(text for config in topic.configs for text in (config.name, config.value))
                check_batch_limits(len(records), size)
            except ProtocolError as error:
                result = refused(topic.name, error)
            response.topics.append(result)
    except RequestTooLarge as error:
        why = ProtocolError(error.code, str(error))
        response.topics = response_array(CreateTopicsResponse, version)
        row_of = lambda topic: refused(topic.name, why)  # noqa: E731
        yield from refuse_all_job(request.topics, _name_of, twice, row_of, response.topics)
        records = []
    return ControllerResult(response, [] if request.validate_only else records)


def _name_of(topic: CreatableTopic) -> str:
    return topic.name


def _to_delete(request: DeleteTopicsRequest) -> Iterator[tuple[str | None, bytes]]:
    for name in request.topic_names:
        yield name, ZERO_UUID
    for topic in request.topics:
        yield topic.name, topic.topic_id


def _identity(item: tuple[str | None, bytes]) -> tuple[str | None, bytes]:
    return item


def _names_and_ids(request: DeleteTopicsRequest, twice: Container[Hashable]) -> Job[tuple[set[str], set[bytes]]]:
    """Return, as a job, the names that occur once in a DeleteTopics request, and all topic ids without a name.

    ``twice``: entries that occur more than once.
    """
    names: set[str] = set()
    ids: set[bytes] = set()
    for item in _to_delete(request):
        name, topic_id = item
        if name is None:
            ids.add(topic_id)
        elif topic_id == ZERO_UUID and item not in twice:
            names.add(name)
        yield None
    return names, ids


def _deletion_name_error(
    name: str | None, topic_id: bytes, topic: TopicImage | None, ids: Container[bytes], *, is_again: bool
) -> str | None:
    """Return the error message (of INVALID_REQUEST) of an entry in a DeleteTopics request, or None.

    ``topic``: the topic of the entry, None if unknown. ``ids``: all ids of the request. ``is_again``: it is a
    duplicate.
    """
    if name is None:
        if topic_id == ZERO_UUID:
            return "Neither topic name nor id were specified."
        return "Duplicate topic id." if is_again else None
    if topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    if is_again:
        return "Duplicate topic name."
    if topic is not None and topic.id in ids:
        return "The provided topic name maps to an ID that was already supplied."
    return None


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, version: int, charge_quota: ChargeQuota = no_quota
) -> ControllerResultSteps:
    """Return the records and response of DeleteTopics, by name or (version 6 and later) by id, as a job.

    Topics beyond `MAX_RECORDS_PER_REQUEST` are not deleted and get UNKNOWN_SERVER_ERROR. A topic that is given by its
    name and by its id is not deleted: the row of its name has INVALID_REQUEST, and its id has no row
    (``ControllerApis.scala``). ``charge_quota`` is called with the number of partitions of each topic to delete; if it
    raises ProtocolError, the topic gets that error. Neither authorization nor ``delete.topic.enable`` is checked here.
    """
    response = DeleteTopicsResponse(responses=response_array(DeleteTopicsResponse, version))
    records: list[Message] = []
    twice = yield from find_duplicates_job(_to_delete(request))
    names, ids = yield from _names_and_ids(request, twice)
    for found in first_occurrences(_to_delete(request), _identity, twice):
        yield None
        if found is None:
            continue
        (name, topic_id), is_again = found
        code, message = ErrorCode.NONE, None
        topic = image.topics.get(name) if name is not None else image.topic_by_id(topic_id)
        if name is None and topic is not None and not is_again and topic.name in names:
            continue
        wrong = _deletion_name_error(name, topic_id, topic, ids, is_again=is_again)
        if wrong is not None:
            code, message = ErrorCode.INVALID_REQUEST, wrong
            if name is not None and topic_id == ZERO_UUID and not is_again and topic is not None:
                topic_id = topic.id  # the request has it by name and by id
        elif topic is None and name is not None:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        elif topic is None:
            code, message = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        elif len(records) == MAX_RECORDS_PER_REQUEST:
            code, name, topic_id = ErrorCode.UNKNOWN_SERVER_ERROR, topic.name, topic.id  # BoundedList
        else:
            name, topic_id = topic.name, topic.id
            try:
                charge_quota(len(topic.partitions))
                records.append(RemoveTopicRecord(topic.id))
            except ProtocolError as error:
                code, message = error.code, error.message
        response.responses.append(
            DeletableTopicResult(name if name is not None or version >= 6 else "", topic_id, code, message)
        )
    for collected in (twice, names, ids):
        yield from free_job(collected)
    return ControllerResult(response, records)
