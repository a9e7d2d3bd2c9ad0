"""Topics and partitions: create, delete, widen.

Source: ``ReplicationControlManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.controller.config_keys import TOPIC_KEYS, check_value, topic_key
from ottla.controller.decision import Decision, Defaults
from ottla.controller.directories import default_directory
from ottla.controller.image import RESOURCE_BROKER, RESOURCE_TOPIC, Image, Partition, partition_record
from ottla.controller.placement import place
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import create_partitions as cp
from ottla.wire.messages import create_topics as ct
from ottla.wire.messages import delete_topics as dt
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import ZERO_UUID, Message

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
MAX_NAME = 249
SOURCE_TOPIC_CONFIG = 1
SOURCE_DYNAMIC_DEFAULT = 3
SOURCE_DEFAULT_CONFIG = 5

NewId = Callable[[], bytes]


def name_error(name: str) -> str | None:
    """What is wrong with a topic name, or None (``Topic.validate``)."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > MAX_NAME:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def config_error(values: Mapping[str, str | None]) -> str | None:
    """What is wrong with a topic's settings, or None."""
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


def new_partition(replicas: Iterable[int], image: Image) -> Partition:
    """A partition whose first live replica leads.

    Raises:
        ProtocolError: INVALID_REPLICA_ASSIGNMENT where no replica is alive.
    """
    ids = tuple(replicas)
    live = tuple(i for i in ids if i in image.brokers and not image.brokers[i].fenced)
    if not live:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment are fenced or in controlled shutdown.",
        )
    dirs = tuple(default_directory(image.brokers[i].log_dirs if i in image.brokers else []) for i in ids)
    return Partition(ids, live, live[0], 0, 0, dirs)


def _assigned(topic: ct.CreatableTopic, image: Image, defaults: Defaults) -> list[list[int]]:
    """The replica lists a creation asks for, by hand or by count."""
    if topic.assignments:
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor or the number of partitions "
                "was not set to -1.",
            )
        by_number = {a.partition_index: a.broker_ids for a in topic.assignments}
        if sorted(by_number) != list(range(len(topic.assignments))):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        for replicas in by_number.values():
            check_assignment(replicas, image)
        return [by_number[i] for i in range(len(by_number))]
    count, factor = topic.num_partitions, topic.replication_factor
    if factor < -1 or factor == 0:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < -1 or count == 0:
        raise ProtocolError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count = defaults.num_partitions if count == -1 else count
    if count > defaults.max_create_batch:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    factor = defaults.replication_factor if factor == -1 else factor
    return place(image.unfenced(), count, factor, len(image.topics))


def check_assignment(replicas: list[int], image: Image) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT for an empty list, a double or an unknown broker."""
    if not replicas:
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    if len(set(replicas)) != len(replicas):
        raise ProtocolError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker "
            f"{Counter(replicas).most_common(1)[0][0]} more than once.",
        )
    for broker in replicas:
        if broker not in image.brokers:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker}, but no such broker is registered.",
            )


def _configs(values: Mapping[str, str], image: Image) -> list[ct.CreatableTopicConfigs]:
    """All of a topic's effective settings, as a creation answers them."""
    wide = image.config(RESOURCE_BROKER, "")
    out = []
    for key in TOPIC_KEYS.values():
        value, source = key.default, SOURCE_DEFAULT_CONFIG
        if key.name in values:
            value, source = values[key.name], SOURCE_TOPIC_CONFIG
        elif key.broker_key is not None and key.broker_key in wide:
            value, source = wide[key.broker_key], SOURCE_DYNAMIC_DEFAULT
        out.append(ct.CreatableTopicConfigs(key.name, value, False, source, False))
    return out


def _create_one(
    topic: ct.CreatableTopic, image: Image, defaults: Defaults, new_id: NewId
) -> tuple[ct.CreatableTopicResult, list[Message]]:
    wrong = name_error(topic.name)
    if wrong is not None:
        raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if topic.name in image.topics:
        raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if "." in topic.name or "_" in topic.name:
        flat = topic.name.replace(".", "_")
        for other in image.topics:
            if other.replace(".", "_") == flat:
                raise ProtocolError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {other}"
                )
    values = {c.name: c.value for c in topic.configs}
    wrong = config_error(values)
    if wrong is not None:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, wrong)
    replicas = _assigned(topic, image, defaults)
    topic_id = new_id()
    records: list[Message] = [m.TopicRecord(topic.name, topic_id)]
    records += (m.ConfigRecord(RESOURCE_TOPIC, topic.name, k, v) for k, v in values.items())
    records += (partition_record(topic_id, number, new_partition(ids, image)) for number, ids in enumerate(replicas))
    texts = {k: v for k, v in values.items() if v is not None}
    result = ct.CreatableTopicResult(
        topic.name,
        topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=_configs(texts, image),
    )
    return result, records


def create_topics(
    image: Image, request: ct.CreateTopicsRequest, version: int, defaults: Defaults, new_id: NewId
) -> Decision:
    """Create each topic that may be created; the others get their error."""
    counts = Counter(topic.name for topic in request.topics)
    response = ct.CreateTopicsResponse()
    records: list[Message] = []
    flats: set[str] = set()
    for topic in {t.name: t for t in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            flat = topic.name.replace(".", "_")
            if flat in flats:
                raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with another.")
            result, made = _create_one(topic, image, defaults, new_id)
            flats.add(flat)
            records += made
        except ProtocolError as error:
            result = ct.CreatableTopicResult(
                topic.name, error_code=error.code, error_message=error.message, configs=[] if version >= 5 else None
            )
        response.topics.append(result)
    return Decision(response, [] if request.validate_only else records)


def delete_topics(image: Image, request: dt.DeleteTopicsRequest, version: int) -> Decision:
    """Delete by name, or (v6+) by name or id."""
    response = dt.DeleteTopicsResponse()
    records: list[Message] = []
    wanted: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    wanted += [(t.name, t.topic_id) for t in request.topics]
    counts = Counter(wanted)
    for (name, topic_id), times in counts.items():
        code, message = ErrorCode.NONE, None
        topic = image.topics.get(name) if name is not None else image.topic_by_id(topic_id)
        if name is not None and topic_id != ZERO_UUID:
            code, message = ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        elif times > 1:
            code, message = ErrorCode.INVALID_REQUEST, "Duplicate topic name." if name else "Duplicate topic ID."
        elif topic is None and name is not None:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        elif topic is None:
            code, message = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        else:
            records.append(m.RemoveTopicRecord(topic.id))
            name, topic_id = topic.name, topic.id
        response.responses.append(
            dt.DeletableTopicResult(name if name is not None or version >= 6 else "", topic_id, code, message)
        )
    return Decision(response, records)


def _widen(topic: cp.CreatePartitionsTopic, image: Image) -> list[Message]:
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
    if topic.assignments is not None:
        if len(topic.assignments) != extra:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {extra} additional partition(s), but only {len(topic.assignments)} assignment(s) "
                "were specified.",
            )
        lists = [a.broker_ids for a in topic.assignments]
        for replicas in lists:
            check_assignment(replicas, image)
    else:
        factor = len(known.partitions[0].replicas)
        lists = place(image.unfenced(), extra, factor, current)
    return [partition_record(known.id, current + i, new_partition(replicas, image)) for i, replicas in enumerate(lists)]


def create_partitions(image: Image, request: cp.CreatePartitionsRequest, version: int) -> Decision:
    """Add partitions to topics."""
    response = cp.CreatePartitionsResponse()
    records: list[Message] = []
    counts = Counter(topic.name for topic in request.topics)
    seen: dict[str, Any] = {}
    for topic in request.topics:
        if topic.name in seen:
            continue
        seen[topic.name] = topic
        code, message = ErrorCode.NONE, None
        try:
            if counts[topic.name] > 1:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _widen(topic, image)
        except ProtocolError as error:
            code, message = error.code, error.message
        response.results.append(cp.CreatePartitionsTopicResult(topic.name, code, message))
    return Decision(response, [] if request.validate_only else records)
