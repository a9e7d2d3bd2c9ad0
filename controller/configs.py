"""Settings of topics, brokers, groups and client metrics: change them.

Source: ``ConfigurationControlManager.java`` (apache/kafka 4.3.1).

One value at a time: KIP-339; settings of brokers: KIP-226.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ottla.controller import config_rules
from ottla.controller.assignment import MAX_RECORDS_A_REQUEST, TOO_MANY_RECORDS, TooLarge, check_room
from ottla.controller.config_keys import GROUP_KEYS, TOPIC_KEYS, ConfigKey, broker_key, check_value, topic_key
from ottla.controller.decision import PAUSE_EVERY, READ_EVERY, Decision, Defaults, Steps, firsts, gathered, named_twice
from ottla.controller.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    Image,
)
from ottla.controller.java_values import parse_integer, split
from ottla.controller.records import ELR_VERSION
from ottla.controller.topics import name_error
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import alter_configs as ac
from ottla.wire.messages import incremental_alter_configs as ia
from ottla.wire.messages import metadata_records as m
from ottla.wire.schema import Message
from ottla.wire.written import StreamingArray

CLIENT_METRICS_KEYS = {
    "metrics": ConfigKey("metrics", "LIST", "", "list"),
    "interval.ms": ConfigKey("interval.ms", "INT", "300000", "-"),
    "match": ConfigKey("match", "LIST", "", "list"),
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
_WITH_LISTS = (RESOURCE_TOPIC, RESOURCE_BROKER)
"""Resources to whose lists elements can be appended: those of ``KafkaConfigSchema``."""
_UNKNOWN = {
    RESOURCE_TOPIC: (ErrorCode.INVALID_CONFIG, "Unknown topic config name: "),
    RESOURCE_GROUP: (ErrorCode.INVALID_CONFIG, "Unknown group config name: "),
    RESOURCE_CLIENT_METRICS: (ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: "),
}


_NAMELESS = {
    RESOURCE_TOPIC: "Default topic resources are not allowed.",
    RESOURCE_GROUP: "Default group resources are not allowed.",
    RESOURCE_CLIENT_METRICS: "Subscription name can't be empty",
}


def _check_name(kind: int, name: str) -> None:
    """Check the name of a resource (``ControllerConfigurationValidator``).

    Raises:
        ProtocolError: INVALID_REQUEST, INVALID_TOPIC_EXCEPTION.
    """
    if kind == RESOURCE_TOPIC and name:
        wrong = name_error(name)
        if wrong is not None:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
    if kind != RESOURCE_BROKER and not name:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, _NAMELESS[kind])
    if kind == RESOURCE_BROKER and name:
        try:
            number = parse_integer(name, 32)
        except ValueError:
            why = "Unable to parse broker name as a base 10 number."
            raise ProtocolError(ErrorCode.INVALID_REQUEST, why) from None
        if number < 0:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")


def _check_existence(image: Image, kind: int, name: str) -> None:
    """Raise UNKNOWN_TOPIC_OR_PARTITION or BROKER_ID_NOT_REGISTERED for a resource that is not there."""
    if kind == RESOURCE_TOPIC and name not in image.topics:
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == RESOURCE_BROKER and name:
        number = parse_integer(name, 32)
        if number not in image.brokers and number not in image.controllers:
            raise ProtocolError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def changed_list(op: Op, current: str | None, default: str, text: str) -> str:
    """Return a list after elements were appended or subtracted.

    As Kafka does it, nothing is trimmed: blanks belong to their element, and an empty one can be appended.

    Args:
        op: APPEND or SUBTRACT.
        current: The value so far; None where ``default`` holds.
        default: The key's default.
        text: The elements.
    """
    items = [x for x in split(default if current is None else current) if x]
    if op is Op.APPEND:
        there = set(items)
        for element in split(text):
            if element not in there:
                there.add(element)
                items.append(element)
        return ",".join(items)
    gone = Counter(split(text))  # each takes the first of its kind
    left = []
    for item in items:
        if gone[item] > 0:
            gone[item] -= 1
        else:
            left.append(item)
    return ",".join(left)


def _next_value(key: ConfigKey | None, op: Op, current: str | None, change: ia.AlterableConfig) -> str | None:
    """A setting after one change; None removes it."""
    if op is Op.DELETE:
        return None
    if change.value is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if op is Op.SET:
        return change.value
    if key is None or key.type != "LIST":
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"Can't {op.name} to key {change.name} because its type is not LIST."
        )
    return changed_list(op, current, key.default or "", change.value)


def _alter_one(
    image: Image, resource: ia.AlterConfigsResource, defaults: Defaults
) -> Generator[None, None, list[Message]]:
    """The records that change one resource. Sizes come first: no other rule has to look at what is too long."""
    kind, name = resource.resource_type, resource.resource_name
    table = _TABLES.get(kind)
    if table is None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == RESOURCE_BROKER and len(resource.configs) > MAX_RECORDS_A_REQUEST:
        raise TooLarge(TOO_MANY_RECORDS)  # plug-ins may have settings of any name
    names: set[str] = set()
    is_twice = False
    for number, change in enumerate(resource.configs, 1):
        config_rules.check_size(change.value)
        if change.config_operation not in _OPERATIONS:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka trips over it
        is_twice = is_twice or change.name in names
        names.add(change.name)
        if number % PAUSE_EVERY == 0:
            yield
    if is_twice:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    values = image.config(kind, name)
    changed: dict[str, str | None] = {}
    for number, change in enumerate(resource.configs, 1):
        if number % PAUSE_EVERY == 0:
            yield
        op = Op(change.config_operation)
        key = table(change.name) if kind in _WITH_LISTS else None
        value = changed[change.name] = _next_value(key, op, values.get(change.name), change)
        config_rules.check_size(value)
    yield from _check_together(image, resource, changed, defaults)
    _check_existence(image, kind, name)
    made: Iterable[Message] = (
        m.ConfigRecord(kind, name, key, value)
        for key, value in changed.items()
        if value != values.get(key) or kind == RESOURCE_BROKER  # set again, a store is read again (KAFKA-14136)
    )
    return (yield from gathered(made))


def _in_order(kind: int, values: Mapping[str, str]) -> list[str]:
    """Return the names of settings in the order of Kafka's definitions; all of them are known."""
    table = {RESOURCE_TOPIC: TOPIC_KEYS, RESOURCE_GROUP: GROUP_KEYS}.get(kind, CLIENT_METRICS_KEYS)
    return [*(name for name in table if name in values), *(name for name in values if name not in table)]


def _check_together(
    image: Image, resource: ia.AlterConfigsResource, changed: Mapping[str, str | None], defaults: Defaults
) -> Generator[None, None, None]:
    """Hold what a resource's settings would become against the rules of its kind.

    Values of a broker's settings are the broker's to check (`ottla.broker.reconfiguration`).
    """
    kind, name = resource.resource_type, resource.resource_name
    if kind == RESOURCE_BROKER:
        config_rules.check_min_isr(image, name, changed)
        config_rules.check_cordoned(image, changed)
        _check_name(kind, name)
        return
    _check_name(kind, name)
    values = {**image.config(kind, name), **changed}
    new = {k: v for k, v in values.items() if v is not None}
    for number, key_name in enumerate(new, 1):
        if number % PAUSE_EVERY == 0:
            yield
        if _TABLES[kind](key_name) is None:
            code, text = _UNKNOWN[kind]
            raise ProtocolError(code, text + key_name)
    for number, key_name in enumerate(_in_order(kind, new), 1):
        if number % PAUSE_EVERY == 0:
            yield
        key = _TABLES[kind](key_name)
        wrong = None if key is None else check_value(key, new[key_name])
        if wrong is not None:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, wrong)
    wide = {**defaults.broker, **image.config(RESOURCE_BROKER, "")}
    if kind == RESOURCE_TOPIC:
        config_rules.check_topic(new, wide, image.config(kind, name))
    elif kind == RESOURCE_GROUP:
        config_rules.check_group(new, wide)
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
        if resource.configs or number % READ_EVERY == 0:
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
        if number % READ_EVERY == 0:
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
    row, rows = ac.AlterConfigsResourceResponse, StreamingArray(ac.AlterConfigsResponse, version)
    try:
        records = yield from _each(image, request.resources, defaults, _replace_one, row, rows)
    except TooLarge as error:
        records, rows = [], StreamingArray(ac.AlterConfigsResponse, version)
        yield from _refuse_all(request.resources, error, row, rows)
    return Decision(ac.AlterConfigsResponse(responses=rows), [] if request.validate_only else records)


def incremental_alter(
    image: Image, request: ia.IncrementalAlterConfigsRequest, version: int, defaults: Defaults
) -> Steps:
    """Change settings one by one."""
    row, rows = ia.AlterConfigsResourceResponse, StreamingArray(ia.IncrementalAlterConfigsResponse, version)
    try:
        records = yield from _each(image, request.resources, defaults, _alter_one, row, rows)
    except TooLarge as error:
        records, rows = [], StreamingArray(ia.IncrementalAlterConfigsResponse, version)
        yield from _refuse_all(request.resources, error, row, rows)
    return Decision(ia.IncrementalAlterConfigsResponse(responses=rows), [] if request.validate_only else records)
