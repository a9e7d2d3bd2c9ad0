"""Settings of topics, brokers, groups and client metrics: change them.

Source: ``ConfigurationControlManager.java`` (apache/kafka 4.3.1).

One value at a time: KIP-339; settings of brokers: KIP-226.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ottla.controller import config_rules
from ottla.controller.assignment import MAX_RECORDS_A_REQUEST, TOO_MANY_RECORDS, TooLarge, check_room
from ottla.controller.config_keys import GROUP_KEYS, ConfigKey, broker_key, check_value, topic_key
from ottla.controller.decision import PAUSE_EVERY, Decision, Defaults, Steps, firsts, gathered, named_twice
from ottla.controller.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    Image,
)
from ottla.controller.records import ELR_VERSION
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import alter_configs as ac
from ottla.wire.messages import incremental_alter_configs as ia
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message
from ottla.wire.written import Written

_NUMBER = re.compile(r"[-+]?[0-9]{1,10}")

CLIENT_METRICS_KEYS = {
    "metrics": ConfigKey("metrics", "LIST", ""),
    "interval.ms": ConfigKey("interval.ms", "INT", "300000", "-"),
    "match": ConfigKey("match", "LIST", ""),
}


class Op(IntEnum):
    """What an incremental change does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(Op)


def any_broker_key(name: str) -> ConfigKey:
    """A broker's own plug-ins may have settings of any name: what they are nobody knows, so none is shown."""
    return broker_key(name) or ConfigKey(name, "UNKNOWN", None)


_TABLES: dict[int, Callable[[str], ConfigKey | None]] = {
    RESOURCE_TOPIC: topic_key,
    RESOURCE_GROUP: GROUP_KEYS.get,
    RESOURCE_CLIENT_METRICS: CLIENT_METRICS_KEYS.get,
    RESOURCE_BROKER: any_broker_key,
}
_UNKNOWN = {
    RESOURCE_TOPIC: (ErrorCode.INVALID_CONFIG, "Unknown topic config name: "),
    RESOURCE_GROUP: (ErrorCode.INVALID_CONFIG, "Unknown group config name: "),
    RESOURCE_CLIENT_METRICS: (ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: "),
}


def _check_resource(image: Image, kind: int, name: str) -> Callable[[str], ConfigKey | None]:
    """The key table of a resource that exists.

    Raises:
        ProtocolError: no such kind, topic or broker.
    """
    table = _TABLES.get(kind)
    if table is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == RESOURCE_TOPIC and name not in image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == RESOURCE_BROKER and name:
        if not _NUMBER.fullmatch(name):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}: it must be a number.")
        if int(name) not in image.brokers and int(name) not in image.controllers:
            raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")
    if kind in (RESOURCE_GROUP, RESOURCE_CLIENT_METRICS) and not name:
        group = kind == RESOURCE_GROUP
        why = "Default resources are not allowed." if group else "Subscription name can't be empty"
        raise ProtocolError(ErrorCode.INVALID_REQUEST, why)
    return table


def _next_value(kind: int, key: ConfigKey, op: Op, current: str | None, change: ia.AlterableConfig) -> str | None:
    """A setting after one change; None removes it."""
    if op is Op.DELETE:
        return None
    if change.value is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if op is Op.SET:
        return change.value
    if key.type != "LIST" and kind == RESOURCE_BROKER:
        what = f"Config value {op.name.lower()} is not allowed for config key: {key.name}"
        raise ProtocolError(ErrorCode.INVALID_CONFIG, what)
    if key.type != "LIST":
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"Can't {op.name} to key {key.name} because its type is not LIST."
        )
    items = [x for x in ((key.default if current is None else current) or "").split(",") if x]
    asked = [x for x in change.value.split(",") if x]
    if op is Op.APPEND:
        there = set(items)
        return ",".join([*items, *(x for x in dict.fromkeys(asked) if x not in there)])
    gone = Counter(asked)  # each takes the first of its kind
    left = []
    for item in items:
        if gone[item] > 0:
            gone[item] -= 1
        else:
            left.append(item)
    return ",".join(left)


def _alter_one(
    image: Image, resource: ia.AlterConfigsResource, defaults: Defaults
) -> Generator[None, None, list[Message]]:
    """The records that change one resource. Sizes come first: no other rule has to look at what is too long."""
    kind = resource.resource_type
    table = _check_resource(image, kind, resource.resource_name)
    if kind == RESOURCE_BROKER and len(resource.configs) > MAX_RECORDS_A_REQUEST:
        raise TooLarge(TOO_MANY_RECORDS)  # plug-ins may have settings of any name
    names: set[str] = set()
    is_twice = False
    for number, change in enumerate(resource.configs, 1):
        config_rules.check_size(change.value)
        is_twice = is_twice or change.name in names
        names.add(change.name)
        if number % PAUSE_EVERY == 0:
            yield
    if is_twice:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    values = image.config(kind, resource.resource_name)
    changed: dict[str, str | None] = {}
    for number, change in enumerate(resource.configs, 1):
        if table(change.name) is None:
            code, text = _UNKNOWN[kind]
            raise ProtocolError(code, text + change.name)
        if change.config_operation not in _OPERATIONS:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka trips over it
        if number % PAUSE_EVERY == 0:
            yield
    for number, change in enumerate(resource.configs, 1):
        key = table(change.name)
        assert key is not None
        if number % PAUSE_EVERY == 0:
            yield
        op = Op(change.config_operation)
        value = changed[change.name] = _next_value(kind, key, op, values.get(change.name), change)
        wrong = check_value(key, value) if value is not None and kind != RESOURCE_BROKER else None
        if wrong is not None:
            metrics = kind == RESOURCE_CLIENT_METRICS
            raise ProtocolError(ErrorCode.INVALID_REQUEST if metrics else ErrorCode.INVALID_CONFIG, wrong)
        config_rules.check_size(value)
    _check_together(image, resource, changed, defaults)
    made: Iterable[Message] = (
        m.ConfigRecord(kind, resource.resource_name, name, value)
        for name, value in changed.items()
        if value != values.get(name) or kind == RESOURCE_BROKER  # set again, a store is read again (KAFKA-14136)
    )
    return (yield from gathered(made))


def _check_together(
    image: Image, resource: ia.AlterConfigsResource, changed: Mapping[str, str | None], defaults: Defaults
) -> None:
    """Hold what a resource's settings would become against the rules of its kind."""
    kind, name = resource.resource_type, resource.resource_name
    values = {**image.config(kind, name), **changed}
    new = {k: v for k, v in values.items() if v is not None}
    if kind == RESOURCE_BROKER:
        config_rules.check_broker(name, new)
        config_rules.check_min_isr(image, name, changed)
        config_rules.check_cordoned(image, changed)
    elif kind == RESOURCE_TOPIC:
        config_rules.check_topic(new, defaults.broker)
    elif kind == RESOURCE_GROUP:
        config_rules.check_group(new, defaults.broker)
    elif kind == RESOURCE_CLIENT_METRICS:
        config_rules.check_client_metrics(new)


def _replace_one(
    image: Image, resource: ac.AlterConfigsResource, defaults: Defaults
) -> Generator[None, None, list[Message]]:
    """A resource's settings become exactly what is named; the rest goes back to the defaults."""
    wanted: dict[str, str | None] = {}
    for number, config in enumerate(resource.configs, 1):
        wanted[config.name] = config.value
        if number % PAUSE_EVERY == 0:
            yield
    changes = yield from gathered(ia.AlterableConfig(name, Op.SET, value) for name, value in wanted.items())
    if len(wanted) != len(resource.configs):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    old = image.config(resource.resource_type, resource.resource_name)
    changes += [ia.AlterableConfig(name, Op.DELETE, None) for name in old if name not in wanted]
    altered = ia.AlterConfigsResource(resource.resource_type, resource.resource_name, changes)
    return (yield from _alter_one(image, altered, defaults))


Resource = ac.AlterConfigsResource | ia.AlterConfigsResource
Decide = Callable[[Image, Any, Defaults], Generator[None, None, list[Message]]]
Row = Callable[[ErrorCode, str | None, int, str], Any]
"""Makes a row of an answer of its error code, message, resource type and resource name."""


def _each(
    image: Image, resources: Iterable[Resource], defaults: Defaults, decide: Decide, row: Row, rows: list[Any]
) -> Generator[None, None, list[Message]]:
    """Decide on each resource by itself: it changes wholly or not at all. Gives the records.

    Raises:
        TooLarge: the request must be refused as a whole.
    """
    records: list[Message] = []
    size = 0
    twice = yield from named_twice(map(_place_of, resources))
    for found in firsts(resources, _place_of, twice):
        if found is None:
            yield
            continue
        number, resource, is_again = found
        code, message = ErrorCode.NONE, None
        try:
            if is_again:
                raise ProtocolError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            made = yield from decide(image, resource, defaults)
            records += made
            size += sum(len(r.name) + len(r.value or "") for r in made if isinstance(r, m.ConfigRecord))
        except ProtocolError as error:
            code, message = error.code, error.message
        rows.append(row(code, message, resource.resource_type, resource.resource_name))
        check_room(len(records), size)
        if resource.configs or number % PAUSE_EVERY == 0:
            yield
    records += _forgotten(image, records)
    check_room(len(records), size)
    return records


def _refuse_all(
    resources: Iterable[Resource], error: TooLarge, row: Row, rows: list[Any]
) -> Generator[None, None, None]:
    twice = yield from named_twice(map(_place_of, resources))
    for found in firsts(resources, _place_of, twice):
        if found is None:
            yield
            continue
        number, resource, _ = found
        rows.append(row(error.code, str(error), resource.resource_type, resource.resource_name))
        if number % PAUSE_EVERY == 0:
            yield


def _place_of(resource: Resource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _forgotten(image: Image, records: Sequence[Message]) -> list[Message]:
    """What goes with another minimum of in-sync replicas: who was an eligible leader under the old one is none.

    Under a lower minimum something may have been acknowledged that an eligible leader does not have
    (``createClearElrRecordsAsNeeded``, KIP-966).
    """
    if not image.features.get(ELR_VERSION):
        return []
    changed = [r for r in records if isinstance(r, m.ConfigRecord) and r.name == config_rules.MIN_ISR]
    return [m.ClearElrRecord(r.resource_name if r.resource_type == RESOURCE_TOPIC else "") for r in changed]


def legacy_alter(image: Image, request: ac.AlterConfigsRequest, version: int, defaults: Defaults) -> Steps:
    """Replace settings as a whole."""
    row, rows = ac.AlterConfigsResourceResponse, Written(ac.AlterConfigsResponse, version)
    try:
        records = yield from _each(image, request.resources, defaults, _replace_one, row, rows)
    except TooLarge as error:
        records, rows = [], Written(ac.AlterConfigsResponse, version)
        yield from _refuse_all(request.resources, error, row, rows)
    return Decision(ac.AlterConfigsResponse(responses=rows), [] if request.validate_only else records)


def incremental_alter(
    image: Image, request: ia.IncrementalAlterConfigsRequest, version: int, defaults: Defaults
) -> Steps:
    """Change settings one by one."""
    row, rows = ia.AlterConfigsResourceResponse, Written(ia.IncrementalAlterConfigsResponse, version)
    try:
        records = yield from _each(image, request.resources, defaults, _alter_one, row, rows)
    except TooLarge as error:
        records, rows = [], Written(ia.IncrementalAlterConfigsResponse, version)
        yield from _refuse_all(request.resources, error, row, rows)
    return Decision(ia.IncrementalAlterConfigsResponse(responses=rows), [] if request.validate_only else records)
